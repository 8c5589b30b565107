# SPDX-License-Identifier: Apache-2.0
# The distribution's libraries as imported targets, and the generated messages.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

pkg_check_modules(EVENT REQUIRED IMPORTED_TARGET libevent_core>=2.1)
pkg_check_modules(EVENT_PTHREADS REQUIRED IMPORTED_TARGET libevent_pthreads>=2.1)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(CARES REQUIRED IMPORTED_TARGET libcares)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(IDN2 REQUIRED IMPORTED_TARGET libidn2)
pkg_check_modules(PSL REQUIRED IMPORTED_TARGET libpsl)
pkg_check_modules(ARCHIVE REQUIRED IMPORTED_TARGET libarchive)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd)
pkg_check_modules(CUNIT REQUIRED IMPORTED_TARGET cunit)

# mbedTLS: 2.28 (Debian 12) has no pkg-config file, 3.6 (Debian 13) has.
find_library(MBEDCRYPTO_LIBRARY mbedcrypto REQUIRED)
find_library(MBEDX509_LIBRARY mbedx509 REQUIRED)
find_library(MBEDTLS_LIBRARY mbedtls REQUIRED)
add_library(wb_mbedcrypto INTERFACE)
target_link_libraries(wb_mbedcrypto INTERFACE ${MBEDCRYPTO_LIBRARY})
add_library(wb_mbedtls INTERFACE)
target_link_libraries(wb_mbedtls INTERFACE ${MBEDTLS_LIBRARY} ${MBEDX509_LIBRARY} wb_mbedcrypto)

find_program(PROTOC_C NAMES protoc-c REQUIRED)
