#ifndef RADSERVE_TEST_CUDA_STAND_IN_H_
#define RADSERVE_TEST_CUDA_STAND_IN_H_

#include <cstddef>
#include <cstdint>

/// How tests steer the stand-in for the CUDA libraries, and what it has seen. It is the library that the provider of
/// ONNX Runtime loads as libcudart.so.13: memory is the host's, copies are real, kernels do nothing. There are two
/// devices.
extern "C" {

struct StandInCounts {
  uint64_t copies_to_device;
  uint64_t bytes_to_device;
  uint64_t copies_from_device;
  uint64_t bytes_from_device;
  /// Kernels that were started.
  uint64_t launches;
  /// Copies of which the device's side lies in no memory of that device, or the host's side in some.
  uint64_t strays;
};

/// What has happened on a device since StandInReset.
StandInCounts StandInCount(int device);
/// Bytes of a device that are in use.
size_t StandInUsed(int device);
/// Bytes of pinned host memory that are in use.
size_t StandInPinned();
/// Forgets counts, sets the memory of each device back to its start, mends it, and lets kernels go on.
void StandInReset();
/// Allocations beyond so many bytes are refused from now on.
void StandInSetMemory(int device, size_t bytes);
/// After so many more kernels every call answers with that number of cudaError_t, as a broken context does.
void StandInBreak(int device, uint64_t launches, int error);
/// Whether kernels of a device wait before they begin.
void StandInHold(int device, bool hold);
/// Waits until a kernel of the device waits.
void StandInAwaitHeld(int device);
}

#endif  // RADSERVE_TEST_CUDA_STAND_IN_H_
