/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies: where they end, what is forwarded of them, and what is refused. Chunked ones are read whole and byte by byte.
 */
#include "broker/http1_body.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"

/* What came out of a body that was fed in pieces. */
struct result {
        enum http1_body_event event;
        size_t taken;
        size_t n;
        char out[4096];
};

static struct result transfer(struct http1_body b, const char *text, size_t n, size_t piece, size_t room, bool chunked)
{
        struct result r = {.event = HTTP1_BODY_MORE};

        for (;;) {
                size_t left = n - r.taken, k = left < piece ? left : piece, space = sizeof(r.out) - 1 - r.n, taken,
                       written;

                r.event = http1_body_transfer(&b, (const uint8_t *)text + r.taken, k, &taken, chunked,
                        (uint8_t *)r.out + r.n, space < room ? space : room, &written);
                r.taken += taken;
                r.n += written;
                if (r.event == HTTP1_BODY_END || r.event == HTTP1_BODY_MALFORMED || (!taken && !written))
                        break;
        }
        r.out[r.n] = '\0';
        return r;
}

static struct http1_body chunked_body(void)
{
        struct http1_body b;

        http1_body_init(&b, HTTP1_FRAMING_CHUNKED, 0);
        return b;
}

static struct result read_chunked(const char *text, size_t piece)
{
        return transfer(chunked_body(), text, strlen(text), piece, SIZE_MAX, false);
}

static void test_chunked_bodies(void)
{
        static const struct {
                const char *text;
                const char *body;
                size_t left; /* bytes behind the body, which are the next message's */
        } right[] = {
                {"0\r\n\r\n", "", 0},
                {"5\r\nhello\r\n0\r\n\r\n", "hello", 0},
                {"A\r\n0123456789\r\n0\r\n\r\n", "0123456789", 0},
                {"a\r\n0123456789\r\n000\r\n\r\n", "0123456789", 0},
                {"0005\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "hello!", 0},
                {"9\r\n0\r\n\r\nGET \r\n0\r\n\r\n", "0\r\n\r\nGET ", 0},
                {"5;name=value;x=\"q;1\"\r\nhello\r\n0;last\r\n\r\n", "hello", 0},
                {"5;\ttab\r\nhello\r\n0\r\n\r\n", "hello", 0},
                {"3\r\nabc\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\n", "abc", 0},
                {"3\r\nabc\r\n0\r\nEmpty:\r\n\r\nGET /", "abc", 5},
                {"3\r\nabc\r\n0\r\n\r\n\r\n", "abc", 2},
        };

        for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
                for (size_t piece = 1; piece <= 8; piece++) {
                        struct result r = read_chunked(right[i].text, piece == 8 ? SIZE_MAX : piece);

                        CU_ASSERT_EQUAL(r.event, HTTP1_BODY_END);
                        CU_ASSERT_STRING_EQUAL(r.out, right[i].body);
                        CU_ASSERT_EQUAL(r.taken, strlen(right[i].text) - right[i].left);
                }
}

static void test_malformed_chunks(void)
{
        static const char *const wrong[] = {
                "10000000000000005\r\nhello\r\n0\r\n\r\n", /* 2^64+5 */
                "8000000000000000\r\nhello",               /* above INT64_MAX */
                "0x5\r\nhello\r\n0\r\n\r\n",
                "-5\r\nhello\r\n0\r\n\r\n",
                "+5\r\nhello\r\n0\r\n\r\n",
                " 5\r\nhello\r\n0\r\n\r\n",
                "5 \r\nhello\r\n0\r\n\r\n",
                "5 ;a\r\nhello\r\n0\r\n\r\n",
                "5\t\r\nhello\r\n0\r\n\r\n",
                "\r\nhello\r\n0\r\n\r\n",
                ";a\r\nhello\r\n0\r\n\r\n",
                "5g\r\nhello\r\n0\r\n\r\n",
                "5\nhello\r\n0\r\n\r\n",
                "5\r\r\nhello\r\n0\r\n\r\n",
                "5\rhello\r\n0\r\n\r\n",
                "5\r\nhelloXX\r\n0\r\n\r\n",
                "5\r\nhello\n0\r\n\r\n",
                "5\r\nhello0\r\n\r\n",
                "5;a\nb\r\nhello\r\n0\r\n\r\n",
                "5;a\rb\r\nhello\r\n0\r\n\r\n",
                "5;a\x01\r\nhello\r\n0\r\n\r\n",
                "5;a\x7f\r\nhello\r\n0\r\n\r\n",
                "0\r\nBad Trailer: x\r\n\r\n",
                "0\r\nTrailer : x\r\n\r\n",
                "0\r\n folded\r\n\r\n",
                "0\r\n: x\r\n\r\n",
                "0\r\nNonsense\r\n\r\n",
                "0\r\nA: b\n\r\n",
                "0\r\nA: b\rc\r\n\r\n",
                "0\r\nA: b\x01\r\n\r\n",
                "0\r\n\n",
                "0\n\n",
        };

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                CU_ASSERT_EQUAL(read_chunked(wrong[i], SIZE_MAX).event, HTTP1_BODY_MALFORMED);
                CU_ASSERT_EQUAL(read_chunked(wrong[i], 1).event, HTTP1_BODY_MALFORMED);
        }
}

