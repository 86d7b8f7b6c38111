// The numbers of one denoising step, as the kernels use them and as a sample carries them: what is
// stored is what was scored.
//
//   mean = c_x x + c_v v,   x' = mean + tau z,
//   logp = mean over elements of -log_prob_scale (x' - mean)^2, + log_prob_constant
#pragma once

namespace spotlight {

struct StepCoefficients {
  float sigma = 0;  // noise level the network sees
  float c_x = 1, c_v = 0, tau = 0;
  float log_prob_scale = 0;     // 1 / (2 tau^2); 1 for CPS
  float log_prob_constant = 0;  // -ln tau - ln(2 pi)/2; 0 for CPS
};

}  // namespace spotlight
