/**
 * Takes from a receipt the facts of a model's run on one image, without anything of the image: for
 * reports and comparisons.
 */
import { groupsBy } from "../../base/groups.js";
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
  /** Size of all that was found of it; cm2 or ml where the image allows it, else pixels. */
  extent?: { value: number; unit: string };
}

/**
 * The findings of a model, one for each label, in the order in which the receipt first names them.
 */
export function observedIn({ findings }: Pick<ReceiptModel, "findings">): Observed[] {
  const isWhole = ({ over_frames: over, volume }: ReceiptFinding) =>
    over !== undefined && (over !== "total" || volume !== undefined);
  const whole = new Set(findings.filter(isWhole).map(({ label }) => label));
  // Where frames were judged together, that is what is said of the image
  const counted = findings.filter(
    ({ label, over_frames }) => over_frames !== undefined || !whole.has(label),
  );
  return [...groupsBy(counted, ({ label }) => label)].map(([label, mine]) => {
    const scores = mine.flatMap(({ score }) => score ?? []);
    const extent = extentOf(mine);
    return {
      label,
      present: mine.some(({ present }) => present),
      ...(scores.length === 0 ? {} : { score: scores.reduce((a, b) => Math.max(a, b)) }),
      ...(extent === undefined ? {} : { extent }),
    };
  });
}

type ReceiptFinding = ReceiptModel["findings"][number];

const sum = (values: readonly number[]): number => values.reduce((all, one) => all + one, 0);

/** Frames are added up in cm2 only if each has its area in cm2, or nothing of the label on it. */
function extentOf(findings: readonly ReceiptFinding[]): Observed["extent"] {
  const volumes = findings.flatMap(({ volume }) => volume?.ml ?? []);
  if (volumes.length > 0) return { value: sum(volumes), unit: "ml" };
  const areas = findings.flatMap(({ area }) => area ?? []);
  if (areas.length === 0) return undefined;
  const measured = areas.flatMap(({ cm2 }) => cm2 ?? []);
  const isMeasured = areas.every(({ pixels, cm2 }) => cm2 !== undefined || pixels === 0);
  return isMeasured && measured.length > 0
    ? { value: sum(measured), unit: "cm2" }
    : { value: sum(areas.map(({ pixels }) => pixels)), unit: "pixels" };
}

/** What the step `infer` holds of the engine: waiting, and the parts of its work. */
const OF_INFER = new Set(["queue", "prepare", "run", "postprocess"]);

/** Milliseconds of the work on the image, waiting left out. */
export function workTime({ timings: { milliseconds } }: Pick<Receipt, "timings">): number {
  const steps = Object.entries(milliseconds).filter(([step]) => !OF_INFER.has(step));
  return steps.reduce((sum, [, ms]) => sum + ms, -(milliseconds["queue"] ?? 0));
}
