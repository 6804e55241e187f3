"""Reads a segmentation of slide tiles with highdicom, which knows nothing of Radserve.

Takes the path of the segmentation and those of the source: tiles that follow each other along the rows of the total
pixel matrix (TILED_FULL). Prints one line for each thing that is wrong.
"""

import sys
import warnings

import highdicom
import numpy as np
import pydicom
from highdicom.utils import compute_plane_position_tiled_full

warnings.simplefilter("ignore")

seg = highdicom.seg.segread(sys.argv[1])
source = pydicom.dcmread(sys.argv[2])
origin = source.TotalPixelMatrixOriginSequence[0]
measures = source.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
across = -(-source.TotalPixelMatrixColumns // source.Columns)
down = -(-source.TotalPixelMatrixRows // source.Rows)
tiles = across * down
matrix = np.zeros((seg.number_of_segments, down * source.Rows, across * source.Columns), np.uint8)
for frame, groups in enumerate(seg.PerFrameFunctionalGroupsSequence):
    row, column = divmod(frame % tiles, across)
    expected = compute_plane_position_tiled_full(
        row + 1,
        column + 1,
        origin.XOffsetInSlideCoordinateSystem,
        origin.YOffsetInSlideCoordinateSystem,
        source.Rows,
        source.Columns,
        source.ImageOrientationSlide,
        measures.PixelSpacing,
    )[0]
    found = groups.PlanePositionSlideSequence[0]
    for element in expected:
        if abs(float(found[element.tag].value) - float(element.value)) > 1e-6:
            print(f"frame {frame + 1}: {element.keyword} is {found[element.tag].value}, not {element.value}")
    top, left = row * source.Rows, column * source.Columns
    plane = seg.pixel_array[frame]
    matrix[frame // tiles, top : top + source.Rows, left : left + source.Columns] = plane

whole = seg.get_total_pixel_matrix()
cut = matrix[:, : source.TotalPixelMatrixRows, : source.TotalPixelMatrixColumns]
if not np.array_equal(np.moveaxis(whole, -1, 0), cut):
    print("the total pixel matrix is not that of the tiles")
