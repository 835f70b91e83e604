#include "physical_mem.hpp"

#include "device.hpp"
#include "exports.hpp"
#include "properties.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

constexpr uint32_t known_flags = ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE | ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST;

// Physical memory has one result for every descriptor that will not do.
std::shared_ptr<Allocation> import_physical(const Request& request) {
  if (memory_size(request.import) < request.size) {
    throw Failure(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "the handle is of no shareable memory, or of too little");
  }
  return make_block(request);
}

}  // namespace

size_t device_page_size(size_t bytes) noexcept {
  constexpr size_t medium = size_t{64} * 1024;
  constexpr size_t large = size_t{2} << 20;
  return bytes >= large ? large : medium;
}

size_t in_device_pages(size_t bytes) noexcept {
  const size_t page = device_page_size(bytes);
  return bytes > page ? (bytes + page - 1) / page * page : page;
}

ze_result_t api::zePhysicalMemCreate(ze_context_handle_t context, ze_device_handle_t device,
                                     ze_physical_mem_desc_t* desc, ze_physical_mem_handle_t* physical) {
  find<Context>(context);
  const auto& wanted = require(desc, "desc");
  require(physical, "phPhysicalMemory");
  require_stype(wanted.stype, ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, "desc");
  require_flags(wanted.flags, known_flags, "desc.flags");
  const bool of_host = (wanted.flags & ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST) != 0;
  if (!of_host) {  // host memory belongs to no device
    find<Device>(device);
  }
  Request request{of_host ? ZE_MEMORY_TYPE_HOST : ZE_MEMORY_TYPE_DEVICE, wanted.size, 0};
  read_chain(wanted.pNext, Chain::honoured, request);
  const size_t whole_pages = of_host ? round_to_pages(wanted.size) : in_device_pages(wanted.size);
  if (wanted.size == 0 || whole_pages != wanted.size || wanted.size > max_allocation_size()) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "physical memory comes in whole pages: see the page size query");
  }
  request.exportable = true;  // always, asked for or not
  auto block = request.has_import ? import_physical(request) : make_block(request);
  // An imported descriptor stays the caller's, in every release.
  *physical = publish(std::make_shared<PhysicalMem>(wanted.size, std::move(block)));
  return ZE_RESULT_SUCCESS;
}

// What is mapped stays until it is unmapped.
ze_result_t api::zePhysicalMemDestroy(ze_context_handle_t context, ze_physical_mem_handle_t physical) {
  find<Context>(context);
  end_exports(*retire<PhysicalMem>(physical)->block);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zePhysicalMemGetProperties(ze_context_handle_t context, ze_physical_mem_handle_t physical,
                                            ze_physical_mem_properties_t* properties) {
  find<Context>(context);
  const auto found = find<PhysicalMem>(physical);
  auto& told = checked(properties, ZE_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES, "pMemProperties");
  const auto* first = static_cast<const ze_base_properties_t*>(told.pNext);
  if (first != nullptr && first->stype != ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD) {
    throw Failure(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION, "only a descriptor can be asked for");
  }
  answer_export_query(found->block, told.pNext);
  told.id = found->block->id;
  told.size = found->size;
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
