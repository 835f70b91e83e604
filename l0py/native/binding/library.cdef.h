/* Finding the loader and filling the table of entry points. Read by the C compiler and by cffi. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* dlopen or LoadLibrary, of a UTF-8 path; with `only_if_loaded` it never loads anything new. 0 on failure, see
   l0_library_error. */
uintptr_t l0_library_open(const char* path, int only_if_loaded);
const char* l0_library_error(void);
void l0_library_close(uintptr_t library);
/* The address of a symbol of that very library, 0 when it lacks it. */
uintptr_t l0_library_symbol(uintptr_t library, const char* name);
/* Writes the file that the library was loaded from; false when it cannot be told. */
int l0_library_path(uintptr_t library, char* buffer, size_t size);

/* Looks all entry points up; the number found. One library a process: a second call changes nothing and answers -1. */
int l0_bind(uintptr_t library);
/* Whether the bound loader has the function; -1 when no function of the API has that name. */
int l0_has(const char* name);
/* What zeInit failed with, 0 while it did not. */
int l0_init_failure(void);
