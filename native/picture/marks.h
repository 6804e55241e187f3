#pragma once

#include "picture/canvas.h"

namespace radserve {

/// Lays what a model marked over a panel whose picture is already there. Masks are tinted by the
/// share of each pixel that they cover, and outlined within their own pixels in the full colour.
/// The tints of masks that overlap stand in stripes, because a mixture would be a colour that the
/// legend does not have.
void LayMarks(const PanelMarks& marks, const Panel& panel, double opacity, const Canvas& canvas);

/// A colour under a tint of this opacity, 0 to 255. Light is mixed and not its sRGB numbers, so
/// that a colour over black is still seen as itself.
Rgb Tinted(const Rgb& under, const Rgb& colour, uint32_t opacity);

}  // namespace radserve
