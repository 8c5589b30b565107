/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/files.h"
#include "guest/filesystems_hold.h"
#include "guest/forwarder.h"
#include "guest/init.h"
#include "guest/options.h"
#include "guest/self.h"
#include "guest/selftest.h"
#include "guest/serve.h"
#include "guest/vmclock.h"
#include "proto/base/log.h"
#include "proto/base/options.h"

/* A kernel hands its unknown parameters to PID 1; an exit would be its panic. */
static int parse_options(int argc, char **argv, bool pid1, struct agent_options *ret)
{
        char *none[] = {argv[0], NULL};
        int r = agent_options_parse(argc, argv, ret);

        if (r == 0 || !pid1)
                return r;
        log_warning("arguments that are not understood are left aside");
        return agent_options_parse(1, none, ret);
}

static int end(enum agent_end how, bool pid1, enum transport_kind kind)
{
        enum init_end init = how == AGENT_END_REBOOT ? INIT_REBOOT : INIT_POWER_OFF;
        int r;

        /* In a container the end of its first process is the container's, and a service's end is all that it can bring
         * about. */
        if (how == AGENT_END_EXIT || kind == TRANSPORT_UNIX)
                return EXIT_SUCCESS;
        if (pid1) {
                init_finish(init);
                for (;;)
                        (void)pause();
        }
        r = init_ask(init);
        if (r < 0)
                (void)log_errno(r, "cannot have the system end");
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
        bool pid1 = getpid() == 1;
        struct agent_options options;
        struct serve_config config = {.pid1 = pid1};
        char *notify_socket;
        enum agent_end how;
        int r;

        if (argc == 4 && strcmp(argv[1], FORWARDER_ARGUMENT) == 0)
                return forwarder_main(argv[2], argv[3]);
        if (argc == 2 && strcmp(argv[1], FILES_ARGUMENT) == 0)
                return files_main();
        if (argc == 2 && strcmp(argv[1], FILESYSTEMS_ARGUMENT) == 0)
                return filesystems_main();
        log_setup("wbagent", LOG_LEVEL_INFO);
        r = parse_options(argc, argv, pid1, &options);
        if (r != 0)
                return r == OPTIONS_E_HELP ? EXIT_SUCCESS : OPTIONS_E_USAGE;
        if (options.selftest)
                return selftest_run(options.json);
        log_setup("wbagent", options.verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
        self_bound_heap();
        self_normalise(&config.inherited_nofile);
        self_forget_environment(&notify_socket);
        if (pid1)
                init_prepare(options.listen.kind != TRANSPORT_UNIX, &config.memory);
        self_protect();
        config.transport = options.listen;
        config.port = options.port;
        config.vmclock_path = options.vmclock;
        if (!options.vmclock && options.listen.kind != TRANSPORT_UNIX)
                config.vmclock_path = VMCLOCK_DEVICE;
        config.host_gone = options.host_gone;
        config.host_gone_ms = options.host_gone_ms;
        config.notify_socket = notify_socket;
        config.transparent = options.transparent || (pid1 && !options.no_transparent);
        config.proxy_variables = !options.no_proxy_variables;
        r = serve(&config, &how);
        free(notify_socket);
        return r < 0 ? EXIT_FAILURE : end(how, pid1, options.listen.kind);
}
