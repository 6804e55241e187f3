#include "runtime/openvino.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "base/error.h"

namespace radserve::openvino {
namespace {

/// The first has the functions, and the version that scripts/openvino-libraries.mjs pins in its
/// SONAME. It opens the others itself when a model is loaded, which is late to learn that they
/// cannot be opened.
constexpr std::array<const char*, 3> kLibraries = {"libopenvino_c.so.2641",
                                                   "libopenvino_onnx_frontend.so.2641",
                                                   "libopenvino_intel_cpu_plugin.so"};

/// ov_version_t.
struct VersionTexts {
  const char* build = nullptr;
  const char* description = nullptr;
};

struct Opened {
  Library library;
  std::string version;
  std::string problem;
};

/// The folder beside the file that this code is in.
std::filesystem::path Folder() {
  Dl_info here = {};
  if (dladdr(reinterpret_cast<const void*>(&Problem), &here) == 0 || here.dli_fname == nullptr)
    throw std::runtime_error("the place of the addon is not known");
  return std::filesystem::absolute(here.dli_fname).parent_path() / "openvino";
}

std::string LinkerError() {
  const char* const text = dlerror();
  return text == nullptr ? "the dynamic linker does not say why" : text;
}

/// The dynamic linker does not look how long a file is, and to read past the end of one that was
/// cut ends the process (SIGBUS).
void CheckWhole(const std::filesystem::path& path) {
  const auto cut = [&path] {
    return std::runtime_error(path.filename().string() + " is cut or damaged");
  };
  const uintmax_t length = std::filesystem::file_size(path);
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header = {};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header))) throw cut();
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr part = {};
    if (!file.read(reinterpret_cast<char*>(&part), sizeof(part))) throw cut();
    if (part.p_offset > length || part.p_filesz > length - part.p_offset) throw cut();
  }
}

/// Never closed, as the addon is not.
void* OpenLibrary(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file))
    throw std::runtime_error(file.filename().string() + " is missing");
  CheckWhole(file);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(LinkerError());
  return library;
}

/// All of them, and gives the first.
void* OpenLibraries() {
  const std::filesystem::path folder = Folder();
  if (!std::filesystem::exists(folder)) throw std::runtime_error("it is not installed");
  void* const first = OpenLibrary(folder / kLibraries.front());
  std::ranges::for_each(kLibraries, [&](const char* name) { OpenLibrary(folder / name); });
  return first;
}

template <typename Function>
void Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(LinkerError());
}

void Open(Opened& opened) {
  void* const file = OpenLibraries();
  Library& library = opened.library;
#define RADSERVE_FIND(name) Find(file, #name, library.name)
  RADSERVE_FIND(ov_core_read_model_from_memory_buffer);
  RADSERVE_FIND(ov_model_free);
  RADSERVE_FIND(ov_core_compile_model);
  RADSERVE_FIND(ov_compiled_model_get_property);
  RADSERVE_FIND(ov_compiled_model_input_by_name);
  RADSERVE_FIND(ov_compiled_model_output_by_name);
  RADSERVE_FIND(ov_output_const_port_free);
  RADSERVE_FIND(ov_compiled_model_create_infer_request);
  RADSERVE_FIND(ov_compiled_model_free);
  RADSERVE_FIND(ov_infer_request_set_tensor);
  RADSERVE_FIND(ov_infer_request_get_tensor);
  RADSERVE_FIND(ov_infer_request_start_async);
  RADSERVE_FIND(ov_infer_request_wait);
  RADSERVE_FIND(ov_infer_request_cancel);
  RADSERVE_FIND(ov_infer_request_free);
  RADSERVE_FIND(ov_tensor_create_from_host_ptr);
  RADSERVE_FIND(ov_tensor_get_shape);
  RADSERVE_FIND(ov_shape_free);
  RADSERVE_FIND(ov_tensor_get_element_type);
  RADSERVE_FIND(ov_tensor_data);
  RADSERVE_FIND(ov_tensor_free);
  RADSERVE_FIND(ov_get_last_err_msg);
  RADSERVE_FIND(ov_free);
#undef RADSERVE_FIND
  Status (*version)(VersionTexts*) = nullptr;
  void (*free_version)(VersionTexts*) = nullptr;
  Status (*make_core)(Core**) = nullptr;
  Find(file, "ov_get_openvino_version", version);
  Find(file, "ov_version_free", free_version);
  Find(file, "ov_core_create", make_core);
  VersionTexts texts;
  if (version(&texts) != kOk) throw std::runtime_error(library.LastError());
  opened.version = texts.build;
  free_version(&texts);
  Core* core = nullptr;
  if (make_core(&core) != kOk) throw std::runtime_error(library.LastError());
  library.core = core;
}

const Opened& TheOpened() {
  static const Opened& opened = []() -> const Opened& {
    auto made = std::make_unique<Opened>();
    try {
      Open(*made);
    } catch (const std::exception& e) {
      made->problem = e.what();
    }
    return *made.release();
  }();
  return opened;
}

}  // namespace

std::string Problem() { return TheOpened().problem; }

std::string Version() { return TheOpened().version; }

const Library& Get() {
  const Opened& opened = TheOpened();
  if (opened.problem.empty()) return opened.library;
  throw EngineError("model_unavailable",
                    "OpenVINO cannot be used: " + opened.problem +
                        ". Run npm run setup:openvino, or leave openvino out of "
                        "RADSERVE_PROVIDERS.");
}

std::string Library::LastError() const {
  const char* const text = ov_get_last_err_msg();
  std::string words = text == nullptr ? "it does not say why" : text;
  if (text != nullptr) ov_free(text);
  // Where in its source each step of the way failed stands between the lines that say what did.
  std::string line;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find('\n', at), words.size());
    const std::string_view part = std::string_view(words).substr(at, end - at);
    at = end + 1;
    if (part.empty() || part.starts_with("Exception from ")) continue;
    line += (line.empty() ? "" : " ") + std::string(part);
  }
  return line;
}

}  // namespace radserve::openvino
