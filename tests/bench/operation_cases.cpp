#include "tests/bench/operation_cases.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/latents.hpp"
#include "kernels/memory.hpp"

namespace spotlight {
// In pieces, so that no kernel needs more than 32 bits of index.
void FillWithNoise(float* memory, std::int64_t size) {
  static std::uint64_t stream = 0;
  constexpr std::int64_t kPiece = std::int64_t{1} << 26;
  for (std::int64_t first = 0; first < size; first += kPiece) {
    const std::uint64_t key = ++stream;
    NormalNoise(1, std::min(kPiece, size - first), &key, memory + first);
  }
}

BenchSizes BenchSizes::QwenImage() {
  BenchSizes sizes;
  sizes.elementwise = {{1, 64, 128}, {4, 64, 128}, {1, 80, 512}, {4, 80, 512}};  // 1024 and 1280 px
  sizes.attention = {{1, 32, 128}, {1, 64, 128}, {4, 64, 128}, {1, 80, 512}, {4, 80, 512}};
  sizes.linear = {{1, 32, 128}, {1, 64, 128}, {4, 80, 128}};
  sizes.convolutions = {{160, 384, 384}, {320, 384, 384}, {640, 192, 192}, {1280, 96, 96}};
  return sizes;
}

BenchSizes BenchSizes::Small() {
  BenchSizes sizes{.heads = 2, .head_size = 24, .text_width = 56, .rank = 4, .adapter = 5000};
  sizes.elementwise = sizes.attention = sizes.linear = {{1, 6, 5}, {4, 6, 5}};
  sizes.convolutions = {{12, 8, 8}};
  sizes.pixels_side = 12;
  sizes.pixel_channels = 8;
  sizes.copy_bytes = 1 << 22;
  sizes.product_side = 256;
  return sizes;
}

Buffer& Arrays::Add(std::int64_t size, int times) {
  floats_.push_back(std::make_unique<Buffer>(size));
  FillWithNoise(floats_.back()->data(), size);
  bytes_ += times * size * SizeOf(ElementType::kFp32);
  footprint_ += size * SizeOf(ElementType::kFp32);
  return *floats_.back();
}

Activations Arrays::AddOf(std::int64_t size, ElementType type, std::int64_t room) {
  const std::int64_t whole = std::max(size, room);
  bytes_ += size * SizeOf(type);
  footprint_ += whole * SizeOf(type);
  auto wide = std::make_unique<Buffer>(whole);
  FillWithNoise(wide->data(), whole);
  if (type == ElementType::kFp32) {
    floats_.push_back(std::move(wide));
    return floats_.back()->data();
  }
  narrow_.push_back(std::make_unique<Bfloat16Buffer>(whole));
  RoundToBfloat16(whole, wide->data(), narrow_.back()->data());
  return narrow_.back()->data();
}

const std::uint8_t* Arrays::Ones(std::int64_t size) {
  const std::vector<std::uint8_t> ones(static_cast<std::size_t>(size), 1);
  floats_.push_back(std::make_unique<Buffer>((size + 3) / 4));
  CopyIn(floats_.back()->data(), ones.data(), ones.size());
  bytes_ += size;
  footprint_ += size;
  return reinterpret_cast<const std::uint8_t*>(floats_.back()->data());
}

BenchRows::BenchRows(const BenchSizes::Images& images) : level(static_cast<std::size_t>(images.batch), 0) {
  text.Assign(std::vector<std::int64_t>(static_cast<std::size_t>(images.batch), images.text));
  image.Assign(std::vector<std::int64_t>(static_cast<std::size_t>(images.batch), images.side * images.side));
}

std::shared_ptr<const BenchRows> MakeBenchRows(const BenchSizes::Images& images) {
  return std::make_shared<const BenchRows>(images);
}

std::string Describe(const BenchSizes::Images& images) {
  return fmt::format("{} x {}", images.batch, images.side * images.side);
}

}  // namespace spotlight
