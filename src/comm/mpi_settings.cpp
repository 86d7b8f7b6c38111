#include "comm/mpi_settings.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace spotlight {
namespace {

struct Setting {
  const char* name;
  std::string_view value;
  std::string_view without;
};

constexpr std::array<Setting, 9> kSettings = {{
    {"PRTE_MCA_state_base_recoverable", "1", "a spawned job is torn down whole at its first lost rank"},
    {"PRTE_MCA_state_base_notify_errors", "1",
     "the loss of a spawned rank is not reported, and mpirun hangs at the end"},
    {"PRTE_MCA_state_base_error_non_zero_exit", "0", "MPI_Abort ends only its caller and the rest hangs"},
    {"OMPI_MCA_async_mpi_finalize", "1", "MPI_Finalize hangs after a loss"},
    {"OMPI_MCA_pml", "ob1", "other transports do not survive a loss"},
    {"OMPI_MCA_btl", "self,sm,tcp", "other transports do not survive a loss"},
    {"OMPI_MCA_osc", "^ucx,rdma", "the start probes transports that are not used"},
    {"OMPI_MCA_coll", "^han", "collectives crash on repaired communicators"},
    {"OMPI_MCA_btl_base_warn_peer_error", "0", "every lost peer prints warnings"},
}};

}  // namespace

std::vector<std::string> MissingMpiSettings(const GetEnv& get_env, bool fault_tolerant) {
  std::vector<std::string> missing;
  if (!fault_tolerant) missing.emplace_back("mpirun --with-ft ulfm (else the loss of one rank ends or hangs all)");
  for (const Setting& setting : kSettings) {
    const char* value = get_env(setting.name);
    if (value != nullptr && value == setting.value) continue;
    const std::string now = value == nullptr ? "not set" : fmt::format("'{}'", value);
    missing.push_back(fmt::format("{}={} (it is {}; else {})", setting.name, setting.value, now, setting.without));
  }
  return missing;
}

std::vector<std::string> MissingMpiSettings(bool fault_tolerant) {
  return MissingMpiSettings([](const char* name) { return std::getenv(name); }, fault_tolerant);
}

}  // namespace spotlight
