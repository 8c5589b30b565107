/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of the guest in which run.py tests wbvsock: loads /modules in order, then serves on vsock ports, a child for
 * each connection.
 *
 *   7000  echo: what comes goes back, until the end, then close
 *   7001  sink: reads to the end, then answers "BYTES SUM"
 *   7002  source: reads "BYTES\n", sends so many, shuts its sending side, reads to the end, and dials host port 9001 to
 * say "BYTES SUM" of what it has read 7003  command: one line, one answer (see `commands`) 7004  never accepts, with a
 * short backlog
 *
 * SUM is Fletcher's over 32-bit sums of the bytes, as run.py computes it: position counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REPORT_PORT 9001

struct sum {
        uint64_t bytes;
        uint32_t a, b;
};

static void sum_add(struct sum *s, const uint8_t *data, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                s->a += data[i];
                s->b += s->a;
        }
        s->bytes += n;
}

static int write_all(int fd, const void *from, size_t n)
{
        const char *p = from;

        while (n) {
                ssize_t put = send(fd, p, n, MSG_NOSIGNAL);

                if (put < 0)
                        return -errno;
                p += put;
                n -= (size_t)put;
        }
        return 0;
}

/* buffer_bytes of the socket; 0: as it is. */
static int dial_with(unsigned port, uint64_t buffer_bytes)
{
        struct sockaddr_vm a = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = port};
        int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        if (buffer_bytes &&
                setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MIN_SIZE, &buffer_bytes, sizeof(buffer_bytes)) +
                        setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &buffer_bytes, sizeof(buffer_bytes)))
                return -errno;
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
                return fd;
        int e = -errno;
        close(fd);
        return e;
}

static int dial(unsigned port)
{
        return dial_with(port, 0);
}

static size_t read_line(int fd, char *line, size_t room)
{
        size_t n = 0;

        while (n + 1 < room && read(fd, line + n, 1) == 1 && line[n] != '\n')
                n++;
        line[n] = '\0';
        return n;
}

static void read_to_end(int fd, struct sum *s)
{
        static uint8_t buffer[65536];
        ssize_t n;

        while ((n = read(fd, buffer, sizeof(buffer))) > 0)
                sum_add(s, buffer, (size_t)n);
}

/* A pattern whose period (a prime) meets no buffer's size. */
static void send_pattern(int fd, uint64_t bytes, struct sum *s)
{
        static uint8_t buffer[65521];

        for (size_t i = 0; i < sizeof(buffer); i++)
                buffer[i] = (uint8_t)(i * 7 + (i >> 8));
        while (bytes) {
                size_t n = bytes < sizeof(buffer) ? bytes : sizeof(buffer);

                if (write_all(fd, buffer, n) < 0)
                        return;
                if (s)
                        sum_add(s, buffer, n);
                bytes -= n;
        }
}

static void echo(int fd)
{
        static uint8_t buffer[65536];
        ssize_t n;

        while ((n = read(fd, buffer, sizeof(buffer))) > 0)
                if (write_all(fd, buffer, (size_t)n) < 0)
                        return;
}

static void sink(int fd)
{
        struct sum s = {0};

        read_to_end(fd, &s);
        dprintf(fd, "%llu %08x%08x\n", (unsigned long long)s.bytes, s.b, s.a);
}

static void drain(int fd)
{
        static uint8_t buffer[262144];
        unsigned long long bytes = 0;
        ssize_t n;

        while ((n = read(fd, buffer, sizeof(buffer))) > 0)
                bytes += (size_t)n;
        dprintf(fd, "%llu\n", bytes);
}

static void source(int fd)
{
        struct sum got = {0};
        char line[64];
        int report;

        read_line(fd, line, sizeof(line));
        send_pattern(fd, strtoull(line, NULL, 10), NULL);
        shutdown(fd, SHUT_WR);
        read_to_end(fd, &got);
        report = dial(REPORT_PORT);
        if (report >= 0)
                dprintf(report, "%llu %08x%08x\n", (unsigned long long)got.bytes, got.b, got.a);
}

