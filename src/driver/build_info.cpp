#include "driver/build_info.hpp"

#include "comm/world.hpp"
#include "io/provenance.hpp"

namespace spotlight {

std::string VersionText() {
  const std::map<std::string, std::string> all = Provenance();
  return "spotlight " + all.at("softwareVersion") + " (git " + all.at("git_sha") +
         (all.at("git_dirty") == "yes" ? ", with local changes" : "") + ")";
}

std::string BuildText() {
  const std::map<std::string, std::string> all = Provenance();
  return VersionText() + "\ncompiler and libraries: " + all.at("softwareDependencies") +
         "\nkernel back ends: Kokkos " SPOTLIGHT_KOKKOS_VERSION " (host), oneDNN (matrix products)\nMPI: " +
         MpiVersion() + "\n";
}

}  // namespace spotlight
