// Which back end computes: the CPU's, which is always there, or CUDA's, which is a plug-in beside the program.
#pragma once

#include <string>

namespace spotlight {

enum class BackEnd { kKokkos, kCuda, kAuto };

struct BackEndChoice {
  BackEnd back_end = BackEnd::kKokkos;
  int gpu = -1;        // its number on this node; -1: local_rank modulo the node's GPUs
  int local_rank = 0;  // of this process among those of its node
};

// From now on operations are those of the chosen back end. Before any other use of kernels/, but after StartKernels.
// kAuto takes CUDA where there is a driver, a GPU that will do, and the plug-in. Returns a line for the log: what
// computes, and with kAuto why not the GPU. UserError: CUDA was asked for, and why it cannot be had.
std::string ChooseBackEnd(const BackEndChoice& choice);

// A function that the plug-in in use exports, or, where operations are not a plug-in's, the program. Null: there is
// none.
void* PlugInFunction(const char* name);

// The function that the plug-in exports, under the name kCudaEntry: takes the GPU and returns its operations, which
// live as long as the process; `description` becomes what it has found. UserError if no GPU will do.
struct Operations;
using CudaEntry = const Operations& (*)(const BackEndChoice& choice, std::string& description);
inline constexpr const char* kCudaEntry = "SpotlightCudaBackEnd";

}  // namespace spotlight
