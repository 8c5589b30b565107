/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CUnit/Basic.h>

#include "proto/base/log.h"

static char dir[64];

static int make_dir(void)
{
        strcpy(dir, "/tmp/wb-test-sandbox-XXXXXX");
        return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void)
{
        char path[128];

        (void)snprintf(path, sizeof(path), "%s/audit.log", dir);
        (void)unlink(path);
        (void)snprintf(path, sizeof(path), "%s/audit.log.1", dir);
        (void)unlink(path);
        return rmdir(dir);
}

/* Runs try() in a child inside the sandbox: its answer, or minus the signal that ended it. */
static int confined(int (*try)(void))
{
        pid_t pid = fork();
        int status = 0;

        if (pid == 0) {
                log_setup("test_sandbox", LOG_LEVEL_ERROR);
                _exit(sandbox_enter(dir) < 0 ? 99 : try());
        }
        (void)waitpid(pid, &status, 0);
        return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int try_audit(void)
{
        char path[128], aside[128];
        int fd;

        (void)snprintf(path, sizeof(path), "%s/audit.log", dir);
        (void)snprintf(aside, sizeof(aside), "%s/audit.log.1", dir);
        fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, "x", 1) != 1 || ftruncate(fd, 0) < 0 || fdatasync(fd) < 0)
                return 1;
        return renameat(AT_FDCWD, path, AT_FDCWD, aside) < 0 ? 2 : 0;
}

static void *add_one(void *n)
{
        ++*(int *)n;
        return NULL;
}

static int try_thread(void)
{
        pthread_t thread;
        int n = 0;

        if (pthread_create(&thread, NULL, add_one, &n) != 0)
                return 1;
        (void)pthread_join(thread, NULL);
        return n == 1 ? 0 : 2;
}

static void test_what_the_broker_needs_goes(void)
{
        CU_ASSERT_EQUAL(confined(try_audit), 0);
        CU_ASSERT_EQUAL(confined(try_thread), 0);
}

#ifndef __SANITIZE_ADDRESS__ /* what is built so is not confined */
static bool has_landlock(long abi)
{
        return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) >= abi;
}

static int try_read(void)
{
        return open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0 ? errno : 0;
}

static int try_write(void)
{
        return open("/tmp/wb-test-sandbox-escape", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0 ? errno : 0;
}

static int try_listen(void)
{
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        return fd < 0 ? 1 : bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
}

static int try_packet(void)
{
        return socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0) < 0 ? errno : 0;
}

static int try_execute(void)
{
        char *argv[] = {"true", NULL};

        (void)execv("/bin/true", argv);
        return 1;
}

static int try_fork(void)
{
        pid_t pid = fork();

        if (pid == 0)
                _exit(0);
        return pid < 0 ? errno : 0;
}

static int try_trace(void)
{
        (void)syscall(SYS_ptrace, 16 /* PTRACE_ATTACH */, getppid(), 0, 0);
        return 1;
}

static int try_code(void)
{
        void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
                return 1;
        return mprotect(p, 4096, PROT_READ | PROT_EXEC) < 0 ? errno : 0;
}

static int try_dumpable(void)
{
        return prctl(PR_GET_DUMPABLE) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 1;
}

static void test_files_are_out_of_reach(void)
{
        if (!has_landlock(1))
                return;
        CU_ASSERT_EQUAL(confined(try_read), EACCES);
        CU_ASSERT_EQUAL(confined(try_write), EACCES);
        CU_ASSERT_EQUAL(access("/tmp/wb-test-sandbox-escape", F_OK), -1);
        if (has_landlock(4))
                CU_ASSERT_EQUAL(confined(try_listen), EACCES);
}

static void test_what_an_intruder_calls_ends_the_process(void)
{
        CU_ASSERT_EQUAL(confined(try_execute), -SIGSYS);
        CU_ASSERT_EQUAL(confined(try_trace), -SIGSYS);
}

static void test_what_is_not_allowed_is_not_there(void)
{
        CU_ASSERT_EQUAL(confined(try_packet), ENOSYS);
        CU_ASSERT_EQUAL(confined(try_fork), ENOSYS);
        CU_ASSERT_EQUAL(confined(try_code), ENOSYS);
        CU_ASSERT_EQUAL(confined(try_dumpable), 0);
}
#endif

int main(void)
{
        CU_TestInfo tests[] = {
                {"what the broker needs goes", test_what_the_broker_needs_goes},
#ifndef __SANITIZE_ADDRESS__
                {"files are out of reach", test_files_are_out_of_reach},
                {"what an intruder calls ends the process", test_what_an_intruder_calls_ends_the_process},
                {"what is not allowed is not there", test_what_is_not_allowed_is_not_there},
#endif
                CU_TEST_INFO_NULL,
        };
        CU_SuiteInfo suites[] = {{"sandbox", make_dir, remove_dir, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

        if (CU_initialize_registry() || CU_register_suites(suites))
                return CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();

        unsigned failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
