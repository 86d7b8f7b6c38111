#include "kernels/cuda/on_cpu.hpp"

#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "The switch of stacks below is written for x86-64: leave the emulation of CUDA kernels out of this build."
#endif

// Pushes what a called function has to keep, leaves the stack in *save and goes on in `load`, which was left so.
extern "C" void SpotlightSwitchStack(void** save, void* load);
asm(R"(
.text
.type SpotlightSwitchStack,@function
SpotlightSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size SpotlightSwitchStack, .-SpotlightSwitchStack
)");

namespace spotlight::on_cpu {
namespace {

constexpr unsigned kWarp = 32, kMostThreads = 1024;
constexpr std::size_t kStackBytes = 128 * 1024;
constexpr std::uint64_t kGuard = 0x5b0717167457acedULL;
constexpr int kPoison = 0xCB;

// What SPOTLIGHT_CUDA_ORDER says.
struct Order {
  enum Kind { kForward, kReverse, kShuffled } kind = kForward;
  unsigned seed = 0;

  static Order OfEnvironment() {
    const char* variable = std::getenv("SPOTLIGHT_CUDA_ORDER");
    const std::string_view text = variable == nullptr ? "forward" : variable;
    if (text == "forward") return {};
    if (text == "reverse") return {kReverse};
    Order order{kShuffled};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), order.seed);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw UserError(
          fmt::format("SPOTLIGHT_CUDA_ORDER is \"{}\"; allowed: forward, reverse, or a number: the seed of a "
                      "shuffle",
                      text));
    }
    return order;
  }
  // 0 .. size - 1 in this order.
  std::vector<unsigned> Numbers(std::size_t size) const {
    std::vector<unsigned> numbers(size);
    std::iota(numbers.begin(), numbers.end(), 0u);
    if (kind == kReverse) std::reverse(numbers.begin(), numbers.end());
    if (kind == kShuffled) std::shuffle(numbers.begin(), numbers.end(), std::mt19937(seed));
    return numbers;
  }
};

std::string Text(Place place) {
  return fmt::format("{}:{}:{} [{}]", place.file_name(), place.line(), place.column(), place.function_name());
}

bool Same(Place a, Place b) {
  return a.line() == b.line() && a.column() == b.column() && std::string_view(a.file_name()) == b.file_name();
}

// "0-15 and 17" of sorted numbers.
std::string Ranges(const std::vector<unsigned>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += end == i + 1 ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return text;
}

enum class State { kReady, kAtBarrier, kInWarp, kReturned };

struct Fiber {
  void* stack = nullptr;  // where it goes on
  uint3 index{};
  unsigned number = 0;
  State state = State::kReady;
  Place place;                // of the wait
  void* sanitizer = nullptr;  // the sanitizer's record of the stack
};

// Lanes of one warp that do one operation together.
struct Meeting {
  unsigned mask = 0, arrived = 0;
  Operation operation = Operation::kSyncWarp;
  Place place;
};

struct Warp {
  std::array<Meeting, kWarp> meetings;  // those with lanes that have arrived, and free places
  std::array<std::uint64_t, kWarp> left, taken;
  std::array<int, kWarp> source;

  // Where the lanes of `mask` meet. Meetings may share lanes: some wait here while others are done and have gone on.
  Meeting& Of(unsigned mask) {
    const auto has_begun = [=](const Meeting& meeting) { return meeting.arrived != 0 && meeting.mask == mask; };
    const auto is_free = [](const Meeting& meeting) { return meeting.arrived == 0; };
    const auto begun = std::find_if(meetings.begin(), meetings.end(), has_begun);
    return begun != meetings.end() ? *begun : *std::find_if(meetings.begin(), meetings.end(), is_free);
  }
};

struct Range {
  const std::byte* begin;
  std::size_t bytes;

  bool Has(const void* address) const {
    return address >= begin && static_cast<const std::byte*>(address) < begin + bytes;
  }
};

