/* SPDX-License-Identifier: Apache-2.0 */
/* Read by cppcheck before each file: macros of the system's headers that it would stumble over. Not part of any
 * program. */
#pragma once

#define LIST_HEAD(name, type)                                                                                          \
        struct name {                                                                                                  \
                struct type *lh_first;                                                                                 \
        }
#define TAILQ_HEAD(name, type)                                                                                         \
        struct name {                                                                                                  \
                struct type *tqh_first, **tqh_last;                                                                    \
        }
#define STAILQ_HEAD(name, type)          TAILQ_HEAD(name, type)
#define TAILQ_FOREACH(var, head, field)  for ((var) = (head)->tqh_first; (var); (var) = (var)->field.tqe_next)
#define LIST_FOREACH(var, head, field)   for ((var) = (head)->lh_first; (var); (var) = (var)->field.le_next)
#define STAILQ_FOREACH(var, head, field) for ((var) = (head)->tqh_first; (var); (var) = (var)->field.stqe_next)

#define json_array_foreach(array, index, value)                                                                        \
        for ((index) = 0; (index) < json_array_size(array) && ((value) = json_array_get(array, index)); (index)++)
#define json_object_foreach(object, key, value)                                                                        \
        for ((key) = first_key(object); (key) && ((value) = json_object_get(object, key));                             \
                (key) = next_key(object, key))
