/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/evidence_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mbedtls/md.h>

#include "broker/evidence_source.h"
#include "broker/layer.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "tests/support/suite.h"

/* Real processes, each with one layer or without it. Most need root; the cgroup's ones need the hierarchies to be
 * there, KVM's need /dev/kvm: what this machine does not have is said and left out. */

#define OTHER_UID 54321

static bool is_root(const char *what)
{
        if (geteuid() == 0)
                return true;
        printf("(left out: %s needs root) ", what);
        return false;
}

/* ---- a process that waits */

struct subject {
        pid_t pid;   /* whom to look at */
        pid_t child; /* whom to reap: another one where the subject has a pid namespace of its own */
};

/* In the child; what it answers is the pid to be looked at, 0 for its own. Negative: it could not. */
typedef int setup_fn(void *userdata);

static void wait_for_ever(void)
{
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
                pause();
}

static struct subject start(setup_fn *setup, void *userdata)
{
        struct subject s = {.pid = -1};
        int fds[2], answer = -1;

        CU_ASSERT_EQUAL_FATAL(pipe2(fds, O_CLOEXEC), 0);
        s.child = fork();
        CU_ASSERT_TRUE_FATAL(s.child >= 0);
        if (s.child == 0) {
                answer = setup ? setup(userdata) : 0;
                (void)!write(fds[1], &answer, sizeof(answer));
                wait_for_ever();
        }
        close(fds[1]);
        CU_ASSERT_EQUAL(read(fds[0], &answer, sizeof(answer)), (ssize_t)sizeof(answer));
        close(fds[0]);
        CU_ASSERT_TRUE(answer >= 0);
        s.pid = answer > 0 ? answer : s.child;
        return s;
}

static void end(struct subject s)
{
        if (s.pid != s.child)
                (void)kill(s.pid, SIGKILL);
        (void)kill(s.child, SIGKILL);
        (void)waitpid(s.child, NULL, 0);
}

static struct evidence gather(pid_t pid)
{
        struct evidence_digests digests = {0};
        struct evidence e = {0};
        int pidfd = -1;

        CU_ASSERT_EQUAL(evidence_gather(&digests, pid, &e, &pidfd), 0);
        CU_ASSERT_EQUAL(pidfd >= 0, e.exists);
        close_fd(pidfd);
        return e;
}

/* The layers of a process that was set up so. */
static struct layers look(setup_fn *setup, void *userdata, struct evidence *ret_evidence)
{
        struct subject s = start(setup, userdata);
        struct evidence e = gather(s.pid);
        struct layers layers;

        CU_ASSERT_TRUE(e.exists);
        layers_find(&(struct layer_question){.backend = BACKEND_RUNC, .evidence = &e, .broker_uid = 1}, &layers);
        end(s);
        if (ret_evidence)
                *ret_evidence = e;
        return layers;
}

static void expect(const struct layers *layers, enum layer layer, enum layer_state state)
{
        if (layers->of[layer].state != state)
                printf("\n%s: %s: %s\n", layer_name(layer), layer_state_name(layers->of[layer].state),
                        layers->of[layer].fact);
        CU_ASSERT_EQUAL(layers->of[layer].state, state);
}

static void test_a_bare_process_has_nothing(void)
{
        static const enum layer absent[] = {LAYER_KVM, LAYER_UID, LAYER_SECCOMP, LAYER_NO_NEW_PRIVS, LAYER_CAPABILITIES,
                LAYER_CHROOT, LAYER_NETNS, LAYER_MNTNS, LAYER_PIDNS, LAYER_USERNS, LAYER_CGROUP};
        struct evidence e;
        struct layers layers;

        if (!is_root("to look at what is root's"))
                return;
        layers = look(NULL, NULL, &e);
        for (size_t i = 0; i < sizeof(absent) / sizeof(*absent); i++)
                expect(&layers, absent[i], LAYER_ABSENT);
        expect(&layers, LAYER_PROGRAM, LAYER_PRESENT);
        expect(&layers, LAYER_MEMORY, LAYER_PRESENT);
        CU_ASSERT_STRING_EQUAL(evidence_program_name(&e), "test_evidence");
}

/* ---- credentials */

static int become_other(void *userdata)
{
        (void)userdata;
        return setresgid(OTHER_UID, OTHER_UID, OTHER_UID) < 0 || setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0 ? -1
                                                                                                                : 0;
}

