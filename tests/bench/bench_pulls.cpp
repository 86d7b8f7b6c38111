// The coordinator's rate of pulls: bench_pulls [THOUSANDS of requests, default 100].
//
// The real Dispatch, queue and NetworkServer, served by one thread on a core of its own. 64 explorers in a process of
// their own, on the other cores, pull, commit once and push small samples without computing anything; each waits for
// its replies, as a worker does. One line per batch size: pulls a second of wall time, and of CPU time of the serving
// thread, which is the coordinator's one core; beside it the CPU time of ZeroMQ's own thread (TCP and CURVE), which
// works on another core. `bare` is a ROUTER that answers messages of the same sizes and does nothing else: the limit of
// ZeroMQ on this machine. The goal is 50,000 pulls a second of the serving core.
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "comm/channel.hpp"
#include "driver/dispatch.hpp"
#include "timing.hpp"

namespace spotlight {
namespace {

constexpr std::uint64_t kRun = 1;
constexpr std::uint32_t kWorkers = 64;
constexpr RequestKind kKind = RequestKind::kRollout;

// Shared with the process of the workers.
struct Counts {
  std::atomic<std::uint64_t> pulls{0}, messages{0};
};

void Pin(bool serving) {
  const auto cores = static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  CPU_ZERO(&set);
  for (unsigned core = 0; core < cores; ++core) {
    if ((core == 0) == serving || cores == 1) CPU_SET(core, &set);
  }
  sched_setaffinity(0, sizeof(set), &set);
}

struct CurveKeys {
  std::array<char, 41> open{}, secret{};
  CurveKeys() { zmq_curve_keypair(open.data(), secret.data()); }
};

Bytes PullBytes(std::uint32_t rank, std::size_t batch) {
  return Encode(
      Pull{rank, Role::kExplorer, static_cast<std::uint32_t>(batch), std::vector<double>(kUses, 0.0), {rank}, 0}, kRun);
}

// What a worker sends for its batch.
struct Answers {
  Bytes commit, push;
  Answers(std::uint32_t rank, const std::vector<Request>& requests) {
    CommitStates states{rank, requests, std::vector<DenoiseState>(requests.size())};
    Push samples{rank, {}};
    for (const Request& request : requests) {
      samples.samples.push_back({.request = request, .rank = rank, .reward = 1, .terms = {1}});
    }
    commit = Encode(states, kRun);
    push = Encode(samples, kRun);
  }
};

// Of an echo: a request begins with the number of bytes that are wanted back.
Bytes Wanting(std::size_t reply, Bytes request) {
  const auto size = static_cast<std::uint32_t>(reply);
  std::memcpy(request.data(), &size, sizeof(size));
  return request;
}

// One of the workers; all of a process share a thread.
class PullingWorker {
 public:
  // batch: requests of a pull. bare: the server knows of none, and answers with as many bytes.
  PullingWorker(zmq::context_t& context, const std::string& address, std::uint32_t rank, std::size_t batch, bool bare,
                Counts& counts)
      : rank_(rank), counts_(counts), pull_(PullBytes(rank, batch)), socket_(context, zmq::socket_type::dealer) {
    const CurveKeys keys;
    const std::size_t space = address.find(' ');
    socket_.set(zmq::sockopt::curve_serverkey, address.substr(space + 1));
    socket_.set(zmq::sockopt::curve_publickey, keys.open.data());
    socket_.set(zmq::sockopt::curve_secretkey, keys.secret.data());
    socket_.set(zmq::sockopt::routing_id, std::to_string(rank));
    socket_.connect(address.substr(0, space));
    if (!bare) {
      Send(1, Encode(Hello{.rank = rank, .role = Role::kExplorer, .host = "here"}, kRun));
      return;
    }
    const std::vector<Request> requests(batch);
    const std::size_t ack = Encode(Ack{}, kRun).size();
    echoed_.emplace(rank, requests);
    echoed_->commit = Wanting(0, echoed_->commit);
    echoed_->push = Wanting(ack, echoed_->push);
    pull_ = Wanting(Encode(Work{requests, {}}, kRun).size(), pull_);
    SendPull();
  }

  zmq::socket_t& socket() { return socket_; }

  void Read() {
    zmq::message_t part;
    while (socket_.recv(part, zmq::recv_flags::dontwait)) {
      std::uint64_t number = 0;
      std::memcpy(&number, part.data(), sizeof(number));
      if (!socket_.recv(part)) return;
      if (number == 0) continue;  // a commit's
      if (!pulled_) {
        SendPull();
      } else if (echoed_) {
        pulled_ = false;
        SendAnswers(*echoed_);
      } else {
        const Message reply = Decode(std::span(part.data<std::byte>(), part.size()), kRun);
        const auto* work = std::get_if<Work>(&reply);
        if (work == nullptr) {
          SendPull();  // the queue is empty for now
          continue;
        }
        pulled_ = false;
        SendAnswers(Answers(rank_, work->requests));
      }
    }
  }

 private:
  void Send(std::uint64_t number, const Bytes& bytes) {
    socket_.send(zmq::buffer(&number, sizeof(number)), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(bytes), zmq::send_flags::none);
    counts_.messages.fetch_add(1, std::memory_order_relaxed);
  }
  void SendPull() {
    pulled_ = true;
    counts_.pulls.fetch_add(1, std::memory_order_relaxed);
    Send(1, pull_);
  }
  void SendAnswers(const Answers& answers) {
    Send(0, answers.commit);
    Send(1, answers.push);
  }

