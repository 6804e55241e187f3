// libcudart.so.13 without a GPU: see stand_in.h. scripts/test-cuda.mjs makes a stub that returns 0 for each function
// that the provider imports and no file here defines; a line STAND_IN(name) says that one does. The types are those
// of CUDA's C interface as far as the functions need them: handles are pointers, enumerations are ints.
//
// The environment is for tests that cannot call in. It sets the start: STAND_IN_MEMORY (bytes of each device) and
// STAND_IN_BREAK=device,launches,error. While the file that STAND_IN_HOLD names is there, kernels and copies within a device
// wait.
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <thread>

#include "stand_in.h"

#define STAND_IN(name)

namespace {

constexpr int kDevices = 2;
constexpr size_t kMemory = size_t{8} << 30;
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr size_t kAlignment = 512;

/// cudaMemcpyKind.
constexpr int kToDevice = 1;
constexpr int kFromDevice = 2;
constexpr int kWithinDevice = 3;

struct Device {
  size_t memory = kMemory;
  size_t used = 0;
  StandInCounts counts{};
  bool breaks = false;
  uint64_t breaks_after = 0;
  int error = kSuccess;
  int broken = kSuccess;
  bool hold = false;
  int held = 0;
};

struct Block {
  size_t bytes = 0;
  /// -1: pinned memory of the host.
  int device = -1;
};

struct Machine {
  std::mutex mutex;
  std::condition_variable changed;
  std::array<Device, kDevices> devices;
  std::map<const char*, Block> blocks;
  size_t pinned = 0;

  Machine() { Start(); }

  void Start() {
    for (Device& device : devices) {
      const size_t used = device.used;
      device = Device();
      device.used = used;
      if (const char* bytes = std::getenv("STAND_IN_MEMORY"))
        device.memory = std::strtoull(bytes, nullptr, 10);
    }
    int number = 0;
    unsigned long long launches = 0;
    int error = 0;
    const char* breaks = std::getenv("STAND_IN_BREAK");
    if (breaks != nullptr && std::sscanf(breaks, "%d,%llu,%d", &number, &launches, &error) == 3) {
      Break(number, launches, error);
    }
  }

  void Break(int number, uint64_t launches, int error) {
    Device& device = devices.at(static_cast<size_t>(number));
    device.breaks = true;
    device.breaks_after = device.counts.launches + launches;
    device.error = error;
    if (launches == 0) device.broken = error;
  }

  /// The memory that holds the address; nullptr if it was not allocated here.
  const Block* Find(const void* address) const {
    const char* at = static_cast<const char*>(address);
    auto after = blocks.upper_bound(at);
    if (after == blocks.begin()) return nullptr;
    --after;
    return at < after->first + after->second.bytes ? &after->second : nullptr;
  }
};

/// Never destroyed: threads of the provider may outlive static objects.
Machine& The() {
  static auto& machine = *new Machine;
  return machine;
}

thread_local int current = 0;

Device& Current() { return The().devices[static_cast<size_t>(current)]; }

/// The error that the context of the current device is in.
int State() {
  const std::lock_guard lock(The().mutex);
  return Current().broken;
}

int Allocate(void** out, size_t bytes, int device) {
  Machine& the = The();
  const std::lock_guard lock(the.mutex);
  if (Current().broken != kSuccess) return Current().broken;
  if (device >= 0 && Current().used + bytes > Current().memory) return kOutOfMemory;
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, whole == 0 ? kAlignment : whole);
  if (memory == nullptr) return kOutOfMemory;
  std::memset(memory, 0, whole);
  the.blocks[static_cast<const char*>(memory)] = {bytes, device};
  (device >= 0 ? Current().used : the.pinned) += bytes;
  *out = memory;
  return kSuccess;
}

int Release(void* memory) {
  if (memory == nullptr) return kSuccess;
  Machine& the = The();
  const std::lock_guard lock(the.mutex);
  if (Current().broken != kSuccess) return Current().broken;
  const auto found = the.blocks.find(static_cast<const char*>(memory));
  if (found == the.blocks.end()) return kInvalidValue;
  const Block& block = found->second;
  (block.device >= 0 ? the.devices[static_cast<size_t>(block.device)].used : the.pinned) -= block.bytes;
  the.blocks.erase(found);
  std::free(memory);
  return kSuccess;
}