static int keep_saved_root(void *userdata)
{
        (void)userdata;
        return setresuid(OTHER_UID, OTHER_UID, 0) < 0 ? -1 : 0;
}

static void test_a_user_of_its_own(void)
{
        struct evidence e;
        struct layers layers;

        if (!is_root("another user"))
                return;
        layers = look(become_other, NULL, &e);
        expect(&layers, LAYER_UID, LAYER_PRESENT);
        expect(&layers, LAYER_CAPABILITIES, LAYER_PRESENT);
        CU_ASSERT_EQUAL(e.threads.uids[1], OTHER_UID);
        layers = look(keep_saved_root, NULL, NULL);
        expect(&layers, LAYER_UID, LAYER_ABSENT);
}

static int forbid_privileges(void *userdata)
{
        (void)userdata;
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int filter(void *userdata)
{
        struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        struct sock_fprog program = {1, &allow};

        return forbid_privileges(userdata) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -1 : 0;
}

static void *sleep_in_thread(void *userdata)
{
        (void)userdata;
        for (;;)
                pause();
        return NULL;
}

/* The thread was there before the filter, and the filter is not told to reach it. */
static int filter_one_thread(void *userdata)
{
        pthread_t thread;

        return pthread_create(&thread, NULL, sleep_in_thread, NULL) != 0 ? -1 : filter(userdata);
}

static void test_seccomp_and_no_new_privs(void)
{
        struct evidence e;
        struct layers layers = look(filter, NULL, NULL);

        expect(&layers, LAYER_SECCOMP, LAYER_PRESENT);
        expect(&layers, LAYER_NO_NEW_PRIVS, LAYER_PRESENT);
        layers = look(forbid_privileges, NULL, NULL);
        expect(&layers, LAYER_SECCOMP, LAYER_ABSENT);
        expect(&layers, LAYER_NO_NEW_PRIVS, LAYER_PRESENT);
        layers = look(filter_one_thread, NULL, &e);
        expect(&layers, LAYER_SECCOMP, LAYER_ABSENT);
        CU_ASSERT_EQUAL(e.threads.n, 2);
        CU_ASSERT_EQUAL(e.threads.filtered, 1);
}

/* ---- root and namespaces */

static int change_root(void *userdata)
{
        return chroot(userdata) < 0 || chdir("/") < 0 ? -1 : 0;
}

/* As a jailer does: a mount namespace of its own, whose root it becomes. */
static int pivot_root_to(void *userdata)
{
        const char *dir = userdata;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                mount(dir, dir, NULL, MS_BIND, NULL) < 0 || chdir(dir) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
                umount2(".", MNT_DETACH) < 0)
                return -1;
        return 0;
}

static void test_a_root_of_its_own(void)
{
        char dir[] = "/tmp/wb-evidence-XXXXXX";
        struct layers layers;

        if (!is_root("chroot"))
                return;
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
        layers = look(change_root, dir, NULL);
        expect(&layers, LAYER_CHROOT, LAYER_PRESENT);
        expect(&layers, LAYER_MNTNS, LAYER_ABSENT);
        layers = look(pivot_root_to, dir, NULL);
        expect(&layers, LAYER_CHROOT, LAYER_PRESENT);
        expect(&layers, LAYER_MNTNS, LAYER_PRESENT);
        (void)rmdir(dir);
}

static int leave(void *userdata)
{
        int namespace = *(int *)userdata;
        pid_t pid;

        if (unshare(namespace) < 0)
                return -1;
        if (namespace != CLONE_NEWPID)
                return 0;
        /* Only children are in the new one. */
        pid = fork();
        if (pid == 0)
                wait_for_ever();
        return pid;
}

/* Not below a chroot, nor where the administrator forbids it. */
static bool can_leave(int namespace)
{
        int status = -1;
        pid_t child = fork();

        CU_ASSERT_TRUE_FATAL(child >= 0);
        if (child == 0)
                _exit(unshare(namespace) < 0);
        CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
        return status == 0;
}

