// UTF-8, which everything here speaks, and UTF-16, which the system does. For *_windows.cpp alone.
#pragma once

#include <string>

#include "windows_api.hpp"

namespace platform {

inline std::wstring widen(const std::string& text) {
  const int size = static_cast<int>(text.size());
  std::wstring wide(MultiByteToWideChar(CP_UTF8, 0, text.data(), size, nullptr, 0), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), size, wide.data(), static_cast<int>(wide.size()));
  return wide;
}

inline std::string narrow(const std::wstring& wide) {
  const int size = static_cast<int>(wide.size());
  std::string text(WideCharToMultiByte(CP_UTF8, 0, wide.data(), size, nullptr, 0, nullptr, nullptr), '\0');
  WideCharToMultiByte(CP_UTF8, 0, wide.data(), size, text.data(), static_cast<int>(text.size()), nullptr, nullptr);
  return text;
}

// An error of the system in its own words.
inline std::string error_text(DWORD error) {
  wchar_t text[512];
  DWORD length = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr, error, 0, text,
                                sizeof text / sizeof *text, nullptr);
  while (length > 0 && text[length - 1] <= L' ') {
    --length;
  }
  return narrow(std::wstring(text, length)) + " (error " + std::to_string(error) + ")";
}

}  // namespace platform
