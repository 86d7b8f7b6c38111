// Any bytes are a message, which then reads the same after it has been written, or a MessageError.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "comm/messages.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spotlight;
  const auto bytes = std::as_bytes(std::span(data, size));
  std::uint64_t run = 0;  // the one that the bytes name, so that they get past the header
  if (size >= 16) std::memcpy(&run, data + 8, sizeof(run));
  try {
    const Bytes written = Encode(Decode(bytes, run), run);
    if (Encode(Decode(written, run), run) != written) std::abort();
  } catch (const MessageError&) {
  }
  return 0;
}
