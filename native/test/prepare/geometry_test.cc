#include "prepare/geometry.h"

#include "check.h"

using namespace radserve;
using namespace radserve::test;

namespace {

SizeSpec Fixed(int height, int width) { return {SizeSpec::Kind::kFixed, height, width, 1, 0}; }
SizeSpec Multiple(int multiple, int max_side) {
  return {SizeSpec::Kind::kMultipleOf, 0, 0, multiple, max_side};
}

void Place(const Geometry& g, int top, int left, int height, int width) {
  EQUAL(g.rows.first, top);
  EQUAL(g.columns.first, left);
  EQUAL(g.rows.count, height);
  EQUAL(g.columns.count, width);
}

TEST("stretch fills the tensor") {
  const Geometry g = PlaceImage(100, 200, 1, {Fixed(50, 50), Fit::kStretch});
  Place(g, 0, 0, 50, 50);
  EQUAL(g.columns.ToSource(25), 100);
  EQUAL(g.rows.ToSource(25), 50);
}
END;

TEST("letterbox keeps the aspect and the centre, by physical size") {
  Place(PlaceImage(100, 200, 1, {Fixed(64, 64), Fit::kLetterbox}), 16, 0, 32, 64);
  // Pixels twice as high as wide: 100 rows are as high as 200 columns are wide.
  Place(PlaceImage(100, 200, 2, {Fixed(64, 64), Fit::kLetterbox}), 0, 0, 64, 64);
  Place(PlaceImage(200, 100, 1, {Fixed(64, 64), Fit::kLetterbox}), 0, 16, 64, 32);
}
END;

TEST("crop fills the tensor and keeps the centre") {
  const Geometry g = PlaceImage(100, 200, 1, {Fixed(50, 50), Fit::kCrop});
  Place(g, 0, 0, 50, 50);
  EQUAL(g.columns.seen_from, 50);
  EQUAL(g.columns.seen, 100);
  EQUAL(g.rows.seen, 100);
}
END;

TEST("multiple_of pads up and shrinks only above max_side") {
  const Geometry own = PlaceImage(70, 100, 1, {Multiple(32, 960), Fit::kNone});
  EQUAL(own.rows.tensor, 96);
  EQUAL(own.columns.tensor, 128);
  Place(own, 0, 0, 70, 100);
  Place(PlaceImage(70, 100, 1, {Multiple(32, 960), Fit::kLetterbox}), 13, 14, 70, 100);
  const Geometry shrunk = PlaceImage(1000, 2000, 1, {Multiple(32, 1000), Fit::kLetterbox});
  EQUAL(shrunk.rows.tensor, 512);
  EQUAL(shrunk.columns.tensor, 1024);
  Place(shrunk, 6, 12, 500, 1000);
  Place(PlaceImage(70, 100, 1, {Multiple(32, 960), Fit::kStretch}), 0, 0, 96, 128);
  EQUAL(CodeOf([] {
          PlaceImage(1000, 2000, 1, {Multiple(32, 1000), Fit::kNone});
        }),
        "no_model_accepts");
}
END;

TEST("the map inverts") {
  for (const Fit fit : {Fit::kStretch, Fit::kLetterbox, Fit::kCrop}) {
    const Geometry g = PlaceImage(511, 333, 1.3, {Fixed(224, 192), fit});
    for (const double v : {0.0, 17.25, 191.0}) {
      NEAR(g.columns.ToTensor(g.columns.ToSource(v)), v, 1e-9);
      NEAR(g.rows.ToTensor(g.rows.ToSource(v)), v, 1e-9);
    }
    NEAR(g.columns.ToSource(g.columns.first), g.columns.seen_from, 1e-9);
    NEAR(g.columns.ToSource(g.columns.first + g.columns.count),
         g.columns.seen_from + g.columns.seen, 1e-9);
  }
}
END;

/// The seen part in pixels of the resized image.
void Cut(const Geometry& g, double resized_rows, double top, double resized_columns, double left) {
  NEAR(g.rows.seen * resized_rows / g.rows.source, g.rows.tensor, 1e-9);
  NEAR(g.rows.seen_from * resized_rows / g.rows.source, top, 1e-9);
  NEAR(g.columns.seen * resized_columns / g.columns.source, g.columns.tensor, 1e-9);
  NEAR(g.columns.seen_from * resized_columns / g.columns.source, left, 1e-9);
}

TEST("resize and centre crop end with whole pixels, as the libraries round") {
  using Kind = WholePixels::Kind;
  using Rounding = WholePixels::Rounding;
  using Offset = WholePixels::Offset;
  const auto fields = [](const WholePixels& how) {
    return PlacementFields{Fixed(64, 64), Fit::kCrop, how};
  };
  WholePixels how{Kind::kResizeThenCrop, 73, 0, 0, Rounding::kDown, Offset::kHalfEven};
  // 73 * 283 / 200 = 103.295; (73 - 64) / 2 = 4.5 and (103 - 64) / 2 = 19.5
  Cut(PlaceImage(200, 283, 1, fields(how)), 73, 4, 103, 20);
  how.offset = Offset::kHalf;
  Cut(PlaceImage(200, 283, 1, fields(how)), 73, 4, 103, 19);
  how.offset = Offset::kHalves;
  Cut(PlaceImage(283, 200, 1, fields(how)), 103, 19, 73, 4);
  // Pixels twice as high as wide
  Cut(PlaceImage(100, 283, 2, fields(how)), 73, 4, 103, 19);
  how = {Kind::kResizeThenCrop, 0, 80, 96, Rounding::kDown, Offset::kHalf};
  Cut(PlaceImage(200, 283, 1, fields(how)), 80, 8, 96, 16);
  how = {Kind::kCropThenResize, 0, 0, 0, Rounding::kDown, Offset::kHalves};
  const Geometry first = PlaceImage(201, 284, 1, fields(how));
  EQUAL(first.rows.seen, 201);
  EQUAL(first.columns.seen, 201);
  EQUAL(first.columns.seen_from, 42);
  how = {Kind::kResizeThenPad, 0, 0, 0, Rounding::kDown, Offset::kTopLeft};
  Place(PlaceImage(200, 283, 1, {Fixed(64, 64), Fit::kLetterbox, how}), 0, 0, 45, 64);
  how.rounding = Rounding::kHalfEven;
  how.offset = Offset::kHalf;
  // 65 / 2 = 32.5
  Place(PlaceImage(65, 128, 1, {Fixed(64, 64), Fit::kLetterbox, how}), 16, 0, 32, 64);
  how.rounding = Rounding::kHalfUp;
  Place(PlaceImage(65, 128, 1, {Fixed(64, 64), Fit::kLetterbox, how}), 15, 0, 33, 64);
}
END;

TEST("corners lie on corners, unless there is but one pixel") {
  PlacementFields fields{Fixed(5, 4), Fit::kStretch};
  fields.align_corners = true;
  const Geometry g = PlaceImage(9, 1, 1, fields);
  NEAR(g.rows.ToSource(0.5), 0.5, 1e-12);
  NEAR(g.rows.ToSource(4.5), 8.5, 1e-12);
  NEAR(g.columns.ToSource(2), 0.5, 1e-12);
}
END;

TEST("a side of one pixel never vanishes") {
  const Geometry g = PlaceImage(1, 4000, 1, {Fixed(32, 32), Fit::kLetterbox});
  EQUAL(g.rows.count, 1);
}
END;

}  // namespace
