/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A command of wbctl: one file each, found by the table in main.c. Exit statuses are those of INTERFACES.md, wbctl. */

#define EXIT_NO      1   /* the answer is no: a denial, a failed verification */
#define EXIT_USAGE   2   /* wrong usage or an invalid file */
#define EXIT_TIMEOUT 124 /* run and exec: the command's time was up */
#define EXIT_FAILED  125 /* wbctl or its peer failed */

struct command {
        const char *name;                  /* "why"; "policy check" is the command "policy" with its own table */
        const char *summary;               /* one line for `wbctl --help` */
        int (*run)(int argc, char **argv); /* argv[0] is the command's name; answers the exit status */
};

/* A command that is only a word before others: `wbctl image`, and wbctl itself. */
struct command_group {
        const char *name;    /* "wbctl image" */
        const char *summary; /* a sentence for its --help; NULL: there is nothing to add to what the commands say */
        const struct command *commands; /* ended by one without a name */
};

/* Runs the command that argv[1] names, or says which there are. Answers the exit status. */
int command_group_run(const struct command_group *group, int argc, char **argv);

int command_activate(int argc, char **argv);
int command_attach(int argc, char **argv);
int command_audit(int argc, char **argv);
int command_ca(int argc, char **argv);
int command_cp(int argc, char **argv);
int command_exec(int argc, char **argv);
int command_file(int argc, char **argv);
int command_forward(int argc, char **argv);
int command_image(int argc, char **argv);
int command_info(int argc, char **argv);
int command_kill(int argc, char **argv);
int command_limit(int argc, char **argv);
int command_policy(int argc, char **argv);
int command_ps(int argc, char **argv);
int command_resize(int argc, char **argv);
int command_run(int argc, char **argv);
int command_secret(int argc, char **argv);
int command_shutdown(int argc, char **argv);
int command_snapshot(int argc, char **argv);
int command_sync(int argc, char **argv);
int command_top(int argc, char **argv);
int command_vm(int argc, char **argv);
int command_why(int argc, char **argv);
