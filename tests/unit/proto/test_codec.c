/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire/codec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/wire/frame.h"
#include "proto/wire/hostname.h"
#include "proto/wire/limits.h"
#include "tests/support/suite.h"

/* Packs and unpacks again, as a peer would see it. */
static bool survives(const Wb__ToAgent *m)
{
        _cleanup_free_ uint8_t *frame = NULL;
        Wb__ToAgent *back = NULL;
        size_t n;
        int r;

        CU_ASSERT_EQUAL_FATAL(codec_pack_to_agent(m, &frame, &n), 0);
        r = codec_unpack_to_agent(frame + FRAME_HEADER_BYTES, n - FRAME_HEADER_BYTES, &back);
        CU_ASSERT_EQUAL(back != NULL, r == 0);
        codec_free_to_agent(back);
        return r == 0;
}

static bool exec_survives(const void *argument, size_t n, size_t arguments_n)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__ExecStart start = WB__EXEC_START__INIT;
        ProtobufCBinaryData *argv = calloc(arguments_n + 1, sizeof(*argv));
        bool good;

        CU_ASSERT_PTR_NOT_NULL_FATAL(argv);
        for (size_t i = 0; i < arguments_n; i++)
                argv[i] = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)argument, .len = n};
        start.argv = argv;
        start.n_argv = arguments_n;
        m.body_case = WB__TO_AGENT__BODY_EXEC_START;
        m.exec_start = &start;
        good = survives(&m);
        free(argv);
        return good;
}

static void test_arguments_are_bytes_without_nul(void)
{
        CU_ASSERT_TRUE(exec_survives("\xff\x01 x", 4, 1));
        CU_ASSERT_TRUE(exec_survives("", 0, 3));
        CU_ASSERT_FALSE(exec_survives("a\0b", 3, 1));
        CU_ASSERT_FALSE(exec_survives("", 0, 0));
}

static bool more_survives(const char *argument, size_t n, const char *variable)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__ExecStartMore more = WB__EXEC_START_MORE__INIT;
        ProtobufCBinaryData argv = {.len = n, .data = (uint8_t *)(uintptr_t)argument};
        ProtobufCBinaryData env = {.len = strlen(variable), .data = (uint8_t *)(uintptr_t)variable};

        more.argv = &argv;
        more.env = &env;
        more.n_argv = more.n_env = 1;
        m.body_case = WB__TO_AGENT__BODY_EXEC_START_MORE;
        m.exec_start_more = &more;
        return survives(&m);
}

static void test_the_rest_of_a_start_has_the_same_bounds(void)
{
        CU_ASSERT_TRUE(more_survives("\xff\x01 x", 4, "A=\xff"));
        CU_ASSERT_FALSE(more_survives("a\0b", 3, "A=1"));
        CU_ASSERT_FALSE(more_survives("a", 1, ""));
}

/* 400,000 empty arguments are 800 KB on the wire and would be 20 MB in memory. */
static void test_many_small_items_are_refused(void)
{
        CU_ASSERT_FALSE(exec_survives("", 0, 400000));
}

static bool resize_survives(const char *path, size_t path_n, size_t n)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__MemoryResize resize = WB__MEMORY_RESIZE__INIT;
        Wb__MemoryFilesystemSize one = WB__MEMORY_FILESYSTEM_SIZE__INIT;
        Wb__MemoryFilesystemSize *items[WB_MEMORY_FILESYSTEMS_MAX + 1];

        one.path = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)path, .len = path_n};
        for (size_t i = 0; i < n; i++)
                items[i] = &one;
        resize.filesystems = items;
        resize.n_filesystems = n;
        m.body_case = WB__TO_AGENT__BODY_MEMORY_RESIZE;
        m.memory_resize = &resize;
        return survives(&m);
}

static void test_what_is_resized_has_a_path(void)
{
        char path[WB_MEMORY_PATH_MAX + 1];

        memset(path, 'x', sizeof(path));
        CU_ASSERT_TRUE(resize_survives("", 0, 0)); /* none: look at memory */
        CU_ASSERT_TRUE(resize_survives("/tmp", 4, WB_MEMORY_FILESYSTEMS_MAX));
        CU_ASSERT_FALSE(resize_survives("/tmp", 4, WB_MEMORY_FILESYSTEMS_MAX + 1));
        CU_ASSERT_TRUE(resize_survives(path, WB_MEMORY_PATH_MAX, 1));
        CU_ASSERT_FALSE(resize_survives(path, WB_MEMORY_PATH_MAX + 1, 1));
        CU_ASSERT_FALSE(resize_survives("", 0, 1));
        CU_ASSERT_FALSE(resize_survives("/t\0p", 4, 1));
}

