// libcublas.so.13 and libcublasLt.so.13 without a GPU: handles, and stubs for the rest (see runtime.cc).
#define STAND_IN(name)

extern "C" {

static int handle_of_stand_in = 0;

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

STAND_IN(cublasGetStatusName)
const char* cublasGetStatusName(int) { return "a status of the stand-in"; }

STAND_IN(cublasGetStatusString)
const char* cublasGetStatusString(int) { return "a status of the stand-in"; }
}
