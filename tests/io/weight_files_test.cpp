#include "io/weight_files.hpp"

#include <cmath>
#include <cstring>
#include <random>

#include "base/error.hpp"
#include "io/elements.hpp"
#include "io_test.hpp"
#include "safetensors_bytes.hpp"

namespace spotlight {
namespace {

using ::testing::ElementsAre;

std::vector<float> Floats(const TensorSource& source, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(NumElements(source.ShapeOf(name))));
  source.Read(name, std::span(values));
  return values;
}

std::vector<Bfloat16> Bfloats(const TensorSource& source, const std::string& name) {
  std::vector<Bfloat16> values(static_cast<std::size_t>(NumElements(source.ShapeOf(name))));
  source.Read(name, std::span(values));
  return values;
}

// What fp16 means, from its definition.
float HalfByDefinition(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  float magnitude = std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
  if (exponent == 0) magnitude = std::ldexp(static_cast<float>(fraction), -24);
  if (exponent == 0x1f) magnitude = fraction == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(ElementsTest, EveryHalfBecomesItsFloat) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> floats(halves.size());
  ASSERT_TRUE(ConvertElements("F16", reinterpret_cast<const std::byte*>(halves.data()), std::span(floats)));
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float wanted = HalfByDefinition(halves[i]);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(floats[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(floats[i]), std::bit_cast<std::uint32_t>(wanted)) << i;
    }
  }
}

TEST(ElementsTest, RoundsToTheNearestEvenBfloat16) {
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, 1.0039063692f, -1.00390625f, 3.4e38f, 1e-45f};
  std::vector<Bfloat16> out(values.size());
  ASSERT_TRUE(ConvertElements("F32", reinterpret_cast<const std::byte*>(values.data()), std::span(out)));
  std::vector<std::uint16_t> bits;
  for (const Bfloat16 value : out) bits.push_back(value.bits);
  // 1; halfway down to even; halfway up to even; just above halfway; the sign apart; beyond the largest; below the
  // least
  EXPECT_THAT(bits, ElementsAre(0x3f80, 0x3f80, 0x3f82, 0x3f81, 0xbf80, 0x7f80, 0x0000));
}

TEST(ElementsTest, FindsWhatIsNotFinite) {
  std::vector<float> values(1000, 3.4e38f);
  EXPECT_EQ(FindNotFinite(values), 1000u);
  values[999] = -INFINITY;
  EXPECT_EQ(FindNotFinite(values), 999u);
  values[37] = NAN;
  EXPECT_EQ(FindNotFinite(values), 37u);
  std::vector<Bfloat16> halves(1000, Bfloat16{0xff7f});
  EXPECT_EQ(FindNotFinite(halves), 1000u);
  halves[5].bits = 0xff80;
  EXPECT_EQ(FindNotFinite(halves), 5u);
  EXPECT_EQ(FindNotFinite(std::span<const float>{}), 0u);
}

class WeightFilesTest : public IoTest {
 protected:
  void WriteShards() const {
    WriteSafetensors(Path("m-1.safetensors"), {{"a", {{1}, {1}}}, {"b", {{1}, {2}}}}, {});
    WriteSafetensors(Path("m-2.safetensors"), {{"c", {{1}, {3}}}, {"unlisted", {{1}, {4}}}}, {});
    WriteFile("m.safetensors.index.json", R"({"metadata": {"total_size": 99},
      "weight_map": {"a": "m-1.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"}})");
  }
  void ExpectRefused(std::initializer_list<std::string> parts) const {
    ExpectError<UserError>([&] { WeightFiles(folder_.string(), "m"); }, parts);
  }
};

TEST_F(WeightFilesTest, ReadsUnalignedTensorsInAnyOrder) {
  // One byte of padding as a tensor puts everything after it at odd addresses.
  WriteFile("m.safetensors",
            WithHeader(R"({"f32":{"dtype":"F32","shape":[2],"data_offsets":[5,13]},
    "bf16":{"dtype":"BF16","shape":[1,2],"data_offsets":[1,5]}, "pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
    "f16":{"dtype":"F16","shape":[1],"data_offsets":[13,15]}, "f64":{"dtype":"F64","shape":[1],"data_offsets":[15,23]}})",
                       std::string(1, 'x') + Bytes<std::uint16_t>({0x3fc0, 0xc000}) + Bytes<float>({0.1f, -7}) +
                           Bytes<std::uint16_t>({0x3c01}) + Bytes<double>({0.1})));
  const WeightFiles files(folder_.string(), "m");
  EXPECT_THAT(files.Names(), ElementsAre("bf16", "f16", "f32", "f64", "pad"));
  EXPECT_EQ(files.ShapeOf("bf16"), (Shape{1, 2}));
  EXPECT_THAT(Floats(files, "bf16"), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(Floats(files, "f32"), ElementsAre(0.1f, -7.0f));
  EXPECT_THAT(Floats(files, "f16"), ElementsAre(1.0009765625f));
  EXPECT_THAT(Floats(files, "f64"), ElementsAre(0.1f));
  EXPECT_THAT(Bfloats(files, "bf16"), ElementsAre(Bfloat16{0x3fc0}, Bfloat16{0xc000}));
  EXPECT_THAT(Bfloats(files, "f32"), ElementsAre(Bfloat16{0x3dcd}, Bfloat16{0xc0e0}));
  EXPECT_THAT(Bfloats(files, "f16"), ElementsAre(Bfloat16{0x3f80}));
  ExpectError<UserError>([&] { Floats(files, "pad"); },
                         {Path("m.safetensors"), "tensor pad has dtype U8", "F32, F64, F16 and BF16", "quantised"});
  ExpectError<UserError>([&] { files.ShapeOf("bf17"); }, {"no tensor bf17", "nearest is bf16"});
}

