#include "record/export.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "io/atomic_file.hpp"
#include "io/lora_file.hpp"
#include "io/provenance.hpp"
#include "io/safetensors.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;

// A name for the model that was trained, without the machine's folders.
std::string BaseName(const Config& config) {
  return fs::path(config.model.path).lexically_normal().filename().string();
}

std::string ModelCard(const Config& config, bool lora, const std::string& score_line) {
  const std::string usage =
      lora ? "from diffusers import QwenImageTransformer2DModel\n"
             "model = QwenImageTransformer2DModel.from_pretrained(\"<the base model>\")\n"
             "model.load_lora_adapter(\"lora/pytorch_lora_weights.safetensors\", use_safetensors=True)\n"
           : "from diffusers import QwenImageTransformer2DModel\n"
             "model = QwenImageTransformer2DModel.from_pretrained(\"transformer\")\n";
  return fmt::format(
      "---\nbase_model: {}\ntags: [spotlight, grpo, text-to-image]\n---\n\n# {} post-trained by spotlight\n\n{}\n\n"
      "Weights: {}{}. Run seed {}, {} iterations of {} prompts x {} images.\n\n```python\n{}```\n\n"
      "spotlight {}, git {}. `../input.resolved.ini` holds every setting, `../run.h5` the whole history.\n",
      BaseName(config), BaseName(config), score_line,
      lora ? fmt::format("LoRA of rank {}", config.lora.rank) : std::string("all parameters"),
      config.train.ema_decay > 0 ? ", moving average" : "", config.run.seed, config.run.iterations,
      config.group.prompts, config.group.images, usage, Provenance().at("softwareVersion"), Provenance().at("git_sha"));
}

}  // namespace

void ExportWeights(const Config& config, const DitLayout& layout, std::span<const float> trained,
                   const std::string& folder, const std::string& score_line) {
  const bool lora = layout.lora().rank > 0;
  const fs::path part = fs::path(folder) / (lora ? "lora" : "transformer");
  fs::create_directories(part);
  if (lora) {
    WeightMap adapter = layout.adapter().ToWeightMap(trained);
    const float scale = static_cast<float>(layout.lora().alpha / layout.lora().rank);
    for (auto& [name, tensor] : adapter) {
      if (!name.ends_with(".lora_B.weight")) continue;
      for (float& value : tensor.data) value *= scale;
    }
    WriteLoraFiles(part.string(), adapter, layout.lora().rank, layout.lora().targets, BaseName(config));
  } else {
    WriteSafetensors((part / "diffusion_pytorch_model.safetensors").string(), layout.base().ToWeightMap(trained),
                     {{"format", "pt"}});
    const fs::path source = fs::path(config.model.path) / "transformer";
    fs::copy_file((fs::is_directory(source) ? source : fs::path(config.model.path)) / "config.json",
                  part / "config.json", fs::copy_options::overwrite_existing);
  }
  WriteFileAtomically(folder + "/README.md", ModelCard(config, lora, score_line));
}

}  // namespace spotlight
