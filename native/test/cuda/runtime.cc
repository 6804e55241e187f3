// libcudart.so.13 without a GPU: see stand_in.h. scripts/test-cuda.mjs makes a stub that returns 0
// for each function that the provider imports and no file here defines; a line STAND_IN(name) says
// that one does. The types are those of CUDA's C interface as far as the functions need them:
// handles are pointers, enumerations are ints.
//
// The environment is for tests that cannot call in. It sets the start: STAND_IN_MEMORY (bytes of
// each device) and STAND_IN_BREAK=device,launches,error. While the file that STAND_IN_HOLD names is
// there, kernels and copies within a device wait.
#include <unistd.h>

#include <algorithm>
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
#include <set>
#include <thread>
#include <vector>

#include "stand_in.h"

#define STAND_IN(name)

namespace {

constexpr int kDevices = 2;
constexpr size_t kMemory = size_t{8} << 30;
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureInvalidated = 901;
constexpr int kCaptureUnmatched = 903;
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
  int milliseconds = 0;
  int times_beside = 1;
  uint64_t at_once = 0;
};

struct Block {
  size_t bytes = 0;
  /// -1: pinned memory of the host.
  int device = -1;
  uint64_t number = 0;
};

struct Transfer {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
  int kind = 0;
  /// What a captured copy to the device was made of.
  std::vector<char> content;
};

/// What a stream was given while it was captured; cudaGraph_t and cudaGraphExec_t.
struct Graph {
  int device = 0;
  std::vector<Transfer> transfers;
  /// Memory of products that was allocated then, by its number.
  std::set<uint64_t> touched;
  /// Plans of cuDNN whose kernels it launches.
  std::set<const void*> plans;
  uint64_t kernels = 0;
  bool spoilt = false;
};

struct Machine {
  std::mutex mutex;
  std::condition_variable changed;
  std::array<Device, kDevices> devices;
  std::map<const char*, Block> blocks;
  size_t pinned = 0;
  /// By the streams that are captured.
  std::map<void*, Graph> captures;
  std::set<const Graph*> graphs;
  /// Plans that are no more; none of them is made again.
  std::set<const void*> dropped_plans;
  uint64_t spoil = 0;
  uint64_t allocations = 0;

  Machine() { Start(); }

