// Any text is a config.json, a scheduler_config.json, a shard index, or a UserError of each reader.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "io/json_file.hpp"
#include "io/weight_files.hpp"

namespace {

template <typename Parse>
void Try(const Parse& parse) {
  try {
    parse();
  } catch (const spotlight::UserError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spotlight;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Try([&] {
    const TransformerConfig config = ParseTransformerConfig(text, "config.json");
    const auto& axes = config.axes_dims_rope;
    if (axes[0] + axes[1] + axes[2] != config.attention_head_dim || config.num_layers < 1) std::abort();
  });
  Try([&] {
    const SchedulerConfig config = ParseSchedulerConfig(text, "scheduler_config.json");
    if (!(config.shift > 0) || config.max_image_seq_len <= config.base_image_seq_len) std::abort();
  });
  Try([&] {
    for (const auto& [tensor, shard] : ParseWeightMap(text, "index.json")) {
      if (shard.empty() || shard == ".." || shard.find('/') != shard.npos) std::abort();
    }
  });
  return 0;
}
