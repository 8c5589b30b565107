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
        {"file", "list, make, rename, remove, watch files of a guest", command_file},
        {"forward", "carry a port here to a port of a guest", command_forward},
        {"image", "build, sign, verify and list guest images", command_image},
        {"info", "what a guest's agent is and has", command_info},
        {"kill", "end an exec, or send it a signal", command_kill},
        {"limit", "change the limits of an exec that runs", command_limit},
        {"policy", "check policy files, compare them, make one from an audit log", command_policy},
        {"ps", "list the execs of a guest", command_ps},
        {"resize", "change what is backed by a guest's memory", command_resize},
        {"run", "run a command in a VM of its own", command_run},
        {"secret", "a VM's secrets, at its broker or in its guest", command_secret},
        {"shutdown", "end a guest", command_shutdown},
        {"snapshot", "save a VM, and run commands in clones of it", command_snapshot},
        {"sync", "write a guest's files to its disks", command_sync},
        {"top", "watch the VMs of a running broker", command_top},
        {"vm", "the VMs of a running broker", command_vm},
        {"why", "what the broker would decide by a policy, and why", command_why},
        {NULL, NULL, NULL},
};

static const struct command_group wbctl = {"wbctl", NULL, commands};

int main(int argc, char **argv)
{
        log_setup("wbctl", LOG_LEVEL_INFO);
        if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
                printf("wbctl %s\n", WB_VERSION);
                return 0;
        }
        return command_group_run(&wbctl, argc, argv);
}
