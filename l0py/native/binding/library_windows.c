#include "library.cdef.h"

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <string.h>

static int widen(const char* text, wchar_t* wide, int size) {
  return MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, size) != 0;
}

uintptr_t l0_library_open(const char* path, int only_if_loaded) {
  wchar_t wide[4096];
  if (!widen(path, wide, 4096)) {
    return 0;
  }
  if (only_if_loaded) {
    HMODULE loaded = NULL;
    return GetModuleHandleExW(0, wide, &loaded) ? (uintptr_t)loaded : 0;
  }
  /* Beside it lies what a library needs whose place is known; for all others Windows' own order without the working
     directory and PATH. */
  int placed = strchr(path, ':') != NULL || strncmp(path, "\\\\", 2) == 0;
  DWORD flags = LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | (placed ? LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR : 0);
  return (uintptr_t)LoadLibraryExW(wide, NULL, flags);
}

const char* l0_library_error(void) {
  static _Thread_local char text[512];
  wchar_t wide[256];
  DWORD length = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, GetLastError(), 0,
                                wide, 256, NULL);
  while (length > 0 && wide[length - 1] <= L' ') {
    --length;
  }
  int bytes = WideCharToMultiByte(CP_UTF8, 0, wide, (int)length, text, (int)sizeof text - 1, NULL, NULL);
  text[bytes] = '\0';
  return text;
}

void l0_library_close(uintptr_t library) { FreeLibrary((HMODULE)library); }

uintptr_t l0_library_symbol(uintptr_t library, const char* name) {
  return (uintptr_t)GetProcAddress((HMODULE)library, name);
}

int l0_library_path(uintptr_t library, char* buffer, size_t size) {
  wchar_t wide[4096];
  DWORD length = GetModuleFileNameW((HMODULE)library, wide, 4096);
  if (length == 0 || length == 4096) {
    return 0;
  }
  return WideCharToMultiByte(CP_UTF8, 0, wide, -1, buffer, (int)size, NULL, NULL) != 0;
}
