#include "model/token_sums.hpp"

namespace spotlight {

bool TokenSums::Collect(TokenShards& shards, Stream stream,
                        std::initializer_list<std::pair<ConstActivations, Index>> arrays) {
  const bool collects = shards.index() == 0;
  std::vector<TokenShards::Transfer> transfers;
  for (const auto& [from, width] : arrays) {
    ActivationBuffer& to = all_[transfers.size()];
    if (collects) to.Resize(from.type, shards.all_rows(stream).rows() * width);
    transfers.push_back({TokenShards::Transfer::Kind::kCollect, stream, width, 0, from, {}});
    if (collects) transfers.back().to = to.data();
  }
  shards.Exchange(transfers);
  return collects;
}

void TokenSums::LayerNormModulate(TokenShards& shards, Stream stream, Index width, const float* x, const float* mean,
                                  const float* rstd, Modulation scale, ConstActivations dy, float* dx,
                                  ModulationGradient dshift, ModulationGradient dscale) {
  const bool apart = shards.ranks() > 1;
  const bool wanted = dshift.data != nullptr || dscale.data != nullptr;
  LayerNormModulateBackward(shards.rows(stream), width, x, mean, rstd, scale, dy, dx,
                            apart ? ModulationGradient{} : dshift, apart ? ModulationGradient{} : dscale);
  if (!apart || !wanted || !Collect(shards, stream, {{x, width}, {mean, 1}, {rstd, 1}, {dy, width}})) return;
  LayerNormModulateBackward(shards.all_rows(stream), width, Floats(0), Floats(1), Floats(2), scale, all_[3].data(),
                            nullptr, dshift, dscale);
}

void TokenSums::GatedResidual(TokenShards& shards, Stream stream, Index width, Modulation gate, ConstActivations branch,
                              const float* dx, Activations dbranch, ModulationGradient dgate) {
  const bool apart = shards.ranks() > 1;
  GatedResidualBackward(shards.rows(stream), width, gate, branch, dx, dbranch, apart ? ModulationGradient{} : dgate);
  if (!apart || dgate.data == nullptr || !Collect(shards, stream, {{branch, width}, {dx, width}})) return;
  GatedResidualBackward(shards.all_rows(stream), width, gate, all_[0].data(), Floats(1), nullptr, dgate);
}

void TokenSums::RmsNorm(TokenShards& shards, Stream stream, Index width, const float* x, const float* weight,
                        const float* rstd, ConstActivations dy, float* dx, float* dweight) {
  const bool apart = shards.ranks() > 1;
  RmsNormBackward(shards.rows(stream).rows(), width, x, weight, rstd, dy, dx, apart ? nullptr : dweight);
  if (!apart || dweight == nullptr || !Collect(shards, stream, {{x, width}, {rstd, 1}, {dy, width}})) return;
  RmsNormBackward(shards.all_rows(stream).rows(), width, Floats(0), weight, Floats(1), all_[2].data(), nullptr,
                  dweight);
}

void TokenSums::CollectHeads(TokenShards& shards, Index width, ConstActivations dq, ConstActivations dk) {
  if (shards.ranks() == 1) return;
  using Kind = TokenShards::Transfer::Kind;
  std::vector<TokenShards::Transfer> transfers{{.kind = Kind::kCollectHeads, .width = width, .from = dq},
                                               {.kind = Kind::kCollectHeads, .width = width, .from = dk}};
  if (shards.index() == 0) {
    const Index tokens = shards.all_rows(Stream::kText).rows() + shards.all_rows(Stream::kImage).rows();
    for (ActivationBuffer* buffer : {&all_dq_, &all_dk_}) buffer->Resize(dq.type, tokens * width);
    transfers[0].to = all_dq_.data();
    transfers[1].to = all_dk_.data();
  }
  shards.Exchange(transfers);
}

void TokenSums::QkRope(TokenShards& shards, Stream stream, const QkRopeShape& shape, ConstActivations qkv,
                       const float* norm_q, const float* norm_k, const float* cos, const float* sin,
                       ConstActivations dq, ConstActivations dk, ConstActivations dv, Activations dqkv, float* dnorm_q,
                       float* dnorm_k) {
  const bool apart = shards.ranks() > 1;
  const Index width = 3 * shape.heads * shape.head_size;
  QkRopeBackward(shape, qkv, norm_q, norm_k, cos, sin, dq, dk, dv, dqkv, apart ? nullptr : dnorm_q,
                 apart ? nullptr : dnorm_k);
  if (!apart || dnorm_q == nullptr || !Collect(shards, stream, {{qkv, width}})) return;
  QkRopeShape all = shape;
  all.text = shards.all_rows(Stream::kText);
  all.image = shards.all_rows(Stream::kImage);
  all.position = nullptr;
  spare_.Resize(qkv.type, shards.all_rows(stream).rows() * width);
  // v is only moved: any array will do.
  QkRopeBackward(all, all_[0].data(), norm_q, norm_k, cos, sin, all_dq_.data(), all_dk_.data(), all_dk_.data(),
                 spare_.data(), dnorm_q, dnorm_k);
}

}  // namespace spotlight
