// What the steps of a batch leave on the host: the latents and log-probabilities of its window, and how far it has got
// at a border. It is copied while later steps run (kernels/stream.hpp), and nobody waits for it before it is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/request.hpp"
#include "base/tensor.hpp"
#include "kernels/buffer.hpp"
#include "kernels/stream.hpp"

namespace spotlight {

// What a border between two steps may ask for, step by step: where each request has got to.
class BatchStates {
 public:
  virtual ~BatchStates() = default;
  // Starts to copy the states of this border. Not before those of an earlier one have been taken.
  virtual void Start() = 0;
  // Whether Take would not wait.
  virtual bool Ready() = 0;
  // Those of the last Start, in the order of the requests; once. Also later, until the next batch begins.
  virtual std::vector<DenoiseState> Take() = 0;
};

class KeptSteps : public BatchStates {
 public:
  // A batch of latents [batch, size] begins, with a window of at most so many steps. states: empty, or what the
  // requests have left before.
  void Begin(Index batch, Index size, Index window, const std::vector<DenoiseState>& states);

  // The next latents [batch, size], and the next log-probabilities [batch], of the window.
  void KeepLatents(const Buffer& x);
  void KeepLogProbs(const Buffer& log_prob);
  // The batch is at a border: `steps` are done, and have left x [batch, size], which stays so until the border is past.
  void AtBorder(std::uint32_t steps, const Buffer& x);

  void Start() override;
  bool Ready() override;
  std::vector<DenoiseState> Take() override;

  // Of a request, all that was kept so far: [windows' latents, size] and [window].
  const std::vector<float>& Trajectory(std::size_t request);
  const std::vector<float>& LogProbs(std::size_t request);

 private:
  // Rows [batch, width], one copy after the other; the first ones have been added to what each request has.
  struct Series {
    Index width = 0;
    std::vector<std::unique_ptr<HostCopy>> copies;  // they stay from batch to batch
    std::size_t started = 0, added = 0;
    std::vector<std::vector<float>> values;  // [batch]
  };
  void Reserve(Series& series, std::size_t copies);
  void Keep(Series& series, const Buffer& rows);
  void AddUpTo(Series& series, std::size_t copies);

  std::size_t batch_ = 0;
  Index size_ = 0;
  Series latents_, log_probs_;
  // The border, and the states that are under way.
  std::uint32_t steps_ = 0;
  const Buffer* newest_ = nullptr;
  struct UnderWay {
    bool is = false;
    std::uint32_t steps = 0;
    std::size_t latents = 0, log_probs = 0;  // copies that belong to it
  } under_way_;
  std::unique_ptr<HostCopy> newest_copy_;
};

}  // namespace spotlight