static uint64_t now_us(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* "ERRNO MICROSECONDS" of a connect to the host. */
static void command_connect(int out, unsigned port, uint64_t n)
{
        uint64_t start = now_us();
        int fd = dial(port);

        (void)n;
        dprintf(out, "%d %llu\n", fd < 0 ? -fd : 0, (unsigned long long)(now_us() - start));
}

/* n bytes to the host's port, then waits for its end: "SENT SUM GOT GOTSUM MICROSECONDS". */
static void push(int out, unsigned port, uint64_t n, uint64_t buffer_bytes)
{
        struct sum sent = {0}, got = {0};
        uint64_t start = now_us();
        int fd = dial_with(port, buffer_bytes);

        if (fd >= 0) {
                send_pattern(fd, n, &sent);
                shutdown(fd, SHUT_WR);
                read_to_end(fd, &got);
        }
        dprintf(out, "%llu %08x%08x %llu %08x%08x %llu\n", (unsigned long long)sent.bytes, sent.b, sent.a,
                (unsigned long long)got.bytes, got.b, got.a, (unsigned long long)(now_us() - start));
}

static void command_push(int out, unsigned port, uint64_t n)
{
        push(out, port, n, 0);
}

/* The same with a socket whose buffer is small. */
static void command_trickle(int out, unsigned port, uint64_t n)
{
        push(out, port, n, 1000);
}

/* n connections at once to an echo of the host, each with its own bytes: how many came back right, then refused. */
static void command_many(int out, unsigned port, uint64_t n)
{
        int *fds = calloc(n, sizeof(*fds));
        unsigned right = 0, refused = 0;

        for (uint64_t i = 0; i < n; i++) {
                fds[i] = dial(port);
                if (fds[i] < 0)
                        refused++;
        }
        for (uint64_t i = 0; i < n; i++)
                if (fds[i] >= 0)
                        dprintf(fds[i], "hello %llu\n", (unsigned long long)i);
        for (uint64_t i = 0; i < n; i++) {
                char want[32], got[32];

                snprintf(want, sizeof(want), "hello %llu", (unsigned long long)i);
                if (fds[i] >= 0 && read_line(fds[i], got, sizeof(got)) && strcmp(want, got) == 0)
                        right++;
        }
        for (uint64_t i = 0; i < n; i++)
                close(fds[i]);
        free(fds);
        dprintf(out, "%u %u\n", right, refused);
}

/* n times a connect and a close: "GOOD MICROSECONDS LONGEST ERRNO", the longest one's microseconds, the last one's
 * error. */
static void command_churn(int out, unsigned port, uint64_t n)
{
        uint64_t start = now_us(), good = 0, longest = 0;
        int error = 0;

        for (uint64_t i = 0; i < n; i++) {
                uint64_t before = now_us();
                int fd = dial(port);
                uint64_t took = now_us() - before;

                if (took > longest)
                        longest = took;
                if (fd >= 0) {
                        good++;
                        close(fd);
                } else {
                        error = -fd;
                }
        }
        dprintf(out, "%llu %llu %llu %d\n", (unsigned long long)good, (unsigned long long)(now_us() - start),
                (unsigned long long)longest, error);
}

/* Keeps one connection to the host's port open, says so, and then how it ended: "END ERRNO". */
static void command_hold(int out, unsigned port, uint64_t n)
{
        int fd = dial(port);
        char c;
        ssize_t got;

        (void)n;
        dprintf(out, "held %d\n", fd < 0 ? -fd : 0);
        got = read(fd, &c, 1);
        dprintf(out, "%zd %d\n", got, got < 0 ? errno : 0);
}

static void command_reboot(int out, unsigned port, uint64_t n)
{
        (void)out;
        (void)port;
        (void)n;
        reboot(RB_AUTOBOOT);
}

static const struct {
        const char *name;
        void (*run)(int out, unsigned port, uint64_t n);
} commands[] = {
        {"churn", command_churn},
        {"connect", command_connect},
        {"hold", command_hold},
        {"many", command_many},
        {"push", command_push},
        {"reboot", command_reboot},
        {"trickle", command_trickle},
};

static void command(int fd)
{
        char line[128], name[32] = "";
        unsigned long long n = 0;
        unsigned port = 0;

        read_line(fd, line, sizeof(line));
        (void)sscanf(line, "%31s %u %llu", name, &port, &n);
        for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
                if (strcmp(commands[i].name, name) == 0)
                        commands[i].run(fd, port, n);
}

static const struct service {
        unsigned port;
        int backlog;
        void (*serve)(int fd); /* NULL: nobody accepts */
} services[] = {
        {7000, 1024, echo},
        {7001, 1024, sink},
        {7002, 1024, source},
        {7003, 1024, command},
        {7004, 1, NULL},
        {7005, 1024, drain},
};
#define SERVICES_N (sizeof(services) / sizeof(*services))

static int listen_on(const struct service *s)
{
        struct sockaddr_vm a = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = s->port};
        int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, s->backlog) < 0)
                printf("guest: port %u: %s\n", s->port, strerror(errno));
        return fd;
}

static void serve_all(void)
{
        struct pollfd p[SERVICES_N];

        for (size_t i = 0; i < SERVICES_N; i++)
                p[i] = (struct pollfd){.fd = listen_on(&services[i]), .events = services[i].serve ? POLLIN : 0};
        printf("guest: serving\n");
        while (poll(p, SERVICES_N, -1) >= 0 || errno == EINTR) {
                for (size_t i = 0; i < SERVICES_N; i++) {
                        int fd = p[i].revents & POLLIN ? accept(p[i].fd, NULL, NULL) : -1;

                        if (fd < 0)
                                continue;
                        if (fork() == 0) {
                                services[i].serve(fd);
                                _exit(0);
                        }
                        close(fd);
                }
        }
}

static void load_modules(void)
{
        char path[64];

        for (int i = 0; i < 100; i++) {
                snprintf(path, sizeof(path), "/modules/%02d.ko", i);
                int fd = open(path, O_RDONLY | O_CLOEXEC);

                if (fd < 0)
                        return;
                if (syscall(SYS_finit_module, fd, "", 0) < 0)
                        printf("guest: %s: %s\n", path, strerror(errno));
                close(fd);
        }
}

int main(void)
{
        /* Without a /dev/console in the archive PID 1 starts with no descriptors. */
        mkdir("/dev", 0755);
        mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
        int console = open("/dev/console", O_RDWR);
        for (int i = 0; console >= 0 && i < 3; i++)
                dup2(console, i);
        setvbuf(stdout, NULL, _IONBF, 0);
        signal(SIGCHLD, SIG_IGN);
        signal(SIGPIPE, SIG_IGN);

        (void)setrlimit(RLIMIT_NOFILE, &(struct rlimit){4096, 4096});

        load_modules();
        /* The device is probed behind our back. */
        for (int i = 0; i < 200 && access("/dev/vsock", F_OK) < 0; i++)
                usleep(10000);
        serve_all();
        for (;;)
                pause();
}
