/**
 * `resampling` of the manifest: volumes that are resampled as nnU-Net, MONAI and TotalSegmentator
 * do it, by splines without antialiasing. native/prepare/volume_geometry.cc places them so.
 */
import { z } from "zod";

const GRID_MEANING =
  "edges: the tensor covers the volume edge to edge, with a whole number of voxels, so that " +
  "spacing_mm is rounded (nnU-Net); first_voxel: the first voxels of both lie at the same " +
  "place, and spacing_mm is exact (MONAI's Spacingd); ends: the first and the last voxels of " +
  "both lie at the same places, values are linear and cut to whole numbers toward zero, and " +
  "labels are decided in the tensor's grid and go back by the nearest (TotalSegmentator, whose " +
  "steps are scipy.ndimage.zoom). A volume that has spacing_mm along all axes is left as it is";
const SPACING_MM_MEANING =
  "mm between the tensor's voxels along depth, height, width; null: as in the volume " +
  "(nnU-Net's 2D networks, along depth)";
const SEPARATE_ABOVE_MEANING =
  "If the largest spacing of the volume, or else of the tensor, is more than so many times the " +
  "smallest, each slice is resampled by itself, and the nearest slice counts between them " +
  "(nnU-Net: 3). Never where absent";
const MULTIPLE_OF_MEANING =
  "The tensor's sides along depth, height and width are rounded up to multiples of these; what " +
  "is more lies behind the volume and is background (size_divisible of MONAI's " +
  "RetinaNetDetector). For boxes in volumes alone";
const KEEP_RANGE_MEANING =
  "No value leaves the range of the volume that it is made of, or of the slice if slices are " +
  "separate (nnU-Net: true)";
const CROP_MEANING =
  "nonzero: only the box around all values that are not 0 counts (nnU-Net), of the volume, or " +
  "with ends of the tensor before its clip. foreground: after " +
  "resampling, normalisation and intensity only the box around all values of the tensor above " +
  "0 counts, and the rest is background (MONAI's CropForegroundd)";

export const resampling = z.strictObject({
  grid: z.enum(["edges", "first_voxel", "ends"]).describe(GRID_MEANING),
  spacing_mm: z.array(z.number().positive().nullable()).length(3).describe(SPACING_MM_MEANING),
  order: z
    .union([z.literal(0), z.literal(1), z.literal(3)])
    .describe("To the tensor: 0 nearest, 1 linear, 3 cubic B-splines. Without antialiasing"),
  order_back: z
    .union([z.literal(0), z.literal(1)])
    .describe("Order of interpolation of maps, back to the source's grid"),
  separate_above: z.number().min(1).optional().describe(SEPARATE_ABOVE_MEANING),
  multiple_of: z.array(z.int().min(1).max(1024)).length(3).optional().describe(MULTIPLE_OF_MEANING),
  keep_range: z.boolean().describe(KEEP_RANGE_MEANING),
  clip: z
    .enum(["before", "after"])
    .describe(
      "The input's clip is applied before values are resampled (nnU-Net), or after (most MONAI bundles)",
    ),
  crop: z.enum(["none", "nonzero", "foreground"]).describe(CROP_MEANING),
  activation: z
    .enum(["before", "after"])
    .describe(
      "Maps are activated before or after they go back to the source's grid (nnU-Net: after)",
    ),
});

export type Resampling = z.infer<typeof resampling>;
