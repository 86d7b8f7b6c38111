// A worker's part in spreading weights: it fetches them, from other workers where they have them, and from the first
// piece on serves what it has got to others, on a thread of its own.
//
// One version at a time, and only pieces whose checksum is right; their receiver checks them again. The memory that is
// served belongs to the caller, who says when it may not be read any more.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/channel.hpp"
#include "comm/weight_pieces.hpp"

namespace spotlight {

class WeightExchange {
 public:
  // host: under which others reach this rank, as for MakeServer. Opens nothing before the first Fetch.
  WeightExchange(std::string host, std::uint64_t run_id, std::uint32_t rank);
  ~WeightExchange();
  WeightExchange(const WeightExchange&) = delete;
  WeightExchange& operator=(const WeightExchange&) = delete;

  // FetchInPieces of `version`, which is served instead of the one before. `out` must stay, unchanged, until Withdraw
  // or the next Fetch; if this throws it is not served.
  std::size_t Fetch(const MessageCall& coordinator, std::uint64_t version, bool ema, std::span<float> out);

  // Serves nothing until the next Fetch. Nobody reads the memory any more when this returns.
  void Withdraw();

 private:
  struct Offer {
    std::uint64_t version = 0;
    bool ema = false;
    std::uint64_t piece = 0;  // values; 0: not known yet
    std::span<const float> values;
    std::vector<bool> have;  // pieces
    bool Has(const FetchWeights& fetch) const;
  };

  void Open();
  void Serve();
  Bytes Answer(const Bytes& request);
  Message CallHolder(const std::string& address, const Message& message);

  std::string host_;
  std::uint64_t run_id_;
  std::uint32_t rank_;
  std::unique_ptr<NetworkServer> server_;                   // the thread's, once it runs
  std::string address_;                                     // its
  std::map<std::string, std::unique_ptr<Client>> clients_;  // of holders, by address
  std::mutex mutex_;                                        // of what follows
  std::optional<Offer> offer_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace spotlight
