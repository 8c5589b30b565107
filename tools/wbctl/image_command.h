/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The commands of `wbctl image`, one file each: argv[0] is "build" and so on; they answer the exit status. */

int image_build_command(int argc, char **argv);
int image_ls_command(int argc, char **argv);
int image_sign_command(int argc, char **argv);
int image_verify_command(int argc, char **argv);
