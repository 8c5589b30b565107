/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/secret_value.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mbedtls/base64.h>

#include "proto/base/cleanup.h"
#include "proto/wire/limits.h"

bool secret_name_is_good(const char *name)
{
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
        size_t n = strlen(name);

        return n > 0 && n <= WB_SECRET_NAME_MAX && strspn(name, letters) == n && !(*name >= '0' && *name <= '9');
}

size_t secret_value_room(const char *text, size_t text_n)
{
        size_t n = text_n / 4 * 3;

        for (size_t i = text_n; n > 0 && i > 0 && text_n - i < 2 && text[i - 1] == '='; i--)
                n--;
        return n;
}

static int map_pages(size_t n, struct secret_value *ret)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = n ? (n + page - 1) / page * page : page;
        void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (at == MAP_FAILED)
                return -ENOMEM;
        *ret = (struct secret_value){.bytes = at, .mapped_bytes = bytes, .locked = mlock(at, bytes) == 0};
        (void)madvise(at, bytes, MADV_DONTDUMP);
        return 0;
}

int secret_value_decode(const char *text, size_t text_n, struct secret_value *ret)
{
        size_t room = secret_value_room(text, text_n);
        struct secret_value v;
        int r;

        if (text_n % 4 != 0)
                return -EINVAL;
        if (room > WB_SECRET_MAX_BYTES)
                return -EMSGSIZE;
        r = map_pages(room, &v);
        if (r < 0)
                return r;
        if (mbedtls_base64_decode(v.bytes, v.mapped_bytes, &v.n, (const unsigned char *)text, text_n) != 0) {
                secret_value_done(&v);
                return -EINVAL;
        }
        *ret = v;
        return 0;
}

const char *secret_value_fault(int r)
{
        switch (r) {
        case -EINVAL: return "a secret's value is base64";
        case -EMSGSIZE: return "a secret is at most 65536 bytes";
        default: return "no memory";
        }
}

void secret_value_done(struct secret_value *v)
{
        if (v->bytes) {
                explicit_bzero(v->bytes, v->mapped_bytes);
                (void)munmap(v->bytes, v->mapped_bytes);
        }
        *v = (struct secret_value){0};
}
