// Places where a test may make the process die, stop or wait. Programs for users have no hook: a place then costs one
// look at a pointer. The chaos tests link one that reads what is to happen from the environment (tests/chaos).
#pragma once

#include <cstddef>
#include <span>

namespace spotlight {

inline void (*failpoint_hook)(const char* place) = nullptr;

// `place`: phase and moment, as "regroup.shrunk".
inline void Failpoint(const char* place) {
  if (failpoint_hook != nullptr) failpoint_hook(place);
}

inline void (*damage_hook)(const char* place, std::span<std::byte> data) = nullptr;

// A place where a test may change what lies in `data`.
inline void DamagePoint(const char* place, std::span<std::byte> data) {
  if (damage_hook != nullptr) damage_hook(place, data);
}

}  // namespace spotlight
