/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/network.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <event2/event.h>

#include "guest/agent.h"
#include "guest/child.h"
#include "guest/forwarder.h"
#include "guest/identity.h"
#include "guest/listeners.h"
#include "guest/resolv_conf.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/wire/limits.h"

#define CA_FILE      IDENTITY_RUN_DIR "/ca.pem"
#define CA_NEXT_FILE CA_FILE ".next"

/* A forwarder that lived this long was well; one that did not is restarted ever later. */
#define HEALTHY_NS       (10 * NSEC_PER_SEC)
#define BACKOFF_FIRST_MS 50u
#define BACKOFF_MOST_MS  5000u

struct network {
        struct agent *agent;
        struct child forwarder;
        struct event *restart;
        struct listeners listeners; /* outlive a forwarder */
        bool egress;                /* what the last activation that spoke of the network asked for */
        uint16_t ports[LISTENERS_PORTS_MAX];
        size_t ports_n;
        unsigned backoff_ms;
        uint64_t spawned_ns;
};

/* ---- the environment of workloads */

/* Every client reads another spelling; curl reads only the lower case for http. */
static const char *const proxy_names[] = {
        "http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"};
static const char *const no_proxy_names[] = {"no_proxy", "NO_PROXY"};
/* OpenSSL, curl, Python requests, git, Node.js, Rust (rustls-native-certs reads the first), Deno. */
static const char *const ca_names[] = {
        "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "DENO_CERT"};

#define N(array) (sizeof(array) / sizeof((array)[0]))
#define ENV_MOST (N(proxy_names) + N(no_proxy_names) + N(ca_names))

static int add_all(char **env, size_t *n, const char *const *names, size_t names_n, const char *value)
{
        for (size_t i = 0; i < names_n; i++) {
                if (asprintf(&env[*n], "%s=%s", names[i], value) < 0) {
                        env[*n] = NULL;
                        return -ENOMEM;
                }
                (*n)++;
        }
        return 0;
}

void network_free_env(char **env)
{
        for (char **e = env; e && *e; e++)
                free(*e);
        free(env);
}

static void free_envp(char ***env)
{
        network_free_env(*env);
}

int network_make_env(bool egress, const char *ca_file, char ***ret)
{
        _cleanup_(free_envp) char **env = calloc(ENV_MOST + 1, sizeof(*env));
        char proxy[64];
        size_t n = 0;
        int r = 0;

        if (!env)
                return -ENOMEM;
        (void)snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%u", WB_FORWARDER_PORT);
        if (egress) {
                r = add_all(env, &n, proxy_names, N(proxy_names), proxy);
                if (r == 0)
                        r = add_all(env, &n, no_proxy_names, N(no_proxy_names), "localhost,127.0.0.1,::1");
        }
        if (r == 0 && ca_file)
                r = add_all(env, &n, ca_names, N(ca_names), ca_file);
        if (r < 0)
                return r;
        *ret = STEAL(env);
        return 0;
}

/* ---- the CA bundle */

/* Where distributions keep the image's own certificates as one file. */
static const char *const image_bundles[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

static int append_file(int to, const char *path)
{
        _cleanup_close_ int from = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        char part[4096];
        ssize_t got;

        if (from < 0)
                return -errno;
        while ((got = read(from, part, sizeof(part))) > 0) {
                int r = io_write_full(to, part, (size_t)got);

                if (r < 0)
                        return r;
        }
        return got < 0 ? -errno : 0;
}

const char *network_image_bundle(void)
{
        for (size_t i = 0; i < N(image_bundles); i++)
                if (access(image_bundles[i], R_OK) == 0)
                        return image_bundles[i];
        return NULL;
}

static int append_image_bundle(int to)
{
        for (size_t i = 0; i < N(image_bundles); i++) {
                int r = append_file(to, image_bundles[i]);

                if (r != -ENOENT)
                        return r;
        }
        return 0;
}

static int write_bundle(const struct network_config *config)
{
        _cleanup_close_ int fd = -1;
        int r;

        if (mkdir(IDENTITY_RUN_DIR, 0755) < 0 && errno != EEXIST)
                return -errno;
        fd = open(CA_NEXT_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
                return -errno;
        r = append_image_bundle(fd);
        for (size_t i = 0; r == 0 && i < config->ca_n; i++) {
                r = io_write_full(fd, "\n", 1);
                if (r == 0)
                        r = io_write_full(fd, config->ca[i].bytes, config->ca[i].n);
        }
        if (r < 0)
                return r;
        return rename(CA_NEXT_FILE, CA_FILE) < 0 ? -errno : 0;
}

/* ---- the forwarder's life */

static void restart_later(struct network *network)
{
        struct timeval delay = {network->backoff_ms / 1000, (suseconds_t)(network->backoff_ms % 1000) * 1000};

        (void)evtimer_add(network->restart, &delay);
        network->backoff_ms = network->backoff_ms * 2 > BACKOFF_MOST_MS ? BACKOFF_MOST_MS : network->backoff_ms * 2;
}

static void on_forwarder_ended(struct child *child, int wait_status)
{
        struct network *network = (struct network *)((char *)child - offsetof(struct network, forwarder));

        if (WIFSIGNALED(wait_status))
                log_warning("the forwarder was ended by signal %d", WTERMSIG(wait_status));
        else
                log_warning("the forwarder ended with status %d", WEXITSTATUS(wait_status));
        if (clock_monotonic_ns() - network->spawned_ns > HEALTHY_NS)
                network->backoff_ms = BACKOFF_FIRST_MS;
        restart_later(network);
}

static int spawn_forwarder(struct network *network)
{
        const struct transport *t = &network->agent->transport;
        const struct listeners *l = &network->listeners;
        char *argv[] = {(char *)(uintptr_t) "wbagent", (char *)(uintptr_t)FORWARDER_ARGUMENT,
                (char *)(uintptr_t)(t->kind == TRANSPORT_UNIX ? t->path : FORWARDER_VSOCK), (char *)(uintptr_t)l->roles,
                NULL};
        char *env[] = {NULL};
        struct child_spec spec = {.path = "/proc/self/exe", .argv = argv, .env = env, .fds = l->fds, .fds_n = l->n};

        network->spawned_ns = clock_monotonic_ns();
        return child_spawn(network->agent, &spec, on_forwarder_ended, &network->forwarder);
}

static void on_restart(evutil_socket_t fd, short events, void *userdata)
{
        struct network *network = userdata;
        int r = spawn_forwarder(network);

        (void)fd;
        (void)events;
        if (r < 0) {
                (void)log_errno(r, "cannot start the forwarder");
                restart_later(network);
        }
}

/* ---- the interface */

int network_new(struct agent *agent, struct network **ret)
{
        struct network *network = calloc(1, sizeof(*network));

        if (!network)
                return -ENOMEM;
        network->agent = agent;
        network->backoff_ms = BACKOFF_FIRST_MS;
        network->listeners = LISTENERS_NONE;
        network->restart = evtimer_new(agent->base, on_restart, network);
        if (!network->restart) {
                free(network);
                return -ENOMEM;
        }
        *ret = network;
        return 0;
}

void network_stop(struct network *network)
{
        (void)evtimer_del(network->restart);
        child_kill(&network->forwarder);
        listeners_close(&network->listeners);
}

void network_free(struct network *network)
{
        if (!network)
                return;
        network_stop(network);
        event_free(network->restart);
        free(network);
}

static int start_forwarder(struct network *network, struct report *report)
{
        const struct agent *agent = network->agent;
        int r = listeners_open(&network->listeners, agent->transparent, network->ports, network->ports_n, report);

        if (r < 0)
                return report_errno(report, r, "listening on 127.0.0.1:%u", WB_FORWARDER_PORT);
        network->backoff_ms = BACKOFF_FIRST_MS;
        r = spawn_forwarder(network);
        if (r < 0)
                return report_errno(report, r, "starting the forwarder");
        network->egress = true;
        if (network->listeners.has_names)
                (void)resolv_conf_install(report);
        report_fact(report, "forwarder_pid", "%d", (int)network->forwarder.pid);
        return 0;
}

int network_apply(struct network *network, const struct network_config *config, struct report *report)
{
        char **env = NULL;
        int r;

        if (config->ca_n) {
                r = write_bundle(config);
                if (r < 0)
                        return report_errno(report, r, CA_FILE);
                report_fact(report, "ca_file", CA_FILE);
        } else if (unlink(CA_FILE) < 0 && errno != ENOENT) {
                return report_errno(report, -errno, CA_FILE);
        }
        r = network_make_env(config->egress && network->agent->proxy_variables, config->ca_n ? CA_FILE : NULL, &env);
        if (r < 0)
                return report_errno(report, r, "the proxy variables");
        network_free_env(network->agent->workload_env);
        network->agent->workload_env = env;
        network->egress = config->egress;
        network->ports_n = config->ports_n;
        memcpy(network->ports, config->ports, config->ports_n * sizeof(config->ports[0]));
        return network_resume(network, report);
}

int network_resume(struct network *network, struct report *report)
{
        int r;

        network_stop(network);
        if (!network->egress) {
                report_detail(report, "no way out");
                return 0;
        }
        r = start_forwarder(network, report);
        if (r == 0)
                report_detail(report, "workloads reach the broker's proxy at 127.0.0.1:%u%s", WB_FORWARDER_PORT,
                        network->listeners.has_names ? ", and by the names that they look up" : "");
        return r;
}

bool network_has_egress(const struct network *network)
{
        return network->egress;
}

const char *network_forwarder_state(const struct network *network)
{
        if (child_is_running(&network->forwarder))
                return "running";
        return evtimer_pending(network->restart, NULL) ? "restarting" : "stopped";
}
