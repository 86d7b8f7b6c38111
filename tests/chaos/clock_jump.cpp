// Preloaded (LD_PRELOAD) into a run: the wall clock jumps by up to an hour to either side, every half second. What
// counts time by the monotonic clock must not notice.
#include <dlfcn.h>
#include <sys/time.h>

#include <ctime>

namespace {

// Seconds; changes with the monotonic clock, by no order that a program could get used to.
long Offset() {
  timespec now{};
  static const auto real = reinterpret_cast<int (*)(clockid_t, timespec*)>(dlsym(RTLD_NEXT, "clock_gettime"));
  real(CLOCK_MONOTONIC, &now);
  const auto half_seconds = static_cast<unsigned long>(now.tv_sec * 2 + now.tv_nsec / 500000000);
  return static_cast<long>((half_seconds * 2654435761UL) % 7201UL) - 3600;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto real = reinterpret_cast<int (*)(clockid_t, timespec*)>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += Offset();
  return result;
}

extern "C" int gettimeofday(timeval* time, void* zone) noexcept {
  static const auto real = reinterpret_cast<int (*)(timeval*, void*)>(dlsym(RTLD_NEXT, "gettimeofday"));
  const int result = real(time, zone);
  if (result == 0) time->tv_sec += Offset();
  return result;
}

extern "C" time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