void WaitForFile() {
  static const char* const file = std::getenv("STAND_IN_HOLD");
  while (file != nullptr && access(file, F_OK) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

int Copy(void* to, const void* from, size_t bytes, int kind) {
  if (kind == kWithinDevice) WaitForFile();
  Machine& the = The();
  {
    const std::lock_guard lock(the.mutex);
    Device& device = Current();
    if (device.broken != kSuccess) return device.broken;
    const auto on_device = [&](const void* address) {
      const Block* block = the.Find(address);
      return block != nullptr && block->device == current;
    };
    if (kind == kToDevice) {
      ++device.counts.copies_to_device;
      device.counts.bytes_to_device += bytes;
      if (!on_device(to) || on_device(from)) ++device.counts.strays;
    } else if (kind == kFromDevice) {
      ++device.counts.copies_from_device;
      device.counts.bytes_from_device += bytes;
      if (!on_device(from) || on_device(to)) ++device.counts.strays;
    }
  }
  std::memmove(to, from, bytes);
  return kSuccess;
}

int Launch() {
  WaitForFile();
  Machine& the = The();
  std::unique_lock lock(the.mutex);
  Device& device = Current();
  if (device.broken != kSuccess) return device.broken;
  ++device.held;
  the.changed.notify_all();
  the.changed.wait(lock, [&] { return !device.hold; });
  --device.held;
  ++device.counts.launches;
  if (device.breaks && device.counts.launches > device.breaks_after) device.broken = device.error;
  return device.broken;
}

/// Streams and events are numbers.
void* NewHandle() {
  static std::atomic<uintptr_t> next{0x1000};
  return reinterpret_cast<void*>(next += 16);
}

int SetHandle(void** out) {
  const int state = State();
  if (state == kSuccess) *out = NewHandle();
  return state;
}

/// cudaDeviceProp of CUDA 13 is 1008 bytes; these are the members that the provider reads, at their places.
constexpr size_t kPropertiesBytes = 1008;
void SetProperty(char* properties, size_t at, int value) {
  std::memcpy(properties + at, &value, sizeof(value));
}
void SetLarge(char* properties, size_t at, size_t value) {
  std::memcpy(properties + at, &value, sizeof(value));
}

constexpr int kThreadsPerBlock = 1024;
constexpr int kProcessors = 132;

}  // namespace

extern "C" {

StandInCounts StandInCount(int device) {
  const std::lock_guard lock(The().mutex);
  return The().devices.at(static_cast<size_t>(device)).counts;
}

size_t StandInUsed(int device) {
  const std::lock_guard lock(The().mutex);
  return The().devices.at(static_cast<size_t>(device)).used;
}

size_t StandInPinned() {
  const std::lock_guard lock(The().mutex);
  return The().pinned;
}

void StandInReset() {
  const std::lock_guard lock(The().mutex);
  The().Start();
  The().changed.notify_all();
}

void StandInSetMemory(int device, size_t bytes) {
  const std::lock_guard lock(The().mutex);
  The().devices.at(static_cast<size_t>(device)).memory = bytes;
}

void StandInBreak(int device, uint64_t launches, int error) {
  const std::lock_guard lock(The().mutex);
  The().Break(device, launches, error);
}

void StandInHold(int device, bool hold) {
  const std::lock_guard lock(The().mutex);
  The().devices.at(static_cast<size_t>(device)).hold = hold;
  The().changed.notify_all();
}

void StandInAwaitHeld(int device) {
  std::unique_lock lock(The().mutex);
  const Device& held = The().devices.at(static_cast<size_t>(device));
  The().changed.wait(lock, [&] { return held.hold && held.held > 0; });
}

STAND_IN(cudaGetDeviceCount)
int cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return kSuccess;
}

STAND_IN(cudaSetDevice)
int cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return kInvalidDevice;
  current = device;
  return kSuccess;
}

STAND_IN(cudaGetDevice)
int cudaGetDevice(int* device) {
  *device = current;
  return kSuccess;
}

STAND_IN(cudaGetDeviceProperties)
int cudaGetDeviceProperties(void* out, int device) {
  if (device < 0 || device >= kDevices) return kInvalidDevice;
  char* properties = static_cast<char*>(out);
  std::memset(properties, 0, kPropertiesBytes);
  std::strcpy(properties, "stand-in");
  SetLarge(properties, 288, kMemory);              // totalGlobalMem
  SetLarge(properties, 296, size_t{48} << 10);     // sharedMemPerBlock
  SetProperty(properties, 304, 65536);             // regsPerBlock
  SetProperty(properties, 308, 32);                // warpSize
  SetProperty(properties, 320, kThreadsPerBlock);  // maxThreadsPerBlock
  SetProperty(properties, 324, kThreadsPerBlock);  // maxThreadsDim
  SetProperty(properties, 336, 2147483647);        // maxGridSize
  SetProperty(properties, 340, 65535);
  SetProperty(properties, 344, 65535);
  SetProperty(properties, 360, 9);               // major; minor stays 0
  SetProperty(properties, 384, kProcessors);     // multiProcessorCount
  SetProperty(properties, 604, 2048);            // maxThreadsPerMultiProcessor
  SetLarge(properties, 672, size_t{227} << 10);  // sharedMemPerBlockOptin
  return kSuccess;
}

