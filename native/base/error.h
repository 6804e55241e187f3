#pragma once

#include <cstddef>
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
/// tries again; one image that does not fit alone either fails with memory_exceeded.
class OutOfMemory : public EngineError {
 public:
  /// needed: bytes that others have to leave before it may go well; 0 if nobody knows.
  explicit OutOfMemory(const std::string& message, size_t needed = 0)
      : OutOfMemory("overloaded", message, needed) {}
  size_t needed() const { return needed_; }

 protected:
  OutOfMemory(std::string code, const std::string& message, size_t needed)
      : EngineError(std::move(code), message), needed_(needed) {}

 private:
  size_t needed_;
};

/// It would not suffice either if nobody else had any of it.
class MemoryExceeded : public OutOfMemory {
 public:
  explicit MemoryExceeded(const std::string& message)
      : OutOfMemory("memory_exceeded", message, 0) {}
};

/// For loops over much data, whose caller may have been told to stop.
inline void CheckStop(const std::stop_token& stop) {
  if (stop.stop_requested()) throw EngineError("cancelled", "The work was cancelled.");
}

}  // namespace radserve