static void test_namespaces_of_its_own(void)
{
        static const struct {
                int namespace;
                enum layer layer;
        } rows[] = {
                {CLONE_NEWNET, LAYER_NETNS},
                {CLONE_NEWNS, LAYER_MNTNS},
                {CLONE_NEWPID, LAYER_PIDNS},
                {CLONE_NEWUSER, LAYER_USERNS},
        };

        if (!is_root("unshare"))
                return;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                int namespace = rows[i].namespace;
                struct layers layers;

                if (namespace == CLONE_NEWUSER && !can_leave(namespace)) {
                        printf("(left out: no user namespaces can be made here) ");
                        continue;
                }
                layers = look(leave, &namespace, NULL);
                for (size_t j = 0; j < sizeof(rows) / sizeof(*rows); j++)
                        expect(&layers, rows[j].layer, i == j ? LAYER_PRESENT : LAYER_ABSENT);
        }
}

/* ---- KVM and the program */

static int open_kvm(void *userdata)
{
        int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm;

        vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);
        if (vm < 0 || !*(int *)userdata)
                return vm < 0 ? -1 : 0;
        return ioctl(vm, KVM_CREATE_VCPU, 0) < 0 ? -1 : 0;
}

static void test_a_kvm_vm_is_seen(void)
{
        int with_vcpu = 1, kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm;
        struct layers layers;
        struct evidence e;

        vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);
        close_fd(kvm);
        if (vm < 0) {
                printf("(left out: no KVM VM can be made here) ");
                return;
        }
        close_fd(vm);
        layers = look(open_kvm, &with_vcpu, &e);
        expect(&layers, LAYER_KVM, LAYER_PRESENT);
        CU_ASSERT_EQUAL(e.kvm.vms, 1);
        CU_ASSERT_EQUAL(e.kvm.vcpus, 1);
        with_vcpu = 0;
        layers = look(open_kvm, &with_vcpu, NULL);
        expect(&layers, LAYER_KVM, LAYER_ABSENT);
}

static int replace_program(void *userdata)
{
        pid_t pid = fork();

        if (pid == 0) {
                (void)execl(userdata, userdata, "wait", (char *)NULL);
                _exit(1);
        }
        return pid;
}

/* An update puts another file in the program's place while it runs. */
static void test_the_program_and_its_digest(void)
{
        char dir[] = "/tmp/wb-evidence-XXXXXX", path[64], command[160];
        struct evidence before = {0}, after;
        uint8_t sha256[32];
        struct subject s;

        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
        (void)snprintf(path, sizeof(path), "%s/firecracker", dir);
        (void)snprintf(command, sizeof(command), "cp /proc/%d/exe %s", getpid(), path);
        CU_ASSERT_EQUAL(system(command), 0);
        CU_ASSERT_EQUAL(mbedtls_md_file(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), path, sha256), 0);
        s = start(replace_program, path);
        for (int i = 0; i < 500 && strcmp(before.program.path, path) != 0; i++) {
                (void)usleep(10000);
                before = gather(s.pid);
        }
        CU_ASSERT_STRING_EQUAL(before.program.path, path);
        CU_ASSERT_EQUAL(before.program.digest_error, 0);
        CU_ASSERT_EQUAL(memcmp(before.program.sha256, sha256, sizeof(sha256)), 0);
        CU_ASSERT_EQUAL(unlink(path), 0);
        after = gather(s.pid);
        CU_ASSERT_STRING_EQUAL(after.program.path, path);
        CU_ASSERT_EQUAL(memcmp(after.program.sha256, sha256, sizeof(sha256)), 0);
        end(s);
        (void)rmdir(dir);
}

static void test_a_digest_is_not_taken_twice(void)
{
        struct evidence_digests digests = {0};
        struct evidence first, second;
        int pidfd;

        CU_ASSERT_EQUAL(evidence_gather(&digests, getpid(), &first, &pidfd), 0);
        close_fd(pidfd);
        CU_ASSERT_EQUAL(digests.next, 1);
        CU_ASSERT_EQUAL(evidence_gather(&digests, getpid(), &second, &pidfd), 0);
        close_fd(pidfd);
        CU_ASSERT_EQUAL(digests.next, 1);
        CU_ASSERT_EQUAL(memcmp(first.program.sha256, second.program.sha256, sizeof(first.program.sha256)), 0);
}

/* ---- shared memory */

struct mapping {
        int fd;
        int protection;
};

static int map(void *userdata)
{
        const struct mapping *m = userdata;

        return mmap(NULL, 4096, m->protection, MAP_SHARED, m->fd, 0) == MAP_FAILED ? -1 : 0;
}

