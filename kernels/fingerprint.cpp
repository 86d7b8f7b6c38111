#include "kernels/fingerprint.hpp"

#include <bit>
#include <vector>

#include "kernels/activation.hpp"
#include "kernels/attention.hpp"
#include "kernels/buffer.hpp"
#include "kernels/latents.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"
#include "kernels/operations.hpp"
#include "kernels/token_rows.hpp"

namespace spotlight {
namespace {

// Sizes at which vector units, their remainders and the blocking of products all take part.
constexpr std::int64_t kTokens = 77, kWidth = 192, kHead = 64, kHidden = 3 * kWidth + 5;

std::uint32_t Bits(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t Bits(Bfloat16 value) { return value.bits; }

template <typename T>
std::uint64_t Mix(std::uint64_t hash, const BasicBuffer<T>& buffer) {
  std::vector<T> values(static_cast<std::size_t>(buffer.size()));
  buffer.CopyToHost(values);
  for (const T value : values) hash = std::rotl((hash ^ Bits(value)) * 0xff51afd7ed558ccdULL, 29);
  return hash;
}

// A part of the same with activations in bfloat16. values [kTokens, kWidth]; weight [at least kUp, kWidth]. Rows are
// aligned as those of models are.
std::uint64_t MixBf16(std::uint64_t hash, const Buffer& values, const Buffer& weight) {
  constexpr std::int64_t kUp = 3 * kWidth;
  Bfloat16Buffer x(values.size()), hidden(kTokens * kUp), act(kTokens * kUp), dx(x.size()), out(x.size());
  Buffer dweight(kUp * kWidth), lse(kTokens * kWidth / kHead);
  dweight.Zero();
  RoundToBfloat16(x.size(), values.data(), x.data());
  LinearForward(kTokens, kWidth, kUp, x.data(), kWidth, {.fp32 = weight.data()}, nullptr, hidden.data(), kUp);
  GeluForward(kTokens * kUp, hidden.data(), act.data());
  LinearBackwardInput(kTokens, kWidth, kUp, act.data(), kUp, {.fp32 = weight.data()}, dx.data(), kWidth, false);
  LinearBackwardWeight(kTokens, kWidth, kUp, x.data(), kWidth, act.data(), kUp, dweight.data(), nullptr);
  const TokenRowTable text({0}), image({kTokens});
  AttentionForward({text.view(), image.view(), kWidth / kHead, kHead}, x.data(), dx.data(), x.data(), nullptr, nullptr,
                   out.data(), lse.data());
  for (const Bfloat16Buffer* buffer : {&hidden, &act, &dx, &out}) hash = Mix(hash, *buffer);
  return Mix(Mix(hash, dweight), lse);
}

}  // namespace

std::uint64_t ArithmeticFingerprint() {
  Buffer x(kTokens * kWidth), weight(kHidden * kWidth), hidden(kTokens * kHidden), act(kTokens * kHidden);
  Buffer dx(kTokens * kWidth), dweight(kHidden * kWidth), norm_weight(kWidth), normed(kTokens * kWidth), rstd(kTokens);
  Buffer out_text(0), out_image(kTokens * kWidth), lse(kTokens * kWidth / kHead);
  std::uint64_t key = 1;
  for (Buffer* buffer : {&x, &weight, &norm_weight}) {
    NormalNoise(1, buffer->size(), &key, buffer->data());
    ++key;
  }
  dweight.Zero();
  LinearForward(kTokens, kWidth, kHidden, x.data(), kWidth, {.fp32 = weight.data()}, nullptr, hidden.data(), kHidden);
  GeluForward(kTokens * kHidden, hidden.data(), act.data());
  LinearBackwardInput(kTokens, kWidth, kHidden, act.data(), kHidden, {.fp32 = weight.data()}, dx.data(), kWidth, false);
  LinearBackwardWeight(kTokens, kWidth, kHidden, x.data(), kWidth, act.data(), kHidden, dweight.data(), nullptr);
  RmsNormForward(kTokens, kWidth, 1e-6f, dx.data(), norm_weight.data(), normed.data(), rstd.data());
  const TokenRowTable text({0}), image({kTokens});
  AttentionForward({text.view(), image.view(), kWidth / kHead, kHead}, normed.data(), x.data(), dx.data(), nullptr,
                   nullptr, out_image.data(), lse.data());
  std::uint64_t hash = 0;
  for (const Buffer* buffer : {&x, &hidden, &act, &dx, &dweight, &normed, &out_image, &lse}) hash = Mix(hash, *buffer);
  return ActiveOperations().bf16 ? MixBf16(hash, normed, weight) : hash;
}

}  // namespace spotlight
