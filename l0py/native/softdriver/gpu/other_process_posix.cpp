#include <sys/syscall.h>
#include <unistd.h>

#include "other_process.hpp"

// Newer than the headers of some systems that this is built on.
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace softdriver {

uint32_t this_process() noexcept { return static_cast<uint32_t>(getpid()); }

Descriptor take_from_process(uint32_t process, SystemHandle handle) noexcept {
  if (process == this_process()) {
    return duplicate(handle);
  }
  const Descriptor other(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0)));
  if (!other.valid()) {
    return Descriptor();
  }
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_getfd, other.get(), handle, 0)));  // close-on-exec
}

}  // namespace softdriver
