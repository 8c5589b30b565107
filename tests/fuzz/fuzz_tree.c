/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's stream, written to a folder: frames of FileEntry and FileData as they come. Whatever they say, nothing
 * outside of the folder is made, changed or removed, and no file is set-user-ID. The input's first byte chooses whether
 * the stream has a name of its own, and whether it ends in order.
 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/tree/writer.h"
#include "proto/wire/codec.h"
#include "proto/wire/frame.h"
#include "tests/fuzz/fuzz.h"

#define ENTRIES_MOST 64
#define SIZE_MOST    (1u << 20)

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
        (void)st;
        (void)type;
        return at->level ? remove(path) : 0;
}

static int check_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
        (void)path;
        (void)type;
        (void)at;
        MUST(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode));
        MUST(S_ISLNK(st->st_mode) || !(st->st_mode & 06000));
        return 0;
}

/* The folder in memory: PATH/box is written in, PATH/kept lies beside it. */
static const char *make_world(void)
{
        static char path[64];
        char name[80];

        if (path[0])
                return path;
        (void)snprintf(path, sizeof(path), "/dev/shm/wb-fuzz-tree-XXXXXX");
        MUST(mkdtemp(path));
        (void)snprintf(name, sizeof(name), "%s/box", path);
        MUST(mkdir(name, 0755) == 0);
        (void)snprintf(name, sizeof(name), "%s/kept", path);
        MUST(symlink("as it was", name) == 0);
        return path;
}

static void check_world(const char *path)
{
        char name[80], target[32];
        struct dirent **list;
        int n = scandir(path, &list, NULL, alphasort);

        MUST(n == 4 && strcmp(list[2]->d_name, "box") == 0 && strcmp(list[3]->d_name, "kept") == 0);
        for (int i = 0; i < n; i++)
                free(list[i]);
        free(list);
        (void)snprintf(name, sizeof(name), "%s/kept", path);
        MUST(readlink(name, target, sizeof(target)) == (ssize_t)strlen("as it was"));
        (void)snprintf(name, sizeof(name), "%s/box", path);
        MUST(nftw(name, check_one, 16, FTW_PHYS) == 0);
        (void)nftw(name, remove_one, 16, FTW_PHYS | FTW_DEPTH);
}

static int take(struct tree_writer *w, const Wb__FromAgent *m, unsigned *entries)
{
        if (m->body_case == WB__FROM_AGENT__BODY_FILE_ENTRY) {
                if (++*entries > ENTRIES_MOST || m->file_entry->size > SIZE_MOST)
                        return -1; /* the disk's room is not what is looked for */
                return tree_writer_entry(w, m->file_entry);
        }
        if (m->body_case != WB__FROM_AGENT__BODY_FILE_DATA || m->file_data->offset > SIZE_MOST)
                return -1;
        return tree_writer_data(w, m->file_data->offset, m->file_data->data.data, m->file_data->data.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        struct tree_writer_options options = {.uid = (uid_t)-1, .gid = (gid_t)-1};
        struct frame_reader reader = {0};
        struct tree_writer_report report;
        const char *path = make_world();
        struct tree_writer *w;
        unsigned entries = 0;
        char box[80];
        uint8_t how;
        int dir, r = 0;

        if (!n)
                return 0;
        how = *data++;
        n--;
        (void)snprintf(box, sizeof(box), "%s/box", path);
        dir = open(box, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        MUST(dir >= 0 && tree_writer_new(dir, how & 1 ? "name" : NULL, &options, &w) == 0);
        while (r == 0 && n) {
                const uint8_t *payload;
                size_t payload_n;
                Wb__FromAgent *m;

                r = frame_read(&reader, &data, &n, &payload, &payload_n);
                if (r == 0)
                        r = codec_unpack_from_agent(payload, payload_n, &m);
                if (r != 0)
                        break;
                r = take(w, m, &entries);
                codec_free_from_agent(m);
        }
        if (r == 0 && how & 2)
                (void)tree_writer_end(w, &report);
        tree_writer_free(w);
        frame_reader_done(&reader);
        (void)close(dir);
        check_world(path);
        return 0;
}
