#include "io/safetensors.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "full_disk.hpp"
#include "io_test.hpp"
#include "safetensors_bytes.hpp"

namespace spotlight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SafetensorsTest : public IoTest {
 protected:
  void ExpectRefused(const std::string& bytes, std::initializer_list<std::string> parts) {
    const std::string path = WriteFile("bad.safetensors", bytes);
    ExpectError<UserError>([&] { SafetensorsFile file(path); }, parts);
    ExpectError<UserError>([&] { SafetensorsFile file(path); }, {path});
  }
};

TEST_F(SafetensorsTest, RoundTripKeepsEveryBit) {
  const float nan = std::bit_cast<float>(0x7fc12345u);
  WeightMap tensors;
  tensors["b.weight"] = {{2, 3}, {1.5f, -0.0f, 1e-45f, std::numeric_limits<float>::max(), nan, -3}};
  tensors["a"] = {{}, {7}};
  tensors["empty"] = {{0, 4}, {}};
  WriteSafetensors(Path("x.safetensors"), tensors, {{"format", "pt"}, {"note", "größer"}});

  const SafetensorsFile file(Path("x.safetensors"));
  EXPECT_THAT(file.names(), ElementsAre("a", "b.weight", "empty"));
  EXPECT_EQ(file.metadata().at("note"), "größer");
  EXPECT_EQ(file.Info("b.weight").dtype, "F32");
  for (const auto& [name, tensor] : tensors) {
    const HostTensor read = file.Read(name);
    EXPECT_EQ(read.shape, tensor.shape);
    ASSERT_EQ(read.data.size(), tensor.data.size());
    for (std::size_t i = 0; i < read.data.size(); ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(read.data[i]), std::bit_cast<std::uint32_t>(tensor.data[i]));
    }
  }
  std::uint64_t header = 0;
  std::memcpy(&header, ReadFile(Path("x.safetensors")).data(), sizeof(header));
  EXPECT_EQ(header % 8, 0u);
  EXPECT_THAT(Listing(), ElementsAre("x.safetensors"));
}

TEST_F(SafetensorsTest, ConvertsEachNumberType) {
  const std::string header = R"({"bf16":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},
    "f16":{"dtype":"F16","shape":[6],"data_offsets":[6,18]},
    "f64":{"dtype":"F64","shape":[1],"data_offsets":[18,26]},
    "i64":{"dtype":"I64","shape":[2],"data_offsets":[26,42]},
    "i32":{"dtype":"I32","shape":[1],"data_offsets":[42,46]},
    "u8":{"dtype":"U8","shape":[1],"data_offsets":[46,47]}})";
  const std::string data = Bytes<std::uint16_t>({0x3fc0, 0xc000, 0x7f80}) +
                           Bytes<std::uint16_t>({0x3c00, 0xc100, 0x0001, 0x7bff, 0x7c00, 0x03ff}) +
                           Bytes<double>({0.1}) + Bytes<std::int64_t>({-5, 1LL << 40}) + Bytes<std::int32_t>({-9}) +
                           "\x01";
  const SafetensorsFile file(WriteFile("types.safetensors", WithHeader(header, data)));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(file.Read("bf16").data, ElementsAre(1.5f, -2.0f, infinity));
  EXPECT_THAT(file.Read("f16").data,
              ElementsAre(1.0f, -2.5f, std::ldexp(1.0f, -24), 65504.0f, infinity, std::ldexp(1023.0f, -24)));
  EXPECT_THAT(file.Read("f64").data, ElementsAre(0.1f));
  EXPECT_THAT(file.Read("i64").data, ElementsAre(-5.0f, std::ldexp(1.0f, 40)));
  EXPECT_THAT(file.Read("i32").data, ElementsAre(-9.0f));
  double exact = 0;
  file.ReadDoubles("f64", std::span(&exact, 1));
  EXPECT_EQ(exact, 0.1);
  ExpectError<UserError>([&] { file.Read("u8"); }, {"tensor u8", "dtype U8", "F32, F64, F16, BF16"});
  ExpectError<UserError>([&] { file.Info("bf17"); }, {"no tensor bf17", "nearest is bf16"});
}

TEST_F(SafetensorsTest, MovedFileKeepsItsMap) {
  WriteSafetensors(Path("x.safetensors"), {{"a", {{2}, {3, 4}}}}, {});
  SafetensorsFile first(Path("x.safetensors"));
  const SafetensorsFile second = std::move(first);
  EXPECT_THAT(second.Read("a").data, ElementsAre(3, 4));
}

