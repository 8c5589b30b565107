/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/environment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void wipe(char *text)
{
        explicit_bzero(text, strlen(text));
        free(text);
}

static int make_room(struct environment *e)
{
        size_t room = e->room ? e->room * 2 : 16;
        char **larger;

        if (e->n + 1 < e->room)
                return 0;
        larger = realloc(e->texts, room * sizeof(*larger));
        if (!larger)
                return -ENOMEM;
        e->texts = larger;
        e->room = room;
        return 0;
}

static int append(struct environment *e, char *text)
{
        int r = text ? make_room(e) : -ENOMEM;

        if (r < 0) {
                if (text)
                        wipe(text);
                return r;
        }
        e->texts[e->n++] = text;
        e->texts[e->n] = NULL;
        return 0;
}

int environment_add(struct environment *e, const char *text, size_t n)
{
        return append(e, strndup(text, n));
}

int environment_set(struct environment *e, const char *name, const char *value, size_t value_n)
{
        size_t name_n = strlen(name);
        char *text = malloc(name_n + 1 + value_n + 1);

        if (text) {
                memcpy(text, name, name_n);
                text[name_n] = '=';
                memcpy(text + name_n + 1, value, value_n);
                text[name_n + 1 + value_n] = '\0';
        }
        return append(e, text);
}

/* A text and where it stood: qsort(3) does not keep the order of equals. */
struct placed {
        char *text;
        size_t name_n;
        size_t place;
};

static int compare(const void *pa, const void *pb)
{
        const struct placed *a = pa, *b = pb;
        size_t n = a->name_n < b->name_n ? a->name_n : b->name_n;
        int by_name = memcmp(a->text, b->text, n);

        if (by_name)
                return by_name;
        if (a->name_n != b->name_n)
                return a->name_n < b->name_n ? -1 : 1;
        return a->place < b->place ? -1 : 1;
}

static int same_name(const struct placed *a, const struct placed *b)
{
        return a->name_n == b->name_n && memcmp(a->text, b->text, a->name_n) == 0;
}

int environment_finish(struct environment *e)
{
        struct placed *sorted;
        size_t kept = 0;
        int r = make_room(e);

        if (r < 0)
                return r;
        sorted = calloc(e->n + 1, sizeof(*sorted));
        if (!sorted)
                return -ENOMEM;
        for (size_t i = 0; i < e->n; i++)
                sorted[i] = (struct placed){e->texts[i], strcspn(e->texts[i], "="), i};
        qsort(sorted, e->n, sizeof(*sorted), compare);
        for (size_t i = 0; i < e->n; i++) {
                if (i + 1 < e->n && same_name(&sorted[i], &sorted[i + 1]))
                        wipe(sorted[i].text);
                else
                        e->texts[kept++] = sorted[i].text;
        }
        e->n = kept;
        e->texts[kept] = NULL;
        free(sorted);
        return 0;
}

const char *environment_get(const struct environment *e, const char *name)
{
        size_t n = strlen(name);

        for (size_t i = 0; i < e->n; i++)
                if (strncmp(e->texts[i], name, n) == 0 && e->texts[i][n] == '=')
                        return e->texts[i] + n + 1;
        return NULL;
}

void environment_done(struct environment *e)
{
        for (size_t i = 0; i < e->n; i++)
                wipe(e->texts[i]);
        free(e->texts);
        *e = (struct environment){0};
}
