/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "broker/broker.h"
#include "broker/file_set.h"
#include "broker/monitor.h"
#include "broker/options.h"
#include "proto/base/log.h"
#include "proto/base/options.h"

#define EXIT_INVALID 2

/* Reads and checks all that the configuration says; what is wrong is said on stderr. */
static int load(const char *path, struct file_set **ret_files, struct setup **ret_setup)
{
        struct yaml_error error = {0};
        int r = file_set_read(path, ret_files, &error);

        if (r == 0)
                r = setup_load(*ret_files, ret_setup, &error);
        if (r == YAML_E_INVALID)
                yaml_error_print(&error);
        else if (r < 0)
                (void)log_errno(r, "cannot load %s", path);
        yaml_error_done(&error);
        return r;
}

int main(int argc, char **argv)
{
        struct broker_options options;
        struct file_set *files = NULL;
        struct setup *setup = NULL;
        int r;

        log_setup("wbbroker", LOG_LEVEL_INFO);
        if (argc == 2 && strcmp(argv[1], BROKER_PROCESS_ARGUMENT) == 0) {
                (void)prctl(PR_SET_NAME, "wbbroker"); /* exe, of /proc/self/exe, says nothing */
                return broker_run();
        }
        r = broker_options_parse(argc, argv, &options);
        if (r != 0)
                return r == OPTIONS_E_HELP ? 0 : r == OPTIONS_E_USAGE ? EXIT_INVALID : EXIT_FAILURE;
        if (options.version) {
                printf("wbbroker %s\n", WB_VERSION);
                return 0;
        }
        r = load(options.config, &files, &setup);
        if (r == 0 && !options.check)
                r = monitor_run(&options, files, setup->config);
        else if (r != 0)
                r = EXIT_INVALID;
        setup_free(setup);
        file_set_free(files);
        return r;
}
