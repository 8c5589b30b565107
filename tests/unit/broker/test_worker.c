/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/capacity.h"
#include "broker/name_budget.h"
#include "broker/policy_load.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "tests/support/suite.h"

#define SKIPPED 77 /* for ctest: SKIP_RETURN_CODE */

/*
 * A whole worker with its audit log, driven from the guest's side and from the server's. The server is a service of the
 * operator's on a unix socket, so that nothing leaves the directory.
 */

#define PATIENCE_MS 5000

struct world {
        char dir[64];
        struct audit *audit;
        struct worker_settings *settings;
        struct worker *worker;
        struct vm *vm;
        struct policy *policy;
        int origin; /* listening */
};

static const char open_policy[] = "network: allowlist_domain\n"
                                  "egress_rules:\n"
                                  "  - {pattern: origin.example.org, ports: [7], protocol: tcp}\n"
                                  "  - {pattern: origin.example.org, ports: [80]}\n";

static int listen_at(const char *dir, const char *name)
{
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s/%s", dir, name);
        CU_ASSERT_FATAL(fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(at)) && !listen(fd, 512));
        return fd;
}

static int dial(const struct world *w)
{
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s/1025", w->dir);
        CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
        return fd;
}

static struct policy *load(const char *text)
{
        struct yaml_error error = {0};
        struct policy *policy = NULL;

        if (policy_load("test", text, strlen(text), &policy, &error))
                yaml_error_print(&error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(policy);
        return policy;
}

static struct worker_settings *make_settings(const struct world *w)
{
        struct worker_settings *s = calloc(1, sizeof(*s));
        static const uint16_t ports[] = {7, 80};

        s->refs = 1;
        s->services = calloc(1, sizeof(*s->services));
        s->services_n = 1;
        s->services[0].name = strdup("origin.example.org");
        s->services[0].ports = malloc(sizeof(ports));
        memcpy(s->services[0].ports, ports, sizeof(ports));
        s->services[0].ports_n = 2;
        s->services[0].connect = malloc(128);
        (void)snprintf(s->services[0].connect, 128, "unix:%s/origin", w->dir);
        s->dns_servers = calloc(1, sizeof(*s->dns_servers));
        s->dns_servers_n = 1;
        (void)hostname_parse_address("127.0.0.1", 9, s->dns_servers);
        s->dns_timeout_ms = 100;
        s->request_head_ms = s->client_hello_ms = 2000;
        s->connect_ms = 2000;
        s->idle_ms = 20000;
        s->audit_required = true;
        return s;
}

static void add_vm(struct world *w, const char *policy, bool ready)
{
        int listeners[] = {listen_at(w->dir, "1025")};
        struct vm_config config = {.name = "one", .listeners = listeners, .listeners_n = 1, .ready = ready};

        w->policy = config.policy = load(policy);
        CU_ASSERT_EQUAL_FATAL(worker_vm_add(w->worker, &config, &w->vm), 0);
}

static void world_open(struct world *w, const char *policy, bool ready)
{
        struct audit_options options = {
                .rotate_bytes = 1 << 26, .sync = AUDIT_SYNC_EACH, .required = true, .notary_fd = -1};

        *w = (struct world){.dir = "/tmp/wb-worker-XXXXXX"};
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(w->dir));
        options.dir = w->dir;
        CU_ASSERT_EQUAL_FATAL(audit_new(&options, &w->audit), 0);
        w->origin = listen_at(w->dir, "origin");
        w->settings = make_settings(w);
        CU_ASSERT_EQUAL_FATAL(worker_new(w->audit, w->settings, &w->worker), 0);
        add_vm(w, policy, ready);
}

static void world_close(struct world *w)
{
        char path[320];
        DIR *dir = opendir(w->dir);

        worker_free(w->worker);
        audit_free(w->audit);
        policy_unref(w->policy);
        worker_settings_unref(w->settings);
        close(w->origin);
        for (struct dirent *e; (e = readdir(dir));) {
                (void)snprintf(path, sizeof(path), "%s/%s", w->dir, e->d_name);
                (void)unlink(path);
        }
        closedir(dir);
        CU_ASSERT_EQUAL(rmdir(w->dir), 0);
}

static void say(int fd, const char *text)
{
        CU_ASSERT_EQUAL(io_write_full(fd, text, strlen(text)), 0);
}