// The thread-local variables of the calling thread, of each loaded file: static shared memory is among them.
std::vector<Range> ThreadLocalMemory() {
  std::vector<Range> ranges;
  const auto add = [](dl_phdr_info* file, std::size_t, void* to) {
    for (int i = 0; i < file->dlpi_phnum; ++i) {
      if (file->dlpi_phdr[i].p_type != PT_TLS || file->dlpi_tls_data == nullptr) continue;
      static_cast<std::vector<Range>*>(to)->push_back(
          {static_cast<const std::byte*>(file->dlpi_tls_data), file->dlpi_phdr[i].p_memsz});
    }
    return 0;
  };
  dl_iterate_phdr(add, &ranges);
  return ranges;
}

// The block that a thread of the processor runs; kept from launch to launch for its stacks.
class BlockRun {
 public:
  void Run(dim3 block, uint3 block_index, std::size_t shared_bytes, const Order& order,
           const std::function<void()>& thread, Place where);

  std::byte* shared() { return shared_.data(); }
  int lane() const { return static_cast<int>(current_->number % kWarp); }
  void Barrier(Place place);
  std::uint64_t Exchange(unsigned mask, std::uint64_t value, int source, Operation operation, Place place);
  bool IsShared(const void* address) const;
  bool IsLocal(const void* address) const;
  [[noreturn]] void FailOfThread(const char* what) const;

 private:
  static void ThreadMain();
  void Start(Fiber& fiber);
  void Resume(Fiber& fiber);
  void Wait(State state, Place place);
  void Finish(Warp& warp, Meeting& meeting, unsigned first);
  [[noreturn]] void Fail(const std::string& what) const;
  [[noreturn]] void FailStuck() const;
  std::byte* StackOf(const Fiber& fiber) { return stacks_.get() + fiber.number * kStackBytes; }

  unsigned threads_ = 0, at_barrier_ = 0, running_ = 0;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<std::byte> shared_;
  std::unique_ptr<std::byte[]> stacks_;
  unsigned stack_count_ = 0;
  Fiber* current_ = nullptr;
  void* scheduler_ = nullptr;  // its stack while a fiber runs
  const void* scheduler_bottom_ = nullptr;
  std::size_t scheduler_size_ = 0;
  const std::function<void()>* thread_ = nullptr;
  Place where_;
  std::vector<Range> thread_local_ = ThreadLocalMemory();
};

thread_local BlockRun* running_block = nullptr;

BlockRun& Running() { return *running_block; }

// What the address sanitizer has to know of a switch from one stack to another.
void BeforeSwitch([[maybe_unused]] void** record, [[maybe_unused]] const void* bottom,
                  [[maybe_unused]] std::size_t size) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(record, bottom, size);
#endif
}
void AfterSwitch([[maybe_unused]] void* record, [[maybe_unused]] const void** bottom,
                 [[maybe_unused]] std::size_t* size) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(record, bottom, size);
#endif
}

void BlockRun::Fail(const std::string& what) const {
  fmt::print(stderr, "cuda_on_cpu: block ({}, {}, {}) of the launch at {}: {}\n", blockIdx.x, blockIdx.y, blockIdx.z,
             Text(where_), what);
  std::fflush(nullptr);
  std::abort();
}

void BlockRun::FailOfThread(const char* what) const { Fail(fmt::format("thread {} {}", current_->number, what)); }

bool BlockRun::IsShared(const void* address) const {
  return Range{shared_.data(), shared_.size()}.Has(address) ||
         std::any_of(thread_local_.begin(), thread_local_.end(),
                     [=](const Range& range) { return range.Has(address); });
}

bool BlockRun::IsLocal(const void* address) const {
  return Range{stacks_.get(), stack_count_ * kStackBytes}.Has(address);
}

