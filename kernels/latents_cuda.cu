// Latents on CUDA devices (kernels/latents.hpp). The noise has the bits of base/random.hpp: same counters, same
// arithmetic (base/normal_deviates.hpp). Packing goes through shared memory, so that both layouts are read and written
// in order.
#include "base/normal_deviates.hpp"
#include "kernels/cuda/batch_rows.cuh"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/sample_table.cuh"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

// One block of a stream's numbers is one quad of its row.
struct NoiseBody {
  SampleTable<std::uint64_t> keys;
  std::int64_t size;
  float* out;

  template <typename Extent>
  __device__ void operator()(int sample, std::int64_t at, Extent extent) const {
    const auto block = static_cast<std::uint64_t>(at - sample * size) / 4;
    std::uint32_t words[4][1] = {{static_cast<std::uint32_t>(block)}, {static_cast<std::uint32_t>(block >> 32)}};
    PhiloxRounds(keys.at[sample], words);
    Quad normals;
    BoxMuller(words[0][0], words[1][0], normals.at[0], normals.at[1]);
    BoxMuller(words[2][0], words[3][0], normals.at[2], normals.at[3]);
    StoreQuad(out + at, normals, extent);
  }
};

constexpr int kTileTokens = 32, kTileChannels = 16;  // Qwen-Image has 16 channels: 64 features
constexpr int kTileFeatures = 4 * kTileChannels;
constexpr int kTileStride = kTileFeatures + 2;  // 32 pixels of a row, 2 a token, lie in 32 banks
constexpr int kThreads = 256;

struct PackedShape {
  std::int64_t channels, h, w;
  std::int64_t token_tiles, channel_tiles;  // of a row of tokens
};

// A block moves kTileTokens neighbours of one row of tokens, kTileChannels channels of them. Blocks: [B, h, tiles of
// tokens, tiles of channels], the last fastest.
template <bool kPack>
__global__ void __launch_bounds__(kThreads) MovePackedKernel(PackedShape shape, const float* from, float* to) {
  __shared__ float tile[kTileTokens * kTileStride];  // [token, feature]
  const std::int64_t tile_index = blockIdx.x / shape.channel_tiles;
  const std::int64_t row = tile_index / shape.token_tiles;  // sample * h + row of tokens
  const std::int64_t first_token = tile_index % shape.token_tiles * kTileTokens;
  const std::int64_t first_channel = blockIdx.x % shape.channel_tiles * kTileChannels;
  const std::int64_t left_tokens = shape.w - first_token, left_channels = shape.channels - first_channel;
  const int tokens = left_tokens < kTileTokens ? static_cast<int>(left_tokens) : kTileTokens;
  const int channels = left_channels < kTileChannels ? static_cast<int>(left_channels) : kTileChannels;
  const int thread = static_cast<int>(threadIdx.x);

  // move(place in `tile`, element of the array) in the order of each array.
  const auto in_latents = [&](const auto& move) {
    constexpr int kPixels = 2 * kTileTokens;  // of one row of pixels
    const std::int64_t sample = row / shape.h, y = row % shape.h * 2;
    for (int i = thread; i < kPixels * 2 * channels; i += kThreads) {
      const int pixel = i % kPixels, dy = i / kPixels % 2, channel = i / kPixels / 2;
      if (pixel / 2 >= tokens) continue;
      const std::int64_t line = (sample * shape.channels + first_channel + channel) * 2 * shape.h + y + dy;
      move(pixel / 2 * kTileStride + channel * 4 + dy * 2 + pixel % 2, (line * shape.w + first_token) * 2 + pixel);
    }
  };
  const auto in_packed = [&](const auto& move) {
    for (int i = thread; i < kTileFeatures * tokens; i += kThreads) {
      const int feature = i % kTileFeatures, token = i / kTileFeatures;
      if (feature >= 4 * channels) continue;
      move(token * kTileStride + feature,
           ((row * shape.w + first_token + token) * shape.channels + first_channel) * 4 + feature);
    }
  };
  const auto load = [&](int place, std::int64_t at) { tile[place] = from[at]; };
  const auto store = [&](int place, std::int64_t at) { to[at] = tile[place]; };
  if constexpr (kPack) {
    in_latents(load);
    __syncthreads();
    in_packed(store);
  } else {
    in_packed(load);
    __syncthreads();
    in_latents(store);
  }
}

template <bool kPack>
void MovePacked(std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w, const float* from,
                float* to) {
  const PackedShape shape{channels, h, w, BlocksFor(w, kTileTokens), BlocksFor(channels, kTileChannels)};
  const std::int64_t blocks = batch * h * shape.token_tiles * shape.channel_tiles;
  Launch(MovePackedKernel<kPack>, BlocksFor(blocks, 1), kThreads, 0, shape, from, to);
}

}  // namespace

void NormalNoise(std::int64_t batch, std::int64_t size, const std::uint64_t* keys, float* out) {
  const bool aligned = QuadsAligned(batch, size, out);
  ForEachChunk(batch, [=](std::int64_t first, std::int64_t count) {
    const auto table = TableOf<std::uint64_t>(first, count, [=](std::int64_t b) { return keys[b]; });
    Pointwise(count, size, aligned, NoiseBody{table, size, out + first * size});
  });
}

void PackLatents(std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w, const float* latents,
                 float* packed) {
  MovePacked<true>(batch, channels, h, w, latents, packed);
}

void UnpackLatents(std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w, const float* packed,
                   float* latents) {
  MovePacked<false>(batch, channels, h, w, packed, latents);
}

}  // namespace spotlight::cuda
