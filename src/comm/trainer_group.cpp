#include "comm/trainer_group.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/sequence_group.hpp"
#include "comm/mpi_call.hpp"

namespace spotlight {
namespace {

constexpr std::size_t kPiece = 1U << 20;  // floats: 4 MiB, where copies inside a node are fastest

template <class T>
std::span<T> Shard(std::span<T> values, int index, int count) {
  const ShareRange range = ShareOf(std::ssize(values), index, count);
  return values.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}

// Round `round` of `part` when each round takes `most` elements of every shard; the last ones may be empty.
template <class T>
std::span<T> Round(std::span<T> part, std::size_t round, std::size_t most) {
  const std::size_t begin = std::min(part.size(), round * most);
  return part.subspan(begin, std::min(most, part.size() - begin));
}

// How many rounds the longest of `n` shards of `size` elements takes.
std::size_t Rounds(std::size_t size, std::size_t n, std::size_t most) {
  const std::size_t longest = (size + n - 1) / n;
  return (longest + most - 1) / most;
}

template <class T>
void Gather(MPI_Comm comm, int index, int n, std::span<T> values, std::chrono::milliseconds limit) {
  const auto count = static_cast<std::size_t>(n);
  const std::size_t most = std::max<std::size_t>(1, kPiece * sizeof(float) / sizeof(T) / count);
  std::vector<PeerBytes> peers(count);
  for (std::size_t round = 0; round < Rounds(values.size(), count, most); ++round) {
    const std::span<T> own = Round(Shard(values, index, n), round, most);
    for (int r = 0; r < n; ++r) {
      const std::span<T> theirs = Round(Shard(values, r, n), round, most);
      peers[static_cast<std::size_t>(r)] = {own.data(), own.size_bytes(), theirs.data(), theirs.size_bytes()};
    }
    Exchange(comm, peers, limit);
  }
}

std::vector<double> AllGatherDouble(MPI_Comm comm, int size, double value, std::chrono::milliseconds limit) {
  std::vector<double> all(static_cast<std::size_t>(size));
  std::vector<MPI_Request> request(1);
  MPI_CHECK(MPI_Iallgather(&value, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, comm, request.data()));
  WaitAll(comm, request, limit);
  return all;
}

}  // namespace

TrainerGroup::TrainerGroup(World& world) : world_(world), exceptions_(std::uncaught_exceptions()) {
  SPOTLIGHT_REQUIRE(world.trainer_index() >= 0, "only a trainer is in the group");
}

TrainerGroup::~TrainerGroup() {
  // Left by an exception: the other trainers must not wait for us.
  if (size() > 1 && std::uncaught_exceptions() > exceptions_) Revoke(world_.mpi_->trainers);
}

void TrainerGroup::SumInOrder(std::span<float> values) {
  SumShardInOrder(values);
  GatherShards(values);
}

void TrainerGroup::SumShardInOrder(std::span<float> values) {
  if (size() == 1) return;
  const auto n = static_cast<std::size_t>(size());
  const std::size_t most = std::max<std::size_t>(1, kPiece / n);
  std::vector<float> parts(n * most);  // of the own shard, by trainer; the own part stays where it is
  std::vector<PeerBytes> peers(n);
  for (std::size_t round = 0; round < Rounds(values.size(), n, most); ++round) {
    const std::span<float> own = Round(Shard(values, index(), size()), round, most);
    std::vector<const float*> addends(n, own.data());
    for (int r = 0; r < size(); ++r) {
      const auto t = static_cast<std::size_t>(r);
      const std::span<float> theirs = Round(Shard(values, r, size()), round, most);
      peers[t] = {theirs.data(), theirs.size_bytes(), &parts[t * most], own.size_bytes()};
      if (r != index()) addends[t] = &parts[t * most];
    }
    Exchange(world_.mpi_->trainers, peers, world_.limit_);
    for (std::size_t i = 0; i < own.size(); ++i) {
      double sum = addends[0][i];
      for (std::size_t r = 1; r < n; ++r) sum += addends[r][i];
      own[i] = static_cast<float>(sum);
    }
  }
}

void TrainerGroup::GatherShards(std::span<float> values) {
  if (size() > 1) Gather(world_.mpi_->trainers, index(), size(), values, world_.limit_);
}

void TrainerGroup::GatherShards(std::span<Bfloat16> values) {
  if (size() > 1) Gather(world_.mpi_->trainers, index(), size(), values, world_.limit_);
}

void TrainerGroup::Broadcast(std::span<float> values, int root) {
  if (size() == 1) return;
  MPI_Comm comm = world_.mpi_->trainers;
  std::vector<MPI_Request> request(1);
  for (std::size_t first = 0; first < values.size(); first += kPiece) {
    const std::span<float> piece = values.subspan(first, std::min(kPiece, values.size() - first));
    MPI_CHECK(MPI_Ibcast(piece.data(), static_cast<int>(piece.size()), MPI_FLOAT, root, comm, request.data()));
    WaitAll(comm, request, world_.limit_);
  }
}

double TrainerGroup::SumDouble(double value) {
  if (size() == 1) return value;
  double sum = 0;
  for (const double part : AllGatherDouble(world_.mpi_->trainers, size(), value, world_.limit_)) sum += part;
  return sum;
}

double TrainerGroup::MaxDouble(double value) {
  if (size() == 1) return value;
  double max = -std::numeric_limits<double>::infinity();
  for (const double part : AllGatherDouble(world_.mpi_->trainers, size(), value, world_.limit_)) {
    if (std::isnan(part)) return part;
    max = std::max(max, part);
  }
  return max;
}

std::vector<std::string> TrainerGroup::AllGather(const std::string& text) {
  const auto n = static_cast<std::size_t>(size());
  if (n == 1) return {text};
  MPI_Comm comm = world_.mpi_->trainers;
  const std::uint64_t length = text.size();
  std::vector<std::uint64_t> lengths(n, length);
  std::vector<PeerBytes> peers(n);
  for (std::size_t r = 0; r < n; ++r) peers[r] = {&length, sizeof(length), &lengths[r], sizeof(length)};
  Exchange(comm, peers, world_.limit_);
  std::vector<std::string> texts(n, text);
  for (std::size_t r = 0; r < n; ++r) {
    texts[r].resize(lengths[r]);
    peers[r] = {text.data(), text.size(), texts[r].data(), texts[r].size()};
  }
  Exchange(comm, peers, world_.limit_);
  return texts;
}

void TrainerGroup::LookAtPeers() const {
  if (size() > 1) spotlight::LookAtPeers(world_.mpi_->trainers);
}

std::string TrainerGroup::Connect(const DeviceConnector* connector) {
  device_.reset();
  DeviceConnection connection = ConnectDevices(*this, connector);
  device_ = std::move(connection.communicator);
  return connection.reason;
}

}  // namespace spotlight
