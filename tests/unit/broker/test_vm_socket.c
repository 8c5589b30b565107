/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/vm_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <CUnit/Basic.h>

#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

#define OTHER_UID 65534u

static char dir[64];

static char *path_of(const char *name)
{
        static char path[128];

        (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
        return path;
}

static int make_dir(void)
{
        strcpy(dir, "/tmp/wb-test-socket-XXXXXX");
        return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void)
{
        (void)unlink(path_of("1025"));
        (void)unlink(path_of("1024"));
        return rmdir(dir);
}

static const struct transport here = {.kind = TRANSPORT_UNIX, .path = dir};

static int connect_to(const char *path)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        strcpy(address.sun_path, path);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                fd = close_fd(fd);
        return fd;
}

static void test_listens_with_mode_0660_whatever_the_umask(void)
{
        mode_t old = umask(0);
        struct stat st;
        int fd = -1, client;

        CU_ASSERT_EQUAL_FATAL(vm_socket_listen(&here, WB_PORT_EGRESS, (uid_t)-1, &fd), 0);
        CU_ASSERT_EQUAL(umask(old), 0);
        CU_ASSERT_EQUAL(stat(path_of("1025"), &st), 0);
        CU_ASSERT_EQUAL(st.st_mode & 07777, 0660);
        client = connect_to(path_of("1025"));
        CU_ASSERT_TRUE(client >= 0);
        close_fd(client);
        close_fd(fd);
        vm_socket_unlink(&here, WB_PORT_EGRESS);
        CU_ASSERT_EQUAL(access(path_of("1025"), F_OK), -1);
}

static void test_a_dead_socket_is_replaced_a_living_one_is_not(void)
{
        int one = -1, two = -1;

        CU_ASSERT_EQUAL(vm_socket_listen(&here, WB_PORT_EGRESS, (uid_t)-1, &one), 0);
        CU_ASSERT_EQUAL(vm_socket_listen(&here, WB_PORT_EGRESS, (uid_t)-1, &two), -EADDRINUSE);
        close_fd(one);
        CU_ASSERT_EQUAL(vm_socket_listen(&here, WB_PORT_EGRESS, (uid_t)-1, &two), 0);
        close_fd(two);
        vm_socket_unlink(&here, WB_PORT_EGRESS);
}

/* A file that is no socket is nobody's to remove. */
static void test_a_file_in_its_place_stays(void)
{
        int fd = open(path_of("1025"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), listener;

        close_fd(fd);
        CU_ASSERT_TRUE(vm_socket_listen(&here, WB_PORT_EGRESS, (uid_t)-1, &listener) < 0);
        vm_socket_unlink(&here, WB_PORT_EGRESS);
        CU_ASSERT_EQUAL(access(path_of("1025"), F_OK), 0);
        CU_ASSERT_EQUAL(unlink(path_of("1025")), 0);
}

static void test_belongs_to_the_directory_or_the_vmm(void)
{
        struct stat st;
        int fd = -1;

        if (geteuid() != 0)
                return;
        CU_ASSERT_EQUAL(chown(dir, OTHER_UID, OTHER_UID), 0);
        CU_ASSERT_EQUAL(vm_socket_listen(&here, WB_PORT_EGRESS, (uid_t)-1, &fd), 0);
        CU_ASSERT_EQUAL(stat(path_of("1025"), &st), 0);
        CU_ASSERT_EQUAL(st.st_uid, OTHER_UID);
        CU_ASSERT_EQUAL(st.st_gid, OTHER_UID);
        close_fd(fd);
        vm_socket_unlink(&here, WB_PORT_EGRESS);
        CU_ASSERT_EQUAL(access(path_of("1025"), F_OK), -1);

        /* The owner could have put a link to another's file there by then, so it is not given on. */
        CU_ASSERT_EQUAL(vm_socket_listen(&here, WB_PORT_EGRESS, 12345, &fd), 0);
        CU_ASSERT_EQUAL(stat(path_of("1025"), &st), 0);
        CU_ASSERT_EQUAL(st.st_uid, OTHER_UID);
        close_fd(fd);
        vm_socket_unlink(&here, WB_PORT_EGRESS);

        CU_ASSERT_EQUAL(chown(dir, 0, 0), 0);
        CU_ASSERT_EQUAL(vm_socket_listen(&here, WB_PORT_EGRESS, 12345, &fd), 0);
        CU_ASSERT_EQUAL(stat(path_of("1025"), &st), 0);
        CU_ASSERT_EQUAL(st.st_uid, 12345);
        close_fd(fd);
        vm_socket_unlink(&here, WB_PORT_EGRESS);
}

static int listen_as_guest(void)
{
        int fd = -1;

        (void)unlink(path_of("1024"));
        CU_ASSERT_EQUAL(transport_listen_guest(&here, 1024, &fd), 0);
        return fd;
}

static void test_dials_a_vmm_as_its_owner(void)
{
        int listener = listen_as_guest(), fd = -1;

        if (geteuid() == 0) {
                CU_ASSERT_EQUAL(chmod(dir, 0777), 0);
                CU_ASSERT_EQUAL(chown(path_of("1024"), OTHER_UID, OTHER_UID), 0);
        }
        CU_ASSERT_EQUAL(vm_socket_dial(&here, &fd), 0);
        close_fd(fd);
        close_fd(listener);
        CU_ASSERT_EQUAL(unlink(path_of("1024")), 0);
        CU_ASSERT_EQUAL(vm_socket_dial(&here, &fd), -ENOENT);
}

/* Root's agent is reached where nobody else can have put the socket; nothing else of root's is. */
static void test_of_root_it_dials_agents_alone(void)
{
        char hybrid_path[128];
        struct transport hybrid = {.kind = TRANSPORT_HYBRID, .path = hybrid_path};
        int listener, fd = -1;

        if (geteuid() != 0)
                return;
        listener = listen_as_guest();
        (void)snprintf(hybrid_path, sizeof(hybrid_path), "%s", path_of("1024"));
        CU_ASSERT_EQUAL(chmod(dir, 0777), 0);
        CU_ASSERT_EQUAL(vm_socket_dial(&here, &fd), -EACCES);
        CU_ASSERT_EQUAL(chmod(dir, 0755), 0);
        CU_ASSERT_EQUAL(vm_socket_dial(&hybrid, &fd), -EACCES);
        CU_ASSERT_EQUAL_FATAL(vm_socket_dial(&here, &fd), 0);
        close_fd(fd);
        close_fd(listener);
        CU_ASSERT_EQUAL(unlink(path_of("1024")), 0);
        CU_ASSERT_EQUAL(symlink("/dev/null", path_of("1024")), 0);
        CU_ASSERT_EQUAL(vm_socket_dial(&here, &fd), -EACCES);
        CU_ASSERT_EQUAL(unlink(path_of("1024")), 0);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"listens with mode 0660 whatever the umask", test_listens_with_mode_0660_whatever_the_umask},
                {"a dead socket is replaced, a living one is not", test_a_dead_socket_is_replaced_a_living_one_is_not},
                {"a file in its place stays", test_a_file_in_its_place_stays},
                {"belongs to the directory's owner or the VMM", test_belongs_to_the_directory_or_the_vmm},
                {"dials a VMM as its owner", test_dials_a_vmm_as_its_owner},
                {"of root, it dials agents alone", test_of_root_it_dials_agents_alone},
                CU_TEST_INFO_NULL,
        };
        CU_SuiteInfo suites[] = {{"vm_socket", make_dir, remove_dir, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

        if (CU_initialize_registry() || CU_register_suites(suites))
                return CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();

        unsigned failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