  void Start() {
    spoil = 0;
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

/// For calls that must not be made while anything is captured. Called with the lock.
int Refused() {
  Machine& the = The();
  if (Current().broken != kSuccess) return Current().broken;
  for (auto& [stream, graph] : the.captures) graph.spoilt = true;
  return the.captures.empty() ? kSuccess : kCaptureUnsupported;
}

int Wait() {
  const std::lock_guard lock(The().mutex);
  return Refused();
}

/// The graph that takes what goes to a stream; nullptr unless it is captured. Called with the lock.
Graph* CaptureOf(void* stream) {
  const auto found = The().captures.find(stream);
  return found == The().captures.end() ? nullptr : &found->second;
}

int Allocate(void** out, size_t bytes, int device) {
  Machine& the = The();
  const std::lock_guard lock(the.mutex);
  if (const int refused = Refused(); refused != kSuccess) return refused;
  if (device >= 0 && Current().used + bytes > Current().memory) return kOutOfMemory;
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, whole == 0 ? kAlignment : whole);
  if (memory == nullptr) return kOutOfMemory;
  std::memset(memory, 0, whole);
  the.blocks[static_cast<const char*>(memory)] = {bytes, device, ++the.allocations};
  (device >= 0 ? Current().used : the.pinned) += bytes;
  *out = memory;
  return kSuccess;
}

int Release(void* memory) {
  if (memory == nullptr) return kSuccess;
  Machine& the = The();
  const std::lock_guard lock(the.mutex);
  if (const int refused = Refused(); refused != kSuccess) return refused;
  const auto found = the.blocks.find(static_cast<const char*>(memory));
  if (found == the.blocks.end()) return kInvalidValue;
  const Block& block = found->second;
  (block.device >= 0 ? the.devices[static_cast<size_t>(block.device)].used : the.pinned) -=
      block.bytes;
  the.blocks.erase(found);
  std::free(memory);
  return kSuccess;
}

void WaitForFile() {
  static const char* const file = std::getenv("STAND_IN_HOLD");
  while (file != nullptr && access(file, F_OK) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Counts a copy that the current device makes. Called with the lock.
void Count(const Transfer& copy, bool of_graph) {
  Device& device = Current();
  const auto on_device = [](const void* address) {
    const Block* block = The().Find(address);
    return block != nullptr && block->device == current;
  };
  const bool to = on_device(copy.to);
  const bool from = on_device(copy.from);
  if (copy.kind == kToDevice) {
    ++device.counts.copies_to_device;
    device.counts.bytes_to_device += copy.bytes;
    if (!to || from) ++device.counts.strays;
  } else if (copy.kind == kFromDevice) {
    ++device.counts.copies_from_device;
    device.counts.bytes_from_device += copy.bytes;
    if (!from || to) ++device.counts.strays;
  } else if (of_graph && !(to && from)) {
    ++device.counts.strays;
  }
}

int Copy(const Transfer& copy, void* stream, bool waits) {
  if (copy.kind == kWithinDevice) WaitForFile();
  Machine& the = The();
  {
    const std::lock_guard lock(the.mutex);
    if (Current().broken != kSuccess) return Current().broken;
    if (waits) {
      if (const int refused = Refused(); refused != kSuccess) return refused;
    } else if (Graph* graph = CaptureOf(stream)) {
      graph->transfers.push_back(copy);
      if (copy.kind == kToDevice) {
        const char* const from = static_cast<const char*>(copy.from);
        graph->transfers.back().content.assign(from, from + copy.bytes);
      }
      return kSuccess;
    }
    Count(copy, false);
  }
  std::memmove(copy.to, copy.from, copy.bytes);
  return kSuccess;
}

/// So many kernels, one after the other. Called with the lock.
int Launch(std::unique_lock<std::mutex>& lock, uint64_t kernels) {
  Machine& the = The();
  Device& device = Current();
  ++device.held;
  the.changed.notify_all();
  the.changed.wait(lock, [&] { return !device.hold; });
  --device.held;
  if (device.milliseconds > 0) {
    device.counts.most_at_once = std::max(device.counts.most_at_once, ++device.at_once);
    const std::chrono::milliseconds takes(device.milliseconds *
                                          (device.at_once > 1 ? device.times_beside : 1));
    lock.unlock();
    std::this_thread::sleep_for(takes);
    lock.lock();
    --device.at_once;
  }
  device.counts.launches += kernels;
  if (device.breaks && device.counts.launches > device.breaks_after) device.broken = device.error;
  return device.broken;
}

int LaunchOne(void* stream) {
  WaitForFile();
  std::unique_lock lock(The().mutex);
  if (Current().broken != kSuccess) return Current().broken;
  if (Graph* graph = CaptureOf(stream)) {
    ++graph->kernels;
    // A context may break while kernels are captured, too.
    Device& device = Current();
    if (device.breaks && device.counts.launches + graph->kernels > device.breaks_after)
      device.broken = device.error;
    return device.broken;
  }
  return Launch(lock, 1);
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

/// cudaDeviceProp of CUDA 13 is 1008 bytes; these are the members that the provider reads, at their
/// places.
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

void StandInTouch(const void* address) {
  const std::lock_guard lock(The().mutex);
  const Block* block = The().Find(address);
  if (block == nullptr) return;
  for (auto& [stream, graph] : The().captures) graph.touched.insert(block->number);
}

void StandInUsePlan(const void* plan) {
  const std::lock_guard lock(The().mutex);
  for (auto& [stream, graph] : The().captures) graph.plans.insert(plan);
}

void StandInDropPlan(const void* plan) {
  const std::lock_guard lock(The().mutex);
  The().dropped_plans.insert(plan);
}

size_t StandInGraphs() {
  const std::lock_guard lock(The().mutex);
  return The().graphs.size();
}

void StandInSpoil(uint64_t captures) {
  const std::lock_guard lock(The().mutex);
  The().spoil = captures;
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

void StandInSlow(int device, int milliseconds, int times_beside) {
  const std::lock_guard lock(The().mutex);
  Device& slow = The().devices.at(static_cast<size_t>(device));
  slow.milliseconds = milliseconds;
  slow.times_beside = times_beside;
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
  *value = attribute == 16   ? kProcessors
           : attribute == 75 ? 9
           : attribute == 76 ? 0
                             : kThreadsPerBlock;
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
int cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  return Copy({to, from, bytes, kind}, nullptr, true);
}

STAND_IN(cudaMemcpyAsync)
int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  return Copy({to, from, bytes, kind}, stream, false);
}

STAND_IN(cudaMemset)
int cudaMemset(void* memory, int value, size_t bytes) {
  const int state = Wait();
  if (state == kSuccess) std::memset(memory, value, bytes);
  return state;
}

STAND_IN(cudaMemsetAsync)
int cudaMemsetAsync(void* memory, int value, size_t bytes, void* stream) {
  const std::lock_guard lock(The().mutex);
  // Nothing looks at what kernels leave; a graph fills nothing.
  if (CaptureOf(stream) == nullptr) std::memset(memory, value, bytes);
  return Current().broken;
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
int cudaStreamSynchronize(void*) { return Wait(); }

STAND_IN(cudaDeviceSynchronize)
int cudaDeviceSynchronize() { return Wait(); }

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
int cudaStreamIsCapturing(void* stream, int* status) {
  const std::lock_guard lock(The().mutex);
  // cudaStreamCaptureStatus: none, active, invalidated.
  const Graph* graph = CaptureOf(stream);
  *status = graph == nullptr ? 0 : graph->spoilt ? 2 : 1;
  return kSuccess;
}

STAND_IN(cudaStreamBeginCapture)
int cudaStreamBeginCapture(void* stream, int) {
  Machine& the = The();
  const std::lock_guard lock(the.mutex);
  if (Current().broken != kSuccess) return Current().broken;
  // The stream that is none cannot be captured.
  if (stream == nullptr || CaptureOf(stream) != nullptr) return kCaptureUnsupported;
  the.captures[stream].device = current;
  return kSuccess;
}

STAND_IN(cudaStreamEndCapture)
int cudaStreamEndCapture(void* stream, void** out) {
  // A capture takes its time, in which whatever other threads do beside it spoils it.
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Machine& the = The();
  const std::lock_guard lock(the.mutex);
  *out = nullptr;
  const auto found = the.captures.find(stream);
  if (found == the.captures.end()) return kCaptureUnmatched;
  const Graph graph = std::move(found->second);
  the.captures.erase(found);
  Device& device = the.devices[static_cast<size_t>(graph.device)];
  if (device.broken != kSuccess) return device.broken;
  if (graph.spoilt || the.spoil > 0) {
    if (the.spoil > 0) --the.spoil;
    ++device.counts.spoilt;
    return kCaptureInvalidated;
  }
  ++device.counts.captures;
  *out = new Graph(graph);
  return kSuccess;
}

STAND_IN(cudaGraphInstantiate)
int cudaGraphInstantiate(void** out, void* graph, unsigned long long) {
  const std::lock_guard lock(The().mutex);
  if (const int refused = Refused(); refused != kSuccess) return refused;
  auto* made = new Graph(*static_cast<const Graph*>(graph));
  The().graphs.insert(made);
  *out = made;
  return kSuccess;
}

STAND_IN(cudaGraphDestroy)
int cudaGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kSuccess;
}

STAND_IN(cudaGraphExecDestroy)
int cudaGraphExecDestroy(void* graph) {
  const std::lock_guard lock(The().mutex);
  if (const int refused = Refused(); refused != kSuccess) return refused;
  The().graphs.erase(static_cast<Graph*>(graph));
  delete static_cast<Graph*>(graph);
  return kSuccess;
}

STAND_IN(cudaGraphLaunch)
int cudaGraphLaunch(void* launched, void* stream) {
  WaitForFile();
  std::unique_lock lock(The().mutex);
  if (Current().broken != kSuccess) return Current().broken;
  if (CaptureOf(stream) != nullptr) return kCaptureUnsupported;
  const Graph& graph = *static_cast<const Graph*>(launched);
  ++Current().counts.graph_launches;
  std::set<uint64_t> here;
  for (const auto& [address, block] : The().blocks) here.insert(block.number);
  const bool plans_there = std::ranges::none_of(
      graph.plans, [](const void* plan) { return The().dropped_plans.contains(plan); });
  // What the host has written over is copied by every launch, as the addresses that a Concat reads
  // by.
  const bool copies_same = std::ranges::all_of(graph.transfers, [](const Transfer& copy) {
    return std::memcmp(copy.content.data(), copy.from, copy.content.size()) == 0;
  });
  if (!plans_there || !copies_same || !std::ranges::includes(here, graph.touched))
    ++Current().counts.stale;
  const int state = Launch(lock, graph.kernels);
  if (state != kSuccess) return state;
  for (const Transfer& copy : graph.transfers) {
    Count(copy, true);
    std::memmove(copy.to, copy.from, copy.bytes);
  }
  return kSuccess;
}

STAND_IN(cudaLaunchHostFunc)
int cudaLaunchHostFunc(void*, void (*function)(void*), void* data) {
  function(data);
  return kSuccess;
}

STAND_IN(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t,
                                                           unsigned) {
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

/// The stream of the kernel that the calling thread is about to start.
static thread_local void* stream_of_kernel = nullptr;

STAND_IN(__cudaPushCallConfiguration)
unsigned __cudaPushCallConfiguration(Dimensions, Dimensions, size_t, void* stream) {
  stream_of_kernel = stream;
  return 0;
}

STAND_IN(__cudaPopCallConfiguration)
unsigned __cudaPopCallConfiguration(Dimensions* grid, Dimensions* block, size_t* shared,
                                    void** stream) {
  *grid = *block = {1, 1, 1};
  *shared = 0;
  *stream = stream_of_kernel;
  return 0;
}

STAND_IN(__cudaLaunchKernel)
int __cudaLaunchKernel(void*, Dimensions, Dimensions, void**, size_t, void* stream) {
  return LaunchOne(stream);
}

STAND_IN(cudaLaunchKernel)
int cudaLaunchKernel(const void*, Dimensions, Dimensions, void**, size_t, void* stream) {
  return LaunchOne(stream);
}

STAND_IN(cudaLaunchKernelExC)
int cudaLaunchKernelExC(const void* configuration, const void*, void**) {
  // cudaLaunchConfig_t: two dim3, the shared memory, the stream.
  void* stream = nullptr;
  std::memcpy(&stream, static_cast<const char*>(configuration) + 32, sizeof(stream));
  return LaunchOne(stream);
}
}
