#include "installed_drivers.hpp"

// There is no register of drivers: loaders know their names.
std::vector<std::string> installed_drivers() {
  return {"libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1", "libze_intel_npu.so.1|libze_intel_vpu.so.1"};
}
