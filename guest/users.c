/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/users.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/parse.h"

#define FILE_MAX_BYTES (4u * 1024u * 1024u)

/* A piece of text between separators; not terminated. */
struct piece {
        const char *p;
        size_t n;
};

static bool piece_is(struct piece a, struct piece b)
{
        return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

/* The next piece of *rest up to separator or the end; false when nothing is left. */
static bool next_piece(const char **rest, const char *end, char separator, struct piece *ret)
{
        const char *stop;

        if (!*rest || *rest > end)
                return false;
        stop = memchr(*rest, separator, (size_t)(end - *rest));
        if (!stop)
                stop = end;
        *ret = (struct piece){*rest, (size_t)(stop - *rest)};
        *rest = stop == end ? NULL : stop + 1;
        return true;
}

#define FIELDS_MAX 7

/* A line's fields between colons; those that are not there are empty. */
static size_t split_fields(struct piece line, struct piece fields[FIELDS_MAX])
{
        const char *rest = line.p;
        size_t n = 0;

        for (size_t i = 0; i < FIELDS_MAX; i++)
                fields[i] = (struct piece){"", 0};
        while (n < FIELDS_MAX && next_piece(&rest, line.p + line.n, ':', &fields[n]))
                n++;
        return n;
}

static bool piece_id(struct piece piece, uint32_t *ret)
{
        char text[16];
        uint64_t value;

        if (piece.n == 0 || piece.n >= sizeof(text))
                return false;
        memcpy(text, piece.p, piece.n);
        text[piece.n] = '\0';
        if (parse_u64(text, UINT32_MAX - 1, &value) < 0) /* (uid_t)-1 means "unchanged" to the kernel */
                return false;
        *ret = (uint32_t)value;
        return true;
}

struct passwd_entry {
        struct piece name;
        struct piece home;
        uid_t uid;
        gid_t gid;
};

/* The entry of that name, or, where by_uid, of that number; the first one counts. */
static bool find_passwd(const char *passwd, struct piece name, const uid_t *by_uid, struct passwd_entry *ret)
{
        const char *rest = passwd, *end = passwd + strlen(passwd);
        struct piece line;

        while (next_piece(&rest, end, '\n', &line)) {
                struct piece f[FIELDS_MAX];
                struct passwd_entry e;

                if (split_fields(line, f) < 6 || f[0].n == 0 || !piece_id(f[2], &e.uid) || !piece_id(f[3], &e.gid))
                        continue;
                if (by_uid ? e.uid != *by_uid : !piece_is(f[0], name))
                        continue;
                e.name = f[0];
                e.home = f[5];
                *ret = e;
                return true;
        }
        return false;
}

static bool find_group(const char *group, struct piece name, gid_t *ret)
{
        const char *rest = group, *end = group + strlen(group);
        struct piece line;

        while (next_piece(&rest, end, '\n', &line)) {
                struct piece f[FIELDS_MAX];

                if (split_fields(line, f) >= 3 && piece_is(f[0], name) && piece_id(f[2], ret))
                        return true;
        }
        return false;
}

static int add_group(struct identity *who, gid_t gid)
{
        for (size_t i = 0; i < who->groups_n; i++)
                if (who->groups[i] == gid)
                        return 0;
        if (who->groups_n == USERS_GROUPS_MAX)
                return -E2BIG;
        who->groups[who->groups_n++] = gid;
        return 0;
}

static bool lists(struct piece members, struct piece name)
{
        const char *rest = members.p;
        struct piece member;

        while (next_piece(&rest, members.p + members.n, ',', &member))
                if (piece_is(member, name))
                        return true;
        return false;
}

static int add_listed_groups(struct identity *who, const char *group, struct piece name)
{
        const char *rest = group, *end = group + strlen(group);
        struct piece line;

        while (next_piece(&rest, end, '\n', &line)) {
                struct piece f[FIELDS_MAX];
                gid_t gid;
                int r;

                if (split_fields(line, f) < 4 || !piece_id(f[2], &gid) || !lists(f[3], name))
                        continue;
                r = add_group(who, gid);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int unknown(struct piece name, char **ret_fault)
{
        char *fault = strndup(name.p, name.n);

        if (!fault)
                return -ENOMEM;
        *ret_fault = fault;
        return USERS_E_UNKNOWN;
}

static void copy_piece(struct piece from, char *to, size_t room)
{
        size_t n = from.n < room ? from.n : room - 1;

        memcpy(to, from.p, n);
        to[n] = '\0';
}

/* Everything but the groups. */
static int find_user(const char *passwd, struct piece user, struct identity *who, bool *ret_known, char **ret_fault)
{
        struct passwd_entry e = {.home = {"", 0}};
        uid_t uid;
        bool is_number = piece_id(user, &uid);
        bool known = find_passwd(passwd, user, is_number ? &uid : NULL, &e);

        if (!known && !is_number)
                return unknown(user, ret_fault);
        who->uid = known ? e.uid : uid;
        who->gid = known ? e.gid : (gid_t)uid;
        copy_piece(known ? e.name : user, who->name, sizeof(who->name));
        if (known && e.home.n && e.home.p[0] == '/')
                copy_piece(e.home, who->home, sizeof(who->home));
        else
                (void)snprintf(who->home, sizeof(who->home), "%s", who->uid == 0 ? "/root" : "/");
        if (!known && who->uid == 0)
                (void)snprintf(who->name, sizeof(who->name), "root");
        *ret_known = known;
        return 0;
}

static int resolve_group(const char *group, struct piece name, gid_t *ret, char **ret_fault)
{
        if (piece_id(name, ret) || find_group(group, name, ret))
                return 0;
        return unknown(name, ret_fault);
}

int users_find(const char *passwd, const char *group, const char *spec, struct identity *ret, char **ret_fault)
{
        const char *rest = *spec ? spec : "0";
        const char *end = rest + strlen(rest);
        struct identity who = {0};
        struct piece head = {0}, user = {0}, primary = {0}, extra = {0};
        const char *in_head;
        bool known = false;
        int r;

        (void)next_piece(&rest, end, ',', &head);
        in_head = head.p;
        (void)next_piece(&in_head, head.p + head.n, ':', &user);
        r = find_user(passwd, user, &who, &known, ret_fault);
        if (r != 0)
                return r;
        if (in_head) {
                primary = (struct piece){in_head, (size_t)(head.p + head.n - in_head)};
                r = resolve_group(group, primary, &who.gid, ret_fault);
                if (r == 0)
                        r = add_group(&who, who.gid);
        } else {
                r = add_group(&who, who.gid);
                if (r == 0 && known)
                        r = add_listed_groups(&who, group, (struct piece){who.name, strlen(who.name)});
        }
        while (r == 0 && next_piece(&rest, end, ',', &extra)) {
                gid_t gid;

                r = resolve_group(group, extra, &gid, ret_fault);
                if (r == 0)
                        r = add_group(&who, gid);
        }
        if (r == 0)
                *ret = who;
        return r;
}

static int read_or_empty(const char *path, char **ret_text)
{
        int r = io_read_file(path, FILE_MAX_BYTES, ret_text, NULL);

        if (r == -ENOENT) {
                *ret_text = strdup("");
                return *ret_text ? 0 : -ENOMEM;
        }
        return r;
}

int users_resolve(const char *spec, struct identity *ret, char **ret_fault)
{
        _cleanup_free_ char *passwd = NULL, *group = NULL;
        int r = read_or_empty("/etc/passwd", &passwd);

        if (r == 0)
                r = read_or_empty("/etc/group", &group);
        return r < 0 ? r : users_find(passwd, group, spec, ret, ret_fault);
}
