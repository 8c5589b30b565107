/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "proto/base/log.h"
#include "tools/wbctl/command.h"

static const struct command commands[] = {
        {"activate", "put a guest in order and open it to commands, without a broker", command_activate},
        {"attach", "follow an exec from any byte of its output on", command_attach},
        {"audit", "the broker's audit log", command_audit},
        {"ca", "the CA by which the broker intercepts TLS", command_ca},
        {"cp", "copy files into a guest or out of it", command_cp},
        {"exec", "run a command in a guest", command_exec},
        {"file", "list, stat, make, rename, remove, watch files of a guest", command_file},
        {"forward", "carry a port here to a port of a guest", command_forward},
        {"image", "build, sign, verify and list guest images", command_image},
        {"info", "what a guest's agent is and has", command_info},
        {"kill", "end an exec, or send it a signal", command_kill},
        {"limit", "change the limits of an exec that runs", command_limit},
        {"policy", "check policy files, compare them, make them from an audit log", command_policy},
        {"ps", "list the execs of a guest", command_ps},
        {"resize", "change what is backed by a guest's memory", command_resize},
        {"run", "run a command in a VM of its own", command_run},
        {"secret", "a VM's secrets, at its broker or in its guest: put, rm, ls", command_secret},
        {"shutdown", "end a guest", command_shutdown},
        {"snapshot", "save a VM, and run commands in clones of it", command_snapshot},
        {"sync", "write a guest's files to its disks", command_sync},
        {"top", "watch the VMs of a running broker", command_top},
        {"vm", "the VMs of a running broker", command_vm},
        {"why", "what the broker would decide by a policy, and why", command_why},
        {NULL, NULL, NULL},
};

static void print_usage(FILE *to)
{
        fprintf(to, "usage: wbctl COMMAND [ARGUMENT]...\n\ncommands:\n");
        for (const struct command *c = commands; c->name; c++)
                fprintf(to, "  %-10s %s\n", c->name, c->summary);
        fprintf(to, "\nwbctl COMMAND --help shows its options and an example.\n");
}

int main(int argc, char **argv)
{
        log_setup("wbctl", LOG_LEVEL_INFO);
        if (argc < 2) {
                print_usage(stderr);
                return EXIT_USAGE;
        }
        if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
                print_usage(stdout);
                return 0;
        }
        if (strcmp(argv[1], "--version") == 0) {
                printf("wbctl %s\n", WB_VERSION);
                return 0;
        }
        for (const struct command *c = commands; c->name; c++)
                if (strcmp(argv[1], c->name) == 0)
                        return c->run(argc - 1, argv + 1);
        fprintf(stderr, "wbctl: unknown command '%s'\n", argv[1]);
        print_usage(stderr);
        return EXIT_USAGE;
}
