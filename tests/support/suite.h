/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The main() of a unit test: runs one CUnit suite and answers with its failures. Include once, in the test's own file.
 */

#include <CUnit/Basic.h>

static inline int suite_run(const char *name, CU_TestInfo *tests)
{
        CU_SuiteInfo suites[] = {{name, NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
        unsigned failed;

        if (CU_initialize_registry() || CU_register_suites(suites))
                return (int)CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();
        failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
