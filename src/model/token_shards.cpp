#include "model/token_shards.hpp"

#include "base/error.hpp"
#include "kernels/host_view.hpp"

namespace spotlight {
namespace {

Index Sum(const std::vector<Index>& values) {
  Index sum = 0;
  for (const Index value : values) sum += value;
  return sum;
}

Index Elements(const std::vector<BlockCopy>& blocks) {
  Index sum = 0;
  for (const BlockCopy& block : blocks) sum += block.rows * block.size;
  return sum;
}

// Bytes that an array's part takes in a message: parts begin where the widest loads and stores may.
Index PartBytes(Index elements, ElementType type) {
  constexpr Index kAlignment = 16;
  return (elements * SizeOf(type) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void TokenShards::Assign(SequenceGroup* group, const std::vector<Index>& text_tokens,
                         const std::vector<Index>& image_tokens) {
  group_ = group;
  if (planned_ranks_ == ranks() && planned_index_ == index() && text_.tokens == text_tokens &&
      image_.tokens == image_tokens) {
    return;
  }
  planned_ranks_ = ranks();
  planned_index_ = index();
  plans_.clear();
  for (auto [shares, tokens] : {std::pair(&text_, &text_tokens), std::pair(&image_, &image_tokens)}) {
    shares->tokens = *tokens;
    shares->all.Assign(*tokens);
    shares->first_token.clear();
    std::vector<Index> own;
    for (const Index count : *tokens) {
      const ShareRange share = ShareOf(count, index(), ranks());
      shares->first_token.push_back(share.begin);
      own.push_back(share.size());
    }
    shares->local.Assign(own);
  }
}

TokenShards::Plan TokenShards::PlanHeads(Index heads, Index head_size) const {
  SPOTLIGHT_REQUIRE(heads % ranks() == 0, "the degree divides the heads");
  const Index own_heads = heads / ranks();
  const TokenRows text = text_.local.view(), image = image_.local.view();
  const TokenRows all_text = text_.all.view(), all_image = image_.all.view();
  Plan plan;
  for (int p = 0; p < ranks(); ++p) {
    std::vector<BlockCopy> pack, unpack;
    Index sent = 0, received = 0;
    for (Index b = 0; b < text.batch; ++b) {
      // To rank p: its heads of my tokens, which lie together.
      const Index tokens = text.tokens(b) + image.tokens(b);
      const Index first = (text.first[b] + image.first[b]) * heads + p * own_heads * tokens;
      const Index size = own_heads * tokens * head_size;
      pack.push_back({first * head_size, sent, 1, size, 0, 0});
      sent += size;
      // From rank p: my heads of its tokens; text and image go to different places of each head.
      const ShareRange text_share = ShareOf(all_text.tokens(b), p, ranks());
      const ShareRange image_share = ShareOf(all_image.tokens(b), p, ranks());
      const Index all_tokens = all_text.tokens(b) + all_image.tokens(b);
      const Index its_tokens = text_share.size() + image_share.size();
      const Index to = (all_text.first[b] + all_image.first[b]) * own_heads * head_size;
      unpack.push_back({received, to + text_share.begin * head_size, own_heads, text_share.size() * head_size,
                        its_tokens * head_size, all_tokens * head_size});
      unpack.push_back({received + text_share.size() * head_size,
                        to + (all_text.tokens(b) + image_share.begin) * head_size, own_heads,
                        image_share.size() * head_size, its_tokens * head_size, all_tokens * head_size});
      received += own_heads * its_tokens * head_size;
    }
    plan.pack.push_back(std::move(pack));
    plan.unpack.push_back(std::move(unpack));
  }
  return plan;
}

TokenShards::Plan TokenShards::PlanCollectedHeads(Index width) const {
  const TokenRows text = text_.all.view(), image = image_.all.view();
  const Index own_width = width / ranks(), tokens = text.rows() + image.rows();
  Plan plan;
  plan.pack.resize(static_cast<std::size_t>(ranks()));
  plan.unpack.resize(static_cast<std::size_t>(ranks()));
  plan.pack[0].push_back({0, 0, 1, tokens * own_width, 0, 0});
  for (int p = 0; p < ranks() && index() == 0; ++p) {
    for (Index b = 0; b < text.batch; ++b) {
      const Index first = text.first[b] + image.first[b], size = (text.tokens(b) + image.tokens(b)) * own_width;
      plan.unpack[static_cast<std::size_t>(p)].push_back({first * own_width, first * width + p * size, 1, size, 0, 0});
    }
  }
  return plan;
}

TokenShards::Plan TokenShards::PlanRows(const Transfer& transfer) const {
  const bool collect = transfer.kind == Transfer::Kind::kCollect;
  const bool gather = transfer.kind == Transfer::Kind::kGather || collect;
  SPOTLIGHT_REQUIRE(gather || transfer.width % ranks() == 0, "the degree divides the features");
  const Shares& shares = transfer.stream == Stream::kText ? text_ : image_;
  const TokenRows own = shares.local.view(), all = shares.all.view();
  const Index stride = transfer.stride == 0 ? transfer.width : transfer.stride;
  const Index size = gather ? transfer.width : transfer.width / ranks();
  Plan plan;
  for (int p = 0; p < ranks(); ++p) {
    std::vector<BlockCopy> pack, unpack;
    if (!collect || p == 0) pack.push_back({gather ? 0 : p * size, 0, own.rows(), size, stride, size});
    Index received = 0;
    for (Index b = 0; b < all.batch && (!collect || index() == 0); ++b) {
      const ShareRange share = ShareOf(all.tokens(b), p, ranks());
      unpack.push_back({received, (all.first[b] + share.begin) * size, share.size(), size, size, size});
      received += share.size() * size;
    }
    plan.pack.push_back(std::move(pack));
    plan.unpack.push_back(std::move(unpack));
  }
  return plan;
}

const TokenShards::Plan& TokenShards::PlanFor(const Transfer& transfer, Index head_size) {
  const PlanKey key{transfer.kind, transfer.stream, transfer.width, transfer.stride, head_size};
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  using Kind = Transfer::Kind;
  Plan plan = transfer.kind == Kind::kHeads          ? PlanHeads(transfer.width / head_size, head_size)
              : transfer.kind == Kind::kCollectHeads ? PlanCollectedHeads(transfer.width)
                                                     : PlanRows(transfer);
  for (const auto& blocks : plan.pack) plan.send.push_back(Elements(blocks));
  for (const auto& blocks : plan.unpack) plan.receive.push_back(Elements(blocks));
  return plans_.emplace(key, std::move(plan)).first->second;
}

void TokenShards::Run(const std::vector<Transfer>& transfers, Index head_size, bool back) {
  const std::size_t ranks = static_cast<std::size_t>(this->ranks());
  std::vector<const Plan*> plans;
  for (const Transfer& transfer : transfers) {
    using Kind = Transfer::Kind;
    SPOTLIGHT_REQUIRE(!back || transfer.kind == Kind::kHeads || transfer.kind == Kind::kFeatures,
                      "what is gathered has no way back");
    SPOTLIGHT_REQUIRE(!transfer.to || transfer.to.type == transfer.from.type, "an exchange does not convert");
    plans.push_back(&PlanFor(transfer, head_size));
  }
  // The message to rank p holds its part of each array, one after the other.
  std::vector<Index> send(ranks, 0), receive(ranks, 0);  // bytes
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const ElementType type = transfers[i].from.type;
    for (std::size_t p = 0; p < ranks; ++p) {
      send[p] += PartBytes(back ? plans[i]->receive[p] : plans[i]->send[p], type);
      receive[p] += PartBytes(back ? plans[i]->send[p] : plans[i]->receive[p], type);
    }
  }
  send_.Resize(Sum(send));
  receive_.Resize(Sum(receive));
  const auto copy = [&](bool packing) {
    Index message = 0;
    for (std::size_t p = 0; p < ranks; ++p) {
      Index offset = message;
      for (std::size_t i = 0; i < transfers.size(); ++i) {
        std::vector<BlockCopy> blocks = packing != back ? plans[i]->pack[p] : plans[i]->unpack[p];
        if (back) {
          for (BlockCopy& block : blocks) block = block.Reversed();
        }
        if (blocks.empty()) continue;
        const ElementType type = transfers[i].from.type;
        if (packing) {
          CopyBlocks(blocks, transfers[i].from, {send_.data() + offset, type});
        } else {
          CopyBlocks(blocks, {receive_.data() + offset, type}, transfers[i].to);
        }
        offset += PartBytes(Elements(blocks), type);
      }
      message += packing ? send[p] : receive[p];
    }
  };
  copy(true);
  if (group_ != nullptr) {
    if (!group_->AllToAllOnDevice(send_.data(), send, receive_.data(), receive)) {
      HostView<std::byte> sent(send_.data(), send_.size(), HostAccess::kRead);
      HostView<std::byte> received(receive_.data(), receive_.size(), HostAccess::kWrite);
      group_->AllToAll(sent.data(), send, received.data(), receive);
    }
  } else {
    std::swap(send_, receive_);
  }
  copy(false);
}

}  // namespace spotlight