static void test_memory_that_two_have(void)
{
        struct mapping one = {memfd_create("guest-a", MFD_CLOEXEC), PROT_READ | PROT_WRITE};
        struct mapping other = {memfd_create("guest-b", MFD_CLOEXEC), PROT_READ | PROT_WRITE};
        struct mapping reads = {one.fd, PROT_READ};
        struct evidence a, b, c, d;

        CU_ASSERT_TRUE_FATAL(one.fd >= 0 && other.fd >= 0);
        CU_ASSERT_EQUAL(ftruncate(one.fd, 4096), 0);
        CU_ASSERT_EQUAL(ftruncate(other.fd, 4096), 0);
        (void)look(map, &one, &a);
        (void)look(map, &reads, &b);
        (void)look(map, &other, &c);
        (void)look(map, &reads, &d);
        CU_ASSERT_PTR_NOT_NULL(evidence_find_shared(&a, &b));
        CU_ASSERT_PTR_NULL(evidence_find_shared(&a, &c));
        CU_ASSERT_PTR_NULL(evidence_find_shared(&b, &d));
        close_fd(one.fd);
        close_fd(other.fd);
}

/* ---- cgroups */

struct cgroup {
        const char *hierarchy, *file, *limit;
        char dir[128];
};

static int write_text(const char *dir, const char *file, const char *text)
{
        char path[256];
        int fd;
        ssize_t n;

        (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : write(fd, text, strlen(text));
        close_fd(fd);
        return n < 0 ? -1 : 0;
}

static bool make_cgroup(struct cgroup *c)
{
        (void)snprintf(c->dir, sizeof(c->dir), "/sys/fs/cgroup/%s/wb-evidence-%d", c->hierarchy, getpid());
        return mkdir(c->dir, 0755) == 0;
}

static int join(void *userdata)
{
        const struct cgroup *cgroups = userdata;

        for (int i = 0; i < CEILING_MAX_; i++)
                if (write_text(cgroups[i].dir, "cgroup.procs", "0") < 0)
                        return -1;
        return 0;
}

static const char *find_disk(char ret_limit[64])
{
        FILE *f = popen("cat /sys/block/*/dev | head -1", "r");
        char device[32] = "";

        if (f && fscanf(f, "%31s", device) == 1)
                (void)snprintf(ret_limit, 64, "%s 1048576", device);
        if (f)
                (void)pclose(f);
        return device[0] ? ret_limit : NULL;
}

/* The first hierarchies of cgroups, one for each controller, as this machine may have them. */
static void test_ceilings_of_a_cgroup(void)
{
        char io_limit[64];
        struct cgroup cgroups[CEILING_MAX_] = {
                [CEILING_CPU] = {"cpu", "cpu.cfs_quota_us", "50000", ""},
                [CEILING_MEMORY] = {"memory", "memory.limit_in_bytes", "67108864", ""},
                [CEILING_PIDS] = {"pids", "pids.max", "64", ""},
                [CEILING_IO] = {"blkio", "blkio.throttle.write_bps_device", find_disk(io_limit), ""},
        };
        struct layers layers;
        struct evidence e;
        int made = 0;

        while (made < CEILING_MAX_ && make_cgroup(&cgroups[made]))
                made++;
        if (made < CEILING_MAX_ || !cgroups[CEILING_IO].limit) {
                printf("(left out: cgroups of the first version cannot be made here) ");
                goto out;
        }
        layers = look(join, cgroups, &e);
        expect(&layers, LAYER_CGROUP, LAYER_ABSENT);
        CU_ASSERT_EQUAL(e.cgroup.error, 0);
        for (int i = 0; i < CEILING_MAX_; i++) {
                expect(&layers, LAYER_CGROUP, LAYER_ABSENT);
                CU_ASSERT_EQUAL(write_text(cgroups[i].dir, cgroups[i].file, cgroups[i].limit), 0);
                layers = look(join, cgroups, &e);
                for (int j = 0; j < CEILING_MAX_; j++)
                        CU_ASSERT_EQUAL(e.cgroup.ceilings[j] != 0, j <= i);
        }
        expect(&layers, LAYER_CGROUP, LAYER_PRESENT);
        CU_ASSERT_EQUAL(e.cgroup.ceilings[CEILING_CPU], 500);
        CU_ASSERT_EQUAL(e.cgroup.ceilings[CEILING_MEMORY], 67108864);
        CU_ASSERT_EQUAL(e.cgroup.ceilings[CEILING_PIDS], 64);
out:
        for (int i = 0; i < made; i++)
                (void)rmdir(cgroups[i].dir);
}

static void make_file(const char *dir, const char *name, const char *text)
{
        char path[256];
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
        f = fopen(path, "we");
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        (void)fputs(text, f);
        (void)fclose(f);
}

static void make_directory(const char *dir, const char *name)
{
        char path[256];

        (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
        CU_ASSERT_EQUAL(mkdir(path, 0755), 0);
}

static struct evidence_cgroup find_cgroup(const char *root, const char *dir, const char *theirs, const char *monitors)
{
        char mounts[512];
        struct evidence_cgroup ret = {0};

        (void)snprintf(mounts, sizeof(mounts),
                "22 1 0:20 / / rw - ext4 /dev/x rw\n30 24 0:26 %s %s rw,nosuid shared:4 - cgroup2 cgroup2 rw\n", root,
                dir);
        evidence_find_cgroup(&(struct cgroup_sources){theirs, monitors, mounts}, &ret);
        return ret;
}

/* The second version's one hierarchy, its files laid out by hand: ceilings of the cgroup and of those above it count,
 * those that the monitor is below too do not. */
static void test_ceilings_of_the_unified_hierarchy(void)
{
        char dir[] = "/tmp/wb-evidence-XXXXXX", command[64];
        struct evidence_cgroup c;

        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
        make_directory(dir, "vms");
        make_directory(dir, "vms/a");
        make_file(dir, "vms/a/cpu.max", "150000 100000\n");
        make_file(dir, "vms/a/memory.max", "max\n");
        make_file(dir, "vms/a/pids.max", "max\n");
        make_file(dir, "vms/a/io.max", "8:0 rbps=max wbps=max riops=max wiops=max\n");
        make_file(dir, "vms/cpu.max", "max 100000\n");
        make_file(dir, "vms/memory.max", "4096\n");
        make_file(dir, "vms/pids.max", "0\n");
        c = find_cgroup("/", dir, "0::/vms/a\n", "0::/broker\n");
        CU_ASSERT_EQUAL(c.error, 0);
        CU_ASSERT_STRING_EQUAL(c.path, "/vms/a");
        CU_ASSERT_EQUAL(c.ceilings[CEILING_CPU], 1500);
        CU_ASSERT_EQUAL(c.ceilings[CEILING_MEMORY], 4096);
        CU_ASSERT_EQUAL(c.ceilings[CEILING_PIDS], 1);
        CU_ASSERT_EQUAL(c.ceilings[CEILING_IO], 0);
        make_file(dir, "vms/a/io.max", "8:0 rbps=max wbps=5 riops=max wiops=max\n");
        c = find_cgroup("/", dir, "0::/vms/a\n", "0::/vms/broker\n");
        CU_ASSERT_EQUAL(c.ceilings[CEILING_CPU], 1500);
        CU_ASSERT_EQUAL(c.ceilings[CEILING_MEMORY], 0);
        CU_ASSERT_EQUAL(c.ceilings[CEILING_IO], 1);
        /* In the monitor's own, whatever its limits. */
        c = find_cgroup("/", dir, "0::/vms/a\n", "0::/vms/a\n");
        CU_ASSERT_EQUAL(c.ceilings[CEILING_CPU], 0);
        /* Only a part of the tree is mounted here, and the process is in it, or not. */
        c = find_cgroup("/slice", dir, "0::/slice/vms/a\n", "0::/slice/broker\n");
        CU_ASSERT_EQUAL(c.ceilings[CEILING_MEMORY], 4096);
        c = find_cgroup("/slice", dir, "0::/elsewhere/a\n", "0::/slice/broker\n");
        CU_ASSERT_EQUAL(c.ceiling_errors[CEILING_MEMORY], EXDEV);
        c = find_cgroup("/", dir, "0::/../vms/a\n", "0::/\n");
        CU_ASSERT_EQUAL(c.ceiling_errors[CEILING_CPU], EXDEV);
        (void)snprintf(command, sizeof(command), "rm -r %s", dir);
        CU_ASSERT_EQUAL(system(command), 0);
}

/* ---- whose evidence it is */

static void test_a_process_that_ended_has_none(void)
{
        struct subject s = start(NULL, NULL);
        struct evidence e = gather(s.pid);

        CU_ASSERT_TRUE(e.exists);
        /* A zombie is no process any more, though its number is taken still. */
        (void)kill(s.pid, SIGKILL);
        (void)waitid(P_PID, (id_t)s.pid, &(siginfo_t){0}, WEXITED | WNOWAIT);
        CU_ASSERT_FALSE(gather(s.pid).exists);
        (void)waitpid(s.pid, NULL, 0);
        CU_ASSERT_FALSE(gather(s.pid).exists);
}

static pid_t fork_with_number(pid_t pid)
{
        struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};
        pid_t r = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));

        if (r == 0)
                wait_for_ever();
        return r;
}

