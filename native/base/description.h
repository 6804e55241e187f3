#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace radserve {

/// A caller gave a field that is not there, or is of another type, though it has checked it before:
/// throws EngineError `internal`.
[[noreturn]] inline void Unexpected(const char* field) {
  throw EngineError("internal",
                    "The addon was called with an unexpected \"" + std::string(field) + "\".");
}

/// Asks an object for its fields. Asking for one that is not there, or of another type, is
/// Unexpected. What holds the object, `Self`, has Find, which gives a field or nothing, and of a
/// field Get<T> and Items.
template <typename Self>
class Fields {
 public:
  bool Has(const char* field) const { return static_cast<bool>(self().Find(field)); }
  decltype(auto) Child(const char* field) const { return As<Self>(field); }
  double Number(const char* field) const { return As<double>(field); }
  int Int(const char* field) const { return static_cast<int>(Number(field)); }
  decltype(auto) Text(const char* field) const { return As<std::string>(field); }
  /// False where it is absent.
  bool Flag(const char* field) const {
    const auto found = self().Find(field);
    return found && (*found).template Get<bool>(field);
  }
  /// Fields and where they go, in turn: numbers, whole ones, texts, flags, and lists of numbers.
  template <typename T, typename... Others>
  void Into(const char* field, T& to, Others&&... others) const {
    if constexpr (std::is_same_v<T, bool>) {
      to = Flag(field);
    } else if constexpr (std::is_same_v<T, std::string>) {
      to = Text(field);
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      to = Numbers(field);
    } else if constexpr (std::is_same_v<T, double>) {
      to = Number(field);
    } else {
      to = Int(field);
    }
    if constexpr (sizeof...(others) > 0) Into(others...);
  }
  /// The list under `field`, each item as `read` gives it.
  template <typename Read>
  auto List(const char* field, const Read& read) const {
    std::vector<decltype(read(std::declval<const Self&>()))> out;
    for (const Self& item : As<std::vector<Self>>(field)) out.push_back(read(item));
    return out;
  }
  std::vector<double> Numbers(const char* field) const {
    return List(field, [&](const Self& item) { return double{item.template Get<double>(field)}; });
  }
  std::vector<std::string> Texts(const char* field) const {
    return List(field, [&](const Self& item) {
      return std::string(item.template Get<std::string>(field));
    });
  }
  std::vector<int> Ints(const char* field) const {
    return List(field, [&](const Self& item) {
      return static_cast<int>(item.template Get<double>(field));
    });
  }
  size_t Count(const char* field) const { return As<std::vector<Self>>(field).size(); }
  /// So many numbers; `null` stands for those that are null, where it is given.
  template <size_t count, typename T = double>
  std::array<T, count> Some(const char* field, std::optional<T> null = std::nullopt) const {
    const std::vector<T> numbers = List(field, [&](const Self& item) {
      return null && item.IsNull() ? *null : static_cast<T>(item.template Get<double>(field));
    });
    if (numbers.size() != count) Unexpected(field);
    std::array<T, count> out;
    std::ranges::copy(numbers, out.begin());
    return out;
  }
  /// The value that goes with the text under `field`.
  template <typename T>
  T OneOf(const char* field, std::initializer_list<std::pair<std::string_view, T>> choices) const {
    return Chosen<T>(Text(field), field, choices);
  }
  /// The same of a text itself, an item of `field`.
  template <typename T>
  T Choice(const char* field, std::initializer_list<std::pair<std::string_view, T>> choices) const {
    return Chosen<T>(self().template Get<std::string>(field), field, choices);
  }

 private:
  template <typename T>
  static T Chosen(const std::string& found, const char* field,
                  std::initializer_list<std::pair<std::string_view, T>> choices) {
    for (const auto& [name, value] : choices) {
      if (found == name) return value;
    }
    Unexpected(field);
  }
  const Self& self() const { return static_cast<const Self&>(*this); }
  template <typename T>
  decltype(auto) As(const char* field) const {
    const auto found = self().Find(field);
    if (!found) Unexpected(field);
    return (*found).template Get<T>(field);
  }
};

/// A piece of JSON: what a caller says of a thing whose own code knows its fields.
class Description : public Fields<Description> {
 public:
  using Items = std::vector<Description>;

  Description() = default;
  explicit Description(bool value) : value_(value) {}
  explicit Description(double value) : value_(value) {}
  explicit Description(std::string value) : value_(std::move(value)) {}
  explicit Description(Items items) : value_(std::move(items)) {}
  Description(std::vector<std::string> names, Items values)
      : names_(std::move(names)), value_(std::move(values)) {}

  bool IsNull() const { return std::holds_alternative<std::monostate>(value_); }
  bool IsText() const { return std::holds_alternative<std::string>(value_); }
  /// This object with the fields of another, which replace those of the same name.
  Description With(const Description& other) const {
    Description both = other;
    auto& values = std::get<Items>(both.value_);
    for (size_t i = 0; i < names_.size(); ++i) {
      if (other.Find(names_[i]) != nullptr) continue;
      both.names_.push_back(names_[i]);
      values.push_back(std::get<Items>(value_)[i]);
    }
    return both;
  }
  const Description* Find(std::string_view field) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == field) return &std::get<Items>(value_)[i];
    }
    return nullptr;
  }
  template <typename T>
  const T& Get(const char* field) const {
    if constexpr (std::is_same_v<T, Description>) {
      return *this;
    } else {
      const T* const value = std::get_if<T>(&value_);
      if (value == nullptr) Unexpected(field);
      return *value;
    }
  }

 private:
  /// Names of an object; its values are the items.
  std::vector<std::string> names_;
  std::variant<std::monostate, bool, double, std::string, Items> value_;
};

}  // namespace radserve
