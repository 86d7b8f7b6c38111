// The plug-in for tests that pass the host's memory to kernels: what is allocated from then on, by new and by
// kernels/memory.hpp, is pinned memory, which the device reads and writes where it lies, and every operation
// is complete when it returns. So the same tests run on a GPU, unchanged. What lies on the stack no kernel can read.
#pragma once

namespace spotlight {

// Makes the plug-in's operations, with the name "cuda", the active ones. UserError: no driver, no GPU, no plug-in.
void UseDevice();

// `code`, for main to return. With a device it ends the process here: destructors of static objects would reach for
// pinned memory when the driver has gone.
int EndTests(int code);

}  // namespace spotlight