static bool readable(int fd, int wait_ms)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        return poll(&p, 1, wait_ms) == 1;
}

/* Reads until the text ends with `end` (NULL: until the connection ends). The text lives until the next call. */
static const char *hear(int fd, const char *end)
{
        static char text[65536];
        size_t n = 0;

        while (n + 1 < sizeof(text) && readable(fd, PATIENCE_MS)) {
                ssize_t k = read(fd, text + n, sizeof(text) - 1 - n);

                if (k <= 0)
                        break;
                n += (size_t)k;
                text[n] = '\0';
                if (end && n >= strlen(end) && !strcmp(text + n - strlen(end), end))
                        return text;
        }
        text[n] = '\0';
        return text;
}

static bool over(int fd)
{
        char byte;

        return readable(fd, PATIENCE_MS) && read(fd, &byte, 1) <= 0;
}

static int origin_accept(const struct world *w)
{
        CU_ASSERT_FATAL(readable(w->origin, PATIENCE_MS));
        return accept4(w->origin, NULL, NULL, SOCK_CLOEXEC);
}

static int tunnel(const struct world *w, unsigned port, int *ret_server)
{
        int client = dial(w);
        char head[256];

        (void)snprintf(head, sizeof(head),
                "CONNECT origin.example.org:%u HTTP/1.1\r\nHost: origin.example.org:%u\r\n\r\n", port, port);
        say(client, head);
        CU_ASSERT_PTR_NOT_NULL_FATAL(strstr(hear(client, "\r\n\r\n"), " 200 "));
        *ret_server = origin_accept(w);
        return client;
}

static const char *refusal(const struct world *w, int port)
{
        int client = dial(w);
        char head[256];

        (void)snprintf(
                head, sizeof(head), "CONNECT origin.example.org:%d HTTP/1.1\r\nHost: origin.example.org\r\n\r\n", port);
        say(client, head);
        const char *text = hear(client, NULL);
        close(client);
        return text;
}

/* How often text stands in the audit log. */
static unsigned logged(const struct world *w, const char *text)
{
        _cleanup_free_ char *log = NULL;
        char path[128];
        unsigned count = 0;
        size_t n;

        (void)snprintf(path, sizeof(path), "%s/audit.log", w->dir);
        if (io_read_file(path, 1 << 24, &log, &n))
                return 0;
        for (const char *p = log; (p = strstr(p, text)); p++)
                count++;
        return count;
}

static bool logged_soon(const struct world *w, const char *text, unsigned count)
{
        for (unsigned i = 0; i < 200 && logged(w, text) < count; i++)
                usleep(10000);
        return logged(w, text) == count;
}

static unsigned open_fds(void)
{
        DIR *dir = opendir("/proc/self/fd");
        unsigned n = 0;

        while (readdir(dir))
                n++;
        closedir(dir);
        return n;
}

static uint64_t sessions_open(const struct world *w)
{
        struct vm_stats stats = {0};

        (void)worker_vm_stats(w->worker, w->vm, &stats);
        return stats.sessions_open;
}

static bool sessions_end(const struct world *w)
{
        for (unsigned i = 0; i < 500 && sessions_open(w); i++)
                usleep(10000);
        return !sessions_open(w);
}

static void test_tunnel(void)
{
        struct world w;
        int server;

        world_open(&w, open_policy, true);
        int client = tunnel(&w, 7, &server);
        CU_ASSERT_EQUAL(logged(&w, "\"egress_open\""), 1);
        say(client, "ping");
        CU_ASSERT_STRING_EQUAL(hear(server, "ping"), "ping");
        CU_ASSERT_EQUAL(shutdown(client, SHUT_WR), 0);
        CU_ASSERT(over(server));
        say(server, "pong, later");
        close(server);
        CU_ASSERT_STRING_EQUAL(hear(client, NULL), "pong, later");
        close(client);
        CU_ASSERT(logged_soon(&w, "\"bytes_up\":4,\"bytes_down\":11", 1));
        CU_ASSERT(sessions_end(&w));
        world_close(&w);
}

