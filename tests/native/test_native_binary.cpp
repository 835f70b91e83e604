// The driver's own graph format.
#include <cstring>
#include <vector>

#include "damage.hpp"
#include "native_binary.hpp"

using check::refuses;
using softdriver::NativeBinary;
using softdriver::ir::Bytes;

namespace {

const std::string xml = "<net/>";
const std::string weights(1000, '\7');

Bytes bytes_of(const std::string& text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

NativeBinary pack(bool profiling = false) {
  return NativeBinary::pack({xml, bytes_of(weights)}, "--config", profiling);
}

std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data), bytes.size}; }

bool refused(const std::string& text) {
  return refuses([&] { NativeBinary::read(bytes_of(text)); });
}

}  // namespace

TEST(packed_and_read_again) {
  for (bool profiling : {false, true}) {
    const NativeBinary packed = pack(profiling);
    const std::string text = text_of(packed.bytes());
    const NativeBinary read = NativeBinary::read(bytes_of(text));
    CHECK(read.model().xml == xml && text_of(read.model().weights) == weights);
    CHECK(read.build_flags() == "--config" && read.profiling() == profiling && text_of(read.bytes()) == text);
    CHECK(reinterpret_cast<uintptr_t>(packed.model().weights.data) % 64 == 0);
    CHECK(reinterpret_cast<uintptr_t>(read.model().weights.data) % 64 == 0);
  }
}

TEST(nothing_inside) {
  const NativeBinary packed = NativeBinary::pack({{}, {}}, "", false);
  const NativeBinary read = NativeBinary::read(packed.bytes());
  CHECK(read.model().xml.empty() && read.model().weights.size == 0 && read.build_flags().empty());
}

TEST(padding_may_follow_and_nothing_else) {
  const std::string text = text_of(pack().bytes());
  CHECK(!refused(text + std::string(5000, '\0')));
  CHECK(refused(text + "x"));
  CHECK(refused(text + std::string(100, '\0') + "x"));
}

TEST(every_cut_and_every_changed_byte) {
  const std::string text = text_of(pack().bytes());
  for (size_t size = 0; size < text.size(); ++size) {
    CHECK(refused(text.substr(0, size)));
  }
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 0x40);
    CHECK(refused(changed));
  }
}

TEST(misaligned_bytes) {
  const std::string text = "x" + text_of(pack().bytes());
  const NativeBinary read = NativeBinary::read({bytes_of(text).data + 1, text.size() - 1});
  CHECK(text_of(read.model().weights) == weights);
}

TEST(damaged_bytes) {
  const std::string text = text_of(pack().bytes());
  check::Damage damage(3);
  for (int i = 0; i < 1000; ++i) {
    const std::string damaged = damage.apply(text, std::string("\0\1\xff", 3));
    CHECK(damaged == text || refused(damaged) || damaged.substr(0, text.size()) == text);
  }
}
