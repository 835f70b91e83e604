#include "native_binary.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "model_error.hpp"

namespace softdriver {
namespace {

constexpr char magic[8] = {'L', '0', 'P', 'Y', '-', 'N', 'P', 'U'};
constexpr uint32_t current_version = 1;
constexpr uint32_t flag_profiling = 1;
// Weights begin at a multiple of this from the beginning, and the block itself too: a cache line.
constexpr size_t alignment = 64;

// Little endian, as all machines with an NPU are. The parts follow: build flags, XML, gap, weights.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t flags;
  uint64_t total_size, build_flags_size, xml_size, weights_offset, weights_size;
  uint64_t checksum;  // of all other bytes
};
static_assert(sizeof(Header) == 64);

// Finds damage, not forgery. Four lanes, because the weights may be large.
uint64_t checksum(const std::byte* data, size_t size) noexcept {
  constexpr uint64_t prime = 0x9e3779b97f4a7c15;
  uint64_t lanes[4] = {size, 1, 2, 3};
  auto mix = [](uint64_t lane, uint64_t word) {
    lane = (lane ^ word) * prime;
    return lane ^ lane >> 29;
  };
  for (; size >= 32; data += 32, size -= 32) {
    uint64_t words[4];
    std::memcpy(words, data, 32);
    for (int i = 0; i < 4; ++i) {
      lanes[i] = mix(lanes[i], words[i]);
    }
  }
  for (; size > 0; ++data, --size) {
    lanes[0] = mix(lanes[0], static_cast<uint64_t>(*data));
  }
  return mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]);
}

// The checksum of a whole block, behind whose header lie `rest` bytes.
uint64_t checksum(Header header, const std::byte* rest) noexcept {
  header.checksum = checksum(rest, header.total_size - sizeof(Header));
  return checksum(reinterpret_cast<const std::byte*>(&header), sizeof(header));
}

Header header_of(const std::byte* data) noexcept {
  Header header;
  std::memcpy(&header, data, sizeof(header));
  return header;
}

[[noreturn]] void refuse(const std::string& what) {
  throw ModelError(ModelError::Reason::bad_binary, "not a usable native binary: " + what);
}

void check(const Header& header, ir::Bytes bytes) {
  if (header.version != current_version) {
    refuse("it has format version " + std::to_string(header.version) + ", this driver reads version " +
           std::to_string(current_version));
  }
  if (header.total_size > bytes.size) {
    refuse("it is truncated: " + std::to_string(bytes.size) + " of " + std::to_string(header.total_size) + " bytes");
  }
  if (header.total_size < sizeof(Header) || header.checksum != checksum(header, bytes.data + sizeof(Header))) {
    refuse("it is damaged, its checksum is wrong");
  }
  const uint64_t room = header.total_size - sizeof(Header);
  if (header.build_flags_size > room || header.xml_size > room - header.build_flags_size ||
      header.weights_offset < sizeof(Header) + header.build_flags_size + header.xml_size ||
      header.weights_offset > header.total_size || header.weights_size != header.total_size - header.weights_offset) {
    refuse("its sizes contradict each other");
  }
  const std::byte* end = bytes.data + bytes.size;
  if (std::any_of(bytes.data + header.total_size, end, [](std::byte b) { return b != std::byte{}; })) {
    refuse("something else follows it");
  }
}

}  // namespace

void NativeBinary::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete(memory, std::align_val_t(alignment));
}

NativeBinary::NativeBinary(size_t size)
    : data_(static_cast<std::byte*>(::operator new(size, std::align_val_t(alignment)))), size_(size) {}

NativeBinary NativeBinary::pack(const ir::Container& model, std::string_view build_flags, bool profiling) {
  Header header{};
  std::memcpy(header.magic, magic, sizeof(magic));
  header.version = current_version;
  header.flags = profiling ? flag_profiling : 0;
  header.build_flags_size = build_flags.size();
  header.xml_size = model.xml.size();
  const size_t text_end = sizeof(Header) + build_flags.size() + model.xml.size();
  header.weights_offset = (text_end + alignment - 1) / alignment * alignment;
  header.weights_size = model.weights.size;
  header.total_size = header.weights_offset + header.weights_size;

  NativeBinary binary(header.total_size);
  std::byte* out = binary.data_.get();
  std::byte* next = out + sizeof(Header);
  next = std::copy_n(reinterpret_cast<const std::byte*>(build_flags.data()), build_flags.size(), next);
  next = std::copy_n(reinterpret_cast<const std::byte*>(model.xml.data()), model.xml.size(), next);
  next = std::fill_n(next, header.weights_offset - text_end, std::byte{});
  std::copy_n(model.weights.data, model.weights.size, next);
  header.checksum = checksum(header, out + sizeof(Header));
  std::memcpy(out, &header, sizeof(header));
  return binary;
}

NativeBinary NativeBinary::read(ir::Bytes bytes) {
  if (bytes.size < sizeof(Header) || std::memcmp(bytes.data, magic, sizeof(magic)) != 0) {
    refuse("it does not begin like one that this driver makes (" + std::to_string(bytes.size) + " bytes)");
  }
  const Header header = header_of(bytes.data);
  check(header, bytes);
  NativeBinary binary(header.total_size);
  std::memcpy(binary.data_.get(), bytes.data, binary.size_);
  return binary;
}

ir::Container NativeBinary::model() const noexcept {
  const Header header = header_of(data_.get());
  const char* text = reinterpret_cast<const char*>(data_.get() + sizeof(Header) + header.build_flags_size);
  return {{text, static_cast<size_t>(header.xml_size)},
          {data_.get() + header.weights_offset, static_cast<size_t>(header.weights_size)}};
}

std::string NativeBinary::build_flags() const {
  return {reinterpret_cast<const char*>(data_.get() + sizeof(Header)),
          static_cast<size_t>(header_of(data_.get()).build_flags_size)};
}

bool NativeBinary::profiling() const noexcept { return (header_of(data_.get()).flags & flag_profiling) != 0; }

}  // namespace softdriver