static void test_not_ready_then_ready(void)
{
        struct world w;
        int server;

        world_open(&w, open_policy, false);
        CU_ASSERT_PTR_NOT_NULL(strstr(refusal(&w, 7), "details=\"not_ready\""));
        CU_ASSERT_EQUAL(worker_vm_set_ready(w.worker, w.vm, true, 3, NULL), 0);
        int client = tunnel(&w, 7, &server);
        CU_ASSERT(logged_soon(&w, "\"gen\":3", 1));
        CU_ASSERT_EQUAL(worker_vm_set_ready(w.worker, w.vm, false, 3, NULL), 0);
        CU_ASSERT(over(client));
        CU_ASSERT(over(server));
        CU_ASSERT(logged_soon(&w, "\"not_ready\"", 2));
        close(client);
        close(server);
        world_close(&w);
}

static void test_revoke(void)
{
        struct world w;
        int server;

        world_open(&w, open_policy, true);
        int client = tunnel(&w, 7, &server);
        int idle = dial(&w);
        CU_ASSERT_EQUAL(worker_vm_revoke(w.worker, w.vm), 0);
        CU_ASSERT(over(client));
        CU_ASSERT(over(server));
        CU_ASSERT(over(idle));
        CU_ASSERT_PTR_NOT_NULL(strstr(refusal(&w, 7), "details=\"revoked\""));
        CU_ASSERT(logged_soon(&w, "\"revoked\"", 2));
        close(client);
        close(server);
        close(idle);
        world_close(&w);
}

static void set_policy(struct world *w, const char *text)
{
        struct policy *policy = load(text);

        CU_ASSERT_EQUAL(worker_vm_set_policy(w->worker, w->vm, policy), 0);
        policy_unref(policy);
}

/* What no longer passes is cut; what still does is left alone and counts under the new rule. */
static void test_policy_is_replaced(void)
{
        struct world w;
        int server, other_server;

        world_open(&w, open_policy, true);
        int client = tunnel(&w, 7, &server), other = tunnel(&w, 80, &other_server);
        set_policy(&w, "network: allowlist_domain\n"
                       "egress_rules: [{pattern: '*.example.org', ports: [7], protocol: tcp, max_connections: 1}]\n");
        CU_ASSERT(over(other));
        CU_ASSERT(over(other_server));
        CU_ASSERT(logged_soon(&w, "\"port_not_allowed\"", 1));
        say(client, "still");
        CU_ASSERT_STRING_EQUAL(hear(server, "still"), "still");
        CU_ASSERT_PTR_NOT_NULL(strstr(refusal(&w, 7), "details=\"connection_limit\""));
        close(client);
        close(server);
        CU_ASSERT(sessions_end(&w));
        client = tunnel(&w, 7, &server);
        close(client);
        close(server);
        close(other);
        close(other_server);
        world_close(&w);
}

