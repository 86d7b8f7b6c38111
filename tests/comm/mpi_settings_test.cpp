#include "comm/mpi_settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace spotlight {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The `export NAME=value` lines of scripts/mpirun.sh.
std::map<std::string, std::string> ScriptSettings() {
  std::ifstream script(SPOTLIGHT_MPIRUN_SCRIPT);
  std::map<std::string, std::string> settings;
  const std::regex exports(R"(export ([A-Z]+_MCA_\w+)=(\S+))");
  std::string line;
  while (std::getline(script, line)) {
    std::smatch match;
    if (std::regex_search(line, match, exports)) settings[match[1]] = match[2];
  }
  return settings;
}

GetEnv From(const std::map<std::string, std::string>& settings) {
  return [&settings](const char* name) -> const char* {
    const auto found = settings.find(name);
    return found == settings.end() ? nullptr : found->second.c_str();
  };
}

TEST(MpiSettings, TheScriptSetsThemAll) {
  const std::map<std::string, std::string> settings = ScriptSettings();
  EXPECT_THAT(MissingMpiSettings(From(settings), true), IsEmpty());
}

TEST(MpiSettings, EachMissingOneIsNamedWithItsReason) {
  std::map<std::string, std::string> settings = ScriptSettings();
  settings.erase("OMPI_MCA_async_mpi_finalize");
  settings["OMPI_MCA_pml"] = "ucx";
  EXPECT_THAT(MissingMpiSettings(From(settings), true),
              ElementsAre("OMPI_MCA_async_mpi_finalize=1 (it is not set; else MPI_Finalize hangs after a loss)",
                          "OMPI_MCA_pml=ob1 (it is 'ucx'; else other transports do not survive a loss)"));
}

TEST(MpiSettings, WithoutFaultTolerance) {
  const std::map<std::string, std::string> settings = ScriptSettings();
  EXPECT_THAT(MissingMpiSettings(From(settings), false), ElementsAre(HasSubstr("mpirun --with-ft ulfm")));
  const std::map<std::string, std::string> none;
  EXPECT_THAT(MissingMpiSettings(From(none), false), SizeIs(10));
}

}  // namespace
}  // namespace spotlight