STAND_IN(cudaDeviceGetAttribute)
int cudaDeviceGetAttribute(int* value, int attribute, int) {
  // cudaDeviceAttr: the number of processors, the two numbers of the compute capability.
  *value = attribute == 16 ? kProcessors : attribute == 75 ? 9 : attribute == 76 ? 0 : kThreadsPerBlock;
  return kSuccess;
}

STAND_IN(cudaMemGetInfo)
int cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(The().mutex);
  *total = Current().memory;
  *free = Current().memory > Current().used ? Current().memory - Current().used : 0;
  return Current().broken;
}

STAND_IN(cudaMalloc)
int cudaMalloc(void** out, size_t bytes) { return Allocate(out, bytes, current); }

STAND_IN(cudaFree)
int cudaFree(void* memory) { return Release(memory); }

STAND_IN(cudaHostAlloc)
int cudaHostAlloc(void** out, size_t bytes, unsigned) { return Allocate(out, bytes, -1); }

STAND_IN(cudaMallocHost)
int cudaMallocHost(void** out, size_t bytes) { return Allocate(out, bytes, -1); }

STAND_IN(cudaFreeHost)
int cudaFreeHost(void* memory) { return Release(memory); }

STAND_IN(cudaMemcpy)
int cudaMemcpy(void* to, const void* from, size_t bytes, int kind) { return Copy(to, from, bytes, kind); }

STAND_IN(cudaMemcpyAsync)
int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void*) {
  return Copy(to, from, bytes, kind);
}

STAND_IN(cudaMemset)
int cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return State();
}

STAND_IN(cudaMemsetAsync)
int cudaMemsetAsync(void* memory, int value, size_t bytes, void*) {
  std::memset(memory, value, bytes);
  return State();
}

STAND_IN(cudaStreamCreate)
int cudaStreamCreate(void** stream) { return SetHandle(stream); }

STAND_IN(cudaStreamCreateWithFlags)
int cudaStreamCreateWithFlags(void** stream, unsigned) { return SetHandle(stream); }

STAND_IN(cudaEventCreate)
int cudaEventCreate(void** event) { return SetHandle(event); }

STAND_IN(cudaEventCreateWithFlags)
int cudaEventCreateWithFlags(void** event, unsigned) { return SetHandle(event); }

STAND_IN(cudaStreamSynchronize)
int cudaStreamSynchronize(void*) { return State(); }

STAND_IN(cudaDeviceSynchronize)
int cudaDeviceSynchronize() { return State(); }

STAND_IN(cudaGetLastError)
int cudaGetLastError() { return State(); }

STAND_IN(cudaPeekAtLastError)
int cudaPeekAtLastError() { return State(); }

STAND_IN(cudaGetErrorName)
const char* cudaGetErrorName(int) { return "cudaErrorOfStandIn"; }

STAND_IN(cudaGetErrorString)
const char* cudaGetErrorString(int error) {
  return error == kOutOfMemory ? "out of memory" : "an error of the stand-in";
}

STAND_IN(cudaRuntimeGetVersion)
int cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

STAND_IN(cudaDriverGetVersion)
int cudaDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

STAND_IN(cudaStreamIsCapturing)
int cudaStreamIsCapturing(void*, int* status) {
  *status = 0;
  return kSuccess;
}

STAND_IN(cudaLaunchHostFunc)
int cudaLaunchHostFunc(void*, void (*function)(void*), void* data) {
  function(data);
  return kSuccess;
}

STAND_IN(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 2;
  return kSuccess;
}

STAND_IN(__cudaRegisterFatBinary)
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}

/// dim3.
struct Dimensions {
  unsigned x, y, z;
};

STAND_IN(__cudaPopCallConfiguration)
unsigned __cudaPopCallConfiguration(Dimensions* grid, Dimensions* block, size_t* shared, void** stream) {
  *grid = *block = {1, 1, 1};
  *shared = 0;
  *stream = nullptr;
  return 0;
}

STAND_IN(__cudaLaunchKernel)
int __cudaLaunchKernel(void*, Dimensions, Dimensions, void**, size_t, void*) { return Launch(); }

STAND_IN(cudaLaunchKernel)
int cudaLaunchKernel(const void*, Dimensions, Dimensions, void**, size_t, void*) { return Launch(); }

STAND_IN(cudaLaunchKernelExC)
int cudaLaunchKernelExC(const void*, const void*, void**) { return Launch(); }
}