TEST_F(SafetensorsTest, RefusesDamagedFiles) {
  const std::string one = R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  ExpectRefused("", {"truncated", "0 bytes"});
  ExpectRefused("abc", {"truncated", "3 bytes"});
  ExpectRefused(Bytes<std::uint64_t>({1000}) + "{}", {"truncated", "header needs 1000 bytes", "has 2"});
  ExpectRefused(Bytes<std::uint64_t>({~0ull}) + "{}", {"truncated"});
  ExpectRefused(WithHeader("{\"w\":", ""), {"its header: not JSON"});
  ExpectRefused(WithHeader("[1]", ""), {"its header: holds [1]", "JSON object"});
  ExpectRefused(WithHeader(one, std::string(20, 'x')), {"tensor w", "truncated", "needs 24 bytes", "has 20"});
  ExpectRefused(WithHeader(one, std::string(30, 'x')), {"6 bytes follow the last tensor"});
  ExpectRefused(WithHeader(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,24]}})", std::string(24, 'x')),
                {"tensor w", "do not fit dtype F32 and shape [2]", "need 8 bytes"});
  ExpectRefused(WithHeader(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", std::string(8, 'x')),
                {"tensor w", "do not fit"});
  ExpectRefused(WithHeader(R"({"w":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x')),
                {"tensor w", "unknown dtype \"F31\""});
  ExpectRefused(WithHeader(R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", std::string(8, 'x')),
                {"tensor w", "impossible shape [-2]"});
  ExpectRefused(WithHeader(R"({"w":{"dtype":"U8","shape":[9223372036854775808,0],"data_offsets":[0,0]}})", ""),
                {"tensor w", "impossible shape"});
  ExpectRefused(WithHeader(R"({"__metadata__":[1]})", ""), {"\"__metadata__\" is [1]", "object of strings"});
  ExpectRefused(WithHeader("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", ""),
                {"its header: nested deeper than 64 levels"});
  // 2^62 floats: the byte count wraps to 0.
  ExpectRefused(WithHeader(R"({"w":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", ""),
                {"tensor w", "impossible shape"});
  ExpectRefused(WithHeader(R"({"w":{"dtype":"F32","shape":[2]}})", std::string(8, 'x')), {"tensor w", "data_offsets"});
  const std::string a = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)";
  ExpectRefused(WithHeader(a + R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", std::string(12, 'x')),
                {"tensor b", "overlaps"});
  ExpectRefused(WithHeader(a + R"("b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", std::string(16, 'x')),
                {"tensor b", "leaves a gap"});
}

TEST_F(SafetensorsTest, ReadsWhatIsInMemory) {
  const std::string bytes =
      WithHeader(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", Bytes<float>({3, 4}));
  const SafetensorsFile file(std::as_bytes(std::span(bytes)), "memory");
  EXPECT_THAT(file.Read("w").data, ElementsAre(3, 4));
  file.Release(file.Bytes(file.Info("w")));  // not a map: stays
  EXPECT_THAT(file.Read("w").data, ElementsAre(3, 4));
  ExpectError<UserError>([&] { SafetensorsFile(std::as_bytes(std::span(bytes).first(20)), "memory"); },
                         {"memory: truncated"});
}

TEST_F(SafetensorsTest, FullDiskKeepsTheOldFile) {
  const std::string path = Path("x.safetensors");
  WriteSafetensors(path, {{"a", {{1}, {5}}}}, {});
  const WeightMap big = {{"a", {{100000}, std::vector<float>(100000, 1.0f)}}};
  const std::string message = FileErrorOnFullDisk(65536, [&] { WriteSafetensors(path, big, {}); });
  EXPECT_THAT(message, HasSubstr(path + ": cannot write"));
  EXPECT_THAT(message, HasSubstr("free some space"));
  EXPECT_THAT(ReadSafetensors(path).at("a").data, ElementsAre(5));
  EXPECT_THAT(Listing(), ElementsAre("x.safetensors"));
  ExpectError<FileError>([&] { WriteSafetensors(Path("no/x.safetensors"), big, {}); },
                         {"no/x.safetensors", "No such file"});
}

}  // namespace
}  // namespace spotlight
