/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/control_client.h"
#include "tools/wbctl/printable.h"
#include "tools/wbctl/terminal.h"

#define DELAY_LEAST_MS 100u
#define DELAY_MOST_MS  (60u * 60u * 1000u)
#define ROWS_DEFAULT   24u
#define HEAD_ROWS      3u

/* The other screen without a cursor, and back. */
#define SCREEN_ENTER "\033[?1049h\033[?25l"
#define SCREEN_LEAVE "\033[?25h\033[?1049l"

struct top_options {
        const char *socket;
        uint64_t times;
        uint64_t delay_ms;
        bool json;
};

static const struct option_spec specs[] = {
        {"times", 'n', OPTION_U64, offsetof(struct top_options, times), "N",
                "how often to look; without a terminal once, else until it is interrupted"},
        {"delay", 'd', OPTION_DURATION_MS, offsetof(struct top_options, delay_ms), "DURATION",
                "between two looks (2s)"},
        {"socket", 0, OPTION_STRING, offsetof(struct top_options, socket), "PATH",
                "the broker's control socket (WB_SOCKET)"},
        {"json", 0, OPTION_FLAG, offsetof(struct top_options, json), NULL, "one JSON object a look, once without -n"},
};

static const struct option_table table = {
        .usage = "wbctl top [-n N] [-d DURATION] [--json] [--socket PATH]",
        .summary =
                "Shows the VMs of a running broker: connections, bytes and their rates, what was allowed and denied.",
        .example = "wbctl top -d 500ms",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
};

/* A VM at one look. Texts belong to the look. */
struct row {
        const char *name, *state;
        long long sessions, up, down, allowed, denied;
        bool has_rate; /* it was there at the look before */
        double up_bps, down_bps;
};

struct look {
        json_t *answer;
        uint64_t at_ns;   /* monotonic */
        uint64_t real_ns; /* CLOCK_REALTIME */
        struct row *rows;
        size_t n;
};

static void look_done(struct look *l)
{
        json_decref(l->answer);
        free(l->rows);
        *l = (struct look){0};
}

static const struct row *find_row(const struct look *l, const char *name)
{
        for (size_t i = 0; i < l->n; i++)
                if (strcmp(l->rows[i].name, name) == 0)
                        return &l->rows[i];
        return NULL;
}

static const char *text_of(const json_t *vm, const char *key)
{
        const char *text = json_string_value(json_object_get(vm, key));

        return text ? text : "-";
}

static long long number_of(const json_t *vm, const char *key)
{
        return json_integer_value(json_object_get(vm, key));
}

/* A VM that was taken away and added anew begins at 0 again: that has no rate. */
static void find_rate(struct row *row, const struct look *now, const struct look *before)
{
        const struct row *old = before->answer ? find_row(before, row->name) : NULL;
        double seconds = (double)(now->at_ns - before->at_ns) / (double)NSEC_PER_SEC;

        if (!old || seconds <= 0 || row->up < old->up || row->down < old->down)
                return;
        row->has_rate = true;
        row->up_bps = (double)(row->up - old->up) / seconds;
        row->down_bps = (double)(row->down - old->down) / seconds;
}

/* The busiest first. */
static int compare_rows(const void *left, const void *right)
{
        const struct row *a = left, *b = right;
        double a_bps = a->up_bps + a->down_bps, b_bps = b->up_bps + b->down_bps;

        if (a_bps > b_bps || a_bps < b_bps)
                return a_bps > b_bps ? -1 : 1;
        if (a->sessions != b->sessions)
                return a->sessions > b->sessions ? -1 : 1;
        return strcmp(a->name, b->name);
}

