// Attention by cuDNN (kernels/attention_cudnn.cpp), for AttentionForward and AttentionBackward of the CUDA back end to
// try before they run our own kernels. Parameters and results as in kernels/attention.hpp.
#pragma once

#include "kernels/attention.hpp"

namespace spotlight::cuda {

// False, with nothing done, for what cuDNN does not take: fp32, a mask, a shape without an engine on this device.
bool AttentionForwardByCudnn(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                             const std::uint8_t* text_mask, Activations out_text, Activations out_image, float* lse);

bool AttentionBackwardByCudnn(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                              const std::uint8_t* text_mask, ConstActivations out_text, ConstActivations out_image,
                              const float* lse, ConstActivations dout_text, ConstActivations dout_image, Activations dq,
                              Activations dk, Activations dv);

}  // namespace spotlight::cuda