void BlockRun::FailStuck() const {
  std::map<std::string, std::vector<unsigned>> threads;  // by what they do
  for (const Fiber& fiber : fibers_) {
    threads[fiber.state == State::kReturned ? "have returned" : "wait at " + Text(fiber.place)].push_back(fiber.number);
  }
  std::string what = "its threads wait for each other in different places";
  for (const auto& [does, numbers] : threads) what += fmt::format("\n  threads {} {}", Ranges(numbers), does);
  Fail(what);
}

void BlockRun::ThreadMain() {
  BlockRun& run = Running();
  AfterSwitch(nullptr, &run.scheduler_bottom_, &run.scheduler_size_);
  (*run.thread_)();
  run.current_->state = State::kReturned;
  --run.running_;
  BeforeSwitch(nullptr, run.scheduler_bottom_, run.scheduler_size_);
  SpotlightSwitchStack(&run.current_->stack, run.scheduler_);
}

void BlockRun::Start(Fiber& fiber) {
  std::byte* bottom = StackOf(fiber);
  std::memcpy(bottom, &kGuard, sizeof kGuard);
  void** top = reinterpret_cast<void**>(bottom + kStackBytes);
  *--top = nullptr;  // ThreadMain's return address, never used: the stack is aligned as after a call
  *--top = reinterpret_cast<void*>(&ThreadMain);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  fiber.stack = top;
}

void BlockRun::Resume(Fiber& fiber) {
  current_ = &fiber;
  threadIdx = fiber.index;
  void* record = nullptr;
  BeforeSwitch(&record, StackOf(fiber), kStackBytes);
  SpotlightSwitchStack(&scheduler_, fiber.stack);
  AfterSwitch(record, nullptr, nullptr);
  std::uint64_t guard;
  std::memcpy(&guard, StackOf(fiber), sizeof guard);
  if (guard != kGuard) Fail(fmt::format("thread {} needs more than {} bytes of stack", fiber.number, kStackBytes));
}

void BlockRun::Wait(State state, Place place) {
  Fiber& self = *current_;
  self.state = state;
  self.place = place;
  BeforeSwitch(&self.sanitizer, scheduler_bottom_, scheduler_size_);
  SpotlightSwitchStack(&self.stack, scheduler_);
  AfterSwitch(self.sanitizer, &scheduler_bottom_, &scheduler_size_);
}

void BlockRun::Barrier(Place place) {
  if (++at_barrier_ < threads_) return Wait(State::kAtBarrier, place);
  current_->place = place;
  for (Fiber& fiber : fibers_) {
    if (!Same(fiber.place, place)) FailStuck();
    fiber.state = State::kReady;
  }
  at_barrier_ = 0;
}

std::uint64_t BlockRun::Exchange(unsigned mask, std::uint64_t value, int source, Operation operation, Place place) {
  const unsigned lane = current_->number % kWarp, first = current_->number - lane;
  Warp& warp = warps_[current_->number / kWarp];
  if (threads_ - first < kWarp) mask &= (1u << (threads_ - first)) - 1;
  if ((mask >> lane & 1) == 0) {
    Fail(fmt::format("thread {} is not in its own mask {:#x} at {}", current_->number, mask, Text(place)));
  }
  Meeting& meeting = warp.Of(mask);
  if (meeting.arrived == 0) meeting = {mask, 0, operation, place};
  if (meeting.operation != operation || !Same(meeting.place, place)) {
    Fail(fmt::format("thread {} at {} meets lanes of its warp that are at {}", current_->number, Text(place),
                     Text(meeting.place)));
  }
  warp.left[lane] = value;
  warp.source[lane] = source;
  meeting.arrived |= 1u << lane;
  if (meeting.arrived != mask) {
    Wait(State::kInWarp, place);
  } else {
    Finish(warp, meeting, first);
  }
  return warp.taken[lane];
}

