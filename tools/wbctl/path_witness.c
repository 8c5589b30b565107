/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/path_witness.h"

#include <errno.h>
#include <search.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "broker/request.h"
#include "proto/base/cleanup.h"

#define STATES_MOST  8192u
#define STEPS_MOST   UINT64_C(200000000) /* a byte of a set, for one symbol */
#define STATES_BYTES (32u * 1024u * 1024u)
#define SYMBOLS_MOST 128u
#define TAIL_BYTES   16u /* of what is kept of a path's end */

/* What none of the patterns can tell from another byte, the first that none of them has; none that an escape or a dot
 * segment is made of. */
static const char strange_bytes[] = "xyzwvutsrqponmlkjihgXYZWVUTSRQPONMLKJIHG-_~146789!'()+,;:@&=$|^`{}[]<>\"";

/* One byte, or an encoded slash, which a star may not reach over. */
struct symbol {
        char text[4];
};

/*
 * Where a path has come to. `at` holds for each pattern the set of places in it that the path so far may have reached:
 * with stars that reach over encoded slashes, then (if any pattern spells one) with stars that don't.
 */
struct state {
        const struct state *parent; /* NULL: the path is `/` */
        uint8_t symbol;             /* by which it was reached */
        struct key {
                char tail[TAIL_BYTES]; /* the end of the path, as far as it matters for what follows */
                uint8_t has_slash;     /* an encoded one */
                uint8_t at[];
        } key;
};

struct walk {
        char *const *patterns;
        size_t n;
        bool spells_slash;
        struct symbol symbols[SYMBOLS_MOST];
        size_t symbols_n;
        size_t at_bytes, key_bytes;
        struct state **states; /* in the order in which they were found */
        size_t states_n, states_most;
        void *known;    /* tsearch() of keys */
        void *verdicts; /* tsearch() of struct verdict */
        struct path_witnesses *out;
        size_t out_room;
};

/* Which patterns a path matches. */
struct verdict {
        size_t n;
        uint8_t bytes[];
};

static int compare_verdicts(const void *a, const void *b)
{
        return memcmp(
                ((const struct verdict *)a)->bytes, ((const struct verdict *)b)->bytes, ((const struct verdict *)a)->n);
}

/* tsearch() has no place for the length: it stands in front of the key that is sought. */
struct known {
        size_t n;
        const struct key *key;
};

static int compare_known(const void *a, const void *b)
{
        return memcmp(((const struct known *)a)->key, ((const struct known *)b)->key, ((const struct known *)a)->n);
}

static int add_path(struct walk *w, const char *text)
{
        char *copy = strdup(text);

        if (!copy)
                return -ENOMEM;
        if (w->out->n == w->out_room) {
                size_t room = w->out_room ? 2 * w->out_room : 16;
                char **paths = realloc(w->out->paths, room * sizeof(char *));

                if (!paths) {
                        free(copy);
                        return -ENOMEM;
                }
                w->out->paths = paths;
                w->out_room = room;
        }
        w->out->paths[w->out->n++] = copy;
        return 0;
}

/* ---- the alphabet */

static void add_symbol(struct walk *w, const char *text, size_t n)
{
        memcpy(w->symbols[w->symbols_n].text, text, n);
        w->symbols[w->symbols_n++].text[n] = '\0';
}

/* All bytes of the patterns, one that stands for all others, and the encoded slash if it is anybody's business. */
static void find_symbols(struct walk *w)
{
        bool used[256] = {false};
        const char *strange = strange_bytes;

        for (size_t i = 0; i < w->n; i++) {
                w->spells_slash = w->spells_slash || request_path_has_encoded_slash(w->patterns[i]);
                for (const char *p = w->patterns[i]; *p; p++)
                        used[(unsigned char)*p] = *p != '*';
        }
        for (unsigned c = 0x21; c < 0x7f; c++)
                if (used[c])
                        add_symbol(w, (const char[]){(char)c, '\0'}, 1);
        while (*strange && used[(unsigned char)*strange])
                strange++;
        if (*strange)
                add_symbol(w, strange, 1);
        else
                w->out->complete = false;
        if (w->spells_slash) {
                add_symbol(w, "%2f", 3);
                add_symbol(w, "%2F", 3);
        }
}

/* ---- one pattern */

/* Behind each star that was reached the pattern may go on. */
static void close_set(const char *pattern, uint8_t *set)
{
        for (size_t i = 0; pattern[i]; i++)
                if (set[i] && pattern[i] == '*')
                        set[i + 1] = 1;
}

static void step_byte(const char *pattern, char byte, bool star_takes_it, const uint8_t *from, uint8_t *to)
{
        size_t n = strlen(pattern);

        memset(to, 0, n + 1);
        for (size_t i = 0; i < n; i++) {
                if (!from[i])
                        continue;
                if (pattern[i] == '*')
                        to[i] |= star_takes_it;
                else
                        to[i + 1] |= pattern[i] == byte;
        }
        close_set(pattern, to);
}

