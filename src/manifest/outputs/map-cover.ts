/**
 * Which part of the input tensor a map covers: its fields, and how its sides fit those of the
 * tensor. A map of a part must never be stretched over all; native/postprocess/cover.h lays it.
 */
import { z } from "zod";

const COVERS_MEANING =
  "The part of the input tensor that the map covers; outside it nothing is found. all: all of " +
  "it, edge to edge; centre: its middle (convolutions without padding: the first U-Net, " +
  "HoVer-Net); start: from its first pixel on (pooling that rounds down). Where absent, all, " +
  "which is refused unless the sides of the map are whole parts or multiples of the tensor's";
const STRIDE_MEANING =
  "With covers centre or start: pixels of the tensor, along each axis, for each of the map; 1 " +
  "where absent";

export const mapCover = {
  covers: z.enum(["all", "centre", "start"]).optional().describe(COVERS_MEANING),
  stride: z.int().min(1).max(1024).optional().describe(STRIDE_MEANING),
};

/** The fields of an output that may be a map. */
export interface MapCover {
  covers?: "all" | "centre" | "start" | undefined;
  stride?: number | undefined;
}

/** Whether it covers a part of the tensor only. */
export const coversPart = ({ covers }: MapCover): boolean =>
  covers === "centre" || covers === "start";

/** Whether each side is a whole part, or a multiple, of the tensor's; what is open may be. */
export const isWholePart = (map: readonly number[], tensor: readonly number[]): boolean =>
  map.every((side, i) => {
    const whole = tensor[i] ?? -1;
    return side < 1 || whole < 1 || whole % side === 0 || side % whole === 0;
  });

const shown = (sides: readonly number[]): string =>
  sides.map((side) => (side < 0 ? "?" : String(side))).join(" x ");

/** What has to be said of a map of these sides, in words. */
export const unsaidCover = (map: readonly number[], tensor: readonly number[]): string =>
  `The map is ${shown(map)}, no whole part of the tensor's ${shown(tensor)}: say which part it covers. "centre", its middle (convolutions without padding); "start", from its first pixel on (pooling that rounds down); "all", all of it, stretched`;

/**
 * The fault of a map's sides beside those of the tensor, or of the window that the graph is given;
 * a side is -1 where it is open.
 */
export function coverFaults(
  { covers, stride = 1 }: MapCover,
  map: readonly number[],
  tensor: readonly number[],
  tiled: boolean,
): { path: string[]; message: string }[] {
  if (tiled) {
    if (map.every((side, i) => side < 0 || (tensor[i] ?? -1) < 0 || side === tensor[i])) return [];
    const message = `Windows of maps that cover a part, or are coarser, are not offered: expected ${shown(tensor)}, the sides of the window, found ${shown(map)}`;
    return [{ path: ["tensor"], message }];
  }
  if (covers === undefined)
    return isWholePart(map, tensor)
      ? []
      : [{ path: ["covers"], message: unsaidCover(map, tensor) }];
  if (covers === "all") return [];
  const beyond = map.some((side, i) => {
    const whole = tensor[i] ?? -1;
    return side > 0 && whole > 0 && side * stride - whole >= stride;
  });
  if (!beyond) return [];
  const message = `Expected a map that lies within the tensor's ${shown(tensor)}; ${shown(map)} with a stride of ${stride} reaches beyond it`;
  return [{ path: [stride === 1 ? "covers" : "stride"], message }];
}
