#pragma once

#include <napi.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/description.h"
#include "base/tensor.h"
#include "graph/engine.h"
#include "runtime/session.h"

/// JavaScript values to what the graphs' engine takes, and back. TypeScript has checked the values.
namespace radserve {

/// A JavaScript value as it was given.
class Given : public Fields<Given> {
 public:
  explicit Given(const Napi::Value& value) : value_(value) {}
  const Napi::Value& value() const { return value_; }

  bool IsNull() const { return value_.IsNull(); }
  Napi::Value At(const char* field) const { return value_.As<Napi::Object>().Get(field); }
  std::optional<Given> Find(const char* field) const {
    const Napi::Value found = At(field);
    return found.IsUndefined() ? std::nullopt : std::optional(Given(found));
  }
  /// The bytes that an array of bytes shows; the caller keeps a reference to it.
  std::span<uint8_t> Bytes(const char* field) const;
  template <typename T>
  T Get(const char* field) const {
    if constexpr (std::is_same_v<T, bool>) {
      return value_.ToBoolean();
    } else if constexpr (std::is_same_v<T, double>) {
      if (value_.IsNumber()) return value_.As<Napi::Number>().DoubleValue();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (value_.IsString()) return value_.As<Napi::String>().Utf8Value();
    } else if constexpr (std::is_same_v<T, Given>) {
      if (value_.IsObject()) return *this;
    } else if (value_.IsArray()) {
      const auto array = value_.As<Napi::Array>();
      T items;
      for (uint32_t i = 0; i < array.Length(); ++i) items.emplace_back(array.Get(i));
      return items;
    }
    Unexpected(field);
  }

 private:
  Napi::Value value_;
};

std::span<uint8_t> Bytes(const Napi::Value& value, const char* name);
/// Keeps an array alive as long as somebody has this. It is made and dropped on the thread of the
/// environment.
std::shared_ptr<Napi::ObjectReference> Hold(const Napi::Value& array);
/// A whole number from `least` on.
size_t Whole(const Napi::Value& value, int64_t least, const char* name);
/// `threads` is the engine's to fill.
SessionSettings ReadSessionSettings(const Given& options);
/// A tensor of numbers that reads the array's own memory, unless its data does not lie where its
/// type must: then it is copied.
Tensor ReadTensor(const Given& tensor);
/// A tensor of numbers with memory of its own.
Tensor ReadOwnTensor(const Given& tensor);

/// The array owns a share of `owner`: no copy, unless it is small. Finalisers may run after the
/// engine stopped; they only drop the share.
Napi::ArrayBuffer Wrap(Napi::Env env, std::shared_ptr<void> owner, void* data, size_t bytes);
/// Arrays own a share of the memory they show: nothing is copied.
Napi::Object WriteTensor(Napi::Env env, const Tensor& tensor);
Napi::Array WriteTensors(Napi::Env env, const std::vector<Tensor>& tensors);
Napi::Uint8Array WriteBytes(Napi::Env env, const Tensor& tensor);
Napi::Object WriteGraph(Napi::Env env, const GraphInfo& graph);
Napi::Array WriteSessions(Napi::Env env, const std::vector<SessionMemory>& sessions);
/// EngineStats of src/graph/stats.ts.
Napi::Object WriteStats(Napi::Env env, Engine& engine);

template <typename List, typename Write>
Napi::Array WriteList(Napi::Env env, List&& items, const Write& write) {
  Napi::Array array = Napi::Array::New(env, items.size());
  for (uint32_t i = 0; i < items.size(); ++i) array.Set(i, write(items[i]));
  return array;
}

template <typename Numbers>
Napi::Array WriteNumbers(Napi::Env env, const Numbers& numbers) {
  return WriteList(env, numbers, [&](auto number) {
    return Napi::Number::New(env, static_cast<double>(number));
  });
}

/// Sets fields of an object: their names and values in turn.
template <typename Value, typename... Others>
void SetFields(Napi::Object& object, const char* name, const Value& value,
               const Others&... others) {
  object.Set(name, value);
  if constexpr (sizeof...(others) > 0) SetFields(object, others...);
}

/// An object of these fields.
template <typename... NamesAndValues>
Napi::Object WriteFields(Napi::Env env, const NamesAndValues&... fields) {
  Napi::Object object = Napi::Object::New(env);
  SetFields(object, fields...);
  return object;
}

/// A function that the addon exports.
struct Export {
  const char* name;
  Napi::Value (*call)(const Napi::CallbackInfo& info);
};

/// Loaded graphs, and tensors through them.
std::span<const Export> GraphExports();
/// Makes an environment, and gives these functions to JavaScript. They let no exception but
/// Napi::Error reach Node.
Napi::Object InitAddon(Napi::Env env, Napi::Object exports,
                       std::span<const std::span<const Export>> all);

/// Work on a thread of libuv; its promise gets what `answer` makes of the outcome, or what it
/// throws.
template <typename Outcome>
class BackgroundWork : public Napi::AsyncWorker {
 public:
  using Work = std::function<Outcome()>;
  using Answer = Napi::Value (*)(Napi::Env env, Outcome& outcome);

  static Napi::Value Begin(Napi::Env env, const char* name, Work work, Answer answer) {
    auto worker = std::make_unique<BackgroundWork>(env, name, std::move(work), answer);
    const Napi::Promise promise = worker->deferred_.Promise();
    worker->Queue();
    // It deletes itself when it is done
    (void)worker.release();
    return promise;
  }

  BackgroundWork(Napi::Env env, const char* name, Work work, Answer answer)
      : Napi::AsyncWorker(env, name), deferred_(env), work_(std::move(work)), answer_(answer) {}

 protected:
  void Execute() override { outcome_ = work_(); }
  void OnOK() override { deferred_.Resolve(answer_(Env(), outcome_)); }
  void OnError(const Napi::Error& error) override { deferred_.Reject(error.Value()); }

 private:
  Napi::Promise::Deferred deferred_;
  const Work work_;
  const Answer answer_;
  Outcome outcome_{};
};

}  // namespace radserve
