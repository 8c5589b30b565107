/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/file_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "broker/policy_load.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"

#define RESOLV_CONF      "/etc/resolv.conf"
#define RESOLV_MAX_BYTES 65536u
#define PACKED_MAX_BYTES (UINT64_C(1) << 31)
#define FILES_MAX        (CONFIG_VMS_MAX + FILE_POLICIES)

DEFINE_CLEANUP(struct file_set *, file_set_free);
DEFINE_CLEANUP(struct config *, config_free);

void file_set_free(struct file_set *s)
{
        if (!s)
                return;
        for (size_t i = 0; i < s->n; i++) {
                free(s->files[i].name);
                free(s->files[i].text);
        }
        free(s->files);
        free(s);
}

static struct file_set *file_set_new(size_t most)
{
        struct file_set *s = calloc(1, sizeof(*s));

        if (s)
                s->files = calloc(most, sizeof(*s->files));
        if (s && !s->files) {
                free(s);
                s = NULL;
        }
        return s;
}

static int fail_at(struct yaml_error *e, const char *file, unsigned line, unsigned column, const char *what, int r)
{
        e->file = strdup(file);
        if (!e->file)
                return -ENOMEM;
        e->line = line;
        e->column = column;
        (void)snprintf(e->message, sizeof(e->message), "cannot read %s: %s", what, strerrordesc_np(-r));
        return YAML_E_INVALID;
}

/* One byte more than what is allowed is read, so that the parser is who refuses a file that is too large. */
static int add_file(struct file_set *s, const char *name, size_t most)
{
        struct file_text *f = &s->files[s->n];
        int r = io_read_file(name, most, &f->text, &f->n);

        if (r < 0)
                return r;
        s->n++;
        f->name = strdup(name);
        return f->name ? 0 : -ENOMEM;
}

/* A policy's path is relative to the configuration's directory. */
static char *policy_path(const char *config_path, const char *policy)
{
        const char *slash = strrchr(config_path, '/');
        char *path = NULL;

        if (policy[0] == '/' || !slash)
                return strdup(policy);
        return asprintf(&path, "%.*s/%s", (int)(slash - config_path), config_path, policy) < 0 ? NULL : path;
}

static const struct file_text *find_file(const struct file_set *s, const char *name)
{
        for (size_t i = FILE_POLICIES; i < s->n; i++)
                if (strcmp(s->files[i].name, name) == 0)
                        return &s->files[i];
        return NULL;
}

static int add_policies(
        struct file_set *s, const struct config *config, const char *config_path, struct yaml_error *ret_error)
{
        for (size_t i = 0; i < config->vms_n; i++) {
                const struct config_text *policy = &config->vms[i].policy;
                _cleanup_free_ char *path = policy_path(config_path, policy->text);
                int r;

                if (!path)
                        return -ENOMEM;
                if (find_file(s, path))
                        continue;
                r = add_file(s, path, YAML_MAX_BYTES + 1);
                if (r < 0)
                        return fail_at(ret_error, config_path, policy->line, policy->column, path, r);
        }
        return 0;
}

static int add_empty(struct file_set *s, const char *name)
{
        struct file_text *f = &s->files[s->n++];

        f->text = strdup("");
        f->name = strdup(name);
        return f->text && f->name ? 0 : -ENOMEM;
}

int file_set_read(const char *config_path, struct file_set **ret, struct yaml_error *ret_error)
{
        _cleanup_(file_set_freep) struct file_set *s = file_set_new(FILES_MAX);
        _cleanup_(config_freep) struct config *config = NULL;
        int r;

        if (!s)
                return -ENOMEM;
        r = add_file(s, config_path, YAML_MAX_BYTES + 1);
        if (r < 0)
                return fail_at(ret_error, config_path, 0, 0, "the file", r);
        /* Without one there are no servers to be found; then setup_load() takes the resolver of this machine. */
        if (add_file(s, RESOLV_CONF, RESOLV_MAX_BYTES) < 0 && add_empty(s, RESOLV_CONF) < 0)
                return -ENOMEM;
        r = config_load(config_path, s->files[FILE_CONFIG].text, s->files[FILE_CONFIG].n, &config, ret_error);
        if (r != 0)
                return r;
        /* Without it TLS is not intercepted, and all else goes on. */
        if ((!config->inspect_enabled || add_file(s, config->inspect_upstream_ca, INSPECT_TRUST_MAX_BYTES) < 0) &&
                add_empty(s, config->inspect_upstream_ca) < 0)
                return -ENOMEM;
        r = add_policies(s, config, config_path, ret_error);
        if (r == 0)
                *ret = STEAL(s);
        return r;
}

static int write_part(int fd, const char *bytes, uint64_t n)
{
        int r = io_write_full(fd, &n, sizeof(n));

        return r < 0 ? r : io_write_full(fd, bytes, n);
}

