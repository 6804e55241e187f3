#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/description.h"

namespace radserve::test {

/// Pieces of a manifest.
inline Description Text(const char* text) { return Description(std::string(text)); }
inline Description Number(double number) { return Description(number); }
inline Description Numbers(const std::vector<double>& numbers) {
  Description::Items items;
  for (const double number : numbers) items.push_back(Number(number));
  return Description(std::move(items));
}
inline Description Object(const std::vector<std::pair<std::string, Description>>& fields) {
  std::vector<std::string> names;
  Description::Items items;
  for (const auto& [name, value] : fields) {
    names.push_back(name);
    items.push_back(value);
  }
  return {std::move(names), std::move(items)};
}

}  // namespace radserve::test