/* The next process with the same number lends nothing to the first: not to whoever holds its directory, and not to
 * whoever holds its pidfd. */
static void test_a_recycled_number_lends_nothing(void)
{
        struct subject s = start(filter, NULL), next = {0};
        struct evidence_digests digests = {0};
        struct evidence_threads threads;
        struct evidence first, second;
        int first_fd, second_fd, proc_fd;
        char path[32];

        if (!is_root("to choose a process's number")) {
                end(s);
                return;
        }
        (void)snprintf(path, sizeof(path), "/proc/%d", s.pid);
        proc_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CU_ASSERT_EQUAL(evidence_gather(&digests, s.pid, &first, &first_fd), 0);
        CU_ASSERT_EQUAL(first.threads.filtered, 1);
        end(s);
        next.pid = next.child = fork_with_number(s.pid);
        if (next.pid < 0) {
                printf("(left out: no process's number can be chosen: %s) ", strerrorname_np(errno));
                return;
        }
        CU_ASSERT_EQUAL(next.pid, s.pid);
        evidence_read_threads(proc_fd, &threads);
        CU_ASSERT_NOT_EQUAL(threads.error, 0);
        CU_ASSERT_EQUAL(evidence_gather(&digests, s.pid, &second, &second_fd), 0);
        CU_ASSERT_TRUE(second.exists);
        CU_ASSERT_EQUAL(second.threads.filtered, 0);
        CU_ASSERT_NOT_EQUAL(syscall(SYS_pidfd_send_signal, first_fd, 0, NULL, 0), 0);
        CU_ASSERT_EQUAL(syscall(SYS_pidfd_send_signal, second_fd, 0, NULL, 0), 0);
        close_fd(first_fd);
        close_fd(second_fd);
        close_fd(proc_fd);
        end(next);
}

