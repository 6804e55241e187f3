#include "runtime/session.h"
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <cstring>
#include <dlfcn.h>
#include "check.h"
#include "onnx.h"
#include "stand_in.h"
using namespace radserve;
using namespace radserve::test;
namespace {
TEST("probe") {
  StartRuntime();
  std::cout << "problem: " << CudaProblem(0) << "\n";
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "cuda-probe.onnx";
  std::ofstream(path, std::ios::binary) << OneNode("Conv", {"x","w"}, {0,1,4,4}, {0,1,4,4}, "", 0, Zeros("w",{1,1,1,1}));
  SessionSettings settings; settings.provider = Provider::kCuda;
  Session s(path, settings, "model_unavailable");
  const std::vector<std::string> outs={"y"};
  auto b = s.MakeBucket(4, {{1,4,4}}, outs);
  for (int i=0;i<3;i++){ b->Row(0,0); b->Run(1, {}); }
}
END;
}
