// The operations of kernels/ at the sizes of Qwen-Image, each with what it moves and computes by its definition: every
// array that it reads counts once, every array that it writes counts once, an array that it changes counts twice.
// Tables that all rows share (modulation, norm weights, rotary positions) count as they are stored, once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/activations.hpp"
#include "kernels/buffer.hpp"
#include "kernels/token_rows.hpp"

namespace spotlight {

struct BenchSizes {
  struct Images {
    std::int64_t batch = 1, side = 64, text = 128;  // side^2 image tokens and `text` text tokens a sample
  };
  struct Convolution {
    std::int64_t side = 0, in = 0, out = 0;
  };

  std::int64_t heads = 24, head_size = 128, text_width = 3584, rank = 64;
  std::int64_t adapter = 424673280;  // parameters of a LoRA of rank 64 in 60 blocks
  std::vector<Images> elementwise, attention, linear;
  std::vector<Convolution> convolutions;  // of the autoencoder's decoder, 3 x 3
  std::int64_t pixels_side = 1280, pixel_channels = 96;
  std::int64_t copy_bytes = std::int64_t{4} << 30, product_side = 8192;  // of the peaks

  std::int64_t width() const { return heads * head_size; }
  static BenchSizes QwenImage();
  static BenchSizes Small();  // the same list in a second on a CPU
};

// Memory of one call of an operation, filled with normal numbers, and the bytes of it that the call moves.
class Arrays {
 public:
  const float* Read(std::int64_t size) { return Add(size, 1).data(); }
  float* Write(std::int64_t size) { return Add(size, 1).data(); }
  float* Change(std::int64_t size) { return Add(size, 2).data(); }
  // Of another element type. Of `room` elements only `size` are moved.
  ConstActivations Read(std::int64_t size, ElementType type, std::int64_t room = 0) { return AddOf(size, type, room); }
  Activations Write(std::int64_t size, ElementType type, std::int64_t room = 0) { return AddOf(size, type, room); }
  const std::uint8_t* Ones(std::int64_t size);
  void ReadElsewhere(std::int64_t size) {
    bytes_ += size * SizeOf(ElementType::kFp32);
  }                                                      // memory of the operation's own
  std::int64_t bytes() const { return bytes_; }          // moved by a call
  std::int64_t footprint() const { return footprint_; }  // of memory

 private:
  Buffer& Add(std::int64_t size, int times);
  Activations AddOf(std::int64_t size, ElementType type, std::int64_t room);

  std::vector<std::unique_ptr<Buffer>> floats_;
  std::vector<std::unique_ptr<Bfloat16Buffer>> narrow_;
  std::int64_t bytes_ = 0, footprint_ = 0;
};

// Normal numbers, others each time, into kernel memory.
void FillWithNoise(float* memory, std::int64_t size);

struct OperationCase {
  std::string name;   // of the operation
  std::string shape;  // in words
  ElementType type = ElementType::kFp32;
  std::int64_t flops = 0;  // multiplications and additions; 0: memory alone bounds it
  // One call, on arrays of its own.
  std::function<std::function<void()>(Arrays&)> make;
};

// Those that memory bounds: norms, rope, guidance, steps, optimizer, layouts. Activations have `type`.
std::vector<OperationCase> ElementwiseCases(const BenchSizes& sizes, ElementType type);
// Attention, linear layers and convolutions, which the arithmetic units bound. cuDNN's attention where it takes the
// shape, and ours, which a mask asks for.
std::vector<OperationCase> ProductCases(const BenchSizes& sizes, ElementType type);

// What the cases of both files share: the rows of `images`, alive as long as whoever holds them.
struct BenchRows {
  explicit BenchRows(const BenchSizes::Images& images);
  TokenRowTable text, image;
  std::vector<int> level;  // [B] of the modulation table: one for all
};
std::shared_ptr<const BenchRows> MakeBenchRows(const BenchSizes::Images& images);
std::string Describe(const BenchSizes::Images& images);

}  // namespace spotlight
