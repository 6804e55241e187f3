// libcudnn.so.9 without a GPU: every plan is one engine without workspace, which computes nothing
// (see runtime.cc).
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "stand_in.h"

#define STAND_IN(name)

namespace {

int handle = 0;

/// cudnnBackendAttributeType_t: another descriptor. The values of all other kinds take at most
/// eight bytes.
constexpr int kDescriptor = 15;
constexpr size_t kValueBytes = 8;

/// cudnnBackendDescriptorType_t.
constexpr int kExecutionPlan = 5;

std::atomic<uint64_t> plans = 0;

/// Calls a function of libcudart.so.13, with which this library is not linked.
void Tell(const char* function, const void* plan) {
  if (plan == nullptr || plan == &handle) return;
  const auto tell = reinterpret_cast<decltype(&StandInUsePlan)>(dlsym(RTLD_DEFAULT, function));
  if (tell != nullptr) tell(plan);
}

}  // namespace

extern "C" {

uint64_t StandInPlans() { return plans; }

STAND_IN(cudnnCreate)
int cudnnCreate(void** out) {
  *out = &handle;
  return 0;
}

STAND_IN(cudnnGetVersion)
size_t cudnnGetVersion() { return 91400; }

STAND_IN(cudnnGetErrorString)
const char* cudnnGetErrorString(int) { return "a status of the stand-in"; }

STAND_IN(cudnnGetLastErrorString)
void cudnnGetLastErrorString(char* message, size_t size) {
  if (size > 0) *message = '\0';
}

STAND_IN(cudnnBackendCreateDescriptor)
int cudnnBackendCreateDescriptor(int type, void** out) {
  *out = &handle;
  if (type != kExecutionPlan) return 0;
  // Its address is its name, and is never given again.
  *out = ::operator new(1);
  ++plans;
  return 0;
}

STAND_IN(cudnnBackendDestroyDescriptor)
int cudnnBackendDestroyDescriptor(void* descriptor) {
  Tell("StandInDropPlan", descriptor);
  return 0;
}

STAND_IN(cudnnBackendExecute)
int cudnnBackendExecute(void*, void* plan, void*) {
  Tell("StandInUsePlan", plan);
  return 0;
}

STAND_IN(cudnnBackendGetAttribute)
int cudnnBackendGetAttribute(void*, int, int type, int64_t wanted, int64_t* count, void* values) {
  if (count != nullptr) *count = 1;
  if (values != nullptr && wanted > 0 && type != kDescriptor) std::memset(values, 0, kValueBytes);
  return 0;
}
}
