// libcublas.so.13 and libcublasLt.so.13 without a GPU: handles, products that compute nothing and
// tell what they touch, and stubs for the rest (see runtime.cc).
#include <dlfcn.h>

#include "stand_in.h"

#define STAND_IN(name)

namespace {

int handle_of_stand_in = 0;

int Touch(const void* a, const void* b, const void* c) {
  // Of libcudart.so.13, with which this library is not linked.
  static auto* const touch =
      reinterpret_cast<decltype(&StandInTouch)>(dlsym(RTLD_DEFAULT, "StandInTouch"));
  if (touch == nullptr) return 0;
  touch(a);
  touch(b);
  touch(c);
  return 0;
}

}  // namespace

extern "C" {

STAND_IN(cublasCreate_v2)
int cublasCreate_v2(void** handle) {
  *handle = &handle_of_stand_in;
  return 0;
}

STAND_IN(cublasLtCreate)
int cublasLtCreate(void** handle) {
  *handle = &handle_of_stand_in;
  return 0;
}

STAND_IN(cublasSgemm_v2)
int cublasSgemm_v2(void*, int, int, int, int, int, const void*, const void* a, int, const void* b,
                   int, const void*, void* c, int) {
  return Touch(a, b, c);
}

STAND_IN(cublasGemmEx)
int cublasGemmEx(void*, int, int, int, int, int, const void*, const void* a, int, int,
                 const void* b, int, int, const void*, void* c, int, int, int, int) {
  return Touch(a, b, c);
}

STAND_IN(cublasGetStatusName)
const char* cublasGetStatusName(int) { return "a status of the stand-in"; }

STAND_IN(cublasGetStatusString)
const char* cublasGetStatusString(int) { return "a status of the stand-in"; }
}
