#ifndef RADSERVE_GPU_H_
#define RADSERVE_GPU_H_

#include <cstddef>
#include <optional>
#include <string>

namespace radserve {

/// The provider is built for this CUDA runtime (docs/operations.md).
constexpr const char* kCudaRuntime = "libcudart.so.13";

/// What this process knows of the GPUs that it uses, by CUDA's numbers. Any thread.

struct GpuMemory {
  /// Not taken by anybody, of this process or of others.
  size_t free = 0;
  size_t total = 0;
};
/// As the CUDA runtime says; nullopt if it is not loaded yet, or does not answer.
std::optional<GpuMemory> MemoryOfGpu(int device);

/// cuDNN is opened by the provider when it is first needed, which may be long after the start. What is wrong with
/// it, in the words of the dynamic linker; "" if it opens.
std::string CudnnProblem();

/// From now on the process works with that GPU.
void UseGpu(int device);
/// The context of a GPU is broken, as `why` says. If no other GPU works, the process ends with status 70: every
/// later call would fail, and a fresh process can go on. Otherwise what runs on the others goes on, and that GPU
/// is not used any more.
void LoseGpu(int device, const std::string& why);
bool GpuLost(int device);

}  // namespace radserve

#endif  // RADSERVE_GPU_H_
