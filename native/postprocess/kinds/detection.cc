#include "postprocess/detections.h"
#include "postprocess/kind.h"

namespace radserve {
namespace {

void ReadDetection(const Description& output, OutputSpec& spec) {
  auto& own = spec.Set<DetectionSpec>();
  const Description& boxes = output.Child("boxes");
  own.format = boxes.OneOf<BoxFormat>("format", {{"xyxy", BoxFormat::kXyxy},
                                                 {"xywh", BoxFormat::kXywh},
                                                 {"cxcywh", BoxFormat::kCxcywh},
                                                 {"yxyx", BoxFormat::kYxyx}});
  own.normalised = boxes.Flag("normalised");
  own.in_source = InPixelsOfSource(boxes);
  own.list = ReadList(output, spec);
  own.first_class = FirstClassOf(output);
  own.nms = ReadSuppression(output);
  own.max_boxes = output.Int("max_boxes");
}

}  // namespace

const OutputKind kinds::detection = {
    .name = "detection",
    .gives = "boxes",
    .placed = true,
    .read = ReadDetection,
    .decode =
        [](const OutputSpec& spec, const TensorByName& tensors, const SourceGrid& grid,
           std::span<const double> thresholds, OutputResult& out) {
          const ListSpec& list = spec.Own<DetectionSpec>().list;
          out.boxes = DecodeDetections(ReadLists(spec, list, tensors, 4), spec, grid.geometry,
                                       thresholds, &out.implausible);
        },
};

}  // namespace radserve
