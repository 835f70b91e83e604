// Images, their memory, and the commands that copy them.
#include <cstring>
#include <string>
#include <vector>

#include "gpu_memory.hpp"

using namespace check;

namespace {

ze_image_desc_t image_desc(ze_image_type_t type, ze_image_format_layout_t layout, uint64_t width, uint32_t height = 0,
                           uint32_t depth = 0, uint32_t layers = 0, const void* next = nullptr) {
  ze_image_desc_t desc{};
  desc.stype = ZE_STRUCTURE_TYPE_IMAGE_DESC;
  desc.pNext = next;
  desc.type = type;
  desc.format.layout = layout;
  desc.format.type = ZE_IMAGE_FORMAT_TYPE_UINT;
  desc.width = width;
  desc.height = height;
  desc.depth = depth;
  desc.arraylevels = layers;
  return desc;
}

ze_result_t create(ze_context_handle_t context, const ze_image_desc_t& desc, ze_image_handle_t* image) {
  return l0.ze_image.pfnCreate(context, gpu().device, &desc, image);
}

ze_image_handle_t make_image(ze_context_handle_t context, const ze_image_desc_t& desc) {
  ze_image_handle_t made = nullptr;
  OK(create(context, desc, &made));
  return made;
}

void destroy_image(ze_image_handle_t image) { OK(l0.ze_image.pfnDestroy(image)); }

ze_image_memory_properties_exp_t memory_of(ze_image_handle_t image) {
  ze_image_memory_properties_exp_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_IMAGE_MEMORY_EXP_PROPERTIES;
  OK(l0.ze_image_exp.pfnGetMemoryPropertiesExp(image, &properties));
  return properties;
}

int export_image(ze_context_handle_t context, ze_image_handle_t image) {
  ze_external_memory_export_fd_t wanted{ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, nullptr, dma_buf, -1};
  ze_image_allocation_ext_properties_t properties{ZE_STRUCTURE_TYPE_IMAGE_ALLOCATION_EXT_PROPERTIES, &wanted, 1};
  OK(l0.ze_image.pfnGetAllocPropertiesExt(context, image, &properties));
  CHECK(properties.id == 0);
  return wanted.fd;
}

constexpr auto bytes4 = ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8;

}  // namespace

