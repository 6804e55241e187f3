#ifndef RADSERVE_GRAPH_SOURCE_H_
#define RADSERVE_GRAPH_SOURCE_H_

#include <map>
#include <string>

#include "runtime/ort.h"
#include "runtime/weights.h"

namespace radserve {

/// What sessions of one graph are made from. Files beside the graph that hold constants of it (external data of ONNX) are
/// read whole: by itself the runtime maps them for as long as a session lives, so that whoever writes into such a file
/// changes the results of a model that runs, and whoever cuts it short ends the process (SIGBUS).
class GraphSource {
 public:
  /// Hashes of files by their paths, SHA-256 in hex.
  using Hashes = std::map<std::string, std::string>;

  /// Throws EngineError with `code`, which names the file, if one of them cannot be read or lies outside of the graph's
  /// folder. With `hashes` the graph is read too, and the session is made of the very bytes that were hashed; throws
  /// `code` for a file that has another hash than there, or none. With `note` they are not checked, but noted there.
  GraphSource(const std::string& path, const std::string& code, Hashes* hashes = nullptr, bool note = false);
  GraphSource(const GraphSource&) = delete;
  GraphSource& operator=(const GraphSource&) = delete;

  /// The session keeps nothing of this source. Throws Ort::Exception.
  Ort::Session Open(Ort::SessionOptions& options);

 private:
  std::string path_;
  OutsideFiles files_;
  /// The graph, if there are such files or hashes.
  std::string graph_;
};

}  // namespace radserve

#endif  // RADSERVE_GRAPH_SOURCE_H_