  std::uint32_t rank_;
  Counts& counts_;
  Bytes pull_;
  std::optional<Answers> echoed_;
  bool pulled_ = false;
  zmq::socket_t socket_;
};

// Until it is killed.
[[noreturn]] void RunWorkers(const std::string& address, std::size_t batch, bool bare, Counts& counts) {
  Pin(false);
  zmq::context_t context;
  std::vector<std::unique_ptr<PullingWorker>> workers;
  std::vector<zmq::pollitem_t> items;
  for (std::uint32_t rank = 1; rank <= kWorkers; ++rank) {
    workers.push_back(std::make_unique<PullingWorker>(context, address, rank, batch, bare, counts));
    items.push_back({workers.back()->socket().handle(), 0, ZMQ_POLLIN, 0});
  }
  while (true) {
    zmq::poll(items.data(), items.size(), std::chrono::milliseconds(-1));
    for (std::size_t i = 0; i < items.size(); ++i) {
      if ((items[i].revents & ZMQ_POLLIN) != 0) workers[i]->Read();
    }
  }
}

double ThreadCpu() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Clocks {
  double wall = Now().wall, thread = ThreadCpu(), process = Now().cpu;
};

struct Rates {
  double pulls = 0, messages = 0;
  Clocks spent;
};

// What `work` does while the workers of a process call `address`.
template <class Work>
Rates MeasureServing(const std::string& address, std::size_t batch, bool bare, Counts& counts, const Work& work) {
  const pid_t child = fork();
  if (child == 0) RunWorkers(address, batch, bare, counts);
  work(counts.pulls + 10'000);  // all are connected, buffers are warm
  const std::uint64_t pulls = counts.pulls, messages = counts.messages;
  const Clocks before;
  work(0);
  const Clocks after;
  const Rates rates{static_cast<double>(counts.pulls - pulls),
                    static_cast<double>(counts.messages - messages),
                    {after.wall - before.wall, after.thread - before.thread, after.process - before.process}};
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return rates;
}

// until: number of pulls; 0: until `requests` are done.
Rates MeasureDispatch(int requests, std::size_t batch, Counts& counts) {
  const std::unique_ptr<NetworkServer> server = MakeServer("127.0.0.1");
  Pin(true);
  const Config config;
  Dispatch dispatch(config, kRun, *server, {.weights = 1});
  return MeasureServing(server->address(), batch, false, counts, [&](std::uint64_t until) {
    if (until > 0) {
      dispatch.ServeUntil([&] { return counts.pulls >= until; }, [] {});
      return;
    }
    dispatch.BeginIteration(0);
    dispatch.Add(std::vector<Request>(static_cast<std::size_t>(requests), Request{.kind = kKind}));
    dispatch.ServeUntil([&] { return dispatch.Done(kKind); }, [] {});
  });
}

Rates MeasureBare(std::uint64_t pulls, std::size_t batch, Counts& counts) {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::router);
  const CurveKeys keys;
  socket.set(zmq::sockopt::curve_server, true);
  socket.set(zmq::sockopt::curve_secretkey, keys.secret.data());
  socket.bind("tcp://127.0.0.1:*");
  Pin(true);
  const std::string address = socket.get(zmq::sockopt::last_endpoint) + " " + keys.open.data();
  return MeasureServing(address, batch, true, counts, [&](std::uint64_t until) {
    if (until == 0) until = counts.pulls + pulls;
    zmq::message_t name, number, request;
    while (counts.pulls < until) {
      if (!socket.recv(name) || !socket.recv(number) || !socket.recv(request)) return;
      std::uint32_t size = 0;
      std::memcpy(&size, request.data(), sizeof(size));
      if (size == 0) continue;
      socket.send(name, zmq::send_flags::sndmore);
      socket.send(number, zmq::send_flags::sndmore);
      socket.send(zmq::message_t(size), zmq::send_flags::none);
    }
  });
}

void Print(const std::string& name, const Rates& rates) {
  fmt::print("{:<28}{:>10.0f}{:>14.0f}{:>14.2f}{:>14.2f}{:>14.2f}\n", name, rates.pulls / rates.spent.wall,
             rates.pulls / rates.spent.thread, rates.messages / rates.pulls, 1e6 * rates.spent.thread / rates.pulls,
             1e6 * (rates.spent.process - rates.spent.thread) / rates.pulls);
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  const int thousands = CountArgument(argc, argv, 100);
  void* memory = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  Counts& counts = *new (memory) Counts;
  fmt::print("\n{} workers over ZeroMQ with CURVE, {} requests\n", kWorkers, 1000 * thousands);
  fmt::print("{:<28}{:>10}{:>14}{:>14}{:>14}{:>14}\n", "", "pulls/s", "per core", "messages/pull", "us/pull",
             "us ZeroMQ's");
  for (const std::size_t batch : {std::size_t{1}, std::size_t{8}}) {
    const Rates real = MeasureDispatch(1000 * thousands, batch, counts);
    const Rates bare = MeasureBare(static_cast<std::uint64_t>(real.pulls), batch, counts);
    Print(fmt::format("batches of {}", batch), real);
    Print(fmt::format("bare, batches of {}", batch), bare);
    fmt::print("{:<28}{:>24.2f}\n", "ratio", (real.pulls / real.spent.thread) / (bare.pulls / bare.spent.thread));
  }
  return 0;
}