/* An upgraded connection is still the request that it was when a new policy judges it. */
static void test_upgraded_request_is_judged_again(void)
{
        struct world w;

        world_open(&w, open_policy, true);
        int client = dial(&w);
        say(client, "GET http://origin.example.org/chat HTTP/1.1\r\nHost: origin.example.org\r\n"
                    "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        int server = origin_accept(&w);
        (void)hear(server, "\r\n\r\n");
        say(server, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        CU_ASSERT_PTR_NOT_NULL(strstr(hear(client, "\r\n\r\n"), " 101 "));
        say(client, "frame");
        CU_ASSERT_STRING_EQUAL(hear(server, "frame"), "frame");

        set_policy(&w, "network: allowlist_domain\n"
                       "egress_rules: [{pattern: origin.example.org, http_paths: [/chat]}]\n");
        say(client, "more");
        CU_ASSERT_STRING_EQUAL(hear(server, "more"), "more");
        set_policy(&w, "network: allowlist_domain\n"
                       "egress_rules: [{pattern: origin.example.org, http_paths: [/other]}]\n");
        CU_ASSERT(over(client));
        CU_ASSERT(over(server));
        CU_ASSERT(logged_soon(&w, "\"path_not_allowed\"", 1));
        close(client);
        close(server);
        world_close(&w);
}

static unsigned still_open(const int *fds, unsigned n)
{
        unsigned count = 0;

        for (unsigned i = 0; i < n; i++) {
                char byte;
                count += recv(fds[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
        }
        return count;
}

/* A smaller share takes the latest connections, and its number holds for new ones. */
static void test_share(void)
{
        struct capacity_share share = {.sessions = 5, .bytes = 1 << 20, .relay_pipes = 1};
        struct world w;
        int clients[8], servers[8];

        world_open(&w, open_policy, true);
        for (unsigned i = 0; i < 8; i++)
                clients[i] = tunnel(&w, 7, &servers[i]);
        CU_ASSERT_EQUAL(worker_set_share(w.worker, &share), 0);
        CU_ASSERT_EQUAL(still_open(clients, 8), 5);
        CU_ASSERT_EQUAL(still_open(clients, 5), 5);
        CU_ASSERT(logged_soon(&w, "\"connection_limit\"", 3));
        int late = dial(&w); /* is told before it says anything */
        CU_ASSERT_PTR_NOT_NULL(strstr(hear(late, NULL), "details=\"connection_limit\""));
        close(late);
        for (unsigned i = 0; i < 5; i++) { /* with a pipe for one of ten directions */
                say(clients[i], "up");
                CU_ASSERT_STRING_EQUAL(hear(servers[i], "up"), "up");
        }
        for (unsigned i = 0; i < 8; i++) {
                close(clients[i]);
                close(servers[i]);
        }
        CU_ASSERT(sessions_end(&w));
        world_close(&w);
}

static void test_connections_are_counted(void)
{
        struct world w;
        int servers[2];

        world_open(&w, "network: public\nlimits: {max_connections: 1}\n", true);
        for (unsigned i = 0; i < 20; i++) {
                int client = tunnel(&w, 7, &servers[0]);
                CU_ASSERT_PTR_NOT_NULL(strstr(refusal(&w, 7), " 429 "));
                close(client);
                CU_ASSERT(over(servers[0]));
                close(servers[0]);
                CU_ASSERT(sessions_end(&w));
        }
        world_close(&w);
}

static void test_requests_per_s(void)
{
        struct world w;
        unsigned allowed = 0, limited = 0;

        world_open(&w, "network: public\nlimits: {requests_per_s: 5}\n", true);
        for (unsigned i = 0; i < 12; i++) {
                const char *text = refusal(&w, 9); /* port 9 is no service: a name that does not resolve */

                if (strstr(text, "details=\"rate_limited\"")) {
                        CU_ASSERT_PTR_NOT_NULL(strstr(text, "Retry-After: 1\r\n"));
                        limited++;
                } else {
                        allowed++;
                }
        }
        CU_ASSERT(allowed >= 5 && limited > 0);
        world_close(&w);
}

/* Names that the guest makes up are looked up so often and no more; those that the policy spells are. */
static void test_names_looked_up(void)
{
        struct world w;
        unsigned limited = 0;

        world_open(&w,
                "network: allowlist_domain\negress_rules:\n  - {pattern: '*.wild.example.org', ports: [80]}\n"
                "  - {pattern: spelt.example.org, ports: [80]}\n",
                true);
        int client = dial(&w);
        for (unsigned i = 0; i < NAME_BUDGET_LOOKUP_NAMES + 3; i++) {
                char head[256];

                (void)snprintf(head, sizeof(head),
                        "HEAD http://n%u.wild.example.org/ HTTP/1.1\r\nHost: n%u.wild.example.org\r\n\r\n", i, i);
                say(client, head);
                const char *text = hear(client, "\r\n\r\n");
                CU_ASSERT((strstr(text, "details=\"rate_limited\"") != NULL) == (i >= NAME_BUDGET_LOOKUP_NAMES));
                limited += strstr(text, "details=\"rate_limited\"") && strstr(text, "Retry-After: ");
        }
        CU_ASSERT_EQUAL(limited, 3);
        say(client, "HEAD http://spelt.example.org/ HTTP/1.1\r\nHost: spelt.example.org\r\n\r\n");
        CU_ASSERT_PTR_NULL(strstr(hear(client, "\r\n\r\n"), "rate_limited"));
        close(client);
        world_close(&w);
}

static void test_quota(void)
{
        struct world w;
        int server;
        char text[400];

        world_open(&w, "network: public\nlimits: {quota_bytes: 1000}\n", true);
        int client = tunnel(&w, 7, &server);
        memset(text, 'q', sizeof(text));
        for (unsigned i = 0; i < 2; i++)
                CU_ASSERT_EQUAL(io_write_full(client, text, sizeof(text)), 0);
        CU_ASSERT_EQUAL(io_write_full(server, text, sizeof(text)), 0);
        CU_ASSERT_EQUAL(strlen(hear(server, NULL)) + strlen(hear(client, NULL)), 1000);
        CU_ASSERT(logged_soon(&w, "\"quota_exceeded\"", 1));
        close(client);
        close(server);
        CU_ASSERT_PTR_NOT_NULL(strstr(refusal(&w, 7), "details=\"quota_exceeded\""));
        world_close(&w);
}

/* Two connections share the rate; it is exact and the burst is not exceeded. */
static void test_rate(void)
{
        struct world w;
        int servers[2], clients[2];
        char chunk[16384];
        uint64_t got[2] = {0, 0};
        const uint64_t rate_bps = 200000, burst_bytes = 65536, goal_bytes = 465536;

        world_open(&w, "network: public\nlimits: {rate_bps: 200000, burst_bytes: 65536}\n", true);
        for (unsigned i = 0; i < 2; i++) {
                clients[i] = tunnel(&w, 7, &servers[i]);
                (void)io_set_nonblock(servers[i]);
        }
        memset(chunk, 'r', sizeof(chunk));
        uint64_t began_ns = clock_monotonic_ns();
        while (got[0] + got[1] < goal_bytes && clock_monotonic_ns() - began_ns < 8 * NSEC_PER_SEC) {
                for (unsigned i = 0; i < 2; i++) {
                        (void)send(servers[i], chunk, sizeof(chunk), MSG_DONTWAIT);
                        ssize_t n = recv(clients[i], chunk, sizeof(chunk), MSG_DONTWAIT);
                        got[i] += n > 0 ? (uint64_t)n : 0;
                }
                uint64_t most = burst_bytes + rate_bps * (clock_monotonic_ns() - began_ns) / NSEC_PER_SEC;
                CU_ASSERT(got[0] + got[1] <= most + most / 50);
                usleep(2000);
        }
        double took_s = (double)(clock_monotonic_ns() - began_ns) / NSEC_PER_SEC;
        CU_ASSERT(took_s > 1.9 && took_s < 2.2);
        CU_ASSERT(got[0] > goal_bytes / 4 && got[1] > goal_bytes / 4);
        for (unsigned i = 0; i < 2; i++) {
                close(clients[i]);
                close(servers[i]);
        }
        world_close(&w);
}

static const char get[] = "GET http://origin.example.org/a HTTP/1.1\r\nHost: origin.example.org\r\n\r\n";

/* The rate holds for what requests weigh themselves, too. */
static void test_rate_of_heads(void)
{
        struct world w;
        const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";
        unsigned served = 0;

        world_open(&w, "network: public\nlimits: {rate_bps: 1000, burst_bytes: 100}\n", true);
        int client = dial(&w);
        uint64_t began_ns = clock_monotonic_ns();
        int server = -1;
        while (clock_monotonic_ns() - began_ns < NSEC_PER_SEC) {
                say(client, get);
                if (server < 0)
                        server = origin_accept(&w);
                CU_ASSERT_PTR_NOT_NULL(strstr(hear(server, "\r\n\r\n"), "GET /a HTTP/1.1\r\nHost: origin.example.org"));
                say(server, answer);
                CU_ASSERT_PTR_NOT_NULL(strstr(hear(client, "\r\n\r\n"), " 204 "));
                served++;
        }
        CU_ASSERT(served >= 5 && served <= 30); /* some 50 bytes each */
        close(client);
        close(server);
        world_close(&w);
}

/* An idle connection to the server that turns out dead is replaced, once, for a request that may be repeated. */
static void test_dead_server_connection(void)
{
        struct world w;
        const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

        world_open(&w, open_policy, true);
        int client = dial(&w);
        for (unsigned i = 0; i < 3; i++) {
                say(client, get);
                int server = origin_accept(&w);
                (void)hear(server, "\r\n\r\n");
                say(server, answer);
                CU_ASSERT_PTR_NOT_NULL(strstr(hear(client, "ok"), " 200 "));
                close(server);
        }
        CU_ASSERT(logged_soon(&w, "\"egress_open\"", 3));
        close(client);
        world_close(&w);
}

static uint64_t bytes_down(const struct world *w)
{
        struct vm_stats stats = {0};

        (void)worker_vm_stats(w->worker, w->vm, &stats);
        return stats.bytes_down;
}

/* An answer that ends with the connection, of `most` bytes or as many as are taken while nobody reads; their number. */
static size_t answer_unread(struct world *w, size_t most, int *ret_client)
{
        char chunk[4096] = {0};
        size_t sent = 0;
        int client = *ret_client = dial(w);

        say(client, "GET http://origin.example.org/a HTTP/1.0\r\n\r\n");
        int server = origin_accept(w);
        (void)hear(server, "\r\n\r\n");
        say(server, "HTTP/1.0 200 OK\r\n\r\n");
        for (uint64_t before = 1; sent < most && bytes_down(w) != before;) {
                before = bytes_down(w);
                CU_ASSERT_EQUAL(io_write_full(server, chunk, sizeof(chunk)), 0);
                sent += sizeof(chunk);
                usleep(3000);
        }
        close(server);
        return sent;
}

/* A client that takes its time gets the whole answer, though the connection ends behind it. */
static void test_slow_reader_of_the_last_bytes(void)
{
        struct world w;
        char chunk[4096];
        size_t n = 0;
        int client;

        world_open(&w, open_policy, true);
        size_t held = answer_unread(&w, SIZE_MAX, &client);
        close(client);
        size_t sent = answer_unread(&w, held - 12288, &client); /* all is read from the server, not all is written */
        usleep(2500000);
        for (ssize_t k; (k = read(client, chunk, sizeof(chunk))) > 0;)
                n += (size_t)k;
        CU_ASSERT(n > sent && n < sent + 200); /* the head comes on top */
        close(client);
        CU_ASSERT(sessions_end(&w));
        world_close(&w);
}

static void test_drain(void)
{
        struct world w;
        int server;

        world_open(&w, open_policy, true);
        int client = tunnel(&w, 7, &server), idle = dial(&w);
        worker_drain_start(w.worker, 300);
        CU_ASSERT(over(idle));
        say(client, "goes on");
        CU_ASSERT_STRING_EQUAL(hear(server, "goes on"), "goes on");
        uint64_t began_ns = clock_monotonic_ns();
        worker_free(w.worker);
        w.worker = NULL;
        CU_ASSERT(clock_monotonic_ns() - began_ns < 2 * NSEC_PER_SEC);
        CU_ASSERT(over(client));
        close(client);
        close(server);
        close(idle);
        world_close(&w);
}

static void test_removed_vm_leaves_nothing(void)
{
        struct world w;
        int servers[8], clients[8];
        unsigned before = open_fds();

        world_open(&w, open_policy, true);
        for (unsigned i = 0; i < 8; i++)
                clients[i] = tunnel(&w, 7, &servers[i]);
        CU_ASSERT_EQUAL(worker_vm_remove(w.worker, w.vm), 0);
        CU_ASSERT_EQUAL(worker_vm_remove(w.worker, w.vm), -ENOENT);
        for (unsigned i = 0; i < 8; i++) {
                CU_ASSERT(over(clients[i]));
                CU_ASSERT(over(servers[i]));
                close(clients[i]);
                close(servers[i]);
        }
        world_close(&w);
        CU_ASSERT_EQUAL(open_fds(), before);
}

/* Without descriptors a client is closed or waits, the processor is left alone, and afterwards all is well. */
static void test_no_descriptors_left(void)
{
        struct rlimit before, none;
        struct rusage used[2];
        struct world w;
        int clients[8], server;

        world_open(&w, open_policy, true);
        for (unsigned i = 0; i < 8; i++)
                clients[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CU_ASSERT_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
        none = (struct rlimit){.rlim_cur = open_fds() + 1, .rlim_max = before.rlim_max};
        CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
        (void)getrusage(RUSAGE_SELF, &used[0]);
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s/1025", w.dir);
        for (unsigned i = 0; i < 8; i++)
                CU_ASSERT_EQUAL(connect(clients[i], (struct sockaddr *)&to, sizeof(to)), 0);
        usleep(500000);
        (void)getrusage(RUSAGE_SELF, &used[1]);
        CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
        CU_ASSERT(used[1].ru_utime.tv_sec - used[0].ru_utime.tv_sec < 1);
        CU_ASSERT(used[1].ru_nvcsw - used[0].ru_nvcsw < 200);
        for (unsigned i = 0; i < 8; i++)
                close(clients[i]);
        int client = tunnel(&w, 7, &server);
        close(client);
        close(server);
        CU_ASSERT(sessions_end(&w));
        world_close(&w);
}

/* Clients that say anything in any pieces and go at any moment; the server answers at random or goes. */
static void test_hostile_clients(void)
{
        static const char *const texts[] = {
                "CONNECT origin.example.org:7 HTTP/1.1\r\nHost: origin.example.org:7\r\n\r\nearly data",
                "CONNECT origin.example.org:80 HTTP/1.1\r\nHost: origin.example.org:80\r\n\r\nGET / HTTP/1.1\r\nHost: "
                "origin.example.org\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
                "GET http://origin.example.org/ HTTP/1.1\r\nHost: origin.example.org\r\n\r\nGET / HTTP/1.1\r\n\r\n",
                "POST http://origin.example.org/ HTTP/1.1\r\nHost: origin.example.org\r\nTransfer-Encoding: "
                "chunked\r\n\r\n5\r\nhello\r\nzz",
                "\x05\x01",
                "\x16\x03\x01\x02\x00\x01",
                "CONNECT no.example.net:443 HTTP/1.1\r\n\r\n",
        };
        struct world w;
        unsigned before = open_fds(), seed = 4711;
        int clients[40], servers[40];

        world_open(&w, open_policy, true);
        memset(clients, -1, sizeof(clients));
        memset(servers, -1, sizeof(servers));
        for (unsigned i = 0; i < 4000; i++) {
                unsigned at = (unsigned)rand_r(&seed) % 40;
                char sink[512];

                if (clients[at] < 0) {
                        clients[at] = dial(&w);
                        const char *text = texts[(unsigned)rand_r(&seed) % (sizeof(texts) / sizeof(*texts))];
                        size_t n = strlen(text);
                        (void)send(
                                clients[at], text, rand_r(&seed) % 4 ? n : (unsigned)rand_r(&seed) % n, MSG_NOSIGNAL);
                } else if (rand_r(&seed) % 3) {
                        (void)send(clients[at], "xyzzy", 5, MSG_NOSIGNAL | MSG_DONTWAIT);
                        (void)recv(clients[at], sink, sizeof(sink), MSG_DONTWAIT);
                } else {
                        clients[at] = close_fd(clients[at]);
                }
                at = (unsigned)rand_r(&seed) % 40;
                if (servers[at] < 0) {
                        servers[at] = accept4(w.origin, NULL, NULL, SOCK_CLOEXEC);
                } else if (rand_r(&seed) % 2) {
                        (void)send(servers[at], "HTTP/1.1 200 OK\r\n\r\nbody", 24, MSG_NOSIGNAL | MSG_DONTWAIT);
                } else {
                        servers[at] = close_fd(servers[at]);
                }
        }
        for (unsigned i = 0; i < 40; i++) {
                close_fd(clients[i]);
                close_fd(servers[i]);
        }
        for (int fd; (fd = accept4(w.origin, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
                close(fd);
        CU_ASSERT(sessions_end(&w));
        world_close(&w);
        CU_ASSERT_EQUAL(open_fds(), before);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"a tunnel, recorded", test_tunnel},
                {"not ready, then ready", test_not_ready_then_ready},
                {"revoked", test_revoke},
                {"the policy is replaced", test_policy_is_replaced},
                {"an upgraded request is judged again", test_upgraded_request_is_judged_again},
                {"a VM's share", test_share},
                {"connections are counted", test_connections_are_counted},
                {"requests a second", test_requests_per_s},
                {"names looked up", test_names_looked_up},
                {"a quota", test_quota},
                {"a rate", test_rate},
                {"a rate counts heads", test_rate_of_heads},
                {"a dead connection to the server", test_dead_server_connection},
                {"a slow reader of the last bytes", test_slow_reader_of_the_last_bytes},
                {"drain", test_drain},
                {"a removed VM leaves nothing", test_removed_vm_leaves_nothing},
                {"no descriptors left", test_no_descriptors_left},
                {"hostile clients", test_hostile_clients},
                CU_TEST_INFO_NULL,
        };

        /* A network of its own, where nothing answers at the name server's address: what a look-up costs must not
         * depend on the machine. */
        if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) {
                (void)fprintf(stderr, "no network namespace can be made here: skipped\n");
                return SKIPPED;
        }
        return suite_run("worker", tests);
}
