#include "prepare/input.h"

#include <utility>

namespace radserve {
namespace {

void ReadTensorFields(const Description& input, InputSpec& spec) {
  spec.tensor = input.Text("tensor");
  const auto dtype = DtypeFromName(input.Text("dtype"));
  if (!dtype) Unexpected("dtype");
  spec.dtype = *dtype;
}

/// How many numbers a value of an attribute becomes.
int NumbersOf(const Description& value) {
  return value.Text("encoding") == "one_hot" ? static_cast<int>(value.Count("values")) : 1;
}

InputSpec ReadNumbers(const Description& input) {
  InputSpec spec;
  ReadTensorFields(input, spec);
  for (const int numbers : input.List("values", NumbersOf)) spec.numbers += numbers;
  spec.flat = input.Text("layout") == "N";
  return spec;
}

/// An input of pixels that are those of one source.
InputSpec ReadPixels(const Description& input) {
  InputSpec spec;
  ReadTensorFields(input, spec);
  const std::string& layout = input.Text("layout");
  spec.channels_last = layout.back() == 'C';
  spec.transposed = layout == "NCWH";
  spec.volume = layout.find('D') != std::string::npos;
  spec.ReadValues(input);
  spec.ReadPlacement(input);
  spec.ReadVolume(input);
  spec.normalisation = ReadNormalisation(input.Child("normalisation"));
  if (input.Has("intensity")) spec.intensity = input.List("intensity", ReadIntensity);
  if (input.Has("neighbours")) spec.neighbours = ReadNeighbours(input.Child("neighbours"));
  return spec;
}

}  // namespace

InputSpec ReadInputSpec(const Description& input, std::span<const std::string> roles) {
  if (input.Has("kind") && input.Text("kind") == "attributes") return ReadNumbers(input);
  InputSpec spec;
  if (input.Has("roles")) {
    // A field that a role has of its own replaces that of the input.
    std::vector<InputSpec> parts = input.List("roles", [&](const Description& role) {
      InputSpec part = ReadPixels(input.With(role));
      part.source =
          static_cast<size_t>(std::ranges::find(roles, role.Text("role")) - roles.begin());
      return part;
    });
    spec = parts.front();
    if (parts.size() > 1) spec.parts = std::move(parts);
  } else {
    spec = ReadPixels(input);
  }
  spec.label_channels = LabelChannelsOf(input);
  return spec;
}

}  // namespace radserve
