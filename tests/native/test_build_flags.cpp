// The reader of the plugin's build flags.
#include "build_flags.hpp"
#include "damage.hpp"

using check::refuses;
using softdriver::BuildFlags;
using softdriver::parse_build_flags;

namespace {

const std::string usual =
    "--inputs_precisions=\"0:FP16 1:U8\" --inputs_layouts=\"0:NCHW 1:C\" --outputs_precisions=\"0:FP32\" "
    "--outputs_layouts=\"0:NC\" --config NPU_PLATFORM=\"4000\" PERF_COUNT=\"YES\" PATH_OF=\"a b\"";

}  // namespace

TEST(what_the_plugin_sends) {
  const BuildFlags flags = parse_build_flags(usual);
  CHECK(flags.input_precisions.size() == 2 && flags.input_precisions.at(0)->bits == 16);
  CHECK(flags.input_precisions.at(1) == softdriver::find_type("u8"));
  CHECK(flags.output_precisions.at(0) == softdriver::find_type_by_port("FP32"));
  CHECK(flags.options.size() == 3 && flags.option_is("PERF_COUNT", "YES") && flags.option_is("PATH_OF", "a b"));
  CHECK(!flags.option_is("PERF_COUNT", "NO") && !flags.option_is("NONE", ""));
}

TEST(every_part_may_be_missing) {
  CHECK(parse_build_flags("").options.empty());
  CHECK(parse_build_flags("   ").options.empty());
  CHECK(parse_build_flags("--config").options.empty());
  CHECK(parse_build_flags("--inputs_precisions=\"\"").input_precisions.empty());
  CHECK(parse_build_flags("--config A=\"1\" --inputs_layouts=\"0:NC\"").options.size() == 1);
}

TEST(what_is_malformed) {
  for (const char* wrong : {"x",
                            "--",
                            "--unknown=\"1\"",
                            "--inputs_precisions",
                            "--inputs_precisions=",
                            "--inputs_precisions=\"0:FP32",
                            "--inputs_precisions=\"0\"",
                            "--inputs_precisions=\"0:\"",
                            "--inputs_precisions=\":FP32\"",
                            "--inputs_precisions=\"a:FP32\"",
                            "--inputs_precisions=\"0:FP31\"",
                            "--inputs_precisions=\"0:FP32  1:FP32\"",
                            "--inputs_precisions=\"0:FP32 0:FP32\"",
                            "--inputs_precisions=\"-1:FP32\"",
                            "--inputs_precisions=\"99999999999999999999:FP32\"",
                            "--inputs_layouts=\"NCHW\"",
                            "--inputs_layouts=\"\" --inputs_layouts=\"\"",
                            "--config A",
                            "--config A=1",
                            "--config =\"1\"",
                            "--config A=\"1\"B=\"2\"",
                            "--inputs_layouts=\"0:NC\"x"}) {
    CHECK(refuses([&] { parse_build_flags(wrong); }));
  }
}

TEST(damaged_text) {
  check::Damage damage(2);
  size_t taken = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string damaged = damage.apply(usual, "\"=: -0N");
    taken += refuses([&] { parse_build_flags(damaged); }) ? 0 : 1;
  }
  CHECK(taken > 0 && taken < 4000);
}
