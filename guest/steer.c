/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/steer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/fake_pool.h"
#include "proto/base/cleanup.h"

/* ---- the instructions, as linux/filter.h of the kernel names them, of which user space has no header */

#define LOAD(to, from, offset)                                                                                         \
        {                                                                                                              \
                .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = (to), .src_reg = (from), .off = (offset)                 \
        }
#define STORE_NUMBER(to, offset, value)                                                                                \
        {                                                                                                              \
                .code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = (to), .off = (offset), .imm = (value)                     \
        }
#define SET(to, value)                                                                                                 \
        {                                                                                                              \
                .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = (to), .imm = (value)                                   \
        }
#define COPY(to, from)                                                                                                 \
        {                                                                                                              \
                .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = (to), .src_reg = (from)                                \
        }
#define ADD(to, value)                                                                                                 \
        {                                                                                                              \
                .code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = (to), .imm = (value)                                   \
        }
#define AND(to, value)                                                                                                 \
        {                                                                                                              \
                .code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = (to), .imm = (value)                                   \
        }
#define MAP(to, fd)                                                                                                    \
        {.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = (to), .src_reg = BPF_PSEUDO_MAP_FD, .imm = (fd)},               \
        {                                                                                                              \
                0                                                                                                      \
        }
#define UNLESS(reg, value, skip)                                                                                       \
        {                                                                                                              \
                .code = BPF_JMP32 | BPF_JNE | BPF_K, .dst_reg = (reg), .off = (skip), .imm = (value)                   \
        }
#define IF(reg, value, skip)                                                                                           \
        {                                                                                                              \
                .code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = (reg), .off = (skip), .imm = (value)                     \
        }
#define CALL(function)                                                                                                 \
        {                                                                                                              \
                .code = BPF_JMP | BPF_CALL, .imm = (function)                                                          \
        }
#define EXIT                                                                                                           \
        {                                                                                                              \
                .code = BPF_JMP | BPF_EXIT                                                                             \
        }

#define FIELD(name) ((int16_t)offsetof(struct bpf_sk_lookup, name))

static int bpf(int command, union bpf_attr *attr)
{
        long r = syscall(SYS_bpf, command, attr, sizeof(*attr));

        return r < 0 ? -errno : (int)r;
}

/* A map of one place with the listener in it. */
static int make_map(int listener)
{
        union bpf_attr create = {.map_type = BPF_MAP_TYPE_SOCKMAP, .key_size = 4, .value_size = 8, .max_entries = 1};
        _cleanup_close_ int map = bpf(BPF_MAP_CREATE, &create);
        uint32_t key = 0;
        uint64_t value = (uint64_t)listener;
        union bpf_attr update = {0};
        int r;

        if (map < 0)
                return map;
        update.map_fd = (uint32_t)map;
        update.key = (uint64_t)(uintptr_t)&key;
        update.value = (uint64_t)(uintptr_t)&value;
        r = bpf(BPF_MAP_UPDATE_ELEM, &update);
        return r < 0 ? r : steal_fd(&map);
}

/* Always lets pass: where nothing was assigned, the kernel looks for a listener as it does without the program. */
static int load_program(int map)
{
        const int32_t base = (int32_t)htonl(FAKE_POOL_BASE),
                      mask = (int32_t)htonl(~UINT32_C(0) << (32u - FAKE_POOL_PREFIX_BITS));
        const struct bpf_insn program[] = {
                COPY(BPF_REG_6, BPF_REG_1),
                LOAD(BPF_REG_2, BPF_REG_6, FIELD(family)),
                UNLESS(BPF_REG_2, AF_INET, 19),
                LOAD(BPF_REG_2, BPF_REG_6, FIELD(protocol)),
                UNLESS(BPF_REG_2, IPPROTO_TCP, 17),
                LOAD(BPF_REG_2, BPF_REG_6, FIELD(local_ip4)),
                AND(BPF_REG_2, mask),
                UNLESS(BPF_REG_2, base, 14),
                STORE_NUMBER(BPF_REG_10, -4, 0),
                COPY(BPF_REG_2, BPF_REG_10),
                ADD(BPF_REG_2, -4),
                MAP(BPF_REG_1, map),
                CALL(BPF_FUNC_map_lookup_elem),
                IF(BPF_REG_0, 0, 7),
                COPY(BPF_REG_7, BPF_REG_0),
                COPY(BPF_REG_1, BPF_REG_6),
                COPY(BPF_REG_2, BPF_REG_0),
                SET(BPF_REG_3, 0),
                CALL(BPF_FUNC_sk_assign),
                COPY(BPF_REG_1, BPF_REG_7),
                CALL(BPF_FUNC_sk_release),
                SET(BPF_REG_0, SK_PASS), /* where all the jumps lead */
                EXIT,
        };
        union bpf_attr load = {.prog_type = BPF_PROG_TYPE_SK_LOOKUP, .expected_attach_type = BPF_SK_LOOKUP};

        load.insns = (uint64_t)(uintptr_t)program;
        load.insn_cnt = sizeof(program) / sizeof(program[0]);
        load.license = (uint64_t)(uintptr_t) "Apache-2.0";
        return bpf(BPF_PROG_LOAD, &load);
}

int steer_start(int listener, int *ret_fd)
{
        _cleanup_close_ int map = make_map(listener), program = -1, netns = -1;
        union bpf_attr link = {0};
        int r;

        if (map < 0)
                return map;
        program = load_program(map);
        if (program < 0)
                return program;
        netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        if (netns < 0)
                return -errno;
        link.link_create.prog_fd = (uint32_t)program;
        link.link_create.target_fd = (uint32_t)netns;
        link.link_create.attach_type = BPF_SK_LOOKUP;
        r = bpf(BPF_LINK_CREATE, &link);
        if (r < 0)
                return r;
        *ret_fd = r;
        return 0;
}
