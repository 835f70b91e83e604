#include "image.hpp"

#include "behaviour.hpp"
#include "device.hpp"
#include "exports.hpp"
#include "properties.hpp"
#include "softdriver_functions.hpp"

namespace softdriver {
namespace {

constexpr uint32_t known_flags = ZE_IMAGE_FLAG_KERNEL_WRITE | ZE_IMAGE_FLAG_BIAS_UNCACHED;

const ze_image_desc_t& checked_desc(const ze_image_desc_t* description) {
  const auto& desc = require(description, "desc");
  require_stype(desc.stype, ZE_STRUCTURE_TYPE_IMAGE_DESC, "desc");
  require_flags(desc.flags, known_flags, "desc.flags");
  return desc;
}

// Any image can be exported, asked for or not.
std::shared_ptr<Allocation> make_image_block(const Request& request) {
  try {
    auto block = make_block(request);
    if (block->size < request.size) {
      throw Failure(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "the descriptor holds less than the image needs");
    }
    return block;
  } catch (const Failure& failure) {
    // Images have one result for every descriptor that will not do.
    throw Failure(request.has_import ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY : failure.result, failure.what());
  }
}

}  // namespace

ze_result_t api::zeImageCreate(ze_context_handle_t context, ze_device_handle_t device, const ze_image_desc_t* desc,
                               ze_image_handle_t* image) {
  auto owner = find<Context>(context);
  find<Device>(device);
  const auto& wanted = checked_desc(desc);
  require(image, "phImage");
  const ImageLayout layout = image_layout(wanted);
  Request request{ZE_MEMORY_TYPE_DEVICE, layout.size, 0};
  read_chain(wanted.pNext, Chain::honoured, request);
  request.exportable = true;
  *image = publish(std::make_shared<Image>(std::move(owner), layout, make_image_block(request)));
  settle_import(request, behaviour().closes_image_imports);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeImageDestroy(ze_image_handle_t image) {
  end_exports(*retire<Image>(image)->block);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeImageGetProperties(ze_device_handle_t device, const ze_image_desc_t* desc,
                                      ze_image_properties_t* properties) {
  find<Device>(device);
  image_layout(checked_desc(desc));
  checked(properties, ZE_STRUCTURE_TYPE_IMAGE_PROPERTIES, "pImageProperties").samplerFilterFlags = 0;  // no samplers
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeImageGetAllocPropertiesExt(ze_context_handle_t context, ze_image_handle_t image,
                                              ze_image_allocation_ext_properties_t* properties) {
  find<Context>(context);
  const auto found = find<Image>(image);
  auto& told = checked(properties, ZE_STRUCTURE_TYPE_IMAGE_ALLOCATION_EXT_PROPERTIES, "pImageAllocProperties");
  told.id = 0;  // as Intel's driver
  answer_export_query(found->block, told.pNext);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeImageGetMemoryPropertiesExp(ze_image_handle_t image, ze_image_memory_properties_exp_t* properties) {
  const auto found = find<Image>(image);
  auto& told = checked(properties, ZE_STRUCTURE_TYPE_IMAGE_MEMORY_EXP_PROPERTIES, "pMemoryProperties");
  told.size = found->layout.size;
  told.rowPitch = found->layout.pitch;
  told.slicePitch = found->layout.slice;
  return ZE_RESULT_SUCCESS;
}

// An image lies where all devices reach it.
ze_result_t api::zeContextMakeImageResident(ze_context_handle_t context, ze_device_handle_t device,
                                            ze_image_handle_t image) {
  find<Context>(context);
  find<Device>(device);
  find<Image>(image);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::zeContextEvictImage(ze_context_handle_t context, ze_device_handle_t device, ze_image_handle_t image) {
  return api::zeContextMakeImageResident(context, device, image);
}

}  // namespace softdriver