TEST(images_go_through_memory_and_back) {
  const auto context = make_context();
  const auto list = make_immediate(context, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  const ze_image_desc_t descs[] = {
      image_desc(ZE_IMAGE_TYPE_1D, ZE_IMAGE_FORMAT_LAYOUT_8, 100),
      image_desc(ZE_IMAGE_TYPE_1DARRAY, ZE_IMAGE_FORMAT_LAYOUT_16, 100, 0, 0, 3),
      image_desc(ZE_IMAGE_TYPE_2D, bytes4, 25, 7),
      image_desc(ZE_IMAGE_TYPE_2DARRAY, ZE_IMAGE_FORMAT_LAYOUT_8_8_8, 5, 4, 0, 3),
      image_desc(ZE_IMAGE_TYPE_3D, ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, 3, 4, 5),
  };
  const size_t sizes[] = {100, 600, 700, 180, 960};
  for (size_t i = 0; i < std::size(descs); ++i) {
    const auto image = make_image(context, descs[i]);
    const auto copy = make_image(context, descs[i]);
    std::vector<unsigned char> from(sizes[i]);
    for (size_t at = 0; at < from.size(); ++at) {
      from[at] = static_cast<unsigned char>(at * 7 + 1);
    }
    std::vector<unsigned char> to(sizes[i] + 1, 0xee);
    OK(l0.ze_command_list.pfnAppendImageCopyFromMemory(list, image, from.data(), nullptr, nullptr, 0, nullptr));
    OK(l0.ze_command_list.pfnAppendImageCopy(list, copy, image, nullptr, 0, nullptr));
    OK(l0.ze_command_list.pfnAppendImageCopyToMemory(list, to.data(), copy, nullptr, nullptr, 0, nullptr));
    CHECK(std::memcmp(to.data(), from.data(), from.size()) == 0 && to.back() == 0xee);
    const auto memory = memory_of(image);
    CHECK(memory.rowPitch % 64 == 0 && memory.size >= from.size() && memory.size % memory.slicePitch == 0);
    destroy_image(image);
    destroy_image(copy);
  }
  destroy(list);
  destroy(context);
}

TEST(regions_and_pitches) {
  const auto context = make_context();
  const auto list = make_immediate(context, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  const auto image = make_image(context, image_desc(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_8, 8, 4));
  const char* rows = "abc.def.";
  const ze_image_region_t region{2, 1, 0, 3, 2, 1};
  auto from_memory = l0.ze_command_list.pfnAppendImageCopyFromMemoryExt;
  OK(from_memory(list, image, rows, &region, 4, 0, nullptr, 0, nullptr));
  std::string all(32, '?');
  OK(l0.ze_command_list.pfnAppendImageCopyToMemory(list, all.data(), image, nullptr, nullptr, 0, nullptr));
  CHECK(all == std::string("\0\0\0\0\0\0\0\0\0\0abc\0\0\0\0\0def\0\0\0\0\0\0\0\0\0\0\0", 32));
  const ze_image_region_t moved{0, 0, 0, 3, 2, 1};
  OK(l0.ze_command_list.pfnAppendImageCopyRegion(list, image, image, &moved, &region, nullptr, 0, nullptr));
  std::string part(8, '?');
  OK(l0.ze_command_list.pfnAppendImageCopyToMemoryExt(list, part.data(), image, &moved, 5, 0, nullptr, 0, nullptr));
  CHECK(part == "abc??def");
  CHECK_RESULT(from_memory(list, image, rows, &region, 2, 0, nullptr, 0, nullptr), ERROR_INVALID_ARGUMENT);
  for (const ze_image_region_t& outside :
       {ze_image_region_t{6, 0, 0, 3, 1, 1}, ze_image_region_t{0, 4, 0, 1, 1, 1}, ze_image_region_t{0, 0, 1, 1, 1, 1},
        ze_image_region_t{UINT32_MAX, 0, 0, 2, 1, 1}}) {
    CHECK_RESULT(from_memory(list, image, rows, &outside, 0, 0, nullptr, 0, nullptr), ERROR_INVALID_ARGUMENT);
  }
  const ze_image_region_t larger{0, 0, 0, 4, 2, 1};
  CHECK_RESULT(l0.ze_command_list.pfnAppendImageCopyRegion(list, image, image, &larger, &region, nullptr, 0, nullptr),
               ERROR_INVALID_ARGUMENT);
  char* small = make_kind(context, ZE_MEMORY_TYPE_DEVICE, 16);
  CHECK_RESULT(l0.ze_command_list.pfnAppendImageCopyToMemory(list, small, image, nullptr, nullptr, 0, nullptr),
               ERROR_UNINITIALIZED);
  free_memory(context, small);
  destroy_image(image);
  destroy(list);
  destroy(context);
}

TEST(images_that_cannot_be) {
  const auto context = make_context();
  ze_image_handle_t image = nullptr;
  CHECK_RESULT(create(context, image_desc(ZE_IMAGE_TYPE_2D, bytes4, 0, 7), &image), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(create(context, image_desc(ZE_IMAGE_TYPE_2D, bytes4, 7, 0), &image), ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(create(context, image_desc(ZE_IMAGE_TYPE_2D, bytes4, 16385, 1), &image), ERROR_UNSUPPORTED_SIZE);
  CHECK_RESULT(create(context, image_desc(ZE_IMAGE_TYPE_BUFFER, bytes4, 7), &image), ERROR_UNSUPPORTED_FEATURE);
  CHECK_RESULT(create(context, image_desc(ZE_IMAGE_TYPE_FORCE_UINT32, bytes4, 7), &image), ERROR_INVALID_ARGUMENT);
  auto desc = image_desc(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_AI44, 7, 7);
  CHECK_RESULT(create(context, desc, &image), ERROR_UNSUPPORTED_IMAGE_FORMAT);
  desc = image_desc(ZE_IMAGE_TYPE_2D, bytes4, 7, 7);
  desc.format.type = ZE_IMAGE_FORMAT_TYPE_FLOAT;
  CHECK_RESULT(create(context, desc, &image), ERROR_UNSUPPORTED_IMAGE_FORMAT);
  ze_image_properties_t properties{ZE_STRUCTURE_TYPE_IMAGE_PROPERTIES, nullptr, 0};
  CHECK_RESULT(l0.ze_image.pfnGetProperties(gpu().device, &desc, &properties), ERROR_UNSUPPORTED_IMAGE_FORMAT);
  desc.format.type = ZE_IMAGE_FORMAT_TYPE_UNORM;
  OK(l0.ze_image.pfnGetProperties(gpu().device, &desc, &properties));
  desc.flags = 4;
  CHECK_RESULT(create(context, desc, &image), ERROR_INVALID_ENUMERATION);
  CHECK(image == nullptr);
  destroy(context);
}

TEST(images_out_and_in) {
  for (const char* release : releases) {
    const Release imitated(release);
    const auto context = make_context();
    const auto image = make_image(context, image_desc(ZE_IMAGE_TYPE_2D, bytes4, 25, 7));
    const int fd = export_image(context, image);
    const auto memory_size = static_cast<size_t>(lseek(fd, 0, SEEK_END));
    CHECK(memory_size == 4096);
    const auto import = import_desc(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    const auto again = make_image(context, image_desc(ZE_IMAGE_TYPE_2D, bytes4, 25, 7, 0, 0, &import));
    CHECK(!is_open(import.fd));  // images always close what they import
    const auto list = make_immediate(context, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    const std::string pixels(700, 'p');
    OK(l0.ze_command_list.pfnAppendImageCopyFromMemory(list, again, pixels.data(), nullptr, nullptr, 0, nullptr));
    char row[100];
    CHECK(pread(fd, row, sizeof row, 128) == 100 && std::string(row, 100) == pixels.substr(0, 100));
    destroy(list);
    destroy_image(again);
    destroy_image(image);
    if (is_open(fd)) {
      CHECK(std::strcmp(release, "22.43") == 0);  // there each export is the caller's
      close(fd);
    }
    const int small = user_memory(512);
    const auto too_small = import_desc(small);
    ze_image_handle_t none = nullptr;
    CHECK_RESULT(create(context, image_desc(ZE_IMAGE_TYPE_2D, bytes4, 25, 7, 0, 0, &too_small), &none),
                 ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK(is_open(small));
    close(small);
    destroy(context);
  }
}

// Frames of cameras and decoders: their memory is there, copies are not.
TEST(images_of_two_planes) {
  const auto context = make_context();
  const auto image = make_image(context, image_desc(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_NV12, 1920, 1080));
  const auto memory = memory_of(image);
  CHECK(memory.rowPitch == 1920 && memory.size == 1920 * 1080 * 3 / 2);
  const auto list = make_list(context);
  CHECK_RESULT(l0.ze_command_list.pfnAppendImageCopy(list, image, image, nullptr, 0, nullptr),
               ERROR_UNSUPPORTED_IMAGE_FORMAT);
  ze_image_handle_t odd = nullptr;
  CHECK_RESULT(create(context, image_desc(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_NV12, 10, 7), &odd),
               ERROR_INVALID_ARGUMENT);
  OK(l0.ze_context.pfnMakeImageResident(context, gpu().device, image));
  OK(l0.ze_context.pfnEvictImage(context, gpu().device, image));
  destroy(list);
  destroy_image(image);
  CHECK_RESULT(l0.ze_image.pfnDestroy(image), ERROR_INVALID_ARGUMENT);
  destroy(context);
}

TEST(an_image_outlives_its_handle_in_commands) {
  const auto context = make_context();
  const auto queue = make_queue(context);
  const auto list = make_list(context);
  const auto image = make_image(context, image_desc(ZE_IMAGE_TYPE_1D, ZE_IMAGE_FORMAT_LAYOUT_8, 10));
  std::string to(10, '?');
  OK(l0.ze_command_list.pfnAppendImageCopyToMemory(list, to.data(), image, nullptr, nullptr, 0, nullptr));
  OK(l0.ze_command_list.pfnClose(list));
  destroy_image(image);
  OK(execute(queue, list));
  OK(l0.ze_command_queue.pfnSynchronize(queue, ever));
  CHECK(to == std::string(10, '\0'));
  destroy(list, queue);
  destroy(context);
}
