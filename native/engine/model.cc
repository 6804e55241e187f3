#include "engine/model.h"

#include <algorithm>
#include <utility>

#include "engine/engine.h"

namespace radserve {

Model::~Model() {
  Engine* engine = Engine::Started();
  if (engine != nullptr && id != 0) engine->Forget(*this);
  session.reset();
  if (released) released();
}

std::vector<std::string> Model::OutputNames() const {
  std::vector<std::string> names;
  for (const OutputSpec& output : outputs) {
    for (std::string& tensor : output.Tensors()) {
      if (std::find(names.begin(), names.end(), tensor) == names.end()) names.push_back(std::move(tensor));
    }
  }
  return names;
}

}  // namespace radserve
