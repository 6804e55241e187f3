#pragma once

#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>

namespace radserve {

/// The one exception the engine raises on purpose. `code` is one of the codes of
/// src/base/errors.ts; the message says what was expected, what was found and what to do, and holds
/// no patient data.
class EngineError : public std::runtime_error {
 public:
  EngineError(std::string code, const std::string& message)
      : std::runtime_error(message), code_(std::move(code)) {}
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

/// A device's memory, or the limit set for it, did not suffice. The batcher splits the batch and
/// tries again; if one image alone does not fit, the caller gets the message.
class OutOfMemory : public EngineError {
 public:
  explicit OutOfMemory(const std::string& message) : EngineError("overloaded", message) {}
};

/// For loops over much data, whose caller may have been told to stop.
inline void CheckStop(const std::stop_token& stop) {
  if (stop.stop_requested()) throw EngineError("cancelled", "The work was cancelled.");
}

}  // namespace radserve