/* 0, or an exit status with the fault said. */
static int take_look(const struct top_options *o, const struct look *before, struct look *ret)
{
        struct look l = {0};
        const json_t *vms;
        json_t *vm;
        size_t i;
        int r = control_client_ask(control_client_socket(o->socket), json_pack("{s:s}", "op", "vm_ls"), &l.answer);

        if (r != 0)
                return r;
        l.at_ns = clock_monotonic_ns();
        l.real_ns = clock_realtime_ns();
        vms = json_object_get(l.answer, "vms");
        l.rows = calloc(json_array_size(vms) + 1, sizeof(*l.rows));
        if (!l.rows) {
                look_done(&l);
                fprintf(stderr, "wbctl: no memory\n");
                return EXIT_FAILED;
        }
        json_array_foreach (vms, i, vm) {
                struct row *row = &l.rows[l.n++];

                *row = (struct row){text_of(vm, "name"), text_of(vm, "state"), number_of(vm, "sessions_open"),
                        number_of(vm, "bytes_up"), number_of(vm, "bytes_down"), number_of(vm, "allowed_total"),
                        number_of(vm, "denied_total"), false, 0, 0};
                find_rate(row, &l, before);
        }
        qsort(l.rows, l.n, sizeof(*l.rows), compare_rows);
        *ret = l;
        return 0;
}

/* ---- what is shown */

/* "999", "1.2K", "34.5M": powers of 1024, at most six characters up to exabytes. */
static const char *bytes_text(double bytes, char ret_text[16])
{
        static const char units[] = " KMGTPE";
        size_t unit = 0;

        while (bytes >= 1000 && unit < sizeof(units) - 2) {
                bytes /= 1024;
                unit++;
        }
        if (unit == 0)
                (void)snprintf(ret_text, 16, "%.0f", bytes);
        else
                (void)snprintf(ret_text, 16, "%.1f%c", bytes, units[unit]);
        return ret_text;
}

static const char *rate_text(const struct row *row, double bps, char ret_text[16])
{
        if (!row->has_rate)
                return "-";
        return bytes_text(bps, ret_text);
}

/* Behind each line the rest of what stood there before is wiped out, where that is a screen. */
static void print_table(const struct look *l, size_t most, const char *end)
{
        struct row sum = {.has_rate = true};
        char when[CLOCK_TEXT_BYTES], a[16], b[16], c[16], d[16], name[65];

        for (size_t i = 0; i < l->n; i++) {
                sum.sessions += l->rows[i].sessions;
                sum.up_bps += l->rows[i].up_bps;
                sum.down_bps += l->rows[i].down_bps;
        }
        clock_format(l->real_ns, when);
        printf("%.19sZ  %zu VM%s, %lld connection%s, %s/s up, %s/s down%s\n%s\n", when, l->n, l->n == 1 ? "" : "s",
                sum.sessions, sum.sessions == 1 ? "" : "s", bytes_text(sum.up_bps, a), bytes_text(sum.down_bps, b), end,
                end);
        printf("%-20s %-10s %8s %8s %8s %8s %8s %9s %9s%s\n", "NAME", "STATE", "SESSIONS", "UP/s", "DOWN/s", "UP",
                "DOWN", "ALLOWED", "DENIED", end);
        for (size_t i = 0; i < l->n && i < most; i++) {
                const struct row *row = &l->rows[i];

                printable(row->name, name, sizeof(name));
                printf("%-20s %-10s %8lld %8s %8s %8s %8s %9lld %9lld%s\n", name, row->state, row->sessions,
                        rate_text(row, row->up_bps, a), rate_text(row, row->down_bps, b),
                        bytes_text((double)row->up, c), bytes_text((double)row->down, d), row->allowed, row->denied,
                        end);
        }
        if (l->n > most)
                printf("... and %zu more%s", l->n - most, end);
}

static void print_screen(const struct look *l)
{
        struct terminal terminal;
        unsigned rows, columns;

        terminal_find(&terminal);
        if (!terminal_size(&terminal, &rows, &columns) || rows == 0)
                rows = ROWS_DEFAULT;
        printf("\033[H");
        print_table(l, rows > HEAD_ROWS + 2 ? rows - HEAD_ROWS - 2 : 1, "\033[K");
        printf("\033[J");
}

