/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "tests/support/suite.h"

#define PATIENCE_NS (10 * NSEC_PER_SEC)

static char directory[64];
static char log_path[96];
static char wait_path[96];
static char pid_path[96];

static void make_directory(void)
{
        (void)strcpy(directory, "/tmp/wb-test-keeper.XXXXXX");
        CU_ASSERT_FATAL(mkdtemp(directory) != NULL);
        (void)snprintf(log_path, sizeof(log_path), "%s/log", directory);
        (void)snprintf(wait_path, sizeof(wait_path), "%s/ready", directory);
        (void)snprintf(pid_path, sizeof(pid_path), "%s/pid", directory);
}

static bool is_gone(const char *path)
{
        return access(path, F_OK) < 0 && errno == ENOENT;
}

static bool is_dead(pid_t pid)
{
        return kill(pid, 0) < 0 && errno == ESRCH;
}

/* Dead processes whose parent is another one vanish a moment later, when that has reaped them. */
static bool dies(pid_t pid)
{
        uint64_t deadline_ns = clock_monotonic_ns() + PATIENCE_NS;

        while (!is_dead(pid) && clock_monotonic_ns() < deadline_ns)
                (void)usleep(2000);
        return is_dead(pid);
}

static bool goes(const char *path)
{
        uint64_t deadline_ns = clock_monotonic_ns() + PATIENCE_NS;

        while (!is_gone(path) && clock_monotonic_ns() < deadline_ns)
                (void)usleep(2000);
        return is_gone(path);
}

static struct keeper *start_machine(char **argv)
{
        struct keeper_plan plan = {.directory = directory, .extra_gid = (gid_t)-1};
        struct keeper *k = NULL;

        make_directory();
        plan.programs[KEEPER_MACHINE] = (struct keeper_program){.argv = argv, .log_path = log_path};
        CU_ASSERT_FATAL(keeper_start(&plan, &k) == 0);
        return k;
}

/* Waits until the keeper has said something new. */
static int next_update(struct keeper *k)
{
        struct pollfd fd = {.fd = keeper_fd(k), .events = POLLIN};

        CU_ASSERT(poll(&fd, 1, (int)(PATIENCE_NS / NSEC_PER_MSEC)) == 1);
        return keeper_update(k);
}

static pid_t await_pid(struct keeper *k, enum keeper_slot slot)
{
        while (keeper_pid(k, slot) == 0)
                if (next_update(k) < 0)
                        return 0;
        return keeper_pid(k, slot);
}

static int await_status(struct keeper *k, enum keeper_slot slot)
{
        int status = -1;

        while (!keeper_ended(k, slot, &status))
                if (next_update(k) < 0)
                        return -1;
        return status;
}

static char *sleeper[] = {(char[]){"sleep"}, (char[]){"1000"}, NULL};

static void test_stop_ends_the_program_and_removes_the_directory(void)
{
        struct keeper *k = start_machine(sleeper);
        pid_t pid = await_pid(k, KEEPER_MACHINE);

        CU_ASSERT(pid > 0 && !is_dead(pid));
        keeper_stop(k);
        CU_ASSERT(is_dead(pid));
        CU_ASSERT(is_gone(directory));
}

static void test_a_killed_wbctl_leaves_nothing(void)
{
        int fds[2];
        pid_t program = 0;

        CU_ASSERT_FATAL(pipe(fds) == 0);
        make_directory();

        pid_t wbctl = fork();

        if (wbctl == 0) {
                struct keeper_plan plan = {.directory = directory, .extra_gid = (gid_t)-1};
                struct keeper *k = NULL;

                plan.programs[KEEPER_MACHINE] = (struct keeper_program){.argv = sleeper, .log_path = log_path};
                if (keeper_start(&plan, &k) == 0)
                        program = await_pid(k, KEEPER_MACHINE);
                (void)!write(fds[1], &program, sizeof(program));
                for (;;)
                        (void)pause();
        }
        CU_ASSERT_FATAL(read(fds[0], &program, sizeof(program)) == sizeof(program));
        CU_ASSERT_FATAL(program > 0);
        CU_ASSERT(kill(wbctl, SIGKILL) == 0);
        CU_ASSERT(waitpid(wbctl, NULL, 0) == wbctl);
        CU_ASSERT(dies(program));
        CU_ASSERT(goes(directory));
        (void)close(fds[0]);
        (void)close(fds[1]);
}

static pid_t parent_of(pid_t pid)
{
        char path[64];
        int parent = 0;

        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);

        FILE *stat = fopen(path, "re");

        CU_ASSERT_FATAL(stat != NULL);
        CU_ASSERT(fscanf(stat, "%*d %*s %*c %d", &parent) == 1);
        (void)fclose(stat);
        return parent;
}

static void test_a_killed_keeper_leaves_nothing(void)
{
        struct keeper *k = start_machine(sleeper);
        pid_t pid = await_pid(k, KEEPER_MACHINE);

        CU_ASSERT(kill(parent_of(pid), SIGKILL) == 0);
        CU_ASSERT(next_update(k) == -EPIPE);
        CU_ASSERT(dies(pid));
        keeper_stop(k);
        CU_ASSERT(is_gone(directory));
}

static void test_the_end_of_a_program_is_told(void)
{
        char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"exit 7"}, NULL};
        struct keeper *k = start_machine(argv);
        int status = await_status(k, KEEPER_MACHINE);

        CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        keeper_stop(k);
}

