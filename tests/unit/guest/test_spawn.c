/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/suite.h"

/* A process as whoever runs the test: what needs root is tested by the exec cases. */
struct run {
        struct identity who;
        struct spawn spec;
        int out[2];
        char text[256];
        struct spawn_failure failure;
        bool failed;
        int status;
};

static char *const no_env[] = {NULL};

static void prepare(struct run *r, char *const *argv)
{
        *r = (struct run){0};
        CU_ASSERT_FATAL(pipe2(r->out, O_CLOEXEC) == 0);
        r->who = (struct identity){.uid = getuid(), .gid = getgid(), .groups = {getgid()}, .groups_n = 1, .home = "/"};
        r->spec = (struct spawn){
                .argv = argv,
                .env = no_env,
                .search = "/nowhere:/usr/bin:/bin",
                .who = &r->who,
                .stdio = {open("/dev/null", O_RDONLY | O_CLOEXEC), r->out[1], r->out[1]},
                .umask = 022,
                .cgroup_fd = -1,
                .report_fd = -1,
                .secrets_fd = -1,
        };
}

static void run(struct run *r)
{
        int status_fd, write_fd;
        pid_t pid;
        ssize_t n;
        size_t at = 0;

        CU_ASSERT_EQUAL_FATAL(spawn_status_pipe(&status_fd, &write_fd), 0);
        CU_ASSERT_EQUAL_FATAL(spawn(&r->spec, write_fd, &pid), 0);
        close(write_fd);
        close(r->out[1]);
        close(r->spec.stdio[0]);
        while ((n = read(r->out[0], r->text + at, sizeof(r->text) - 1 - at)) > 0)
                at += (size_t)n;
        close(r->out[0]);
        (void)poll(&(struct pollfd){.fd = status_fd, .events = POLLIN}, 1, 5000);
        r->failed = read(status_fd, &r->failure, sizeof(r->failure)) == (ssize_t)sizeof(r->failure);
        close(status_fd);
        CU_ASSERT_EQUAL(waitpid(pid, &r->status, 0), pid);
}

static bool is_root(void)
{
        return getuid() == 0;
}

static void test_a_command_is_searched_and_run(void)
{
        char *argv[] = {"echo", "a b", "", NULL};
        struct run r;

        if (!is_root())
                return;
        prepare(&r, argv);
        run(&r);
        CU_ASSERT_FALSE(r.failed);
        CU_ASSERT_STRING_EQUAL(r.text, "a b \n");
        CU_ASSERT(WIFEXITED(r.status) && WEXITSTATUS(r.status) == 0);
}

static void fails_with(char *const *argv, const char *cwd, enum spawn_stage stage, int error)
{
        struct run r;

        if (!is_root())
                return;
        prepare(&r, argv);
        r.spec.cwd = cwd;
        run(&r);
        CU_ASSERT_TRUE(r.failed);
        CU_ASSERT_EQUAL(r.failure.stage, (int)stage);
        CU_ASSERT_EQUAL(r.failure.error, error);
        CU_ASSERT_STRING_EQUAL(r.text, "");
}

static void test_each_failure_says_where_it_was(void)
{
        char *missing[] = {"wb-no-such", NULL}, *missing_path[] = {"/no/such", NULL}, *directory[] = {"/etc", NULL};
        char *empty[] = {"", NULL}, *fine[] = {"true", NULL}, *through_file[] = {"/etc/passwd/x", NULL};

        fails_with(missing, NULL, SPAWN_EXEC, ENOENT);
        fails_with(missing_path, NULL, SPAWN_EXEC, ENOENT);
        fails_with(empty, NULL, SPAWN_EXEC, ENOENT);
        fails_with(directory, NULL, SPAWN_EXEC, EACCES);
        fails_with(through_file, NULL, SPAWN_EXEC, ENOTDIR);
        fails_with(fine, "/no/such", SPAWN_CWD, ENOENT);
        fails_with(fine, "/etc/passwd", SPAWN_CWD, ENOTDIR);
}

static void write_script(char path[64], const char *text, mode_t mode)
{
        int fd;

        (void)snprintf(path, 64, "/tmp/wb-test-spawn-%d", getpid());
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        CU_ASSERT_FATAL(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
        CU_ASSERT(fchmod(fd, mode) == 0);
        close(fd);
}

static void test_scripts(void)
{
        char path[64];
        char *argv[] = {path, NULL};

        write_script(path, "#!/no/such/interpreter\n", 0755);
        fails_with(argv, NULL, SPAWN_INTERPRETER, ENOENT);
        write_script(path, "echo no shell is put between\n", 0755);
        fails_with(argv, NULL, SPAWN_EXEC, ENOEXEC);
        write_script(path, "#!/bin/sh\n", 0644);
        fails_with(argv, NULL, SPAWN_EXEC, EACCES);
        (void)unlink(path);
}

/* Sources of descriptors stand exactly where targets go. */
static void test_descriptors_go_where_they_belong(void)
{
        char *argv[] = {"sh", "-c", "cat <&3; cat <&4; ls /proc/self/fd | wc -l", NULL};
        int a[2], b[2], fds[2];
        struct run r;

        if (!is_root())
                return;
        CU_ASSERT_FATAL(pipe2(a, O_CLOEXEC) == 0 && pipe2(b, O_CLOEXEC) == 0);
        CU_ASSERT(write(a[1], "first ", 6) == 6 && write(b[1], "second ", 7) == 7);
        close(a[1]);
        close(b[1]);
        prepare(&r, argv);
        /* The second one's source is where the first one's target is, or near it. */
        fds[0] = a[0];
        fds[1] = b[0];
        r.spec.fds = fds;
        r.spec.fds_n = 2;
        run(&r);
        CU_ASSERT_STRING_EQUAL(r.text, "first second 6\n");
        close(a[0]);
        close(b[0]);
}

static void test_signals_start_clean(void)
{
        char *argv[] = {"grep", "-cE", "^Sig(Blk|Ign)..0000000000000000$", "/proc/self/status", NULL};
        sigset_t set;
        struct run r;

        if (!is_root())
                return;
        (void)sigemptyset(&set);
        (void)sigaddset(&set, SIGUSR1);
        (void)sigprocmask(SIG_BLOCK, &set, NULL);
        (void)signal(SIGPIPE, SIG_IGN);
        prepare(&r, argv);
        run(&r);
        CU_ASSERT_STRING_EQUAL(r.text, "2\n");
        (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"a command is searched and run", test_a_command_is_searched_and_run},
                {"each failure says where it was", test_each_failure_says_where_it_was},
                {"scripts", test_scripts},
                {"descriptors go where they belong", test_descriptors_go_where_they_belong},
                {"signals start clean", test_signals_start_clean},
                CU_TEST_INFO_NULL,
        };

        return suite_run("spawn", tests);
}
