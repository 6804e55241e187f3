// libcudnn.so.9 without a GPU: every plan is one engine without workspace, which computes nothing (see runtime.cc).
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "stand_in.h"

#define STAND_IN(name)

namespace {

int handle = 0;

/// cudnnBackendAttributeType_t: another descriptor. The values of all other kinds take at most eight bytes.
constexpr int kDescriptor = 15;
constexpr size_t kValueBytes = 8;

/// cudnnBackendDescriptorType_t.
constexpr int kExecutionPlan = 5;

std::atomic<uint64_t> plans = 0;

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
  if (type == kExecutionPlan) ++plans;
  *out = &handle;
  return 0;
}

STAND_IN(cudnnBackendGetAttribute)
int cudnnBackendGetAttribute(void*, int, int type, int64_t wanted, int64_t* count, void* values) {
  if (count != nullptr) *count = 1;
  if (values != nullptr && wanted > 0 && type != kDescriptor) std::memset(values, 0, kValueBytes);
  return 0;
}
}
