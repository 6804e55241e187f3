/**
 * `tiling` of the manifest: graphs that take a part of the image or volume at a time. native/tiling
 * runs them so.
 */
import { z } from "zod";

const AXES = ["depth", "height", "width"] as const;
export type TiledAxis = (typeof AXES)[number];

const STEPS_MEANING =
  "even: as few windows as the overlap allows, spread evenly (nnU-Net); stride: always window " +
  "* (1 - overlap), cut off to whole voxels, and the last window ends with the image (MONAI)";
const MIRROR_MEANING =
  "Axes along which each window runs mirrored too, alone and together; the mean counts. Twice " +
  "the time for each axis";
const PADDING_MEANING =
  "Padding of an image that is smaller than the window: a value of the tensor, usually 0; " +
  "edge: the nearest value of the image (MONAI's replicate)";

export const tiling = z.strictObject({
  window: z
    .array(z.int().min(1).max(8192))
    .min(2)
    .max(3)
    .describe(
      "Sides of the window in the order of the tensor's: height and width (of NCWH width and height), or depth, height and width",
    ),
  overlap: z
    .number()
    .min(0)
    .max(0.95)
    .describe("Part of a window that the next one covers too (nnU-Net: 1 - tile_step_size)"),
  steps: z.enum(["even", "stride"]).describe(STEPS_MEANING),
  weights: z
    .discriminatedUnion("kind", [
      z.strictObject({ kind: z.literal("constant") }),
      z.strictObject({
        kind: z.literal("gaussian"),
        sigma: z.number().min(0.01).max(10).describe("In sides of the window; 0.125 is usual"),
        centre: z
          .enum(["half", "middle"])
          .describe(
            "half: voxel floor(side / 2), from 0 (nnU-Net); middle: (side - 1) / 2 (MONAI)",
          ),
        least: z
          .number()
          .positive()
          .max(1)
          .describe(
            "No voxel counts less; the one in the centre counts 1 (MONAI: 0.001; nnU-Net: 1e-12, which binds nowhere)",
          ),
      }),
    ])
    .describe("Weight of each voxel where windows overlap"),
  mirror: z.array(z.enum(AXES)).min(1).optional().describe(MIRROR_MEANING),
  padding: z.union([z.number(), z.literal("edge")]).describe(PADDING_MEANING),
});

export type Tiling = z.infer<typeof tiling>;

/** Axes of a window in the order of its sides. */
export function tiledAxes({ window }: Pick<Tiling, "window">): readonly TiledAxis[] {
  return AXES.slice(AXES.length - window.length);
}
