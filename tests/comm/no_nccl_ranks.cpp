#include "tests/comm/ranks.hpp"

namespace spotlight {

std::map<std::string, Scenario> NcclScenarios() { return {}; }

}  // namespace spotlight
