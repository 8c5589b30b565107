/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One regular file from nothing to its place; between tree/writer.c and tree/writer_file.c. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "proto/tree/name.h"

#define WRITER_TEMPORARY_BYTES 32

/* What an entry becomes, after the writer's options were applied. */
struct writer_attributes {
        uid_t uid; /* (uid_t)-1: left alone */
        gid_t gid;
        mode_t mode;
        struct timespec mtime;
};

struct writer_file {
        int fd;  /* -1: none */
        int dir; /* the folder's, held by the writer */
        char name[TREE_NAME_MAX + 1];
        char temporary[WRITER_TEMPORARY_BYTES]; /* its name meanwhile; empty: it has none */
        struct writer_attributes attributes;
        uint64_t size;
        bool open_ended;
        uint64_t position; /* behind the data that came */
};

/* 0 or a negative errno. f->dir, name, attributes, size are set. */
int writer_file_open(struct writer_file *f);

/* 0, -ERANGE (not behind what came before, or beyond the size), or a negative errno. */
int writer_file_write(struct writer_file *f, uint64_t offset, const uint8_t *data, size_t n);

/* Gives it its size and attributes, puts it into its place, and closes it. */
int writer_file_finish(struct writer_file *f, bool synchronize);

/* As if it had never been. */
void writer_file_abandon(struct writer_file *f);

int writer_set_attributes(int fd, const struct writer_attributes *a);

/* ".wb-" and what nobody guesses. */
void writer_temporary_name(char ret[WRITER_TEMPORARY_BYTES]);