/* "prefix", then filler n times: is it taken so far (MORE) or refused? */
static enum http1_body_event endless(const char *prefix, const char *filler, size_t times)
{
        struct http1_body b = chunked_body();
        enum http1_body_event event = HTTP1_BODY_MORE;
        size_t taken;

        event = http1_body_scan(&b, (const uint8_t *)prefix, strlen(prefix), &taken);
        for (size_t i = 0; i < times && event == HTTP1_BODY_MORE; i++)
                event = http1_body_scan(&b, (const uint8_t *)filler, strlen(filler), &taken);
        return event;
}

static void test_what_is_dropped_is_bounded(void)
{
        CU_ASSERT_EQUAL(endless("5;", "a", 900), HTTP1_BODY_MORE);
        CU_ASSERT_EQUAL(endless("5;", "a", 1100), HTTP1_BODY_MALFORMED);
        CU_ASSERT_EQUAL(endless("0", "0", 1100), HTTP1_BODY_MALFORMED);
        CU_ASSERT_EQUAL(endless("0\r\n", "A: b\r\n", 1000), HTTP1_BODY_MORE);
        CU_ASSERT_EQUAL(endless("0\r\n", "A: b\r\n", 2000), HTTP1_BODY_MALFORMED);
}

/* Extensions of a few hundred bytes on every one-byte chunk would make the framing outweigh the body without end. */
static void test_extensions_of_a_body_are_bounded_together(void)
{
        struct http1_body b = chunked_body();
        enum http1_body_event event = HTTP1_BODY_MORE;
        char chunk[512];
        size_t chunks = 0, taken;

        memset(chunk, 'a', sizeof(chunk));
        memcpy(chunk, "1;", 2);
        memcpy(chunk + sizeof(chunk) - 2, "\r\n", 2);
        do {
                event = http1_body_scan(&b, (const uint8_t *)chunk, sizeof(chunk), &taken);
                if (event == HTTP1_BODY_DATA) {
                        http1_body_consume(&b, 1);
                        event = http1_body_scan(&b, (const uint8_t *)"\r\n", 2, &taken);
                }
        } while (event == HTTP1_BODY_MORE && ++chunks < 1000);
        CU_ASSERT_EQUAL(event, HTTP1_BODY_MALFORMED);
        CU_ASSERT_EQUAL(chunks, HTTP1_EXTENSIONS_MAX_BYTES / 508);
}

static void test_length_ends_where_it_ends(void)
{
        struct http1_body b;
        struct result r;

        http1_body_init(&b, HTTP1_FRAMING_LENGTH, 5);
        r = transfer(b, "helloGET /", 10, SIZE_MAX, SIZE_MAX, false);
        CU_ASSERT_EQUAL(r.event, HTTP1_BODY_END);
        CU_ASSERT_EQUAL(r.taken, 5);
        CU_ASSERT_STRING_EQUAL(r.out, "hello");

        http1_body_init(&b, HTTP1_FRAMING_LENGTH, 0);
        r = transfer(b, "GET /", 5, SIZE_MAX, SIZE_MAX, false);
        CU_ASSERT_EQUAL(r.event, HTTP1_BODY_END);
        CU_ASSERT_EQUAL(r.taken, 0);

        http1_body_init(&b, HTTP1_FRAMING_NONE, 0);
        r = transfer(b, "GET /", 5, SIZE_MAX, SIZE_MAX, false);
        CU_ASSERT_EQUAL(r.event, HTTP1_BODY_END);
        CU_ASSERT_EQUAL(r.taken, 0);
}

/* Without a copy: how much may be spliced past the parser. */
static void test_left_says_what_needs_no_look(void)
{
        struct http1_body b = chunked_body();
        size_t taken;

        CU_ASSERT_EQUAL(http1_body_left(&b), 0);
        CU_ASSERT_EQUAL(http1_body_scan(&b, (const uint8_t *)"1000\r\n", 6, &taken), HTTP1_BODY_DATA);
        CU_ASSERT_EQUAL(taken, 6);
        CU_ASSERT_EQUAL(http1_body_left(&b), 0x1000);
        http1_body_consume(&b, 0xfff);
        CU_ASSERT_EQUAL(http1_body_left(&b), 1);
        http1_body_consume(&b, 1);
        CU_ASSERT_EQUAL(http1_body_left(&b), 0);

        http1_body_init(&b, HTTP1_FRAMING_UNTIL_CLOSE, 0);
        CU_ASSERT_EQUAL(http1_body_left(&b), UINT64_MAX);
        http1_body_consume(&b, 12345);
        CU_ASSERT_EQUAL(http1_body_left(&b), UINT64_MAX);
}

