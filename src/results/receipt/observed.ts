/**
 * Takes from a receipt the facts of a model's run on one image, without anything of the image: for
 * reports and comparisons.
 */
import type { Receipt, ReceiptModel } from "./receipt.js";

/**
 * The words for no scanner: the receipt is of PNG, JPEG or TIFF, of before 0.3, or the file does
 * not name one.
 */
export const UNKNOWN_SCANNER = "not named";

/** Manufacturer and model of the equipment, as the source names them. */
export function scannerOf({ source }: Pick<Receipt, "source">): string {
  const { manufacturer = "", manufacturer_model_name: model = "" } = source;
  // Many files repeat the manufacturer in the model's name
  const text = model.toLowerCase().startsWith(manufacturer.toLowerCase())
    ? model
    : `${manufacturer} ${model}`;
  return text.trim() === "" ? UNKNOWN_SCANNER : text.trim();
}

/** One label of one image. */
export interface Observed {
  label: string;
  /** Something of the label was found. */
  present: boolean;
  /** The highest score, where the model gives scores. */
  score?: number;
  /**
   * Size of all that was found of it; cm2 or ml where the image allows it, else pixels or voxels.
   */
  extent?: { value: number; unit: string };
}

/**
 * The findings of a model, one for each label, in the order in which the receipt first names them.
 */
export function observedIn({ findings }: Pick<ReceiptModel, "findings">): Observed[] {
  const labels = new Map<string, Observed>();
  const isWhole = ({ over_frames: over, volume }: ReceiptFinding) =>
    over !== undefined && (over !== "total" || volume !== undefined);
  const whole = new Set(findings.filter(isWhole).map(({ label }) => label));
  for (const { label, present, score, area, volume, over_frames } of findings) {
    // Where frames were judged together, that is what is said of the image
    if (over_frames === undefined && whole.has(label)) continue;
    const known = labels.get(label) ?? { label, present: false };
    labels.set(label, known);
    known.present ||= present;
    if (score !== undefined) known.score = Math.max(known.score ?? score, score);
    const extent = extentOf(area, volume);
    if (extent === undefined) continue;
    // Pixels and cm2 do not add up
    if (known.extent === undefined) known.extent = extent;
    else if (known.extent.unit === extent.unit) known.extent.value += extent.value;
  }
  return [...labels.values()];
}

type ReceiptFinding = ReceiptModel["findings"][number];

function extentOf(
  area: ReceiptFinding["area"],
  volume: ReceiptFinding["volume"],
): Observed["extent"] {
  if (volume !== undefined) return { value: volume.ml, unit: "ml" };
  if (area === undefined) return undefined;
  return area.cm2 === undefined
    ? { value: area.pixels, unit: "pixels" }
    : { value: area.cm2, unit: "cm2" };
}

/** What the step `infer` holds of the engine: waiting, and the parts of its work. */
const OF_INFER = new Set(["queue", "prepare", "run", "postprocess"]);

/** Milliseconds of the work on the image, waiting left out. */
export function workTime({ timings: { milliseconds } }: Pick<Receipt, "timings">): number {
  const steps = Object.entries(milliseconds).filter(([step]) => !OF_INFER.has(step));
  return steps.reduce((sum, [, ms]) => sum + ms, -(milliseconds["queue"] ?? 0));
}
