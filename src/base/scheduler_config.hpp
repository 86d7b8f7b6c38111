// Settings of the flow-match Euler schedule, under the names of diffusers' scheduler_config.json; defaults are those
// published with Qwen-Image.
#pragma once

namespace spotlight {

struct SchedulerConfig {
  int num_train_timesteps = 1000;
  double shift = 1.0;                // static shift, used where use_dynamic_shifting is false
  bool use_dynamic_shifting = true;  // exponential shift by mu, linear in the number of image tokens:
  double base_shift = 0.5;           // mu at base_image_seq_len tokens
  double max_shift = 0.9;            // mu at max_image_seq_len tokens
  int base_image_seq_len = 256;
  int max_image_seq_len = 8192;
  double shift_terminal = 0.02;  // last sigma before 0 is stretched to this; 0: not stretched
};

}  // namespace spotlight