// Larger than a chunk and than what is given back at once; the data starts at an odd address.
TEST_F(WeightFilesTest, ReadsInChunks) {
  constexpr std::size_t kCount = (std::size_t{1} << 21) + 12345;
  std::mt19937 random(7);
  std::vector<std::uint16_t> bits(kCount);
  for (std::uint16_t& value : bits) value = static_cast<std::uint16_t>(random() & 0xbfff);  // exponents below all ones
  std::string header = R"({"pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"BF16","shape":[)";
  header += std::to_string(kCount);
  header += R"(],"data_offsets":[1,)";
  header += std::to_string(1 + 2 * kCount);
  header += "]}}";
  std::string data = "x";
  data.append(reinterpret_cast<const char*>(bits.data()), 2 * kCount);
  WriteFile("m.safetensors", WithHeader(header, data));
  const WeightFiles files(folder_.string(), "m");
  for (int again = 0; again < 2; ++again) {  // what was released is read from the file again
    const std::vector<float> floats = Floats(files, "w");
    const std::vector<Bfloat16> halves = Bfloats(files, "w");
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(halves[i].bits, bits[i]) << i;
      ASSERT_EQ(floats[i], ToFloat(Bfloat16{bits[i]})) << i;
    }
  }
}

TEST_F(WeightFilesTest, ReadsShards) {
  WriteShards();
  const WeightFiles files(folder_.string(), "m");
  EXPECT_THAT(files.Names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(files.files().size(), 2u);
  EXPECT_FALSE(files.Has("unlisted"));
  EXPECT_THAT(Floats(files, "c"), ElementsAre(3));
  EXPECT_THAT(ReadWeights(folder_.string(), "m").at("b").data, ElementsAre(2));
}

TEST_F(WeightFilesTest, RefusesShardsThatDoNotFitTheIndex) {
  WriteShards();
  WriteSafetensors(Path("m-2.safetensors"), {{"d", {{1}, {3}}}}, {});
  ExpectRefused({"index.json: lists tensor c in", "m-2.safetensors, which does not have it", "download or copy"});
  std::filesystem::remove(Path("m-2.safetensors"));
  ExpectRefused({"index.json", "m-2.safetensors is missing", "1 of 3 tensors"});
  for (const std::string shard : {"../x.safetensors", "/etc/x", "..", "", "sub/x", "a\\u0000b"}) {
    WriteFile("m.safetensors.index.json", std::string(R"({"weight_map": {"a": ")").append(shard).append("\"}}"));
    ExpectRefused({"the shard of a is", "a file in the same folder"});
  }
  WriteFile("m.safetensors.index.json", R"({"weight_map": {"a": 3}})");
  ExpectRefused({"the shard of a is 3"});
  WriteFile("m.safetensors.index.json", R"({"weight_map": {}})");
  ExpectRefused({"\"weight_map\" must be an object"});
  std::filesystem::remove(Path("m.safetensors.index.json"));
  ExpectRefused({"no weights", "m.safetensors nor", "m.safetensors.index.json"});
  ExpectError<UserError>([&] { WeightFiles(Path("nowhere")); }, {"nowhere: no such folder"});
  ExpectError<UserError>([&] { SafetensorsFile file(Path("m-3.safetensors")); },
                         {"m-3.safetensors: no such file", "did you mean", "m-1.safetensors"});
}

TEST_F(WeightFilesTest, RefusesWeightsThatAreNotFinite) {
  WriteSafetensors(Path("m.safetensors"), {{"a.weight", {{3}, {1, NAN, 2}}}, {"large", {{1}, {3.4e38f}}}}, {});
  const WeightFiles files(folder_.string(), "m");
  ExpectError<UserError>([&] { Floats(files, "a.weight"); },
                         {Path("m.safetensors"), "tensor a.weight is not finite", "element 1 of 3"});
  ExpectError<UserError>([&] { Bfloats(files, "a.weight"); }, {"tensor a.weight is not finite"});
  EXPECT_THAT(Floats(files, "large"), ElementsAre(3.4e38f));
  ExpectError<UserError>([&] { Bfloats(files, "large"); }, {"tensor large is not finite"});
}

// Shards and dtypes as diffusers and the safetensors library write them.
class GoldenWeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("SPOTLIGHT_GOLDEN_DIR");
    golden_ = folder != nullptr ? folder : std::string(SPOTLIGHT_TEST_DATA_DIR) + "/golden";
    ASSERT_TRUE(std::filesystem::exists(golden_ / "tiny")) << golden_ << " has no golden vectors";
  }
  std::filesystem::path golden_;
};

TEST_F(GoldenWeightsTest, ReadsThreeShards) {
  const WeightMap weights = ReadWeights((golden_ / "tiny").string());
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : weights) bytes += NumElements(tensor.shape) * 4;
  EXPECT_EQ(bytes, 1332992);  // total_size of the index
  EXPECT_EQ(weights.at("img_in.weight").shape, (Shape{64, 16}));
}

TEST_F(GoldenWeightsTest, WritesWhatItReadBitForBit) {
  const WeightMap weights = ReadWeights((golden_ / "realhead").string());  // stored BF16
  const std::string path = (std::filesystem::temp_directory_path() / "spotlight_copy.safetensors").string();
  WriteSafetensors(path, weights, {});
  const WeightMap again = ReadSafetensors(path);
  std::filesystem::remove(path);
  ASSERT_EQ(again.size(), weights.size());
  for (const auto& [name, tensor] : weights) {
    EXPECT_EQ(again.at(name).shape, tensor.shape);
    EXPECT_EQ(again.at(name).data, tensor.data);
  }
}

}  // namespace
}  // namespace spotlight