static void test_the_ceiling_is_one_that_is_known(void)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__MemoryResize resize = WB__MEMORY_RESIZE__INIT;

        m.body_case = WB__TO_AGENT__BODY_MEMORY_RESIZE;
        m.memory_resize = &resize;
        resize.ceiling = WB__MEMORY_RESIZE__CEILING__CEILING_NONE;
        CU_ASSERT_TRUE(survives(&m));
        resize.ceiling = WB__MEMORY_RESIZE__CEILING__CEILING_NONE + 1;
        CU_ASSERT_FALSE(survives(&m));
}

static void test_a_limit_names_its_exec_in_print(void)
{
        char with_escape[] = "x1\033";
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__ExecLimit limit = WB__EXEC_LIMIT__INIT;

        m.body_case = WB__TO_AGENT__BODY_EXEC_LIMIT;
        m.exec_limit = &limit;
        CU_ASSERT_TRUE(survives(&m));
        limit.id = with_escape;
        CU_ASSERT_FALSE(survives(&m));
}

static void test_seed_and_nonce_have_their_size(void)
{
        uint8_t bytes[WB_SEED_BYTES + 1] = {0};
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__Activate activate = WB__ACTIVATE__INIT;

        m.body_case = WB__TO_AGENT__BODY_ACTIVATE;
        m.activate = &activate;
        activate.nonce = (ProtobufCBinaryData){.data = bytes, .len = WB_NONCE_BYTES};
        activate.seed = (ProtobufCBinaryData){.data = bytes, .len = WB_SEED_BYTES};
        CU_ASSERT_TRUE(survives(&m));
        activate.seed.len = WB_SEED_BYTES - 1;
        CU_ASSERT_FALSE(survives(&m));
        activate.seed.len = WB_SEED_BYTES + 1;
        CU_ASSERT_FALSE(survives(&m));
        activate.seed.len = WB_SEED_BYTES;
        activate.nonce.len = 0;
        CU_ASSERT_FALSE(survives(&m));
}

static bool text_survives(const char *text)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__ExecKill kill = WB__EXEC_KILL__INIT;

        kill.id = (char *)(uintptr_t)text;
        m.body_case = WB__TO_AGENT__BODY_EXEC_KILL;
        m.exec_kill = &kill;
        return survives(&m);
}

static void test_texts_are_printable_utf8(void)
{
        CU_ASSERT_TRUE(text_survives("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xa7"));
        CU_ASSERT_FALSE(text_survives("a\nb"));
        CU_ASSERT_FALSE(text_survives("\x1b[2J"));
        CU_ASSERT_FALSE(text_survives("\xc2\x9b"));         /* C1: CSI */
        CU_ASSERT_FALSE(text_survives("\xc0\xaf"));         /* overlong */
        CU_ASSERT_FALSE(text_survives("\xed\xa0\x80"));     /* surrogate */
        CU_ASSERT_FALSE(text_survives("\xe2\x82"));         /* cut short */
        CU_ASSERT_FALSE(text_survives("\xf4\x90\x80\x80")); /* above U+10FFFF */
}

static void test_garbage_and_no_body_are_malformed(void)
{
        static const uint8_t garbage[] = {0xff, 0xff, 0xff, 0xff, 0x7f, 0x00};
        Wb__ToAgent *m = NULL;
        Wb__FromAgent *f = NULL;

        CU_ASSERT_EQUAL(codec_unpack_to_agent(garbage, sizeof(garbage), &m), CODEC_E_MALFORMED);
        CU_ASSERT_EQUAL(codec_unpack_from_agent(garbage, sizeof(garbage), &f), CODEC_E_MALFORMED);
        CU_ASSERT_EQUAL(codec_unpack_to_agent(garbage, 0, &m), CODEC_E_MALFORMED);
        CU_ASSERT_PTR_NULL(m);
        CU_ASSERT_PTR_NULL(f);
}

static void test_unknown_enum_is_malformed(void)
{
        Wb__ToAgent m = WB__TO_AGENT__INIT;
        Wb__Shutdown shutdown = WB__SHUTDOWN__INIT;

        m.body_case = WB__TO_AGENT__BODY_SHUTDOWN;
        m.shutdown = &shutdown;
        CU_ASSERT_TRUE(survives(&m));
        shutdown.kind = (Wb__Shutdown__Kind)7;
        CU_ASSERT_FALSE(survives(&m));
}

/* Does a question about the name come through? */
static bool query_survives(const char *name)
{
        Wb__NameQuery query = WB__NAME_QUERY__INIT;
        Wb__ServiceRequest m = WB__SERVICE_REQUEST__INIT, *got = NULL;
        uint8_t *frame;
        size_t n;
        int r;

        query.name = (char *)(uintptr_t)name;
        m.number = 7;
        m.body_case = WB__SERVICE_REQUEST__BODY_NAME_QUERY;
        m.name_query = &query;
        CU_ASSERT_EQUAL_FATAL(codec_pack_service_request(&m, &frame, &n), 0);
        r = codec_unpack_service_request(frame + FRAME_HEADER_BYTES, n - FRAME_HEADER_BYTES, &got);
        free(frame);
        if (r != 0)
                return false;
        CU_ASSERT_EQUAL(got->number, 7);
        CU_ASSERT_STRING_EQUAL(got->name_query->name, name);
        codec_free_service_request(got);
        return true;
}

