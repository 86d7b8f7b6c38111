// Backward of the operations with sums over tokens, other than linear layers: gradients of modulation numbers and of
// norm weights, in a pass whose tokens may be shared out over ranks (model/token_shards.hpp).
//
// Each rank computes the gradients of its own rows. If sums are wanted as well, rank 0 of the group is sent all rows
// and makes the sums of one rank alone, so their bits are the same; the other ranks leave them alone. With one rank, or
// without sums, nothing is sent.
// All ranks make the same calls. Arguments are those of kernels/norm.hpp and kernels/qk_rope.hpp, of own rows.
#pragma once

#include <array>
#include <initializer_list>
#include <utility>

#include "kernels/buffer.hpp"
#include "kernels/norm.hpp"
#include "kernels/qk_rope.hpp"
#include "model/token_shards.hpp"

namespace spotlight {

class TokenSums {
 public:
  void LayerNormModulate(TokenShards& shards, Stream stream, Index width, const float* x, const float* mean,
                         const float* rstd, Modulation scale, ConstActivations dy, float* dx, ModulationGradient dshift,
                         ModulationGradient dscale);
  void GatedResidual(TokenShards& shards, Stream stream, Index width, Modulation gate, ConstActivations branch,
                     const float* dx, Activations dbranch, ModulationGradient dgate);
  void RmsNorm(TokenShards& shards, Stream stream, Index width, const float* x, const float* weight, const float* rstd,
               ConstActivations dy, float* dx, float* dweight);

  // Before QkRope of the two streams, where sums are wanted: dq, dk in attention layout, all tokens of own heads.
  void CollectHeads(TokenShards& shards, Index width, ConstActivations dq, ConstActivations dk);
  // shape: of own rows; dq, dk, dv in attention layout, all heads of own tokens.
  void QkRope(TokenShards& shards, Stream stream, const QkRopeShape& shape, ConstActivations qkv, const float* norm_q,
              const float* norm_k, const float* cos, const float* sin, ConstActivations dq, ConstActivations dk,
              ConstActivations dv, Activations dqkv, float* dnorm_q, float* dnorm_k);

 private:
  // Rows of `stream`, by address and width, into all_ on rank 0. Whether this is that rank.
  bool Collect(TokenShards& shards, Stream stream, std::initializer_list<std::pair<ConstActivations, Index>> arrays);
  // What was collected as the array `which`, if that is fp32.
  const float* Floats(std::size_t which) const { return all_[which].data().As<float>(); }

  std::array<ActivationBuffer, 4> all_;       // [all rows, width]
  ActivationBuffer all_dq_, all_dk_, spare_;  // all heads of all tokens; a gradient of all rows that nobody needs
};

}  // namespace spotlight
