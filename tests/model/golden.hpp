// Access to the golden vectors (tests/data/golden/README.md) and their distance measures. Sizes, names and
// scales come from the set itself, so that SPOTLIGHT_GOLDEN_DIR can name another one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "io/json_file.hpp"
#include "io/safetensors.hpp"
#include "kernels/buffer.hpp"
#include "kernels/memory.hpp"
#include "model/dit.hpp"

namespace spotlight {

// SPOTLIGHT_GOLDEN_DIR, or the project's own set.
inline std::string GoldenDir() {
  const char* dir = std::getenv("SPOTLIGHT_GOLDEN_DIR");
  return dir != nullptr ? dir : SPOTLIGHT_TEST_DATA_DIR "/golden";
}

// Whether `path` is in the set. The project's own set must have everything; another may leave parts out.
inline bool InGoldenSet(const std::string& path) {
  const bool there = std::filesystem::exists(path);
  if (std::getenv("SPOTLIGHT_GOLDEN_DIR") == nullptr) {
    EXPECT_TRUE(there) << path << " is missing";
  }
  return there;
}

// spec.json of the set.
inline nlohmann::json GoldenSpec() {
  std::ifstream file(GoldenDir() + "/spec.json");
  EXPECT_TRUE(file.good()) << GoldenDir() << "/spec.json";
  return nlohmann::json::parse(file);
}

// A transformer of the set, perhaps with the set's adapter.
struct GoldenModel {
  std::shared_ptr<const DitLayout> layout;
  std::shared_ptr<const TensorSource> source;
  std::vector<float> weights;  // flat
  std::vector<float> adapter;
};

inline GoldenModel LoadGoldenModel(const std::string& name, const LoraSettings& lora = {}) {
  const std::string folder = GoldenDir() + "/" + name;
  GoldenModel model{std::make_shared<const DitLayout>(ReadTransformerConfig(folder), lora), {}, {}, {}};
  model.source = std::make_shared<WeightMapSource>(ReadWeights(folder), folder);
  model.weights.resize(static_cast<std::size_t>(model.layout->base().size()));
  model.layout->base().Load(*model.source, model.weights);
  return model;
}

inline GoldenModel LoadGoldenLora() {
  const nlohmann::json spec = GoldenSpec().at("lora");
  LoraSettings lora{spec.at("r").get<int>(), spec.at("alpha").get<double>(), {}};
  WeightMap named;
  std::set<std::string> targets;
  for (auto& [name, tensor] : ReadSafetensors(GoldenDir() + "/lora/pytorch_lora_weights.safetensors")) {
    const std::string parameter = name.substr(std::string("transformer.").size());
    named[parameter] = tensor;
    const std::size_t module = parameter.find('.', parameter.find('.') + 1) + 1;  // after transformer_blocks.N.
    targets.insert(parameter.substr(module, parameter.find(".lora_") - module));
  }
  lora.targets.assign(targets.begin(), targets.end());
  GoldenModel model = LoadGoldenModel(spec.at("base"), lora);
  model.adapter.resize(static_cast<std::size_t>(model.layout->adapter().size()));
  model.layout->adapter().Load(WeightMapSource(named, "lora"), model.adapter);
  return model;
}

inline std::vector<float> Host(const Buffer& buffer) {
  std::vector<float> host(static_cast<std::size_t>(buffer.size()));
  buffer.CopyToHost(host);
  return host;
}

inline std::vector<float> Host(const ActivationBuffer& buffer) {
  const ConstActivations values = buffer.data();
  std::vector<float> host(static_cast<std::size_t>(buffer.size()));
  if (values.type == ElementType::kFp32) {
    CopyOut(host.data(), values.data, host.size() * sizeof(float));
    return host;
  }
  std::vector<Bfloat16> narrow(host.size());
  CopyOut(narrow.data(), values.data, narrow.size() * sizeof(Bfloat16));
  std::transform(narrow.begin(), narrow.end(), host.begin(), ToFloat);
  return host;
}

inline Buffer Upload(const std::vector<float>& host) {
  Buffer buffer(static_cast<Index>(host.size()));
  buffer.CopyFromHost(host);
  return buffer;
}

struct Distance {
  double rel_l2 = 0, rel_max = 0;
};

template <typename X, typename G>
Distance Compare(const X& x, const G& golden) {
  EXPECT_EQ(x.size(), golden.size());
  double square = 0, golden_square = 0, largest = 0, golden_largest = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(x.size(), golden.size()); ++i) {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(golden[i]);
    square += difference * difference;
    golden_square += static_cast<double>(golden[i]) * static_cast<double>(golden[i]);
    largest = std::max(largest, std::abs(difference));
    golden_largest = std::max(golden_largest, std::abs(static_cast<double>(golden[i])));
    if (std::isnan(difference)) return {NAN, NAN};
  }
  return {std::sqrt(square / std::max(golden_square, 1e-300)), largest / std::max(golden_largest, 1e-300)};
}

#define EXPECT_CLOSE(x, golden, l2, max, what)                                  \
  do {                                                                          \
    const ::spotlight::Distance distance = ::spotlight::Compare((x), (golden)); \
    EXPECT_LE(distance.rel_l2, (l2)) << (what);                                 \
    EXPECT_LE(distance.rel_max, (max)) << (what);                               \
  } while (false)

}  // namespace spotlight
