#include "comm/messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

namespace spotlight {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little endian");

constexpr std::uint32_t kMagic = 0x4c545053;  // "SPTL"
constexpr std::size_t kHeaderBytes = 4 + 2 + 2 + 8 + 8;
constexpr std::size_t kTrusted = 64;  // elements of a list that get their memory before they are seen

template <class T>
concept Number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

constexpr Role Last(Role) { return Role::kExplorer; }
constexpr RequestKind Last(RequestKind) { return RequestKind::kEvaluate; }
constexpr TextList Last(TextList) { return TextList::kNegative; }

// Where a Writer's bytes go: they are counted first, and then written into memory of the right size.
class ByteCount {
 public:
  void Append(const void*, std::size_t size) { size_ += size; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_ = 0;
};

class ByteBuffer {
 public:
  explicit ByteBuffer(std::size_t size) { bytes_.reserve(size); }
  void Append(const void* data, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  Bytes Take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

// An archive is the one or the other of Writer and Reader; Fields(archive, message) hands it each field in order.
template <class Output>
class Writer {
 public:
  template <class T>
  using Field = const T;

  explicit Writer(Output& output) : output_(output) {}

  template <class... T>
  void operator()(const T&... fields) {
    (Put(fields), ...);
  }

 private:
  void Append(const void* data, std::size_t size) {
    if (size > 0) output_.Append(data, size);
  }
  template <Number T>
  void Put(T value) {
    Append(&value, sizeof(value));
  }
  template <class T>
  requires std::is_enum_v<T>
  void Put(T value) { Put(static_cast<std::underlying_type_t<T>>(value)); }
  void Put(bool value) { Put(static_cast<std::uint8_t>(value)); }
  void Put(const std::string& text) {
    Put(std::uint64_t{text.size()});
    Append(text.data(), text.size());
  }
  template <class T>
  void Put(const std::vector<T>& list) {
    Put(std::uint64_t{list.size()});
    if constexpr (Number<T>) {
      Append(list.data(), list.size() * sizeof(T));
    } else {
      for (const T& element : list) Put(element);
    }
  }
  template <class T>
  void Put(const std::map<std::string, T>& map) {
    Put(std::uint64_t{map.size()});
    for (const auto& [key, value] : map) (*this)(key, value);
  }
  template <class T>
  requires std::is_class_v<T>
  void Put(const T& message) { Fields(*this, message); }

  Output& output_;
};

class Reader {
 public:
  template <class T>
  using Field = T;

  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class... T>
  void operator()(T&... fields) {
    (Get(fields), ...);
  }
  std::size_t left() const { return left_.size(); }

 private:
  void Take(void* data, std::size_t size) {
    if (size > left_.size()) {
      throw MessageError(fmt::format("message ends too early: {} more bytes wanted, {} left", size, left_.size()));
    }
    if (size > 0) std::memcpy(data, left_.data(), size);
    left_ = left_.subspan(size);
  }
  template <class T>
  T Value() {
    T value{};
    Get(value);
    return value;
  }
  // A length that the rest of the message can hold, so that damage cannot ask for all memory.
  std::size_t Length(std::size_t element_bytes) {
    const auto length = Value<std::uint64_t>();
    if (length > left_.size() / element_bytes) {
      throw MessageError(
          fmt::format("message has a list of {} elements, but only {} bytes are left", length, left_.size()));
    }
    return length;
  }
  template <Number T>
  void Get(T& value) {
    Take(&value, sizeof(value));
  }
  template <class T>
  requires std::is_enum_v<T>
  void Get(T& value) {
    const auto number = Value<std::underlying_type_t<T>>();
    if (number > static_cast<std::underlying_type_t<T>>(Last(T{}))) {
      throw MessageError(fmt::format("message has {} where an enumeration is wanted", number));
    }
    value = static_cast<T>(number);
  }
  void Get(bool& value) {
    const auto number = Value<std::uint8_t>();
    if (number > 1) throw MessageError(fmt::format("message has {} where 0 or 1 is wanted", number));
    value = number == 1;
  }
  void Get(std::string& text) {
    text.resize(Length(1));
    Take(text.data(), text.size());
  }
  template <class T>
  void Get(std::vector<T>& list) {
    if constexpr (Number<T>) {
      list.resize(Length(sizeof(T)));
      Take(list.data(), list.size() * sizeof(T));
    } else {
      const std::size_t length = Length(1);
      list.clear();
      list.reserve(std::min<std::size_t>(length, kTrusted));
      for (std::size_t i = 0; i < length; ++i) list.push_back(Value<T>());
    }
  }
  template <class T>
  void Get(std::map<std::string, T>& map) {
    map.clear();
    for (std::size_t n = Length(1); n > 0; --n) {
      auto key = Value<std::string>();
      map[std::move(key)] = Value<T>();
    }
  }
  template <class T>
  requires std::is_class_v<T>
  void Get(T& message) { Fields(*this, message); }

  std::span<const std::byte> left_;
};

template <class A, class T>
using Field = typename A::template Field<T>;

template <class A>
void Fields(A& archive, Field<A, Request>& m) {
  archive(m.id, m.kind, m.iteration, m.prompt_index, m.seed, m.weight_version, m.window_begin, m.window_end,
          m.real_steps, m.keep_image, m.epoch);
}
template <class A>
void Fields(A& archive, Field<A, DenoiseState>& m) {
  archive(m.steps, m.latents, m.trajectory, m.log_probs);
}
template <class A>
void Fields(A& archive, Field<A, Image>& m) {
  archive(m.height, m.width, m.rgb);
}
template <class A>
void Fields(A& archive, Field<A, StepCoefficients>& m) {
  archive(m.sigma, m.c_x, m.c_v, m.tau, m.log_prob_scale, m.log_prob_constant);
}
template <class A>
void Fields(A& archive, Field<A, Sample>& m) {
  archive(m.request, m.rank, m.reward, m.terms, m.latents, m.log_probs, m.steps, m.image);
}
template <class A>
void Fields(A& archive, Field<A, TrainSample>& m) {
  archive(m.sample, m.advantage);
}
template <class A>
void Fields(A& archive, Field<A, Pull>& m) {
  archive(m.rank, m.role, m.capacity, m.busy_seconds, m.members, m.sample_steps);
}
template <class A>
void Fields(A& archive, Field<A, Work>& m) {
  archive(m.requests, m.states, m.degree);
}
template <class A>
void Fields(A& archive, Field<A, Wait>& m) {
  archive(m.milliseconds, m.degree);
}
template <class A>
void Fields(A& archive, Field<A, BatchTimes>& m) {
  archive(m.degree, m.requests, m.real_passes, m.cached_passes, m.real_seconds, m.cached_seconds, m.decode_seconds,
          m.reward_seconds);
}
template <class A>
void Fields(A& archive, Field<A, Push>& m) {
  archive(m.rank, m.samples, m.times);
}
template <class A>
void Fields(A&, Field<A, Ack>&) {}
template <class A>
void Fields(A& archive, Field<A, FetchWeights>& m) {
  archive(m.version, m.ema, m.offset, m.count);
}
template <class A>
void Fields(A& archive, Field<A, Weights>& m) {
  archive(m.version, m.ema, m.offset, m.values);
}
template <class A>
void Fields(A& archive, Field<A, Train>& m) {
  archive(m.iteration, m.samples);
}
template <class A>
void Fields(A& archive, Field<A, Trained>& m) {
  archive(m.iteration, m.metrics, m.next_version, m.weights, m.ema_weights);
}
template <class A>
void Fields(A& archive, Field<A, Save>& m) {
  archive(m.path, m.step);
}
template <class A>
void Fields(A&, Field<A, Saved>&) {}
template <class A>
void Fields(A&, Field<A, Finish>&) {}
template <class A>
void Fields(A& archive, Field<A, Failed>& m) {
  archive(m.text, m.exit_code, m.rank);
}
template <class A>
void Fields(A& archive, Field<A, FetchPrompts>& m) {
  archive(m.list, m.indices);
}
template <class A>
void Fields(A& archive, Field<A, PromptEmbedding>& m) {
  archive(m.index, m.tokens, m.embedding);
}
template <class A>
void Fields(A& archive, Field<A, Prompts>& m) {
  archive(m.list, m.entries);
}
template <class A>
void Fields(A& archive, Field<A, PushWeights>& m) {
  archive(m.version, m.ema, m.checksum, m.offset, m.total, m.values);
}
template <class A>
void Fields(A& archive, Field<A, CommitStates>& m) {
  archive(m.rank, m.requests, m.states);
}
template <class A>
void Fields(A& archive, Field<A, Hello>& m) {
  archive(m.rank, m.role, m.host, m.process, m.parked, m.fingerprint, m.contents);
}
template <class A>
void Fields(A&, Field<A, Activate>&) {}
template <class A>
void Fields(A& archive, Field<A, GiveBack>& m) {
  archive(m.rank, m.leaves);
}
template <class A>
void Fields(A& archive, Field<A, RegroupReport>& m) {
  archive(m.rank, m.members, m.lost, m.tries, m.shrink_seconds, m.build_seconds, m.groups);
}
template <class A>
void Fields(A& archive, Field<A, Join>& m) {
  archive(m.host, m.ranks);
}
template <class A>
void Fields(A& archive, Field<A, Welcome>& m) {
  archive(m.first_rank, m.input, m.directory, m.contents);
}
template <class A>
void Fields(A& archive, Field<A, FindWeights>& m) {
  archive(m.rank, m.version, m.ema, m.address);
}
template <class A>
void Fields(A& archive, Field<A, WeightPieces>& m) {
  archive(m.version, m.ema, m.total, m.piece, m.checksums, m.holders);
}
template <class A>
void Fields(A& archive, Field<A, NoWeights>& m) {
  archive(m.version, m.ema);
}
template <class A>
void Fields(A& archive, Field<A, Drop>& m) {
  archive(m.kind, m.last_id);
}
template <class A>
void Fields(A& archive, Field<A, FetchSamples>& m) {
  archive(m.first);
}
template <class A>
void Fields(A& archive, Field<A, Samples>& m) {
  archive(m.samples);
}

// Reads the body of the message whose place in the variant is `type`.
template <std::size_t Place = 0>
Message DecodeBody(std::size_t type, Reader& reader) {
  if constexpr (Place < std::variant_size_v<Message>) {
    if (type != Place) return DecodeBody<Place + 1>(type, reader);
    Message message{std::in_place_index<Place>};
    reader(std::get<Place>(message));
    return message;
  } else {
    throw MessageError(fmt::format("message of the unknown type {}", type));
  }
}

}  // namespace

Bytes Encode(const Message& message, std::uint64_t run_id) {
  ByteCount body;
  Writer count(body);
  std::visit([&](const auto& m) { count(m); }, message);
  ByteBuffer buffer(kHeaderBytes + body.size());
  Writer writer(buffer);
  writer(kMagic, kMessageVersion, static_cast<std::uint16_t>(message.index()), run_id, std::uint64_t{body.size()});
  std::visit([&](const auto& m) { writer(m); }, message);
  return buffer.Take();
}

Message Decode(std::span<const std::byte> bytes, std::uint64_t run_id) {
  Reader reader(bytes);
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t type = 0;
  std::uint64_t run = 0;
  std::uint64_t body = 0;
  reader(magic, version, type, run, body);
  if (magic != kMagic) throw MessageError("not a message of spotlight");
  if (version != kMessageVersion) {
    throw MessageError(fmt::format("message of version {}, this program speaks {}; use one build for all ranks",
                                   version, kMessageVersion));
  }
  if (run != run_id) throw MessageError(fmt::format("message of run {:016x}, this is run {:016x}", run, run_id));
  if (body != reader.left()) {
    throw MessageError(fmt::format("message of {} bytes says it has {}", reader.left(), body));
  }
  Message message = DecodeBody(type, reader);
  if (reader.left() != 0)
    throw MessageError(fmt::format("message of type {} has {} bytes too many", type, reader.left()));
  return message;
}

std::uint64_t Checksum(std::span<const float> values) {
  std::uint64_t hash = 0x9e3779b97f4a7c15ULL ^ values.size();
  for (const float value : values) {
    hash = std::rotl((hash ^ std::bit_cast<std::uint32_t>(value)) * 0xff51afd7ed558ccdULL, 29);
  }
  return hash;
}

}  // namespace spotlight