/* ---- a /proc that does not answer */

static int gather_never(struct evidence_digests *digests, int pid, struct evidence *ret, int *ret_pidfd)
{
        (void)digests;
        (void)pid;
        (void)ret;
        (void)ret_pidfd;
        for (;;)
                pause();
        return 0;
}

static int gather_and_fail(struct evidence_digests *digests, int pid, struct evidence *ret, int *ret_pidfd)
{
        return pid < 0 ? -ENFILE : evidence_gather(digests, pid, ret, ret_pidfd);
}

static int gather_and_end(struct evidence_digests *digests, int pid, struct evidence *ret, int *ret_pidfd)
{
        (void)digests;
        (void)pid;
        (void)ret;
        (void)ret_pidfd;
        _exit(0);
}

static void test_the_monitor_waits_for_nobody(void)
{
        struct evidence_digests digests = {0};
        struct subject s = start(filter, NULL);
        struct evidence e = {0};
        int pidfd = -1;

        CU_ASSERT_EQUAL(evidence_guard(gather_never, 50 * NSEC_PER_MSEC, &digests, s.pid, &e, &pidfd), -ETIMEDOUT);
        CU_ASSERT_EQUAL(evidence_guard(gather_and_end, NSEC_PER_SEC, &digests, s.pid, &e, &pidfd), -EIO);
        CU_ASSERT_EQUAL(evidence_guard(gather_and_fail, NSEC_PER_SEC, &digests, -1, &e, &pidfd), -ENFILE);
        CU_ASSERT_FALSE(e.exists);
        CU_ASSERT_EQUAL(pidfd, -1);
        CU_ASSERT_EQUAL(evidence_guard(evidence_gather, 10 * NSEC_PER_SEC, &digests, s.pid, &e, &pidfd), 0);
        CU_ASSERT_TRUE(e.exists);
        CU_ASSERT_EQUAL(e.threads.filtered, 1);
        CU_ASSERT_EQUAL(digests.next, 1);
        CU_ASSERT_EQUAL(syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0), 0);
        close_fd(pidfd);
        end(s);
        CU_ASSERT_EQUAL(evidence_guard(evidence_gather, 10 * NSEC_PER_SEC, &digests, s.pid, &e, &pidfd), 0);
        CU_ASSERT_FALSE(e.exists);
        CU_ASSERT_EQUAL(pidfd, -1);
        /* None of the children is left behind. */
        CU_ASSERT_EQUAL(waitpid(-1, NULL, WNOHANG), -1);
        CU_ASSERT_EQUAL(errno, ECHILD);
}

