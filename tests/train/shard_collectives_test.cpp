// The trainers' sums and gathers over kernel memory have the bits of the sum in order, however the array is cut.
#include "train/shard_collectives.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/sequence_group.hpp"
#include "kernels/memory.hpp"
#include "tests/model/baton_group.hpp"
#include "tests/train/group_communicator.hpp"

namespace spotlight {
namespace {

std::vector<float> Normals(int rank, Index size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  FillNormal(StreamKey({static_cast<std::uint64_t>(rank)}), 0, values);
  for (std::size_t i = 0; i < values.size(); i += 5) values[i] *= rank % 2 == 0 ? 1e6f : 1e-4f;
  return values;
}

// `shift` values behind a 16-byte border.
class Array {
 public:
  Array(const std::vector<float>& values, Index shift) : memory_(std::ssize(values) + shift), shift_(shift) {
    CopyIn(data(), values.data(), values.size() * sizeof(float));
  }
  float* data() { return memory_.data() + shift_; }
  std::vector<float> values() {
    std::vector<float> values(static_cast<std::size_t>(memory_.size() - shift_));
    CopyOut(values.data(), data(), values.size() * sizeof(float));
    return values;
  }

 private:
  Buffer memory_;
  Index shift_;
};

class ShardCollectivesTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Trainers, ShardCollectivesTest, testing::Values(1, 2, 3, 4));

TEST_P(ShardCollectivesTest, SumsAndGathersAreThoseInOrder) {
  const int n = GetParam();
  for (const Index size : {Index{0}, Index{1}, Index{3}, Index{24}, Index{1237}, Index{20000}}) {
    // All at once, and in pieces of which the last ones are not whole.
    for (const std::size_t scratch : {ShardCollectives::kScratch, std::size_t{4000}, std::size_t{0}}) {
      if (scratch == 0 && size > 2000) continue;  // four values at a time
      std::vector<float> expected;
      std::vector<std::vector<float>> all;
      for (int p = 0; p < n; ++p) all.push_back(Normals(p, size));
      for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
        double sum = all[0][i];
        for (std::size_t p = 1; p < all.size(); ++p) sum += all[p][i];
        expected.push_back(static_cast<float>(sum));
      }
      Baton(n).Run([&](SequenceGroup& group) {
        GroupCommunicator device(group);
        ShardCollectives collectives(device, scratch);
        const std::vector<float>& own_values = all[static_cast<std::size_t>(group.index())];
        Array array(own_values, size % 4);
        collectives.SumShardInOrder(array.data(), size);
        const ShareRange own = ShareOf(size, group.index(), n);
        std::vector<float> sums = own_values;
        std::copy(expected.begin() + own.begin, expected.begin() + own.end, sums.begin() + own.begin);
        ASSERT_EQ(array.values(), sums) << n << " trainers, " << size << " values, scratch " << scratch;
        if (scratch > 1000) {
          EXPECT_LE(2 * device.most_bytes(), scratch);
        }
        EXPECT_EQ(device.waits(), size > 0 ? 1 : 0);
        collectives.GatherShards(array.data(), size);
        ASSERT_EQ(array.values(), expected) << n << " trainers, " << size << " values";
      });
    }
  }
}

TEST_P(ShardCollectivesTest, GathersHalvesAndBroadcasts) {
  const int n = GetParam();
  for (const Index size : {0, 1, 24, 1237}) {
    Baton(n).Run([&](SequenceGroup& group) {
      GroupCommunicator device(group);
      ShardCollectives collectives(device);
      const ShareRange own = ShareOf(size, group.index(), n);
      const std::vector<float> of_first = Normals(0, size);
      std::vector<Bfloat16> halves, expected;
      for (Index i = 0; i < size; ++i) {
        const float value = of_first[static_cast<std::size_t>(i)];
        expected.push_back(ToBfloat16(value));
        halves.push_back(ToBfloat16(i >= own.begin && i < own.end ? value : -1.0f));
      }
      Bfloat16Buffer memory(size);
      memory.CopyFromHost(halves);
      collectives.GatherShards(memory.data(), size);
      memory.CopyToHost(halves);
      EXPECT_EQ(halves, expected);

      Array array(Normals(group.index(), size), 0);
      collectives.Broadcast(array.data(), size, n - 1);
      EXPECT_EQ(array.values(), Normals(n - 1, size));
    });
  }
}

}  // namespace
}  // namespace spotlight
