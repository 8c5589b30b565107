/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/hooks.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "guest/agent.h"
#include "proto/base/cleanup.h"

static void close_dirp(DIR **d)
{
        if (*d)
                (void)closedir(*d);
}

/* An executable file that root alone can change; anything else in the folder (a README, a backup) is no hook. */
static bool is_hook(int dir_fd, const char *name)
{
        struct stat st;

        if (name[0] == '.' || fstatat(dir_fd, name, &st, 0) < 0)
                return false;
        return S_ISREG(st.st_mode) && (st.st_mode & 0111) && st.st_uid == 0 && !(st.st_mode & 022);
}

static int by_name(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_hooks(struct hooks *h)
{
        _cleanup_(close_dirp) DIR *dir = opendir(HOOKS_DIR);
        struct dirent *entry;

        if (!dir)
                return errno == ENOENT ? 0 : report_errno(h->report, -errno, HOOKS_DIR);
        while ((entry = readdir(dir))) {
                if (!is_hook(dirfd(dir), entry->d_name))
                        continue;
                if (h->n == HOOKS_MAX)
                        return report_errno(h->report, -E2BIG, HOOKS_DIR " has more than %d hooks", HOOKS_MAX);
                h->names[h->n] = strdup(entry->d_name);
                if (!h->names[h->n])
                        return -ENOMEM;
                h->n++;
        }
        qsort(h->names, h->n, sizeof(h->names[0]), by_name);
        return 0;
}

static void on_hook_ended(struct child *child, int wait_status);

/* Starts the one whose turn it is. HOOKS_E_RUNNING, 0 when all are done, or a negative errno. */
static int start_next(struct hooks *h)
{
        char path[sizeof(HOOKS_DIR) + 1 + NAME_MAX];
        char *argv[2] = {path, NULL};
        struct child_spec spec = {.path = path, .argv = argv, .env = h->env};
        int r;

        if (h->at == h->n)
                return 0;
        (void)snprintf(path, sizeof(path), HOOKS_DIR "/%s", h->names[h->at]);
        r = child_spawn(h->agent, &spec, on_hook_ended, &h->child);
        if (r < 0)
                return report_errno(h->report, r, "%s", path);
        (void)evtimer_add(&h->timer, &(struct timeval){.tv_sec = HOOKS_LIMIT_MS / 1000});
        return HOOKS_E_RUNNING;
}

static void finish(struct hooks *h, int r)
{
        hooks_stop(h);
        h->done(h->userdata, r);
}

static void on_hook_ended(struct child *child, int wait_status)
{
        struct hooks *h = (struct hooks *)((char *)child - offsetof(struct hooks, child));
        const char *name = h->names[h->at];
        int r;

        (void)evtimer_del(&h->timer);
        if (h->timed_out) {
                report_detail(h->report, "hook %s took longer than %d s", name, HOOKS_LIMIT_MS / 1000);
                finish(h, -ETIMEDOUT);
                return;
        }
        if (wait_status != 0) {
                if (WIFSIGNALED(wait_status))
                        report_detail(h->report, "hook %s was ended by signal %d", name, WTERMSIG(wait_status));
                else
                        report_detail(h->report, "hook %s ended with status %d", name, WEXITSTATUS(wait_status));
                finish(h, -ECHILD);
                return;
        }
        report_fact(h->report, "hook", "%s", name);
        h->at++;
        r = start_next(h);
        if (r != HOOKS_E_RUNNING)
                finish(h, r);
}

static void on_timer(evutil_socket_t fd, short events, void *userdata)
{
        struct hooks *h = userdata;

        (void)fd;
        (void)events;
        h->timed_out = true;
        (void)kill(-h->child.pid, SIGKILL);
        (void)kill(h->child.pid, SIGKILL); /* and hear of its end like of any other */
}

int hooks_start(struct hooks *h, struct agent *agent, char **env, struct report *report,
        void (*done)(void *userdata, int r), void *userdata)
{
        int r;

        *h = (struct hooks){.agent = agent, .env = env, .report = report, .done = done, .userdata = userdata};
        (void)evtimer_assign(&h->timer, agent->base, on_timer, h);
        r = list_hooks(h);
        if (r == 0)
                r = start_next(h);
        if (r != HOOKS_E_RUNNING)
                hooks_stop(h);
        return r;
}

void hooks_stop(struct hooks *h)
{
        if (!h->agent)
                return;
        (void)evtimer_del(&h->timer);
        child_kill(&h->child);
        for (size_t i = 0; i < h->n; i++)
                free(h->names[i]);
        h->n = 0;
        h->agent = NULL;
}
