#pragma once

#include <cstddef>
#include <cstdint>

/// How tests steer the stand-in for the CUDA libraries, and what it has seen. It is the library
/// that the provider of ONNX Runtime loads as libcudart.so.13: memory is the host's, copies are
/// real, kernels do nothing. There are two devices. A graph that was captured holds the copies and
/// the number of kernels of its stream. Captures are of the mode that the provider uses
/// (cudaStreamCaptureModeGlobal): while one is under way, a call of any thread that allocates,
/// frees or waits is refused with error 900 (StreamCaptureUnsupported) and spoils it, so that its
/// end gives 901 (StreamCaptureInvalidated).
extern "C" {

struct StandInCounts {
  uint64_t copies_to_device;
  uint64_t bytes_to_device;
  uint64_t copies_from_device;
  uint64_t bytes_from_device;
  /// Kernels that were started.
  uint64_t launches;
  /// Copies of which the device's side lies in no memory of that device, or the host's side in
  /// some; of a graph that is launched, also those within the device.
  uint64_t strays;
  /// Captures that gave a graph, captures that were spoilt, and launches of graphs.
  uint64_t captures;
  uint64_t spoilt;
  uint64_t graph_launches;
  /// The most kernels or graphs that took their time at once: see StandInSlow.
  uint64_t most_at_once;
  /// Launches of graphs that multiply what has been freed since they were captured, copy from the
  /// host what has been written over since, or run kernels of a plan of cuDNN which is gone.
  uint64_t stale;
};

/// What has happened on a device since StandInReset.
StandInCounts StandInCount(int device);
/// Bytes of a device that are in use.
size_t StandInUsed(int device);
/// Bytes of pinned host memory that are in use.
size_t StandInPinned();
/// For cuBLAS: a product reads or writes that address.
void StandInTouch(const void* address);
/// For cuDNN: kernels of a plan are launched, and a plan goes with its kernels. Addresses of plans
/// are not used again.
void StandInUsePlan(const void* plan);
void StandInDropPlan(const void* plan);
/// Plans that cuDNN has made since the process began.
uint64_t StandInPlans();
/// Graphs that can be launched and have not been destroyed.
size_t StandInGraphs();
/// Forgets counts, sets the memory of each device back to its start, mends it, and lets kernels go
/// on.
void StandInReset();
/// Allocations beyond so many bytes are refused from now on.
void StandInSetMemory(int device, size_t bytes);
/// After so many more kernels every call answers with that number of cudaError_t, as a broken
/// context does.
void StandInBreak(int device, uint64_t launches, int error);
/// The next so many captures are spoilt, as by a kernel that cannot be captured.
void StandInSpoil(uint64_t captures);
/// Kernels and graphs of a device take so long from now on, and so many times that beside another.
void StandInSlow(int device, int milliseconds, int times_beside);
/// Whether kernels of a device wait before they begin.
void StandInHold(int device, bool hold);
/// Waits until a kernel of the device waits.
void StandInAwaitHeld(int device);
}