/* A star that reaches over everything can do all that what stands before it can: the places before the last one that
 * was reached do not matter any more. */
static void forget_before_star(const char *pattern, uint8_t *set)
{
        for (size_t i = strlen(pattern); i-- > 0;)
                if (set[i] && pattern[i] == '*') {
                        memset(set, 0, i);
                        return;
                }
}

static void step_set(const char *pattern, const struct symbol *s, bool stars_stop, uint8_t *set, uint8_t *spare)
{
        bool is_slash = s->text[1] != '\0';

        for (const char *p = s->text; *p; p++) {
                step_byte(pattern, *p, !(stars_stop && is_slash && p == s->text), set, spare);
                memcpy(set, spare, strlen(pattern) + 1);
        }
        if (!stars_stop)
                forget_before_star(pattern, set);
}

/* ---- what matters of a path beside the patterns */

/* "/", then dots and what may become one, else what may become an escape behind any other byte. */
static void shorten_tail(char tail[TAIL_BYTES])
{
        size_t n = strlen(tail), dots = 0;
        const char *p = tail + 1, *escape = "";

        while (*p == '.' || strncasecmp(p, "%2e", 3) == 0) {
                p += *p == '.' ? 1 : 3;
                dots++;
        }
        if (dots <= 2 && (!*p || strcmp(p, "%") == 0 || strcmp(p, "%2") == 0))
                return;
        if (tail[n - 1] == '%')
                escape = "%";
        else if (n > 2 && tail[n - 2] == '%' && (tail[n - 1] == '2' || tail[n - 1] == '5'))
                escape = tail[n - 1] == '2' ? "%2" : "%5";
        (void)snprintf(tail, TAIL_BYTES, "/x%s", escape);
}

/* The tail with one symbol more. False: no such path is wanted, it is ambiguous or spells a slash by single bytes. */
static bool step_tail(const char *tail, const struct symbol *s, char ret_tail[TAIL_BYTES])
{
        char longer[2 * TAIL_BYTES];
        bool is_slash = s->text[0] == '/' || s->text[1];

        (void)snprintf(longer, sizeof(longer), "%s%s%s", tail, s->text, is_slash ? "" : "x");
        /* The x: dots at the end are no segment yet. */
        if (request_path_is_ambiguous(longer) || (!s->text[1] && request_path_has_encoded_slash(longer)))
                return false;
        memset(ret_tail, 0, TAIL_BYTES);
        (void)snprintf(ret_tail, TAIL_BYTES, "%.11s%.3s", is_slash ? "" : tail, is_slash ? "/" : s->text);
        shorten_tail(ret_tail);
        for (size_t n = strlen(ret_tail); n < TAIL_BYTES; n++)
                ret_tail[n] = '\0';
        return true;
}

/* ---- the walk */

/* Calls for each pattern's set in a key. */
static void for_each_set(const struct walk *w, uint8_t *at,
        void (*call)(const char *pattern, uint8_t *set, bool stars_stop, void *userdata), void *userdata)
{
        for (int stop = 0; stop <= (int)w->spells_slash; stop++)
                for (size_t i = 0; i < w->n; i++) {
                        call(w->patterns[i], at, stop, userdata);
                        at += strlen(w->patterns[i]) + 1;
                }
}

struct stepping {
        const struct symbol *symbol;
        uint8_t *spare;
};

static void step_one(const char *pattern, uint8_t *set, bool stars_stop, void *userdata)
{
        const struct stepping *s = userdata;

        step_set(pattern, s->symbol, stars_stop, set, s->spare);
}

static void begin_one(const char *pattern, uint8_t *set, bool stars_stop, void *userdata)
{
        (void)stars_stop;
        (void)userdata;
        set[1] = 1; /* every pattern begins with the slash that every path begins with */
        close_set(pattern, set);
}

static void judge_one(const char *pattern, uint8_t *set, bool stars_stop, void *userdata)
{
        struct verdict *v = userdata;

        (void)stars_stop;
        v->bytes[v->n++] = set[strlen(pattern)];
}

/* Parents are followed to the beginning. */
static int path_of(const struct walk *w, const struct state *s, char **ret)
{
        size_t n = 1;
        char *text;

        for (const struct state *p = s; p->parent; p = p->parent)
                n += strlen(w->symbols[p->symbol].text);
        text = malloc(n + 1);
        if (!text)
                return -ENOMEM;
        text[n] = '\0';
        text[0] = '/';
        for (const struct state *p = s; p->parent; p = p->parent) {
                size_t bytes = strlen(w->symbols[p->symbol].text);

                n -= bytes;
                memcpy(text + n, w->symbols[p->symbol].text, bytes);
        }
        *ret = text;
        return 0;
}

