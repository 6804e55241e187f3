#pragma once

#include "picture/page.h"

namespace radserve {

enum class PictureFault : uint8_t {
  kNone,
  /// The drawing lies beside the mask.
  kBeside,
  /// It leaves parts of the mask out.
  kLeftOut,
};

/// Compares a composed page with the masks of one of its panels, by coordinates alone and without
/// the code that laid them: each pixel that is not the picture's has to lie within one pixel of the
/// mask, and the mask within one pixel of what was changed. A mask that was drawn flipped, shifted
/// or from another slice is caught. What is of a label's own colour already need not be changed.
/// Throws internal as ComposePage does.
PictureFault CheckPanel(const PictureView& page, const Panel& panel);

}  // namespace radserve
