/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/file_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CUnit/Basic.h>

#include "broker/ipc.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"

static char config_text[] = "vms: [{name: a, backend: runc, transport: unix, path: /a, policy: p.yaml}]\n";
static char resolv_text[] =
        "# a comment\nnameserver 192.0.2.53\nnameserver nonsense\nnameserver 2001:db8::53\nsearch example.org\n";
static char policy_text[] = "network: none\n";
static char config_name[] = "/etc/wb/c.yaml", resolv_name[] = "/etc/resolv.conf", policy_name[] = "/etc/wb/p.yaml",
            bundle_name[] = "/etc/bundle.crt", bundle_text[] = "no certificate\n";

static struct file_text files[] = {
        {config_name, config_text, sizeof(config_text) - 1},
        {resolv_name, resolv_text, sizeof(resolv_text) - 1},
        {bundle_name, bundle_text, sizeof(bundle_text) - 1},
        {policy_name, policy_text, sizeof(policy_text) - 1},
};
#define FILES_N (sizeof(files) / sizeof(*files))
static const struct file_set set = {files, FILES_N};

static void test_travels_whole_and_sealed(void)
{
        struct file_set *s = NULL;
        int fd = -1;

        CU_ASSERT_EQUAL_FATAL(file_set_pack(&set, &fd), 0);
        CU_ASSERT_EQUAL(write(fd, "x", 1), -1);
        CU_ASSERT_EQUAL(ftruncate(fd, 0), -1);
        CU_ASSERT_EQUAL_FATAL(file_set_unpack(fd, &s), 0);
        CU_ASSERT_EQUAL_FATAL(s->n, FILES_N);
        for (size_t i = 0; i < FILES_N; i++) {
                CU_ASSERT_STRING_EQUAL(s->files[i].name, files[i].name);
                CU_ASSERT_STRING_EQUAL(s->files[i].text, files[i].text);
                CU_ASSERT_EQUAL(s->files[i].n, files[i].n);
        }
        file_set_free(s);
        close_fd(fd);
}

/* Every cut of a packed set is refused, or gives fewer files; none is read beyond its end. */
static void test_every_cut_is_survived(void)
{
        char *bytes = NULL;
        int fd = -1;
        size_t n;

        CU_ASSERT_EQUAL_FATAL(file_set_pack(&set, &fd), 0);
        CU_ASSERT_EQUAL_FATAL(io_read_fd(fd, 1 << 20, &bytes, &n), 0);
        for (size_t cut = 0; cut < n; cut++) {
                int part = memfd_create("cut", MFD_CLOEXEC), r;
                struct file_set *s = NULL;

                CU_ASSERT_EQUAL(io_write_full(part, bytes, cut), 0);
                CU_ASSERT_EQUAL(lseek(part, 0, SEEK_SET), 0);
                r = file_set_unpack(part, &s);
                CU_ASSERT_TRUE(r == -EBADMSG || (r == 0 && s->n == FILE_POLICIES));
                file_set_free(s);
                close_fd(part);
        }
        free(bytes);
        close_fd(fd);
}

static void test_setup_has_policies_and_the_systems_resolvers(void)
{
        struct yaml_error error = {0};
        struct setup *s = NULL;

        CU_ASSERT_EQUAL_FATAL(setup_load(&set, &s, &error), 0);
        CU_ASSERT_EQUAL(s->policies[0]->network, NETWORK_NONE);
        CU_ASSERT_EQUAL_FATAL(s->resolvers_n, 2);
        CU_ASSERT_STRING_EQUAL(s->resolvers[0].text, "192.0.2.53");
        CU_ASSERT_STRING_EQUAL(s->resolvers[1].text, "2001:db8::53");
        CU_ASSERT_PTR_NOT_NULL(s->trust);
        setup_check_trust(s, NULL);
        CU_ASSERT_PTR_NULL(s->trust); /* and no error: what does not need it goes on */
        setup_free(s);
}

static void test_frames_are_checked(void)
{
        struct ipc_frame frame = {.kind = IPC_READY}, got;
        int fds[IPC_FDS_MAX], pair[2];
        size_t n;

        CU_ASSERT_EQUAL_FATAL(ipc_pair(pair), 0);
        CU_ASSERT_EQUAL(ipc_send(pair[0], &frame, pair, 2), 0);
        CU_ASSERT_EQUAL(ipc_receive(pair[1], &got, fds, &n), 0);
        CU_ASSERT_EQUAL(got.kind, IPC_READY);
        CU_ASSERT_EQUAL_FATAL(n, 2);
        close_fd(fds[0]);
        close_fd(fds[1]);

        frame.kind = IPC_KIND_MAX_;
        CU_ASSERT_EQUAL(ipc_send(pair[0], &frame, pair, 1), 0);
        CU_ASSERT_EQUAL(ipc_receive(pair[1], &got, fds, &n), -EBADMSG);
        frame.kind = IPC_ASK_LISTEN;
        memset(frame.path, 'p', sizeof(frame.path));
        CU_ASSERT_EQUAL(ipc_send(pair[0], &frame, NULL, 0), 0);
        CU_ASSERT_EQUAL(ipc_receive(pair[1], &got, fds, &n), -EBADMSG);
        CU_ASSERT_EQUAL(io_send_fds(pair[0], &frame, sizeof(frame) - 1, NULL, 0), (ssize_t)sizeof(frame) - 1);
        CU_ASSERT_EQUAL(ipc_receive(pair[1], &got, fds, &n), -EBADMSG);
        CU_ASSERT_EQUAL(io_send_fds(pair[0], &frame, sizeof(frame), (int[]){0, 0, 0, 0}, 4), (ssize_t)sizeof(frame));
        CU_ASSERT_EQUAL(ipc_receive(pair[1], &got, fds, &n), -EBADMSG);
        close_fd(pair[0]);
        CU_ASSERT_EQUAL(ipc_receive(pair[1], &got, fds, &n), -EPIPE);
        close_fd(pair[1]);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"travels whole and sealed", test_travels_whole_and_sealed},
                {"every cut is survived", test_every_cut_is_survived},
                {"a setup has policies and the system's resolvers", test_setup_has_policies_and_the_systems_resolvers},
                {"frames are checked", test_frames_are_checked},
                CU_TEST_INFO_NULL,
        };
        CU_SuiteInfo suites[] = {{"file_set", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

        if (CU_initialize_registry() || CU_register_suites(suites))
                return CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();

        unsigned failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
