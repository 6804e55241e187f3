/**
 * Graphs that take no image, or a person's help beside it: no manifest can describe them, and a
 * draft would ask for fields that nobody can fill in.
 */
import type { TensorInfo } from "../base/tensor.js";
import type { GraphInfo } from "../engine/types.js";
import { namedText } from "../manifest/outputs/graph-fit.js";

/** Names that promptable networks have for clicks, boxes and earlier masks (Segment Anything). */
const PROMPTS =
  /^(?:input_)?(?:point|click|box)(?:e?s)?(?:_(?:coords?|labels?))?$|^input_labels$|^(?:has_)?mask_input$|prompt/i;
/** Names that networks of text have for tokens (Transformers). */
const TEXT =
  /^(?:\w+_)?input_ids$|^(?:\w+_)?attention_mask$|^token_type_ids$|^position_ids$|^tokens?$|^text$/i;

/** Sides of an image differ by less than this; a signal is longer. */
const LONGEST = 8;
/** An image without an axis of images has so many pixels along each side at least. */
const LEAST_SIDE = 16;

/** Whether a tensor of three dimensions is an image without an axis of images or channels. */
function isImage({ shape }: TensorInfo): boolean {
  const isColour = (side: number | undefined) => [1, 3, 4].includes(side ?? -1);
  const sides = isColour(shape[2]) ? shape.slice(0, 2) : shape.slice(1);
  const known = sides.filter((side) => side > 0);
  if (known.some((side) => side < LEAST_SIDE)) return false;
  if (known.length === 2) return Math.max(...known) / Math.min(...known) < LONGEST;
  return known.length === 0 || isColour(shape[0]);
}

/**
 * Why a graph is none that can be offered, and what to export instead, in one sentence; undefined
 * where it takes an image and numbers beside it.
 */
export function misfit({ inputs }: GraphInfo): string | undefined {
  const named = (some: readonly TensorInfo[]) => some.map(namedText).join(", ");
  const prompts = inputs.filter(({ name, shape }) => shape.length < 4 && PROMPTS.test(name));
  const masks = inputs.filter(({ name }) => /^mask_input$/i.test(name));
  if (prompts.length > 0)
    return `The graph takes prompts (${named([...new Set([...prompts, ...masks])])}), points, boxes or masks that a person gives it: they are not offered. Export a network that takes the image alone`;
  const text = inputs.filter(({ name, shape }) => shape.length < 3 && TEXT.test(name));
  if (text.length > 0)
    return `The graph takes text (${named(text)}), which is not offered. Export the part that takes the image alone, with the text computed beforehand and kept as weights`;
  if (inputs.some(({ shape }) => shape.length > 3)) return undefined;
  const signals = inputs.filter((info) => info.shape.length === 3 && !isImage(info));
  if (signals.length > 0)
    return `The graph takes a signal or a sequence (${named(signals)}) and no image: that is not offered. An image has [images, channels, height, width]`;
  if (inputs.every(({ shape }) => shape.length < 3))
    return `The graph takes a table of numbers (${named(inputs)}) and no image: that is not offered. Numbers from DICOM attributes can stand beside an image, not alone`;
  return undefined;
}
