# SPDX-License-Identifier: Apache-2.0
# How every object of the project is compiled.

option(WB_WERROR "Warnings are errors" ON)
option(WB_FUZZ "Build the libFuzzer targets (clang only)" OFF)
set(WB_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# assert() states what the code relies on; it stays in every build.
foreach(type RELEASE RELWITHDEBINFO MINSIZEREL)
  string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_${type} "${CMAKE_C_FLAGS_${type}}")
endforeach()
string(REPLACE "-O3" "-O2" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")

add_compile_definitions(_GNU_SOURCE _FILE_OFFSET_BITS=64 WB_VERSION="${PROJECT_VERSION}")
include_directories(${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
add_compile_options(-Wall -Wextra -Wshadow -Wmissing-prototypes -Wformat=2 -Wswitch-enum
  -Wstrict-prototypes -Wvla -Wpointer-arith -Wwrite-strings
  -Wno-missing-field-initializers  # what an initialiser leaves out is zero, and meant to be; libseccomp's macros do so too
  -fno-strict-aliasing -fno-common -ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,-z,noexecstack)
# An out-parameter is set whenever the callee answers 0, which the optimiser often cannot see; the house check's clang-tidy does.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options(-Wno-maybe-uninitialized)
endif()
if(WB_WERROR)
  add_compile_options(-Werror)
endif()

add_compile_options(-fstack-protector-strong -fstack-clash-protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options(-fcf-protection)
endif()

if(WB_SANITIZE)
  add_compile_options(-fsanitize=${WB_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${WB_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
if(WB_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Programs are PIE; what is linked static is a static PIE.
include(CheckPIESupported)
check_pie_supported()
