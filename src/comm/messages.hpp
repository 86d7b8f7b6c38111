// The schema of the control plane: every message between the coordinator and its workers.
//
// A worker (trainer or explorer) asks, the coordinator answers; one request, one reply. A new message is one struct,
// its place at the END of `Message` (the place is its type number on the wire), and one Fields function in
// messages.cpp, which serves writing and reading alike. A changed struct needs a new kMessageVersion.
//
// On the wire: header {magic u32, version u16, type u16, run id u64, body bytes u64}, then the fields in order, little
// endian, no padding; a text, list or array is its length (u64) and its elements. Decode checks every one of these and
// never reads past the end; what does not fit throws MessageError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "base/request.hpp"
#include "comm/world.hpp"

namespace spotlight {

using Bytes = std::vector<std::byte>;

inline constexpr std::uint16_t kMessageVersion = 6;

// Not a message of this run and version, or a damaged one.
class MessageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Worker: give me something to do. What it still had in work goes back to the queue. Answered by Work, Wait, Train,
// Save, Activate or Finish.
struct Pull {
  std::uint32_t rank = 0;
  Role role = Role::kExplorer;
  std::uint32_t capacity = 0;          // at most so many requests; 0: parked, wants no work
  std::vector<double> busy_seconds;    // since its last Pull, by use in the order of plan/ledger.hpp's Use
  std::vector<std::uint32_t> members;  // ranks that share its passes, itself first
  std::uint64_t sample_steps = 0;      // denoising steps it has computed since, over all samples
};

struct Work {
  std::vector<Request> requests;
  std::vector<DenoiseState> states;  // empty: all from the start; else where each request has got to
  std::uint32_t degree = 0;          // as in Wait
};

// Nothing to do now: ask again after so long.
struct Wait {
  std::uint32_t milliseconds = 0;
  std::uint32_t degree = 0;  // ranks that are to share a pass from now on; 0: no opinion
};

// Worker: these requests are done. Answered by Ack.
struct Push {
  std::uint32_t rank = 0;
  std::vector<Sample> samples;
  BatchTimes times;
};

struct Ack {};

// Worker, to the coordinator or to another worker that holds them: answered by Weights, or NoWeights.
// comm/weight_pieces.hpp fetches them whole.
struct FetchWeights {
  std::uint64_t version = 0;
  bool ema = false;          // the evaluation weights (moving average) of that version
  std::uint64_t offset = 0;  // of the first value wanted
  std::uint64_t count = 0;   // at most so many values
};

struct Weights {
  std::uint64_t version = 0;
  bool ema = false;
  std::uint64_t offset = 0;
  std::vector<float> values;  // trained parameters from `offset` on, in the model's order
};

struct TrainSample {
  Sample sample;
  double advantage = 0;
};

// Coordinator: train one iteration on so many samples, which FetchSamples gets. The trainer sends Trained when it is
// done.
struct Train {
  std::uint32_t iteration = 0;
  std::uint64_t samples = 0;
};

// Trainer: answered by Ack. Weights that do not fit into one message come before it, by PushWeights, and are empty
// here.
struct Trained {
  std::uint32_t iteration = 0;
  std::map<std::string, double> metrics;
  std::uint64_t next_version = 0;
  std::vector<float> weights;
  std::vector<float> ema_weights;  // empty: evaluation uses `weights`
};

// Coordinator: write a checkpoint of the trainer's state into `path`. The trainer sends Saved.
struct Save {
  std::string path;
  std::uint64_t step = 0;
};

// Trainer: Save is done; answered by Ack.
struct Saved {};

// Coordinator: there is no more work, leave.
struct Finish {};

// Worker: I cannot go on (answered by Finish); coordinator: your message made no sense.
struct Failed {
  std::string text;
  std::int32_t exit_code = 0;  // base/error.hpp, ExitCode
  std::uint32_t rank = 0;
};

enum class TextList : std::uint8_t { kTrain, kEval, kNegative };

// Worker: the text embeddings of these prompts, once per prompt. Answered by Prompts.
struct FetchPrompts {
  TextList list = TextList::kTrain;
  std::vector<std::uint32_t> indices;  // places in that list
};

struct PromptEmbedding {
  std::uint32_t index = 0;
  std::uint32_t tokens = 0;
  std::vector<float> embedding;  // [tokens, width]
};

struct Prompts {
  TextList list = TextList::kTrain;
  std::vector<PromptEmbedding> entries;
};

// Trainer: a piece of the weights of the next version, from `offset` on; pieces come in order. Answered by Ack.
struct PushWeights {
  std::uint64_t version = 0;
  bool ema = false;
  std::uint64_t checksum = 0;  // Checksum of all values
  std::uint64_t offset = 0;
  std::uint64_t total = 0;
  std::vector<float> values;
};

// Worker: how far these requests, which it has in work, have got. Answered by Ack, which nobody waits for.
struct CommitStates {
  std::uint32_t rank = 0;
  std::vector<Request> requests;
  std::vector<DenoiseState> states;  // one each
};

// Every rank but the coordinator, once, before anything else. Answered by Ack, or by Failed: it cannot take part.
struct Hello {
  std::uint32_t rank = 0;
  Role role = Role::kExplorer;
  std::string host;
  std::uint32_t process = 0;
  bool parked = false;
  std::uint64_t fingerprint = 0;  // ArithmeticFingerprint (kernels/fingerprint.hpp): whether it computes the same bits
  std::map<std::string, std::string> contents;  // of the files that it has read, driver/resources.hpp
};

// Coordinator, to a parked worker: you are needed.
struct Activate {};

// Worker: takes no more work; what it has in work goes back to the queue. `leaves`: the rank itself is going. Answered
// by Ack.
struct GiveBack {
  std::uint32_t rank = 0;
  bool leaves = false;
};

// Worker: its pool has made a new plan of groups. Sent by the first member. Answered by Ack.
struct RegroupReport {
  std::uint32_t rank = 0;
  std::uint32_t members = 0;
  std::uint32_t lost = 0;
  std::uint32_t tries = 0;
  double shrink_seconds = 0;
  double build_seconds = 0;
  std::string groups;  // for people: "5 6 | 7 8"
};

// The first rank of a spot job of its own: may `ranks` explorers of `host` take part? Answered by Welcome, Wait (ask
// again later) or Failed.
struct Join {
  std::string host;
  std::uint32_t ranks = 0;
};

struct Welcome {
  std::uint32_t first_rank = 0;                 // its ranks are first_rank + their own
  std::string input;                            // all settings of the run, as an input file
  std::string directory;                        // of the run
  std::map<std::string, std::string> contents;  // that its files must have, as in Hello
};

// Worker: what are these weights, and who has them? Answered by WeightPieces, or NoWeights.
struct FindWeights {
  std::uint32_t rank = 0;
  std::uint64_t version = 0;
  bool ema = false;
  std::string address;  // where it will itself serve what it has got of them; "": nowhere
};

struct WeightPieces {
  std::uint64_t version = 0;
  bool ema = false;
  std::uint64_t total = 0;               // values
  std::uint64_t piece = 0;               // values of each piece; the last one may have fewer
  std::vector<std::uint64_t> checksums;  // of each piece
  std::vector<std::string> holders;      // addresses of workers that have all of it, or a part
};

// These weights are not here: not any more, or of what another worker has, not yet.
struct NoWeights {
  std::uint64_t version = 0;
  bool ema = false;
};

// Coordinator, of its own accord: requests of this kind with an id up to this one are not wanted any more.
struct Drop {
  RequestKind kind = RequestKind::kExplore;
  std::uint64_t last_id = 0;
};

// Trainer: the samples that it is to train on, from the one with this number on. Answered by Samples.
struct FetchSamples {
  std::uint64_t first = 0;
};

// At least one, and of no more than some megabytes: while a message is on its way no heartbeat gets through.
struct Samples {
  std::vector<TrainSample> samples;
};

using Message =
    std::variant<Pull, Work, Wait, Push, Ack, FetchWeights, Weights, Train, Trained, Save, Saved, Finish, Failed,
                 FetchPrompts, Prompts, PushWeights, CommitStates, Hello, Activate, GiveBack, RegroupReport, Join,
                 Welcome, FindWeights, WeightPieces, NoWeights, Drop, FetchSamples, Samples>;

Bytes Encode(const Message& message, std::uint64_t run_id);
// Throws MessageError.
Message Decode(std::span<const std::byte> bytes, std::uint64_t run_id);

// Order-dependent 64-bit hash of the values' bits: the same weights on both sides of a copy.
std::uint64_t Checksum(std::span<const float> values);

}  // namespace spotlight