/* A path that ends here, if no other is like it to the patterns. */
static int take_path(struct walk *w, struct state *s)
{
        struct verdict *v;
        struct verdict **found;
        _cleanup_free_ char *path = NULL;

        if (request_path_is_ambiguous(s->key.tail))
                return 0;
        v = malloc(sizeof(*v) + 2 * w->n + 1);
        if (!v)
                return -ENOMEM;
        v->n = 0;
        v->bytes[v->n++] = s->key.has_slash;
        for_each_set(w, s->key.at, judge_one, v);
        found = tsearch(v, &w->verdicts, compare_verdicts);
        if (!found || *found != v) {
                free(v);
                return found ? 0 : -ENOMEM;
        }
        return path_of(w, s, &path) < 0 ? -ENOMEM : add_path(w, path);
}

/* Takes s. */
static int add_state(struct walk *w, struct state *s)
{
        struct known *known = malloc(sizeof(*known));
        struct known **found;

        if (!known) {
                free(s);
                return -ENOMEM;
        }
        *known = (struct known){w->key_bytes, &s->key};
        found = tsearch(known, &w->known, compare_known);
        if (!found || *found != known) {
                free(known);
                free(s);
                return found ? 0 : -ENOMEM;
        }
        w->states[w->states_n++] = s;
        return take_path(w, s);
}

static struct state *new_state(const struct walk *w, const struct state *parent, size_t symbol)
{
        struct state *s = calloc(1, sizeof(*s) + w->at_bytes);

        if (!s)
                return NULL;
        s->parent = parent;
        s->symbol = (uint8_t)symbol;
        if (parent)
                memcpy(&s->key, &parent->key, w->key_bytes);
        return s;
}

static int follow(struct walk *w, const struct state *from, uint8_t *spare)
{
        for (size_t i = 0; i < w->symbols_n; i++) {
                struct stepping stepping = {&w->symbols[i], spare};
                char tail[TAIL_BYTES];
                struct state *s;
                int r;

                if (!step_tail(from->key.tail, &w->symbols[i], tail))
                        continue;
                if (w->states_n == w->states_most) {
                        w->out->complete = false;
                        return 0;
                }
                s = new_state(w, from, i);
                if (!s)
                        return -ENOMEM;
                memcpy(s->key.tail, tail, sizeof(tail));
                s->key.has_slash |= w->symbols[i].text[1] != '\0';
                for_each_set(w, s->key.at, step_one, &stepping);
                r = add_state(w, s);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int walk_all(struct walk *w)
{
        _cleanup_free_ uint8_t *spare = malloc(w->at_bytes + 1);
        struct state *first;
        int r;

        w->states = calloc(w->states_most, sizeof(struct state *));
        first = new_state(w, NULL, 0);
        if (!w->states || !first || !spare) {
                free(first);
                return -ENOMEM;
        }
        first->key.tail[0] = '/';
        for_each_set(w, first->key.at, begin_one, NULL);
        r = add_state(w, first);
        for (size_t i = 0; i < w->states_n && r == 0; i++)
                r = follow(w, w->states[i], spare);
        return r;
}

/* These need no walk: the patterns have nothing to say of them. */
static int add_constants(struct walk *w)
{
        int r = add_path(w, "*");

        if (r == 0)
                r = add_path(w, "/x/../x");
        return r < 0 || w->spells_slash ? r : add_path(w, "/x%2Fx");
}

static void walk_done(struct walk *w)
{
        tdestroy(w->known, free);
        tdestroy(w->verdicts, free);
        for (size_t i = 0; i < w->states_n; i++)
                free(w->states[i]);
        free(w->states);
}

int path_witnesses_find(char *const *patterns, size_t n, struct path_witnesses *ret)
{
        struct path_witnesses out = {.complete = true};
        struct walk w = {.patterns = patterns, .n = n, .out = &out};
        int r;

        find_symbols(&w);
        for (size_t i = 0; i < n; i++)
                w.at_bytes += (strlen(patterns[i]) + 1) << w.spells_slash;
        w.key_bytes = sizeof(struct key) + w.at_bytes;
        w.states_most = STATES_BYTES / (w.at_bytes + sizeof(struct state)) + 1;
        if (w.states_most > STATES_MOST)
                w.states_most = STATES_MOST;
        if (w.states_most > STEPS_MOST / ((w.at_bytes + 1) * (w.symbols_n + 1)) + 1)
                w.states_most = STEPS_MOST / ((w.at_bytes + 1) * (w.symbols_n + 1)) + 1;
        r = walk_all(&w);
        if (r == 0)
                r = add_constants(&w);
        walk_done(&w);
        if (r < 0) {
                path_witnesses_done(&out);
                return r;
        }
        *ret = out;
        return 0;
}

void path_witnesses_done(struct path_witnesses *w)
{
        for (size_t i = 0; i < w->n; i++)
                free(w->paths[i]);
        free(w->paths);
        *w = (struct path_witnesses){0};
}