static void test_names_are_bounded(void)
{
        char name[HOSTNAME_MAX_BYTES + 2];
        Wb__ServiceRequest *request = NULL;
        Wb__ServiceAnswer *answer = NULL;

        memset(name, 'a', sizeof(name));
        name[HOSTNAME_MAX_BYTES + 1] = '\0';
        CU_ASSERT_FALSE(query_survives(name));
        name[HOSTNAME_MAX_BYTES] = '\0';
        CU_ASSERT_TRUE(query_survives(name));
        CU_ASSERT_FALSE(query_survives(""));
        CU_ASSERT_FALSE(query_survives("a\nb"));
        CU_ASSERT_EQUAL(codec_unpack_service_request(NULL, 0, &request), CODEC_E_MALFORMED);
        CU_ASSERT_EQUAL(codec_unpack_service_answer(NULL, 0, &answer), CODEC_E_MALFORMED);
}

static void test_too_large_is_not_packed(void)
{
        Wb__FromAgent m = WB__FROM_AGENT__INIT;
        Wb__Chunk chunk = WB__CHUNK__INIT;
        uint8_t *frame = NULL;
        size_t n;

        chunk.data.len = WB_FRAME_MAX_BYTES;
        chunk.data.data = calloc(1, chunk.data.len);
        m.body_case = WB__FROM_AGENT__BODY_OUTPUT;
        m.output = &chunk;
        CU_ASSERT_EQUAL(codec_pack_from_agent(&m, &frame, &n), -EMSGSIZE);
        CU_ASSERT_PTR_NULL(frame);
        free(chunk.data.data);
}

static bool entry_survives(const char *path, size_t path_n, size_t extents_n)
{
        Wb__FileExtent extent = WB__FILE_EXTENT__INIT, *extents[WB_EXTENTS_MAX + 1];
        Wb__FileEntry entry = WB__FILE_ENTRY__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        for (size_t i = 0; i < extents_n; i++)
                extents[i] = &extent;
        entry.path = (ProtobufCBinaryData){.len = path_n, .data = (uint8_t *)(uintptr_t)path};
        entry.n_extents = extents_n;
        entry.extents = extents;
        m.body_case = WB__TO_AGENT__BODY_FILE_ENTRY;
        m.file_entry = &entry;
        return survives(&m);
}

static bool data_survives(size_t n)
{
        static uint8_t bytes[WB_CHUNK_MAX_BYTES + 1];
        Wb__FileData data = WB__FILE_DATA__INIT;
        Wb__ToAgent m = WB__TO_AGENT__INIT;

        data.data = (ProtobufCBinaryData){.len = n, .data = bytes};
        m.body_case = WB__TO_AGENT__BODY_FILE_DATA;
        m.file_data = &data;
        return survives(&m);
}

static void test_files_have_bounds(void)
{
        static char path[4097];

        memset(path, 'p', sizeof(path));
        CU_ASSERT_TRUE(entry_survives(path, 4096, 0));
        CU_ASSERT_FALSE(entry_survives(path, 4097, 0));
        CU_ASSERT_FALSE(entry_survives("a\0b", 3, 0));
        CU_ASSERT_TRUE(entry_survives("a", 1, WB_EXTENTS_MAX));
        CU_ASSERT_FALSE(entry_survives("a", 1, WB_EXTENTS_MAX + 1));
        CU_ASSERT_FALSE(data_survives(0)); /* an endless stream of nothing */
        CU_ASSERT_TRUE(data_survives(WB_CHUNK_MAX_BYTES));
        CU_ASSERT_FALSE(data_survives(WB_CHUNK_MAX_BYTES + 1));
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"arguments are bytes without NUL", test_arguments_are_bytes_without_nul},
                {"the rest of a start has the same bounds", test_the_rest_of_a_start_has_the_same_bounds},
                {"many small items are refused", test_many_small_items_are_refused},
                {"what is resized has a path", test_what_is_resized_has_a_path},
                {"the ceiling is one that is known", test_the_ceiling_is_one_that_is_known},
                {"a limit names its exec in print", test_a_limit_names_its_exec_in_print},
                {"seed and nonce have their size", test_seed_and_nonce_have_their_size},
                {"texts are printable UTF-8", test_texts_are_printable_utf8},
                {"garbage and no body are malformed", test_garbage_and_no_body_are_malformed},
                {"an unknown enum value is malformed", test_unknown_enum_is_malformed},
                {"names are bounded", test_names_are_bounded},
                {"what is too large is not packed", test_too_large_is_not_packed},
                {"files have bounds", test_files_have_bounds},
                CU_TEST_INFO_NULL,
        };

        return suite_run("codec", tests);
}
