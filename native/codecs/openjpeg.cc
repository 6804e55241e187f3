#include "codecs/openjpeg.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>

#include "base/error.h"

namespace radserve {
namespace {

// The declarations of openjpeg.h of the 2.x releases that are used here. All of them have the
// SONAME of these layouts.

struct OpjComponent {
  uint32_t dx, dy, w, h, x0, y0, prec, bpp, sgnd, resno_decoded, factor;
  int32_t* data;
  uint16_t alpha;
};

struct OpjImage {
  uint32_t x0, y0, x1, y1, numcomps;
  int color_space;
  OpjComponent* comps;
  uint8_t* icc_profile_buf;
  uint32_t icc_profile_len;
};

/// opj_dparameters_t, which the library fills itself; some 8 KiB there.
struct alignas(16) OpjParameters {
  std::array<std::byte, size_t{32} * 1024> opaque{};
};

using OpjCodec = void*;
using OpjStream = void*;
using OpjRead = size_t (*)(void* buffer, size_t bytes, void* user);
using OpjSkip = int64_t (*)(int64_t bytes, void* user);
using OpjSeek = int (*)(int64_t bytes, void* user);
using OpjFree = void (*)(void* user);
using OpjMessage = void (*)(const char* message, void* user);

constexpr int kCodestream = 0;  // OPJ_CODEC_J2K
constexpr int kTrue = 1;

struct Library {
  const char* (*version)();
  OpjCodec (*create_decompress)(int format);
  void (*set_default_decoder_parameters)(OpjParameters* parameters);
  int (*setup_decoder)(OpjCodec codec, OpjParameters* parameters);
  int (*codec_set_threads)(OpjCodec codec, int threads);
  int (*set_warning_handler)(OpjCodec codec, OpjMessage handler, void* user);
  int (*set_error_handler)(OpjCodec codec, OpjMessage handler, void* user);
  OpjStream (*stream_create)(size_t buffer, int is_input);
  void (*stream_set_read_function)(OpjStream stream, OpjRead read);
  void (*stream_set_skip_function)(OpjStream stream, OpjSkip skip);
  void (*stream_set_seek_function)(OpjStream stream, OpjSeek seek);
  void (*stream_set_user_data)(OpjStream stream, void* user, OpjFree free);
  void (*stream_set_user_data_length)(OpjStream stream, uint64_t bytes);
  int (*read_header)(OpjStream stream, OpjCodec codec, OpjImage** image);
  int (*decode)(OpjCodec codec, OpjStream stream, OpjImage* image);
  int (*end_decompress)(OpjCodec codec, OpjStream stream);
  void (*stream_destroy)(OpjStream stream);
  void (*destroy_codec)(OpjCodec codec);
  void (*image_destroy)(OpjImage* image);
};

/// Major and minor number of a version like 2.5.0.
std::optional<std::array<int, 2>> Numbers(std::string_view version) {
  std::array<int, 2> numbers{};
  const char* at = version.data();
  const char* end = at + version.size();
  for (int& number : numbers) {
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || next == end || *next != '.') return std::nullopt;
    at = next + 1;
  }
  return numbers;
}

std::optional<Library> Load() {
  void* const handle = dlopen("libopenjp2.so.7", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return std::nullopt;
  Library library{};
  const auto find = [handle](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    return function != nullptr;
  };
  const bool is_whole =
      find(library.version, "opj_version") &&
      find(library.create_decompress, "opj_create_decompress") &&
      find(library.set_default_decoder_parameters, "opj_set_default_decoder_parameters") &&
      find(library.setup_decoder, "opj_setup_decoder") &&
      find(library.codec_set_threads, "opj_codec_set_threads") &&
      find(library.set_warning_handler, "opj_set_warning_handler") &&
      find(library.set_error_handler, "opj_set_error_handler") &&
      find(library.stream_create, "opj_stream_create") &&
      find(library.stream_set_read_function, "opj_stream_set_read_function") &&
      find(library.stream_set_skip_function, "opj_stream_set_skip_function") &&
      find(library.stream_set_seek_function, "opj_stream_set_seek_function") &&
      find(library.stream_set_user_data, "opj_stream_set_user_data") &&
      find(library.stream_set_user_data_length, "opj_stream_set_user_data_length") &&
      find(library.read_header, "opj_read_header") && find(library.decode, "opj_decode") &&
      find(library.end_decompress, "opj_end_decompress") &&
      find(library.stream_destroy, "opj_stream_destroy") &&
      find(library.destroy_codec, "opj_destroy_codec") &&
      find(library.image_destroy, "opj_image_destroy");
  const auto numbers = is_whole ? Numbers(library.version()) : std::nullopt;
  if (!numbers || *numbers < std::array{2, 3}) {
    dlclose(handle);
    return std::nullopt;
  }
  return library;
}

const std::optional<Library>& TheLibrary() {
  static const std::optional<Library> library = Load();
  return library;
}

/// Bytes that the library reads as a file.
struct Source {
  std::span<const uint8_t> bytes;
  size_t at = 0;
};

size_t Read(void* buffer, size_t bytes, void* user) {
  auto& source = *static_cast<Source*>(user);
  const size_t count = std::min(bytes, source.bytes.size() - source.at);
  if (count == 0) return static_cast<size_t>(-1);
  std::memcpy(buffer, source.bytes.data() + source.at, count);
  source.at += count;
  return count;
}

int64_t Skip(int64_t bytes, void* user) {
  auto& source = *static_cast<Source*>(user);
  const auto left = static_cast<int64_t>(source.bytes.size() - source.at);
  if (bytes < 0 || left == 0) return -1;
  const int64_t count = std::min(bytes, left);
  source.at += static_cast<size_t>(count);
  return count;
}

int Seek(int64_t to, void* user) {
  auto& source = *static_cast<Source*>(user);
  if (to < 0 || static_cast<uint64_t>(to) > source.bytes.size()) return 0;
  source.at = static_cast<size_t>(to);
  return kTrue;
}

/// The first complaint is kept; a codestream that breaks a rule may give pixels all the same.
void Complain(const char* message, void* user) {
  auto& complaint = *static_cast<std::string*>(user);
  if (complaint.empty()) complaint = message;
}

/// Copies one component's samples to their places in pixels.
template <typename Sample>
void PutSamples(const int32_t* from, size_t count, size_t step, uint8_t* to) {
  for (size_t i = 0; i < count; ++i, to += step) {
    const auto sample = static_cast<Sample>(from[i]);
    std::memcpy(to, &sample, sizeof(sample));
  }
}

[[noreturn]] void Refuse(const std::string& why) { throw EngineError("corrupt_image", why); }

void CheckImage(const OpjImage& image, const Jpeg2000Frame& frame) {
  if (image.numcomps != frame.components) Refuse("Expected another number of components.");
  for (const OpjComponent& component : std::span(image.comps, image.numcomps)) {
    if (component.dx != 1 || component.dy != 1 || component.w != frame.columns ||
        component.h != frame.rows)
      Refuse("Expected components of the frame's size.");
    if (component.prec != frame.precision || (component.sgnd != 0) != frame.is_signed)
      Refuse("Expected samples of another form.");
    if (component.data == nullptr) Refuse("Expected samples; found none.");
  }
}

void PutImage(const OpjImage& image, const Jpeg2000Frame& frame, std::span<uint8_t> pixels) {
  const size_t step = frame.components * frame.SampleBytes();
  const size_t count = size_t{frame.rows} * frame.columns;
  for (size_t c = 0; c < frame.components; ++c) {
    uint8_t* const first = pixels.data() + c * frame.SampleBytes();
    if (frame.SampleBytes() == 1) {
      PutSamples<uint8_t>(image.comps[c].data, count, step, first);
    } else {
      PutSamples<uint16_t>(image.comps[c].data, count, step, first);
    }
  }
}

}  // namespace

std::string OpenJpegVersion() { return TheLibrary() ? TheLibrary()->version() : ""; }

void DecodeJpeg2000(std::span<const uint8_t> codestream, const Jpeg2000Frame& frame, int threads,
                    std::span<uint8_t> pixels) {
  if (!TheLibrary())
    throw EngineError("unsupported_format", "Expected libopenjp2.so.7; the system has none.");
  if (pixels.size() != frame.Bytes())
    throw EngineError("internal", "Expected room for all pixels.");
  const Library& opj = *TheLibrary();
  Source source{codestream};
  std::string complaint;
  const std::unique_ptr<void, void (*)(OpjCodec)> codec(opj.create_decompress(kCodestream),
                                                        opj.destroy_codec);
  const std::unique_ptr<void, void (*)(OpjStream)> stream(
      opj.stream_create(codestream.size(), kTrue), opj.stream_destroy);
  if (codec == nullptr || stream == nullptr) Refuse("Expected memory for a decoder.");
  opj.set_warning_handler(codec.get(), Complain, &complaint);
  opj.set_error_handler(codec.get(), Complain, &complaint);
  opj.stream_set_read_function(stream.get(), Read);
  opj.stream_set_skip_function(stream.get(), Skip);
  opj.stream_set_seek_function(stream.get(), Seek);
  opj.stream_set_user_data(stream.get(), &source, nullptr);
  opj.stream_set_user_data_length(stream.get(), codestream.size());
  const auto parameters = std::make_unique<OpjParameters>();
  opj.set_default_decoder_parameters(parameters.get());
  const bool is_set = opj.setup_decoder(codec.get(), parameters.get()) != 0 &&
                      (threads < 2 || opj.codec_set_threads(codec.get(), threads) != 0);
  OpjImage* read = nullptr;
  const bool has_header = is_set && opj.read_header(stream.get(), codec.get(), &read) != 0;
  const std::unique_ptr<OpjImage, void (*)(OpjImage*)> image(read, opj.image_destroy);
  const bool is_decoded = has_header && opj.decode(codec.get(), stream.get(), image.get()) != 0 &&
                          opj.end_decompress(codec.get(), stream.get()) != 0;
  if (!complaint.empty()) Refuse(complaint);
  if (!is_decoded) Refuse("The codestream cannot be decoded.");
  CheckImage(*image, frame);
  PutImage(*image, frame, pixels);
}

}  // namespace radserve