// Hands the values out and lets the lanes that wait go on.
void BlockRun::Finish(Warp& warp, Meeting& meeting, unsigned first) {
  std::uint64_t poison;
  std::memset(&poison, kPoison, sizeof poison);
  std::uint64_t ballot = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((meeting.mask >> lane & 1) != 0 && warp.left[lane] != 0) ballot |= 1u << lane;
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((meeting.mask >> lane & 1) == 0) continue;
    const auto source = static_cast<unsigned>(warp.source[lane]);
    const bool takes_part = source < kWarp && (meeting.mask >> source & 1) != 0;
    warp.taken[lane] = meeting.operation == Operation::kVote ? ballot : takes_part ? warp.left[source] : poison;
    fibers_[first + lane].state = State::kReady;
  }
  meeting.arrived = 0;
}

void BlockRun::Run(dim3 block, uint3 block_index, std::size_t shared_bytes, const Order& order,
                   const std::function<void()>& thread, Place where) {
  threads_ = running_ = block.x * block.y * block.z;
  at_barrier_ = 0;
  thread_ = &thread;
  where_ = where;
  blockIdx = block_index;
  shared_.assign(shared_bytes + 16, static_cast<std::byte>(kPoison));
  warps_.assign((threads_ + kWarp - 1) / kWarp, Warp{});
  if (stack_count_ < threads_) {
    stacks_.reset(new std::byte[threads_ * kStackBytes]);  // left as it is: pages that nobody touches cost nothing
    stack_count_ = threads_;
  }
  fibers_.assign(threads_, Fiber{});
  for (unsigned number = 0; number < threads_; ++number) {
    fibers_[number].number = number;
    fibers_[number].index = {number % block.x, number / block.x % block.y, number / (block.x * block.y)};
    Start(fibers_[number]);
  }
  const std::vector<unsigned> warps = order.Numbers(warps_.size()), lanes = order.Numbers(kWarp);
  while (running_ > 0) {
    bool any = false;
    for (const unsigned warp : warps) {
      for (bool again = true; again;) {  // as far ahead as it can
        again = false;
        for (const unsigned lane : lanes) {
          const unsigned number = warp * kWarp + lane;
          if (number >= threads_ || fibers_[number].state != State::kReady) continue;
          Resume(fibers_[number]);
          again = any = true;
        }
      }
    }
    if (!any) FailStuck();
  }
}

}  // namespace

void RunGrid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread, Place where) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMostThreads) {
    fmt::print(stderr, "cuda_on_cpu: launch at {}: a block of {} threads; 1 to {} are possible\n", Text(where), threads,
               kMostThreads);
    std::abort();
  }
  const Order order = Order::OfEnvironment();
  const std::vector<unsigned> blocks = order.Numbers(std::size_t{grid.x} * grid.y * grid.z);
#pragma omp parallel if (blocks.size() > 1)
  {
    thread_local BlockRun run;
    running_block = &run;
    blockDim = block;
    gridDim = grid;
#pragma omp for schedule(dynamic)
    for (const unsigned number : blocks) {
      const uint3 index = {number % grid.x, number / grid.x % grid.y, number / (grid.x * grid.y)};
      run.Run(block, index, shared_bytes, order, thread, where);
    }
  }
}

std::byte* DynamicSharedMemory() { return Running().shared(); }
void BlockBarrier(Place where) { Running().Barrier(where); }
std::uint64_t Exchange(unsigned mask, std::uint64_t value, int source, Operation operation, Place where) {
  return Running().Exchange(mask, value, source, operation, where);
}
unsigned Ballot(unsigned mask, bool predicate, Place where) {
  return static_cast<unsigned>(Running().Exchange(mask, predicate ? 1 : 0, 0, Operation::kVote, where));
}
int Lane() { return Running().lane(); }
void RequireGlobal(const void* address) {
  const BlockRun& run = Running();
  if (run.IsShared(address)) run.FailOfThread("gives shared memory to an instruction of global memory");
  if (run.IsLocal(address)) run.FailOfThread("gives memory of its own to an instruction of global memory");
}
void RequireShared(const void* address) {
  if (!Running().IsShared(address)) Running().FailOfThread("gives other memory to an instruction of shared memory");
}

}  // namespace spotlight::on_cpu
