#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace radserve {

/// A description as JSON has one: what a caller says of a thing whose own code knows its fields. Asking for a field that
/// is not there, or of another type, throws EngineError `internal`: whoever called has checked it before.
class Description {
 public:
  using Items = std::vector<Description>;

  Description() = default;
  explicit Description(bool value) : value_(value) {}
  explicit Description(double value) : value_(value) {}
  explicit Description(std::string value) : value_(std::move(value)) {}
  explicit Description(Items items) : value_(std::move(items)) {}
  Description(std::vector<std::string> names, Items values)
      : names_(std::move(names)), value_(std::move(values)) {}

  bool Has(std::string_view field) const { return Find(field) != nullptr; }
  const Description& Child(std::string_view field) const {
    const Description* const found = Find(field);
    if (found == nullptr) Unexpected(field);
    return *found;
  }
  double Number(std::string_view field) const { return As<double>(field); }
  int Int(std::string_view field) const { return static_cast<int>(Number(field)); }
  const std::string& Text(std::string_view field) const { return As<std::string>(field); }
  /// False where it is absent.
  bool Flag(std::string_view field) const { return Has(field) && As<bool>(field); }
  /// The list under `field`, each item as `read` gives it.
  template <typename Read>
  auto List(std::string_view field, const Read& read) const {
    std::vector<decltype(read(std::declval<const Description&>()))> out;
    for (const Description& item : As<Items>(field)) out.push_back(read(item));
    return out;
  }
  std::vector<double> Numbers(std::string_view field) const {
    return List(field, [&](const Description& item) { return item.Get<double>(field); });
  }
  std::vector<int> Ints(std::string_view field) const {
    return List(field, [&](const Description& item) { return static_cast<int>(item.Get<double>(field)); });
  }
  /// The value that goes with the text under `field`.
  template <typename T>
  T OneOf(std::string_view field, std::initializer_list<std::pair<std::string_view, T>> choices) const {
    const std::string& found = Text(field);
    for (const auto& [name, value] : choices) {
      if (found == name) return value;
    }
    Unexpected(field);
  }

 private:
  [[noreturn]] static void Unexpected(std::string_view field) {
    throw EngineError("internal", "The addon was called with an unexpected \"" + std::string(field) + "\".");
  }
  const Description* Find(std::string_view field) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == field) return &std::get<Items>(value_)[i];
    }
    return nullptr;
  }
  template <typename T>
  const T& Get(std::string_view field) const {
    const T* const value = std::get_if<T>(&value_);
    if (value == nullptr) Unexpected(field);
    return *value;
  }
  template <typename T>
  const T& As(std::string_view field) const {
    return Child(field).Get<T>(field);
  }

  /// Names of an object; its values are the items.
  std::vector<std::string> names_;
  std::variant<std::monostate, bool, double, std::string, Items> value_;
};

}  // namespace radserve