int file_set_pack(const struct file_set *s, int *ret_memfd)
{
        _cleanup_close_ int fd = memfd_create("wbbroker-files", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        if (fd < 0)
                return -errno;
        for (size_t i = 0; i < s->n; i++) {
                int r = write_part(fd, s->files[i].name, strlen(s->files[i].name));

                if (r == 0)
                        r = write_part(fd, s->files[i].text, s->files[i].n);
                if (r < 0)
                        return r;
        }
        if (lseek(fd, 0, SEEK_SET) < 0 ||
                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
                return -errno;
        *ret_memfd = steal_fd(&fd);
        return 0;
}

static int take_part(const char **at, const char *end, char **ret, size_t *ret_n)
{
        uint64_t n;
        char *part;

        if ((size_t)(end - *at) < sizeof(n))
                return -EBADMSG;
        memcpy(&n, *at, sizeof(n));
        *at += sizeof(n);
        if (n > (uint64_t)(end - *at))
                return -EBADMSG;
        part = malloc(n + 1);
        if (!part)
                return -ENOMEM;
        memcpy(part, *at, n);
        part[n] = '\0';
        *at += n;
        *ret = part;
        *ret_n = n;
        return 0;
}

int file_set_unpack(int memfd, struct file_set **ret)
{
        _cleanup_(file_set_freep) struct file_set *s = file_set_new(FILES_MAX);
        _cleanup_free_ char *bytes = NULL;
        const char *at;
        size_t n;
        int r;

        if (!s)
                return -ENOMEM;
        r = io_read_fd(memfd, PACKED_MAX_BYTES, &bytes, &n);
        if (r < 0)
                return r;
        for (at = bytes; at < bytes + n;) {
                struct file_text *f = &s->files[s->n];
                size_t name_n;

                if (s->n == FILES_MAX)
                        return -EBADMSG;
                s->n++;
                r = take_part(&at, bytes + n, &f->name, &name_n);
                if (r == 0)
                        r = take_part(&at, bytes + n, &f->text, &f->n);
                if (r < 0)
                        return r;
        }
        if (s->n < FILE_POLICIES)
                return -EBADMSG;
        *ret = STEAL(s);
        return 0;
}

/* `nameserver ADDRESS` lines; resolv.conf(5) reads at most three. */
#define RESOLVERS_MAX 3u
static size_t parse_resolvers(char *text, struct hostname ret[RESOLVERS_MAX])
{
        size_t n = 0;

        for (char *line = strsep(&text, "\n"); line && n < RESOLVERS_MAX; line = strsep(&text, "\n")) {
                char address[64];

                if (sscanf(line, "nameserver %63s", address) == 1 &&
                        hostname_parse_address(address, strlen(address), &ret[n]) == 0)
                        n++;
        }
        if (n == 0)
                (void)hostname_parse_address("127.0.0.1", sizeof("127.0.0.1") - 1, &ret[n++]);
        return n;
}

static int load_resolvers(struct setup *s, const struct file_text *resolv_conf)
{
        struct hostname system[RESOLVERS_MAX];
        const struct hostname *from = s->config->dns_servers;
        size_t n = s->config->dns_servers_n;

        if (n == 0) {
                _cleanup_free_ char *copy = strdup(resolv_conf->text);

                if (!copy)
                        return -ENOMEM;
                n = parse_resolvers(copy, system);
                from = system;
        }
        s->resolvers = calloc(n, sizeof(*from));
        if (!s->resolvers)
                return -ENOMEM;
        memcpy(s->resolvers, from, n * sizeof(*from));
        s->resolvers_n = n;
        return 0;
}

static int load_policies(struct setup *s, const struct file_set *files, struct yaml_error *ret_error)
{
        s->policies = calloc(s->config->vms_n + 1, sizeof(struct policy *));
        if (!s->policies)
                return -ENOMEM;
        for (size_t i = 0; i < s->config->vms_n; i++) {
                _cleanup_free_ char *path = policy_path(files->files[FILE_CONFIG].name, s->config->vms[i].policy.text);
                const struct file_text *f = path ? find_file(files, path) : NULL;
                int r;

                if (!f)
                        return path ? -EBADMSG : -ENOMEM;
                r = policy_load(f->name, f->text, f->n, &s->policies[i], ret_error);
                if (r != 0)
                        return r;
        }
        return 0;
}

static int load_trust(struct setup *s, const struct file_text *bundle)
{
        return s->config->inspect_enabled && bundle->n ? inspect_trust_new(bundle->text, bundle->n, &s->trust) : 0;
}

/* A bundle that is none is as one that is not there. */
void setup_check_trust(struct setup *s, const struct setup *before)
{
        bool is_known = before && inspect_trust_is_same(s->trust, before->trust);

        if (!s->trust || is_known || inspect_trust_check(s->trust) == 0)
                return;
        inspect_trust_unref(s->trust);
        s->trust = NULL;
}

int setup_load(const struct file_set *files, struct setup **ret, struct yaml_error *ret_error)
{
        const struct file_text *config = &files->files[FILE_CONFIG];
        struct setup *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        r = config_load(config->name, config->text, config->n, &s->config, ret_error);
        if (r == 0)
                r = load_resolvers(s, &files->files[FILE_RESOLV_CONF]);
        if (r == 0)
                r = load_trust(s, &files->files[FILE_UPSTREAM_CA]);
        if (r == 0)
                r = load_policies(s, files, ret_error);
        if (r != 0) {
                setup_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

void setup_free(struct setup *s)
{
        if (!s)
                return;
        for (size_t i = 0; s->policies && i < s->config->vms_n; i++)
                policy_unref(s->policies[i]);
        config_free(s->config);
        inspect_trust_unref(s->trust);
        free(s->policies);
        free(s->resolvers);
        free(s);
}