static void test_a_program_that_is_not_there_has_ended(void)
{
        char *argv[] = {(char[]){"/nonexistent/qemu"}, NULL};
        struct keeper *k = start_machine(argv);
        int status = await_status(k, KEEPER_MACHINE);
        char text[128] = "";
        FILE *log = fopen(log_path, "re");

        CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 127);
        CU_ASSERT(log && fgets(text, sizeof(text), log) != NULL);
        CU_ASSERT(strstr(text, "cannot start /nonexistent/qemu: No such file") != NULL);
        if (log)
                (void)fclose(log);
        keeper_stop(k);
}

static void test_what_a_program_left_behind_ends_too(void)
{
        char script[512];
        char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, script, NULL};
        int pid = 0;

        make_directory();
        (void)snprintf(script, sizeof(script), "setsid sleep 1000 & echo $! >%s.new; mv %s.new %s; exit 0", pid_path,
                pid_path, pid_path);

        struct keeper_plan plan = {.directory = directory, .extra_gid = (gid_t)-1};
        struct keeper *k = NULL;

        plan.programs[KEEPER_BROKER] = (struct keeper_program){.argv = argv, .log_path = log_path};
        CU_ASSERT_FATAL(keeper_start(&plan, &k) == 0);
        CU_ASSERT(await_status(k, KEEPER_BROKER) == 0);

        FILE *file = fopen(pid_path, "re");

        CU_ASSERT_FATAL(file != NULL);
        CU_ASSERT_FATAL(fscanf(file, "%d", &pid) == 1);
        (void)fclose(file);
        CU_ASSERT(!is_dead(pid));
        keeper_stop(k);
        CU_ASSERT(is_dead(pid));
}

static void test_a_program_waits_for_the_path_of_the_one_before(void)
{
        char script[512];
        char *first[] = {(char[]){"sh"}, (char[]){"-c"}, script, NULL};
        char *second[] = {(char[]){"test"}, (char[]){"-e"}, wait_path, NULL};
        struct keeper_plan plan = {.directory = directory, .extra_gid = (gid_t)-1};
        struct keeper *k = NULL;

        make_directory();
        (void)snprintf(script, sizeof(script), "sleep 0.2; : >%s; exec sleep 1000", wait_path);
        plan.programs[KEEPER_VSOCK] = (struct keeper_program){.argv = first, .log_path = log_path};
        plan.programs[KEEPER_MACHINE] =
                (struct keeper_program){.argv = second, .log_path = log_path, .wait_path = wait_path};
        CU_ASSERT_FATAL(keeper_start(&plan, &k) == 0);
        CU_ASSERT(await_status(k, KEEPER_MACHINE) == 0);
        keeper_stop(k);
}

static void test_a_confined_program_is_another_user_without_a_network(void)
{
        char *argv[] = {(char[]){"sh"}, (char[]){"-c"},
                (char[]){"test $(id -u) = 54321 && test \"$(id -G)\" = 54322 && "
                         "test $(grep -c : /proc/self/net/dev) = 1 && exit 9"}, /* lo alone */
                NULL};
        struct keeper_plan plan = {.directory = directory, .uid = 54321, .gid = 54322, .extra_gid = (gid_t)-1};
        struct keeper *k = NULL;

        if (geteuid() != 0)
                return;
        make_directory();
        plan.programs[KEEPER_MACHINE] = (struct keeper_program){.argv = argv, .log_path = log_path, .confined = true};
        CU_ASSERT_FATAL(keeper_start(&plan, &k) == 0);

        int status = await_status(k, KEEPER_MACHINE);

        CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 9);
        keeper_stop(k);
}

/* As when root has built the programs below a home of mode 0700. */
static void test_a_confined_program_may_lie_where_its_user_cannot_walk(void)
{
        char program[96];
        char command[192];
        char *argv[] = {program, (char[]){"-c"}, (char[]){"exit 9"}, NULL};
        struct keeper_plan plan = {.directory = directory, .uid = 54321, .gid = 54322, .extra_gid = (gid_t)-1};
        struct keeper *k = NULL;

        if (geteuid() != 0)
                return;
        make_directory();
        (void)snprintf(program, sizeof(program), "%s/sh", directory);
        (void)snprintf(command, sizeof(command), "install -m 755 /bin/sh %s", program);
        CU_ASSERT_FATAL(system(command) == 0);
        plan.programs[KEEPER_MACHINE] = (struct keeper_program){.argv = argv, .log_path = log_path, .confined = true};
        CU_ASSERT_FATAL(keeper_start(&plan, &k) == 0);

        int status = await_status(k, KEEPER_MACHINE);

        CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 9);
        keeper_stop(k);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"stop ends the program and removes the directory",
                        test_stop_ends_the_program_and_removes_the_directory},
                {"a killed wbctl leaves nothing", test_a_killed_wbctl_leaves_nothing},
                {"a killed keeper leaves nothing", test_a_killed_keeper_leaves_nothing},
                {"the end of a program is told", test_the_end_of_a_program_is_told},
                {"a program that is not there has ended", test_a_program_that_is_not_there_has_ended},
                {"what a program left behind ends too", test_what_a_program_left_behind_ends_too},
                {"a program waits for the path of the one before", test_a_program_waits_for_the_path_of_the_one_before},
                {"a confined program is another user without a network",
                        test_a_confined_program_is_another_user_without_a_network},
                {"a confined program may lie where its user cannot walk",
                        test_a_confined_program_may_lie_where_its_user_cannot_walk},
                CU_TEST_INFO_NULL,
        };

        return suite_run("run_keeper", tests);
}
