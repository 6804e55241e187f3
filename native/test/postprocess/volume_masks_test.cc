#include <vector>

#include "check.h"
#include "postprocess/masks.h"

using namespace radserve;
using namespace radserve::test;

namespace {

/// 3 slices of 3 x 5.
struct Mask {
  std::vector<uint8_t> voxels;
  std::vector<uint8_t> padding;
  MaskView view() { return {voxels, 3, 3, 5, padding}; }
};

TEST("regions go on through slices, by faces only") {
  Mask m{{1, 0, 0, 0, 0,  //
          0, 0, 0, 0, 0,  //
          0, 0, 0, 0, 1,
          //
          1, 1, 0, 0, 0,  //
          0, 0, 0, 0, 0,  //
          0, 0, 0, 1, 0,
          //
          0, 1, 0, 0, 0,  //
          0, 0, 0, 0, 0,  //
          0, 0, 0, 1, 1},
         {}};
  KeepLargestComponent(m.view(), 1);
  CHECK((m.voxels == std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                          1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                          0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}
END;

TEST("of equal regions the first stays, small ones go, other labels are left alone") {
  Mask m{std::vector<uint8_t>(45), {}};
  m.voxels[2] = m.voxels[17] = 1;
  m.voxels[4] = m.voxels[19] = 1;
  m.voxels[30] = 2;
  m.voxels[44] = 1;
  DropSmallComponents(m.view(), 1, 2);
  EQUAL(m.voxels[44], 0);
  EQUAL(m.voxels[30], 2);
  KeepLargestComponent(m.view(), 1);
  EQUAL(m.voxels[2], 1);
  EQUAL(m.voxels[17], 1);
  EQUAL(m.voxels[4], 0);
}
END;

TEST("a hole is closed on all six sides") {
  Mask m{std::vector<uint8_t>(45, 1), {}};
  m.voxels[22] = 0;
  FillHoles(m.view(), 1);
  EQUAL(m.voxels[22], 1);
  // Open upwards: not a hole. Another label in a hole stays; so does padding.
  m.voxels[22] = m.voxels[7] = 0;
  FillHoles(m.view(), 1);
  EQUAL(m.voxels[22], 0);
  m.voxels[7] = 1;
  m.voxels[22] = 2;
  m.voxels[21] = 0;
  m.padding.assign(45, 0);
  m.padding[21] = 1;
  FillHoles(m.view(), 1);
  EQUAL(m.voxels[22], 2);
  EQUAL(m.voxels[21], 0);
}
END;

TEST("what touches a slice's border goes, through all slices; the ends of the scan are no border") {
  Mask m{std::vector<uint8_t>(45), {}};
  m.voxels[7] = m.voxels[22] = m.voxels[37] = 1;
  DropBorderConnected(m.view(), 1);
  EQUAL(m.voxels[7], 1);
  EQUAL(m.voxels[37], 1);
  // In the middle slice it reaches the last column.
  m.voxels[23] = m.voxels[24] = 1;
  DropBorderConnected(m.view(), 1);
  EQUAL(m.voxels[7], 0);
  EQUAL(m.voxels[37], 0);
}
END;

TEST("padding beside a region, in its slice or the next one, is a border") {
  for (const size_t at : {6u, 8u, 2u, 12u, 22u}) {
    Mask m{std::vector<uint8_t>(45), std::vector<uint8_t>(45)};
    m.voxels[7] = 1;
    m.padding[at] = 1;
    DropBorderConnected(m.view(), 1);
    EQUAL(m.voxels[7], 0);
  }
  Mask m{std::vector<uint8_t>(45), std::vector<uint8_t>(45)};
  m.voxels[7] = 1;
  m.padding[37] = m.padding[1] = 1;
  DropBorderConnected(m.view(), 1);
  EQUAL(m.voxels[7], 1);
}
END;

}  // namespace
