// Linked into a program, gives it a back end whose memory the host must not touch: Kokkos' operations on memory that
// can only be read and written while an operation runs, and copies to the host that are late. A program that works with
// it, and ends with the same bits, treats kernel memory as if it were a GPU's. Whoever touches it elsewhere ends with a
// message (exit code 139 or a signal). Other threads of the host are not caught while an operation runs.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/operations.hpp"
#include "tests/kernels/late_copy.hpp"

namespace spotlight {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kReserved = std::size_t{1} << 36;  // of addresses: memory is used as it is touched

// Pages that are handed out, all unlocked or all locked.
class Arena {
 public:
  static Arena& Get() {
    static Arena* const arena = new Arena;  // never destroyed: buffers of static lifetime are freed last
    return *arena;
  }

  void* Allocate(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const std::size_t size = (bytes + kPage - 1) / kPage * kPage + kPage;  // never none, and a gap to the next one
    std::vector<std::byte*>& free = free_[size];
    std::byte* memory = nullptr;
    if (free.empty()) {
      if (used_ + size > kReserved) throw std::bad_alloc();
      memory = base_ + used_;
      used_ += size;
      if (unlocked_ > 0) Protect(PROT_READ | PROT_WRITE);
    } else {
      memory = free.back();
      free.pop_back();
    }
    sizes_[memory] = size;
    return memory;
  }

  void Free(void* memory) {
    if (memory == nullptr) return;
    const std::scoped_lock lock(mutex_);
    const auto found = sizes_.find(static_cast<std::byte*>(memory));
    SPOTLIGHT_REQUIRE(found != sizes_.end(), "memory of another back end");
    free_[found->second].push_back(found->first);
    sizes_.erase(found);
  }

  void Unlock() {
    const std::scoped_lock lock(mutex_);
    if (unlocked_++ == 0) Protect(PROT_READ | PROT_WRITE);
  }

  void Lock() {
    const std::scoped_lock lock(mutex_);
    if (--unlocked_ == 0) Protect(PROT_NONE);
  }

  bool Has(const void* address) const { return address >= base_ && address < base_ + kReserved; }

 private:
  Arena() {
    void* memory = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SPOTLIGHT_REQUIRE(memory != MAP_FAILED, "no addresses are left");
    base_ = static_cast<std::byte*>(memory);
  }

  void Protect(int access) {
    if (used_ > 0) SPOTLIGHT_REQUIRE(mprotect(base_, used_, access) == 0, "mprotect");
  }

  std::mutex mutex_;
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
  int unlocked_ = 0;  // operations that run
  std::map<std::byte*, std::size_t> sizes_;
  std::map<std::size_t, std::vector<std::byte*>> free_;
};

void* GuardedAllocate(std::size_t bytes) { return Arena::Get().Allocate(bytes); }
void GuardedFree(void* memory) { Arena::Get().Free(memory); }

// The operation of Kokkos' table, with the memory unlocked while it runs.
template <auto kOperation>
struct Unlocked;
template <typename Result, typename... Arguments, Result (*Operations::*kOperation)(Arguments...)>
struct Unlocked<kOperation> {
  static Result Call(Arguments... arguments) {
    struct Guard {
      Guard() { Arena::Get().Unlock(); }
      ~Guard() { Arena::Get().Lock(); }
    } guard;
    return (KokkosOperations().*kOperation)(std::forward<Arguments>(arguments)...);
  }
};

void Explain(int number, siginfo_t* info, void*) {
  if (Arena::Get().Has(info->si_addr)) {
    constexpr char kText[] = "guarded memory: the host touches kernel memory outside of an operation\n";
    static_cast<void>(!write(STDERR_FILENO, kText, sizeof(kText) - 1));
  }
  signal(number, SIG_DFL);  // and again, with the usual end
}

const Operations kGuarded = [] {
  Operations operations = KokkosOperations();
  operations.name = "guarded";
  operations.host_memory = false;
#define SPOTLIGHT_OPERATION(Name) operations.Name = &Unlocked<&Operations::Name>::Call;
#include "kernels/operations.inc"
#undef SPOTLIGHT_OPERATION
  operations.AllocateMemory = &GuardedAllocate;
  operations.FreeMemory = &GuardedFree;
  operations.MakeHostCopy = &MakeLateCopy;
  return operations;
}();

const bool kInUse = [] {
  UseOperations(kGuarded);
  struct sigaction action {};
  action.sa_sigaction = &Explain;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  return true;
}();

}  // namespace
}  // namespace spotlight
