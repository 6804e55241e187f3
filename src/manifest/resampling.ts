/**
 * `resampling` of the manifest: volumes that are resampled as nnU-Net and MONAI do it, by splines without antialiasing.
 * native/prepare/volume_geometry.cc places them so.
 */
import { z } from "zod";
import { described } from "../base/described.js";

export const resampling = z.strictObject({
  grid: described(
    "edges: the tensor covers the volume edge to edge, with a whole number of voxels, so that spacing_mm is rounded (nnU-Net); first_voxel: the first voxels of both lie at the same place, and spacing_mm is exact (MONAI's Spacingd)",
    z.enum(["edges", "first_voxel"]),
  ),
  spacing_mm: described(
    "mm between the tensor's voxels along depth, height, width; null: as in the volume (nnU-Net's 2D networks, along depth)",
    z.array(z.number().positive().nullable()).length(3),
  ),
  order: z
    .union([z.literal(0), z.literal(1), z.literal(3)])
    .describe("To the tensor: 0 nearest, 1 linear, 3 cubic B-splines. Without antialiasing"),
  order_back: z
    .union([z.literal(0), z.literal(1)])
    .describe("Order of interpolation of maps, back to the source's grid"),
  separate_above: described(
    "If the largest spacing of the volume, or else of the tensor, is more than so many times the smallest, each slice is resampled by itself, and the nearest slice counts between them (nnU-Net: 3). Never where absent",
    z.number().min(1).optional(),
  ),
  multiple_of: described(
    "The tensor's sides along depth, height and width are rounded up to multiples of these; what is more lies behind the volume and is background (size_divisible of MONAI's RetinaNetDetector). For boxes in volumes alone",
    z.array(z.int().min(1).max(1024)).length(3).optional(),
  ),
  keep_range: described(
    "No value leaves the range of the volume that it is made of, or of the slice if slices are separate (nnU-Net: true)",
    z.boolean(),
  ),
  clip: described(
    "The input's clip is applied before values are resampled (nnU-Net), or after (most MONAI bundles)",
    z.enum(["before", "after"]),
  ),
  crop: described(
    "nonzero: only the box around all values that are not 0 counts (nnU-Net). foreground: after resampling, normalisation and intensity only the box around all values of the tensor above 0 counts, and the rest is background (MONAI's CropForegroundd)",
    z.enum(["none", "nonzero", "foreground"]),
  ),
  activation: z
    .enum(["before", "after"])
    .describe("Maps are activated before or after they go back to the source's grid (nnU-Net: after)"),
});

export type Resampling = z.infer<typeof resampling>;
