/*
 * Preloaded into a server (LD_PRELOAD) by the scenario of two nodes: every Run of ONNX Runtime
 * sleeps for SLEEPING_RUN_MS an image before it computes. Two nodes on one small machine so behave
 * like two machines whose models take that long, and the product under them is the real one. ONNX
 * Runtime hands out its functions by a table; this gives a copy of it with one function replaced.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <onnxruntime_c_api.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static const OrtApi* real;
static OrtApi changed;

/* Size of the first dimension of the first input: the images of this run. */
static int64_t Images(const OrtValue* const* inputs, size_t count) {
  OrtTensorTypeAndShapeInfo* info = NULL;
  int64_t dimensions[16] = {1};
  size_t rank = 0;
  if (count == 0 || real->GetTensorTypeAndShape(inputs[0], &info) != NULL) return 1;
  if (real->GetDimensionsCount(info, &rank) == NULL && rank > 0 && rank <= 16)
    (void)!real->GetDimensions(info, dimensions, rank);
  real->ReleaseTensorTypeAndShapeInfo(info);
  return dimensions[0];
}

static OrtStatus* ORT_API_CALL SleepAndRun(OrtSession* session, const OrtRunOptions* options,
                                           const char* const* input_names, const OrtValue* const* inputs,
                                           size_t input_count, const char* const* output_names,
                                           size_t output_count, OrtValue** outputs) {
  const char* setting = getenv("SLEEPING_RUN_MS");
  const int64_t ms = (setting == NULL ? 0 : atoll(setting)) * Images(inputs, input_count);
  struct timespec left = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&left, &left) != 0) {
  }
  return real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
}

static const OrtApiBase* RealBase(void) {
  void* library = dlopen("libonnxruntime.so.1", RTLD_NOLOAD | RTLD_NOW);
  const OrtApiBase* (*get)(void) =
      library == NULL ? NULL : (const OrtApiBase* (*)(void))dlsym(library, "OrtGetApiBase");
  if (get == NULL) abort();
  return get();
}

static const OrtApi* ORT_API_CALL GetApi(uint32_t version) {
  if (version != ORT_API_VERSION) abort();
  real = RealBase()->GetApi(version);
  changed = *real;
  changed.Run = SleepAndRun;
  return &changed;
}

static const char* ORT_API_CALL GetVersionString(void) { return RealBase()->GetVersionString(); }

const OrtApiBase* ORT_API_CALL OrtGetApiBase(void) {
  static const OrtApiBase base = {GetApi, GetVersionString};
  return &base;
}
