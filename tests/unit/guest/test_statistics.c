/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/statistics.h"

#include "tests/support/suite.h"

static void test_cpu(void)
{
        Wb__CpuStatistics s = WB__CPU_STATISTICS__INIT;

        statistics_parse_cpu(
                "cpu  100 20 30 4000 50 6 7 8 0 0\ncpu0 50 10 15 2000 25 3 3 4 0 0\ncpu1 1 1 1 1 1 1 1 1 0 0\n"
                "intr 1 2 3\nctxt 9\n",
                10000000, &s);
        CU_ASSERT_EQUAL(s.cpus, 2);
        CU_ASSERT_EQUAL(s.user_ns, 1200000000);
        CU_ASSERT_EQUAL(s.system_ns, 430000000);
        CU_ASSERT_EQUAL(s.idle_ns, 40000000000);
        CU_ASSERT_EQUAL(s.iowait_ns, 500000000);
        CU_ASSERT_EQUAL(s.steal_ns, 80000000);
}

static void test_memory(void)
{
        Wb__MemoryStatistics s = WB__MEMORY_STATISTICS__INIT;

        statistics_parse_memory(
                "MemTotal:        1024 kB\nMemFree:          10 kB\nMemAvailable:     20 kB\nCached: 5 kB\n"
                "SwapCached:  7 kB\nSwapTotal: 0 kB\n",
                &s);
        CU_ASSERT_EQUAL(s.total_bytes, 1048576);
        CU_ASSERT_EQUAL(s.free_bytes, 10240);
        CU_ASSERT_EQUAL(s.available_bytes, 20480);
        CU_ASSERT_EQUAL(s.cached_bytes, 5120);
}

static void test_pressure(void)
{
        Wb__Pressure s = WB__PRESSURE__INIT;

        statistics_parse_pressure(
                "some avg10=12.34 avg60=1.00 avg300=0.10 total=5000\nfull avg10=0.56 avg60=0.00 avg300=0.00 "
                "total=7\n",
                &s);
        CU_ASSERT_EQUAL(s.some_avg10_permille, 123);
        CU_ASSERT_EQUAL(s.full_avg10_permille, 5);
        CU_ASSERT_EQUAL(s.some_total_ns, 5000000);
        CU_ASSERT_EQUAL(s.full_total_ns, 7000);
}

static void test_disk(void)
{
        static const char text[] = " 254       0 vda 100 1 2000 3 400 5 6000 7 0 8 9\n"
                                   " 254      16 vdb 1 1 7 3 4 5 9 7 0 8 9 0 0\n";
        Wb__DiskStatistics s = WB__DISK_STATISTICS__INIT;

        statistics_parse_disk(text, "254:16", &s);
        CU_ASSERT_EQUAL(s.read_bytes, 7 * 512);
        CU_ASSERT_EQUAL(s.written_bytes, 9 * 512);
        statistics_parse_disk(text, "254:0", &s);
        CU_ASSERT_EQUAL(s.read_bytes, 2000 * 512);
        CU_ASSERT_EQUAL(s.written_bytes, 6000 * 512);
}

static void test_texts_that_are_none(void)
{
        static const char *const texts[] = {"", "\n", "cpu", "cpu \n", "some", "some avg10=", "254", "MemTotal:"};

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
                Wb__CpuStatistics cpu = WB__CPU_STATISTICS__INIT;
                Wb__MemoryStatistics memory = WB__MEMORY_STATISTICS__INIT;
                Wb__Pressure pressure = WB__PRESSURE__INIT;
                Wb__DiskStatistics disk = WB__DISK_STATISTICS__INIT;

                statistics_parse_cpu(texts[i], 1, &cpu);
                statistics_parse_memory(texts[i], &memory);
                statistics_parse_pressure(texts[i], &pressure);
                statistics_parse_disk(texts[i], "254:0", &disk);
                CU_ASSERT_EQUAL(cpu.user_ns + memory.total_bytes + pressure.some_total_ns + disk.read_bytes, 0);
        }
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"cpu", test_cpu},
                {"memory", test_memory},
                {"pressure", test_pressure},
                {"disk", test_disk},
                {"texts that are none", test_texts_that_are_none},
                CU_TEST_INFO_NULL,
        };

        return suite_run("statistics", tests);
}
