// Any bytes are a safetensors file that can be read whole, or a UserError.
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spotlight;
  try {
    const SafetensorsFile file(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
    for (const auto& [name, info] : file.tensors()) {
      try {
        file.Read(name);
        std::vector<double> exact(static_cast<std::size_t>(NumElements(info.shape)));
        file.ReadDoubles(name, exact);
      } catch (const UserError&) {  // a dtype without conversion; the other tensors can be read
      }
    }
  } catch (const UserError&) {
  }
  return 0;
}
