#include "comm/sp_group.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/mpi_call.hpp"
#include "comm/peer_windows.hpp"
#include "comm/watchdog.hpp"

namespace spotlight {
namespace {

// Members arrive together and wait for milliseconds; a sleep would cost more than the exchange. After that long one of
// them is late for a reason of its own.
constexpr Pace kInPass = {std::chrono::seconds(10), std::chrono::microseconds(100)};
// A follower waits for seconds or minutes.
constexpr Pace kIdle = {std::chrono::milliseconds(0), std::chrono::milliseconds(1)};

Index Sum(std::span<const Index> sizes) { return std::accumulate(sizes.begin(), sizes.end(), Index{0}); }

}  // namespace

SpGroup::SpGroup(World& world, std::span<const int> ranks)
    : world_(world),
      limit_(world.limit_),
      size_(static_cast<int>(ranks.size())),
      exceptions_(std::uncaught_exceptions()) {
  const auto own = std::find(ranks.begin(), ranks.end(), world.rank());
  SPOTLIGHT_REQUIRE(own != ranks.end(), "only members make a group");
  index_ = static_cast<int>(own - ranks.begin());
  if (size_ == 1) return;
  mpi_ = std::make_unique<Mpi>();
  const Watchdog watchdog("making a sequence-parallel group", limit_, kExitInternal);
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_CHECK(MPI_Comm_group(world.mpi_->world, &all));
  MPI_CHECK(MPI_Group_incl(all, size_, ranks.data(), &members));
  const int code = MPI_Comm_create_group(world.mpi_->world, members, ranks.front(), &mpi_->comm);
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  MPI_CHECK(code);
  MPI_CHECK(MPI_Comm_set_errhandler(mpi_->comm, MPI_ERRORS_RETURN));
  TouchAll(mpi_->comm, limit_);
}

SpGroup::SpGroup(World& world, std::chrono::milliseconds limit)
    : world_(world),
      limit_(limit),
      longest_idle_(std::max(kPoolIdle, limit)),
      exceptions_(std::uncaught_exceptions()) {}

SpGroup::~SpGroup() {
  if (!mpi_ || mpi_->comm == MPI_COMM_NULL) return;
  // Left by an exception: the other members must not wait for us.
  if (std::uncaught_exceptions() > exceptions_) Revoke(mpi_->comm);
  // A revoked communicator stays until MPI ends: by it MPI refuses what others still want to send here, and their
  // waits would not end without that.
  if (!IsRevoked(mpi_->comm)) MPI_Comm_free(&mpi_->comm);
}

void SpGroup::AllToAll(const void* send, std::span<const Index> send_bytes, void* receive,
                       std::span<const Index> receive_bytes) {
  const auto size = static_cast<std::size_t>(size_);
  const auto own = static_cast<std::size_t>(index_);
  SPOTLIGHT_REQUIRE(send_bytes.size() == size && receive_bytes.size() == size, "one size per member");
  SPOTLIGHT_REQUIRE(send_bytes[own] == receive_bytes[own], "what a member keeps is what it sends to itself");
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(receive);
  if (send_bytes[own] > 0) {
    std::memcpy(to + Sum(receive_bytes.first(own)), from + Sum(send_bytes.first(own)),
                static_cast<std::size_t>(send_bytes[own]));
  }
  if (!mpi_) return;
  std::vector<PeerBytes> peers;
  for (std::size_t p = 0; p < size; ++p) {
    peers.push_back({from, static_cast<std::size_t>(send_bytes[p]), to, static_cast<std::size_t>(receive_bytes[p])});
    from += send_bytes[p];
    to += receive_bytes[p];
  }
  Exchange(mpi_->comm, peers, limit_, kInPass);
}

bool SpGroup::AllToAllOnDevice(const void* send, std::span<const Index> send_bytes, void* receive,
                               std::span<const Index> receive_bytes) {
  if (!world_.uses_windows_) return false;
  if (!by_windows_) by_windows_ = BeginWindows();
  if (!*by_windows_) return false;
  try {
    world_.windows_->AllToAll(send, send_bytes, receive, receive_bytes, limit_, [this] {
      if (mpi_) LookAtPeers(mpi_->comm);
    });
  } catch (const PeerLost&) {
    Break();  // the others may have come through this exchange, and would wait in the next one
    throw;
  }
  return true;
}

bool SpGroup::BeginWindows() {
  struct Word {
    std::int64_t place = -1;  // on the node; -1: it has no window
    std::uint64_t node = 0, epoch = 0;
  };
  PeerWindows* const windows = world_.windows_.get();
  Word own;
  if (windows != nullptr) own = {world_.local_index(), windows->node(), windows->last_epoch()};
  std::vector<Word> words(static_cast<std::size_t>(size_), own);
  if (mpi_) {
    std::vector<PeerBytes> peers;
    for (Word& word : words) peers.push_back({&own, sizeof(own), &word, sizeof(word)});
    Exchange(mpi_->comm, peers, limit_);
  }
  std::vector<int> members;
  std::uint64_t epoch = 0;
  for (const Word& word : words) {
    if (word.place < 0 || word.node != own.node) return false;  // on all: they have the same words
    members.push_back(static_cast<int>(word.place));
    epoch = std::max(epoch, word.epoch);
  }
  if (Union(windows->Reach(members) ? 0 : 1) != 0) return false;
  windows->Begin(members, epoch + 1);
  return true;
}

void SpGroup::Broadcast(Bytes& bytes, std::chrono::milliseconds idle_limit) {
  if (!mpi_) return;
  std::vector<PeerBytes> peers(static_cast<std::size_t>(size_));
  std::uint64_t length = bytes.size();
  if (index_ == 0) {
    std::fill(peers.begin(), peers.end(), PeerBytes{.send = &length, .send_bytes = sizeof(length)});
    Exchange(mpi_->comm, peers, limit_);
    std::fill(peers.begin(), peers.end(), PeerBytes{.send = bytes.data(), .send_bytes = bytes.size()});
    Exchange(mpi_->comm, peers, limit_);
  } else {
    peers.front() = {.receive = &length, .receive_bytes = sizeof(length)};
    Exchange(mpi_->comm, peers, std::min(idle_limit, longest_idle_), kIdle);
    bytes.resize(length);
    peers.front() = {.receive = bytes.data(), .receive_bytes = bytes.size()};
    Exchange(mpi_->comm, peers, limit_);
  }
}

unsigned char SpGroup::Union(unsigned char bits) {
  if (!mpi_) return bits;
  std::vector<unsigned char> others(static_cast<std::size_t>(size_), 0);
  std::vector<PeerBytes> peers;
  for (unsigned char& other : others) peers.push_back({&bits, 1, &other, 1});
  Exchange(mpi_->comm, peers, limit_);
  return std::accumulate(others.begin(), others.end(), bits, std::bit_or<>());
}

void SpGroup::Break() noexcept {
  if (mpi_) Revoke(mpi_->comm);
}

void SpGroup::Assign(std::unique_ptr<Mpi> mpi) {
  // Every member has broken its old communicator and come to the regroup: nobody sends into it any more.
  if (mpi_) MPI_Comm_free(&mpi_->comm);
  mpi_ = std::move(mpi);
  by_windows_.reset();
  size_ = 1;
  index_ = 0;
  if (!mpi_) return;
  MPI_Comm_size(mpi_->comm, &size_);
  MPI_Comm_rank(mpi_->comm, &index_);
}

}  // namespace spotlight
