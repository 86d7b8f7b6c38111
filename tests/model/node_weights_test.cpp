// Weights that the ranks of a node share: who reads them, what stays, and that they are the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.hpp"
#include "model/model_weights.hpp"
#include "tests/model/golden.hpp"

namespace spotlight {
namespace {

// A checkpoint that nobody may read.
class ClosedSource : public TensorSource {
 public:
  const std::string& place() const override { return place_; }
  std::vector<std::string> Names() const override { return {}; }
  bool Has(const std::string&) const override { return false; }
  Shape ShapeOf(const std::string&) const override { return {}; }
  void Read(const std::string& name, std::span<float>) const override { ADD_FAILURE() << name << " is read again"; }
  void Read(const std::string& name, std::span<Bfloat16>) const override { ADD_FAILURE() << name << " is read again"; }

 private:
  std::string place_ = "closed";
};

std::string NewSession() {
  static int count = 0;
  return "model_test_" + std::to_string(getpid()) + "_" + std::to_string(++count);
}

std::vector<float> Sequence(Index size, float first) {
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i % 97) / 128.0f;
  return values;
}

void NoFetch(std::span<float>) { ADD_FAILURE() << "a neighbour has them"; }

bool SameFloats(const float* a, const float* b, Index size) { return std::equal(a, a + size, b); }

// All that passes read of `part`, adapter aside.
void ExpectSameBits(const PartLayout& part, const PartMemory& seen, const PartMemory& expected) {
  EXPECT_TRUE(SameFloats(seen.vectors, expected.vectors, part.vectors));
  if (expected.matrices.fp32 != nullptr) {
    EXPECT_TRUE(SameFloats(seen.matrices.fp32, expected.matrices.fp32, part.matrices));
  } else {
    const Bfloat16 *a = seen.matrices.bf16, *b = expected.matrices.bf16;
    EXPECT_TRUE(std::equal(a, a + part.matrices, b));
  }
}

class NodeWeights : public testing::TestWithParam<Precision> {};

TEST_P(NodeWeights, ANeighbourReadsNothingAndHasTheSameBits) {
  const GoldenModel model = LoadGoldenLora();
  const std::vector<float> sigmas = {0.25f, 0.5f, 1.0f};
  const Index size = model.layout->adapter().size();
  ModelWeights alone(model.layout, model.source, GetParam(), sigmas);
  alone.Put({4, false}, Sequence(size, 1));
  const std::string session = NewSession();
  NodeMemory first_node(session), second_node(session);
  ModelWeights first(model.layout, model.source, GetParam(), sigmas, 1, &first_node);
  first.Put({4, false}, Sequence(size, 1));
  ModelWeights second(model.layout, std::make_shared<ClosedSource>(), GetParam(), sigmas, 1, &second_node);
  second.Load({4, false}, NoFetch);
  EXPECT_TRUE(first.Intact() && second.Intact());
  Parameters &seen = second.Of({4, false}), &expected = alone.Of({4, false});
  for (int i = 0; i < model.layout->used_parts(true); ++i) {
    const PartLayout& part = model.layout->parts()[static_cast<std::size_t>(i)];
    const PartMemory a = seen.Use(i), b = expected.Use(i);
    ExpectSameBits(part, a, b);
    EXPECT_TRUE(SameFloats(a.adapter, b.adapter, part.adapter));
  }
  const Index width = model.layout->config().width();
  for (int block = 0; block < model.layout->config().num_layers; ++block) {
    for (const Stream stream : {Stream::kImage, Stream::kText}) {
      EXPECT_TRUE(
          SameFloats(seen.modulation->Block(block, stream), expected.modulation->Block(block, stream), 3 * 6 * width));
    }
  }
  EXPECT_TRUE(SameFloats(seen.modulation->Final(), expected.modulation->Final(), 3 * 2 * width));
  EXPECT_EQ(seen.modulation->Row(0.5f), expected.modulation->Row(0.5f));
}

TEST_P(NodeWeights, WholeModelsAreSharedByVersion) {
  const GoldenModel model = LoadGoldenModel("tiny");
  const std::string session = NewSession();
  NodeMemory first_node(session), second_node(session);
  ModelWeights first(model.layout, model.source, GetParam(), {}, 1, &first_node),
      second(model.layout, model.source, GetParam(), {}, 1, &second_node);
  first.Load({0, false},
             [&](std::span<float> values) { std::copy(model.weights.begin(), model.weights.end(), values.begin()); });
  second.Load({0, false}, NoFetch);
  WeightStorage expected(*model.layout, GetParam());
  expected.Assign(model.weights);
  for (int i = 0; i < static_cast<int>(model.layout->parts().size()); ++i) {
    ExpectSameBits(model.layout->parts()[static_cast<std::size_t>(i)], second.Of({0, false}).Use(i), expected.Part(i));
  }
  EXPECT_TRUE(second.Intact());
  const Parameters& base = second.Base();  // of the KL term: a piece of its own
  EXPECT_EQ(base.modulation, nullptr);
  EXPECT_EQ(first_node.Keys().size(), 2u);
}

// A byte of what a session's ranks share under `key` is another one from now on.
void DamageShared(const std::string& session, const std::string& key) {
  const std::string path = "/dev/shm/spotlight-" + session + "-" + key;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(file.is_open()) << path;
  file.seekp(4096 + 40).put('\x7f');
}

TEST_P(NodeWeights, ADamagedCopyIsFetchedAgain) {
  const GoldenModel lora = LoadGoldenLora(), whole = LoadGoldenModel("tiny");
  for (const GoldenModel& model : {lora, whole}) {
    const std::string session = NewSession();
    NodeMemory first_node(session), second_node(session);
    const std::vector<float> sigmas = model.layout->lora().rank > 0 ? std::vector<float>{0.5f} : std::vector<float>{};
    ModelWeights first(model.layout, model.source, GetParam(), sigmas, 1, &first_node),
        second(model.layout, model.source, GetParam(), sigmas, 1, &second_node);
    const std::vector<float> values = Sequence(first.trained_layout().size(), 1);
    first.Put({4, false}, values);
    DamageShared(session, "weights-4");
    std::vector<std::string> calls;
    const auto fetch = [&](std::span<float> out) {
      calls.push_back("fetch");
      std::copy(values.begin(), values.end(), out.begin());
    };
    second.Load({4, false}, fetch, [&] { calls.push_back("discard"); });
    EXPECT_EQ(calls, (std::vector<std::string>{"discard", "fetch"}));
    EXPECT_TRUE(second.Intact());
    EXPECT_FALSE(first.Intact()) << "who mapped it before keeps it";
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, NodeWeights, testing::Values(Precision::kFp32, Precision::kBf16));

TEST(NodeWeights, TwoVersionsKeepTheirNames) {
  const GoldenModel model = LoadGoldenLora();
  const Index size = model.layout->adapter().size();
  const std::string session = NewSession();
  NodeMemory node(session);
  ModelWeights fast(model.layout, model.source, Precision::kFp32, {}, 2, &node),
      slow(model.layout, model.source, Precision::kFp32, {}, 2, &node);
  const auto versions = [&] {
    std::vector<std::string> names;
    for (const std::string& key : node.Keys()) {
      if (key.starts_with("weights-")) names.push_back(key.substr(8));
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  fast.Put({9, false}, Sequence(size, 9));
  slow.Load({9, false}, NoFetch);
  fast.Put({9, true}, Sequence(size, -9));
  fast.Put({10, false}, Sequence(size, 10));
  EXPECT_EQ(versions(), (std::vector<std::string>{"10", "9", "9-ema"}));
  fast.Put({10, true}, Sequence(size, -10));
  fast.Put({11, false}, Sequence(size, 11));
  EXPECT_EQ(versions(), (std::vector<std::string>{"10", "10-ema", "11"}));
  EXPECT_EQ(slow.Of({9, false}).Use(1).adapter[0], Sequence(size, 9)[0]) << "whoever has it keeps it";
  EXPECT_TRUE(fast.Has({10, true}) && !fast.Has({10, false})) << "the oldest of two went";
  fast.Load({10, false}, NoFetch);
  EXPECT_EQ(fast.Of({10, false}).Use(1).adapter[1], Sequence(size, 10)[1]);
}

TEST(NodeWeights, AFetchThatFailsLeavesNoVersion) {
  const GoldenModel model = LoadGoldenLora();
  NodeMemory node(NewSession());
  ModelWeights weights(model.layout, model.source, Precision::kFp32, {}, 1, &node);
  const auto fails = [](std::span<float> values) {
    values[0] = 1;
    throw UserError("the line is cut");
  };
  EXPECT_THROW(weights.Load({1, false}, fails), UserError);
  EXPECT_FALSE(weights.Has({1, false}) || node.Has("weights-1"));
  weights.Put({1, false}, Sequence(model.layout->adapter().size(), 2));
  EXPECT_TRUE(weights.Has({1, false}) && node.Has("weights-1"));
  EXPECT_THROW(weights.Put({2, false}, std::vector<float>(3)), InternalError);
}

}  // namespace
}  // namespace spotlight
