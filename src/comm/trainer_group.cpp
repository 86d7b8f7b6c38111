#include "comm/trainer_group.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "comm/mpi_call.hpp"

namespace spotlight {
namespace {

constexpr std::size_t kPiece = 1U << 20;  // floats: 4 MiB, where copies inside a node are fastest

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
  if (size() == 1) return;
  MPI_Comm comm = world_.mpi_->trainers;
  const auto n = static_cast<std::size_t>(size());
  const auto me = static_cast<std::size_t>(index());
  std::vector<float> parts;
  std::vector<MPI_Request> request(1);
  for (std::size_t first = 0; first < values.size(); first += kPiece) {
    const std::span<float> piece = values.subspan(first, std::min(kPiece, values.size() - first));
    // Trainer r sums slice r of the piece for all. Slices differ by at most one element.
    std::vector<int> begins;
    std::vector<int> lengths;
    for (std::size_t r = 0; r < n; ++r) {
      begins.push_back(static_cast<int>(piece.size() * r / n));
      lengths.push_back(static_cast<int>(piece.size() * (r + 1) / n) - begins.back());
    }
    const auto length = static_cast<std::size_t>(lengths[me]);
    const std::span<float> slice = piece.subspan(static_cast<std::size_t>(begins[me]), length);
    parts.resize(n * length);
    const std::vector<int> part_lengths(n, lengths[me]);
    std::vector<int> part_begins;
    for (std::size_t r = 0; r < n; ++r) part_begins.push_back(static_cast<int>(r * length));
    MPI_CHECK(MPI_Ialltoallv(piece.data(), lengths.data(), begins.data(), MPI_FLOAT, parts.data(), part_lengths.data(),
                             part_begins.data(), MPI_FLOAT, comm, request.data()));
    WaitAll(comm, request, world_.limit_);
    for (std::size_t i = 0; i < length; ++i) {
      double sum = parts[i];
      for (std::size_t r = 1; r < n; ++r) sum += parts[r * length + i];
      slice[i] = static_cast<float>(sum);
    }
    MPI_CHECK(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, piece.data(), lengths.data(), begins.data(),
                              MPI_FLOAT, comm, request.data()));
    WaitAll(comm, request, world_.limit_);
  }
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

}  // namespace spotlight
