// How the tokens of a batch are shared out over a sequence-parallel group, and the exchanges between its ranks
// (Ulysses, arXiv 2309.14509): every rank holds a share of the tokens of each sample, of text and image alike, and for
// attention a share of the heads of all tokens.
//
// A share is ShareOf(tokens, rank, P): sizes may differ by one or be zero, and no token is padding. Everything here is
// copying, so a pass of P ranks has the bits of one rank alone. Arrays of either element type travel together. Plans
// are lists of numbers made for one batch shape; the buffers stay when the group changes.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "base/sequence_group.hpp"
#include "kernels/block_copy.hpp"
#include "kernels/buffer.hpp"
#include "kernels/token_rows.hpp"

namespace spotlight {

enum class Stream { kText, kImage };

class TokenShards {
 public:
  // text_tokens, image_tokens [B]: of each sample as a whole. group null: one rank has everything.
  void Assign(SequenceGroup* group, const std::vector<Index>& text_tokens, const std::vector<Index>& image_tokens);

  int ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  int index() const { return group_ == nullptr ? 0 : group_->index(); }

  TokenRows rows(Stream stream) const { return (stream == Stream::kText ? text_ : image_).local.view(); }
  TokenRows all_rows(Stream stream) const { return (stream == Stream::kText ? text_ : image_).all.view(); }
  // [B] where this rank's share starts within the sample.
  const std::vector<Index>& first_token(Stream stream) const {
    return (stream == Stream::kText ? text_ : image_).first_token;
  }

  // One array of an exchange.
  struct Transfer {
    enum class Kind {
      kHeads,         // attention layout (kernels/qk_rope.hpp): own tokens, all heads -> all tokens, own heads
      kFeatures,      // [own rows, width], row stride `stride` -> [all rows, own width / P features], dense
      kGather,        // [own rows, width] -> [all rows, width]
      kCollect,       // the same on rank 0 alone; others receive nothing
      kCollectHeads,  // attention layout: all tokens, own heads -> all tokens, all heads, on rank 0 alone
    };
    Kind kind = Kind::kGather;
    Stream stream = Stream::kImage;  // not for kHeads and kCollectHeads
    Index width = 0;                 // kHeads and kCollectHeads: heads * head size
    Index stride = 0;                // of the own rows; 0: width
    ConstActivations from;
    Activations to;  // of the same element type; null where nothing is received
  };
  // All arrays in one exchange. With one rank kHeads and kFeatures must not be called: there is nothing to exchange.
  void Exchange(const std::vector<Transfer>& transfers, Index head_size = 0) { Run(transfers, head_size, false); }
  // The way back, of kHeads and kFeatures: `from` is what was received.
  void ExchangeBack(const std::vector<Transfer>& transfers, Index head_size = 0) { Run(transfers, head_size, true); }

 private:
  struct Shares {
    std::vector<Index> tokens;  // [B] of the whole samples
    TokenRowTable local, all;
    std::vector<Index> first_token;
  };
  // Messages of one array: pack[p] copies from the array into the message to rank p, unpack[p] from that of rank p.
  struct Plan {
    std::vector<std::vector<BlockCopy>> pack, unpack;
    std::vector<Index> send, receive;  // elements
  };
  using PlanKey = std::tuple<Transfer::Kind, Stream, Index, Index, Index>;

  void Run(const std::vector<Transfer>& transfers, Index head_size, bool back);
  const Plan& PlanFor(const Transfer& transfer, Index head_size);
  Plan PlanHeads(Index heads, Index head_size) const;
  Plan PlanCollectedHeads(Index width) const;
  Plan PlanRows(const Transfer& transfer) const;

  SequenceGroup* group_ = nullptr;
  int planned_ranks_ = 0, planned_index_ = 0;
  Shares text_, image_;
  std::map<PlanKey, Plan> plans_;
  ByteBuffer send_, receive_;
};

}  // namespace spotlight
