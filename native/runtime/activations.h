#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace radserve {

/// "sigmoid" or "softmax" by the name of each output of the graph itself whose values are those of
/// one, in the bytes of an .onnx file. Operators behind it that only move its values are passed
/// over.
std::map<std::string, std::string> Activations(std::span<const std::byte> model);

/// The same of a file; none if it cannot be read.
std::map<std::string, std::string> Activations(const std::string& path);

}  // namespace radserve