static void print_json(const struct look *l)
{
        char when[CLOCK_TEXT_BYTES];
        json_t *vms = json_array(), *answer;

        for (size_t i = 0; i < l->n; i++) {
                const struct row *row = &l->rows[i];

                (void)json_array_append_new(
                        vms, json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:I, s:I}", "name", row->name, "state",
                                     row->state, "sessions_open", (json_int_t)row->sessions, "bytes_up",
                                     (json_int_t)row->up, "bytes_down", (json_int_t)row->down, "up_bps",
                                     row->has_rate ? json_real(row->up_bps) : json_null(), "down_bps",
                                     row->has_rate ? json_real(row->down_bps) : json_null(), "allowed_total",
                                     (json_int_t)row->allowed, "denied_total", (json_int_t)row->denied));
        }
        clock_format(l->real_ns, when);
        answer = json_pack("{s:s, s:o}", "ts", when, "vms", vms);
        (void)json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(answer);
}

/* ---- the screen */

/* All that a signal has to do is to give the terminal back; then it does what it does to everybody. */
static void on_end(int signal_number)
{
        (void)!write(STDOUT_FILENO, SCREEN_LEAVE, sizeof(SCREEN_LEAVE) - 1);
        (void)signal(signal_number, SIG_DFL);
        (void)raise(signal_number);
}

static void on_stop(int signal_number)
{
        int saved_errno = errno;

        (void)signal_number;
        (void)!write(STDOUT_FILENO, SCREEN_LEAVE, sizeof(SCREEN_LEAVE) - 1);
        (void)raise(SIGSTOP);
        (void)!write(STDOUT_FILENO, SCREEN_ENTER, sizeof(SCREEN_ENTER) - 1);
        errno = saved_errno;
}

static void enter_screen(void)
{
        static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
        struct sigaction end = {.sa_handler = on_end}, stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};

        for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
                (void)sigaction(ends[i], &end, NULL);
        (void)sigaction(SIGTSTP, &stop, NULL);
        printf(SCREEN_ENTER);
}

static void leave_screen(void)
{
        printf(SCREEN_LEAVE);
        (void)fflush(stdout);
}

static void wait_ms(uint64_t ms)
{
        struct timespec left = {(time_t)(ms / MSEC_PER_SEC), (long)(ms % MSEC_PER_SEC * NSEC_PER_MSEC)};

        while (nanosleep(&left, &left) < 0 && errno == EINTR)
                ;
}

static int watch(const struct top_options *o, bool on_screen)
{
        uint64_t times = o->times ? o->times : on_screen ? UINT64_MAX : 1;
        struct look before = {0};
        int r = 0;

        for (uint64_t i = 0; i < times && r == 0; i++) {
                struct look now = {0};

                if (i)
                        wait_ms(o->delay_ms);
                r = take_look(o, &before, &now);
                if (r != 0)
                        break;
                if (on_screen && i == 0)
                        enter_screen(); /* a first failure is said where it was asked */
                if (o->json)
                        print_json(&now);
                else if (on_screen)
                        print_screen(&now);
                else
                        print_table(&now, SIZE_MAX, "");
                if (fflush(stdout) != 0)
                        r = EXIT_FAILED;
                look_done(&before);
                before = now;
        }
        if (on_screen && before.answer) {
                leave_screen();
                if (r != 0) /* what was said of it went with the screen */
                        fprintf(stderr, "wbctl: the broker does not answer any more\n");
        }
        look_done(&before);
        return r;
}

int command_top(int argc, char **argv)
{
        struct top_options o = {.delay_ms = 2000};
        size_t rest_n;
        char **rest;
        int r = options_parse(&table, argc, argv, &o, &rest, &rest_n);

        if (r != 0)
                return r == OPTIONS_E_HELP ? 0 : r == OPTIONS_E_USAGE ? EXIT_USAGE : EXIT_FAILED;
        if (rest_n)
                return options_usage_error(&table, "unexpected argument '%s'", rest[0]);
        if (o.delay_ms < DELAY_LEAST_MS || o.delay_ms > DELAY_MOST_MS)
                return options_usage_error(&table, "-d is from %u ms to an hour", DELAY_LEAST_MS);
        return watch(&o, !o.json && isatty(STDOUT_FILENO));
}
