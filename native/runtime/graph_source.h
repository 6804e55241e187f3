#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/ort.h"
#include "runtime/weights.h"

namespace radserve {

/// The source of the sessions of one graph. Files beside the graph that hold constants of it
/// (external data of ONNX) are read whole: by itself the runtime maps them for as long as a session
/// lives, so that whoever writes into such a file changes the results of a model that runs, and
/// whoever cuts it short ends the process (SIGBUS).
class GraphSource {
 public:
  /// Hashes of files by their paths, SHA-256 in hex.
  using Hashes = std::map<std::string, std::string>;

  /// Throws EngineError with `code`, which names the file, if one of them cannot be read or lies
  /// outside of the graph's folder. With `hashes` the graph is read too, and the session is made of
  /// the very bytes that were hashed; throws `code` for a file that has another hash than there, or
  /// none. With `note` they are not checked, but noted there. `stop` ends the reading (cancelled),
  /// and what Open does, where the runtime looks for it.
  GraphSource(const std::string& path, const std::string& code, const std::stop_token& stop,
              Hashes* hashes = nullptr, bool note = false);
  GraphSource(const GraphSource&) = delete;
  GraphSource& operator=(const GraphSource&) = delete;

  /// The session keeps nothing of this source but what Kept() gives. Throws Ort::Exception.
  Ort::Session Open(Ort::SessionOptions& options);
  /// The graph with all of its constants in one piece, for a library that reads no other. Throws
  /// EngineError with `code`, also for more than 2 GiB, which no file of ONNX holds.
  std::string Whole(const std::string& code) const;
  /// Memory that sessions read tensors in, which has to end after them; null if there is none.
  std::shared_ptr<const void> Kept() const { return keeps_ ? files_ : nullptr; }

 private:
  using Contents = std::map<std::string, std::vector<char>>;

  std::string path_;
  std::stop_token stop_;
  std::shared_ptr<Contents> files_ = std::make_shared<Contents>();
  bool keeps_ = false;
  /// The graph, if there are such files or hashes.
  std::string graph_;
};

/// A session of the graph whose large weights are inputs, which are added to `inputs`: it takes and
/// gives what the graph does, and next to no memory. Throws Ort::Exception, and EngineError with
/// `code` as GraphSource does.
Ort::Session OpenWithoutWeights(const std::string& path, const std::string& code,
                                Ort::SessionOptions& options, std::set<std::string>& inputs);

}  // namespace radserve