/* ---- a /proc that cannot be read */

/* In a child with another user: what that one sees of pid. */
static int look_as_other(pid_t pid, bool hidden, struct layers *ret)
{
        struct layers *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int status = -1;
        pid_t child = fork();

        if (child == 0) {
                struct evidence_digests digests = {0};
                struct evidence e;
                int pidfd;

                if (hidden && (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                                      mount("proc", "/proc", "proc", 0, "hidepid=2") < 0))
                        _exit(2);
                if (become_other(NULL) < 0 || evidence_gather(&digests, pid, &e, &pidfd) < 0 || !e.exists)
                        _exit(1);
                layers_find(&(struct layer_question){.backend = BACKEND_FIRECRACKER, .evidence = &e}, shared);
                _exit(0);
        }
        (void)waitpid(child, &status, 0);
        *ret = *shared;
        (void)munmap(shared, sizeof(*shared));
        return WEXITSTATUS(status);
}

static void test_what_cannot_be_read_is_not_absent(void)
{
        static const enum layer closed[] = {LAYER_PROGRAM, LAYER_KVM, LAYER_CHROOT, LAYER_NETNS, LAYER_MNTNS,
                LAYER_PIDNS, LAYER_USERNS, LAYER_MEMORY};
        struct layers layers;
        struct subject s;
        int r;

        if (!is_root("another user's view"))
                return;
        s = start(NULL, NULL);
        CU_ASSERT_EQUAL(look_as_other(s.pid, false, &layers), 0);
        for (size_t i = 0; i < sizeof(closed) / sizeof(*closed); i++) {
                expect(&layers, closed[i], LAYER_UNREADABLE);
                CU_ASSERT_PTR_NOT_NULL(strstr(layers.of[closed[i]].fact, "Permission denied"));
        }
        /* /proc/PID/status is open to all. */
        expect(&layers, LAYER_SECCOMP, LAYER_ABSENT);
        r = look_as_other(s.pid, true, &layers);
        if (r == 2)
                printf("(left out: /proc cannot be mounted with hidepid here) ");
        else
                CU_ASSERT_EQUAL(r, 0);
        for (int i = 0; r == 0 && i < LAYER_MAX_; i++)
                expect(&layers, (enum layer)i, LAYER_UNREADABLE);
        end(s);
}

int main(int argc, char **argv)
{
        CU_TestInfo tests[] = {
                {"a bare process has nothing", test_a_bare_process_has_nothing},
                {"a user of its own", test_a_user_of_its_own},
                {"seccomp and no new privileges", test_seccomp_and_no_new_privs},
                {"a root of its own", test_a_root_of_its_own},
                {"namespaces of its own", test_namespaces_of_its_own},
                {"a KVM VM is seen", test_a_kvm_vm_is_seen},
                {"the program and its digest", test_the_program_and_its_digest},
                {"a digest is not taken twice", test_a_digest_is_not_taken_twice},
                {"memory that two have", test_memory_that_two_have},
                {"ceilings of a cgroup", test_ceilings_of_a_cgroup},
                {"ceilings of the unified hierarchy", test_ceilings_of_the_unified_hierarchy},
                {"a process that ended has none", test_a_process_that_ended_has_none},
                {"a recycled number lends nothing", test_a_recycled_number_lends_nothing},
                {"the monitor waits for nobody", test_the_monitor_waits_for_nobody},
                {"what cannot be read is not absent", test_what_cannot_be_read_is_not_absent},
                CU_TEST_INFO_NULL,
        };

        if (argc == 2 && strcmp(argv[1], "wait") == 0)
                wait_for_ever();
        return suite_run("evidence", tests);
}