/* A body that ends with its connection is whole only where that is its end; nobody finishes it for the sender. */
static void test_end_of_the_connection(void)
{
        struct http1_body b;
        size_t taken;

        http1_body_init(&b, HTTP1_FRAMING_UNTIL_CLOSE, 0);
        CU_ASSERT_EQUAL(http1_body_eof(&b), HTTP1_BODY_END);
        http1_body_init(&b, HTTP1_FRAMING_NONE, 0);
        CU_ASSERT_EQUAL(http1_body_eof(&b), HTTP1_BODY_END);
        http1_body_init(&b, HTTP1_FRAMING_LENGTH, 5);
        http1_body_consume(&b, 4);
        CU_ASSERT_EQUAL(http1_body_eof(&b), HTTP1_BODY_MALFORMED);
        b = chunked_body();
        (void)http1_body_scan(&b, (const uint8_t *)"0\r\n", 3, &taken);
        CU_ASSERT_EQUAL(http1_body_eof(&b), HTTP1_BODY_MALFORMED);
        CU_ASSERT_EQUAL(http1_body_scan(&b, (const uint8_t *)"\r\n", 2, &taken), HTTP1_BODY_MALFORMED);
        CU_ASSERT_EQUAL(taken, 0);
}

static void test_chunks_are_framed_anew(void)
{
        const char *text = "5;ext\r\nhello\r\n00C\r\n, wide world\r\n0\r\nX-Sum: 1\r\n\r\n";
        struct result r = transfer(chunked_body(), text, strlen(text), SIZE_MAX, SIZE_MAX, true);

        CU_ASSERT_EQUAL(r.event, HTTP1_BODY_END);
        CU_ASSERT_STRING_EQUAL(r.out, "5\r\nhello\r\nc\r\n, wide world\r\n0\r\n\r\n");
}

/* No bytes are lost or told twice when the other side takes little, and the last chunk comes once. */
static void test_little_room_loses_nothing(void)
{
        const char *text = "14\r\n0123456789abcdefghij\r\n3\r\nxyz\r\n0\r\n\r\n";

        for (size_t room = HTTP1_TRANSFER_ROOM_MIN; room < 80; room++)
                for (size_t piece = 1; piece < 40; piece++) {
                        struct result r = transfer(chunked_body(), text, strlen(text), piece, room, true);
                        struct result back = read_chunked(r.out, SIZE_MAX);

                        CU_ASSERT_EQUAL(r.event, HTTP1_BODY_END);
                        CU_ASSERT_EQUAL(back.event, HTTP1_BODY_END);
                        CU_ASSERT_EQUAL(back.taken, r.n);
                        CU_ASSERT_STRING_EQUAL(back.out, "0123456789abcdefghijxyz");
                }
}

/* The origin must never see a whole body where the sender's was none. */
static void test_a_malformed_end_gives_no_last_chunk(void)
{
        const char *text = "3\r\nabc\r\n0\r\nBad Trailer: x\r\n\r\n";
        struct result r = transfer(chunked_body(), text, strlen(text), SIZE_MAX, SIZE_MAX, true);

        CU_ASSERT_EQUAL(r.event, HTTP1_BODY_MALFORMED);
        CU_ASSERT_STRING_EQUAL(r.out, "3\r\nabc\r\n");
}

static void test_chunk_sizes(void)
{
        char text[HTTP1_CHUNK_OPEN_MAX];

        CU_ASSERT_EQUAL(http1_chunk_open(1, text), 3);
        CU_ASSERT_EQUAL(memcmp(text, "1\r\n", 3), 0);
        CU_ASSERT_EQUAL(http1_chunk_open(0x1a2b, text), 6);
        CU_ASSERT_EQUAL(memcmp(text, "1a2b\r\n", 6), 0);
        CU_ASSERT_EQUAL(http1_chunk_open(UINT64_MAX, text), 18);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"chunked bodies", test_chunked_bodies},
                {"malformed chunks are refused", test_malformed_chunks},
                {"what is dropped is bounded", test_what_is_dropped_is_bounded},
                {"extensions of a body are bounded together", test_extensions_of_a_body_are_bounded_together},
                {"a length ends where it ends", test_length_ends_where_it_ends},
                {"left says what needs no look", test_left_says_what_needs_no_look},
                {"the end of the connection", test_end_of_the_connection},
                {"chunks are framed anew", test_chunks_are_framed_anew},
                {"little room loses nothing", test_little_room_loses_nothing},
                {"a malformed end gives no last chunk", test_a_malformed_end_gives_no_last_chunk},
                {"chunk sizes", test_chunk_sizes},
                CU_TEST_INFO_NULL,
        };

        return suite_run("http1_body", tests);
}
