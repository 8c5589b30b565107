/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/parse.h"

#define GENERATION_NEXT_FILE IDENTITY_GENERATION_FILE ".next"
#define GENERATION_KEY       "generation="

static int draw_id(char ret_id[IDENTITY_ID_BYTES])
{
        uint8_t bytes[(IDENTITY_ID_BYTES - 1) / 2];

        if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
                return -errno;
        for (size_t i = 0; i < sizeof(bytes); i++)
                (void)snprintf(ret_id + 2 * i, 3, "%02x", bytes[i]);
        return 0;
}

static int write_generation(uint64_t generation, const char *id)
{
        _cleanup_close_ int fd = -1;
        char text[128];
        int n, r;

        if (mkdir(IDENTITY_RUN_DIR, 0755) < 0 && errno != EEXIST)
                return -errno;
        fd = open(GENERATION_NEXT_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
                return -errno;
        n = snprintf(text, sizeof(text), GENERATION_KEY "%" PRIu64 "\nid=%s\n", generation, id);
        r = io_write_full(fd, text, (size_t)n);
        if (r < 0)
                return r;
        return rename(GENERATION_NEXT_FILE, IDENTITY_GENERATION_FILE) < 0 ? -errno : 0;
}

int identity_set(const char *hostname, uint64_t generation, char ret_id[IDENTITY_ID_BYTES], struct report *report)
{
        char id[IDENTITY_ID_BYTES];
        int r;

        if (*hostname) {
                if (sethostname(hostname, strlen(hostname)) < 0)
                        return report_errno(report, -errno, "sethostname");
                report_fact(report, "hostname", "%s", hostname);
        }
        r = draw_id(id);
        if (r < 0)
                return report_errno(report, r, "getrandom");
        r = write_generation(generation, id);
        if (r < 0)
                return report_errno(report, r, IDENTITY_GENERATION_FILE);
        report_fact(report, "generation", "%" PRIu64, generation);
        report_fact(report, "id", "%s", id);
        report_detail(report, "generation %" PRIu64 "%s%s", generation, *hostname ? ", hostname " : "", hostname);
        memcpy(ret_id, id, sizeof(id));
        return 0;
}

uint64_t identity_last_generation(void)
{
        _cleanup_free_ char *text = NULL;
        uint64_t generation;
        char *end;

        if (io_read_file(IDENTITY_GENERATION_FILE, 4096, &text, NULL) < 0)
                return 0;
        if (strncmp(text, GENERATION_KEY, strlen(GENERATION_KEY)) != 0)
                return 0;
        end = strchr(text, '\n');
        if (end)
                *end = '\0';
        return parse_u64(text + strlen(GENERATION_KEY), UINT64_MAX, &generation) == 0 ? generation : 0;
}
