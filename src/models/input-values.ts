/** Applies a model's `values` to one image: which numbers its pixels become, or why they cannot. */
import { errors } from "../base/errors.js";
import type {
  Image,
  Interpretation,
  ModalityTransform,
  RealWorldMapping,
  Warning,
} from "../images/image.js";
import type { Preparation } from "../engine/types.js";
import { someValue, valueReader } from "../images/stored-values.js";
import { imageInputs, type ImageInput, type Manifest } from "../manifest/manifest.js";
import type { Reason } from "./attribute-values.js";

type Values = ImageInput["values"];
type RealWorldValues = Extract<Values, { kind: "real_world" }>;

/** UCUM for SUV by body weight. */
const SUV_UNITS = "g/ml";

/**
 * The interpretation under which a modality value is what the model asks for: a real world value
 * and a SUV take the place of the file's own modality transform. Without one the interpretation is
 * as it was; `valueReasons` refuses it.
 */
export function meantBy(values: Values, interpretation: Interpretation): Interpretation {
  if (values.kind === "real_world") {
    const { linear } = chosen(values, interpretation) ?? {};
    if (linear === undefined) return interpretation;
    return { ...interpretation, modality: { kind: "rescale", ...linear }, units: values.units };
  }
  const { suv, modality } = interpretation;
  if (
    values.kind !== "suv_bw" ||
    suv === undefined ||
    !("factor" in suv) ||
    modality.kind === "lut"
  )
    return interpretation;
  const { slope, intercept } = linearOf(modality);
  const scaled = { slope: slope * suv.factor, intercept: intercept * suv.factor };
  return { ...interpretation, modality: { kind: "rescale", ...scaled }, units: SUV_UNITS };
}

/** The interpretation of a frame as a model's inputs take it. */
export function interpretationFor(
  manifest: Manifest,
  interpretation: Interpretation,
): Interpretation {
  // The rules of the manifest see to it that no two inputs ask for different physical values.
  const physical = imageInputs(manifest).find(
    ({ values }) => values.kind === "real_world" || values.kind === "suv_bw",
  );
  return physical === undefined ? interpretation : meantBy(physical.values, interpretation);
}

/** Why an image's frames do not have the values that a model asks for; each reason once. */
export function valueReasons(values: Values, interpretations: readonly Interpretation[]): Reason[] {
  if (values.kind === "real_world") {
    const lacking = interpretations.some((each) => chosen(values, each) === undefined);
    if (!lacking) return [];
    const found = [
      ...new Set(
        interpretations.flatMap(({ realWorld = [] }) => realWorld.map((each) => named(each))),
      ),
    ];
    const message =
      `Expected one linear Real World Value Mapping to ${values.units}` +
      `${values.label === undefined ? "" : ` labelled "${values.label}"`} in every frame, found ` +
      `${found.length === 0 ? "none" : found.slice(0, 6).join(", ")}.`;
    return [{ code: "real_world_missing", message }];
  }
  if (values.kind !== "suv_bw") return [];
  const missing = new Set(
    interpretations.flatMap(({ suv, modality }) => {
      if (suv === undefined) return ["the image is not of positron emission (Modality PT)"];
      if (modality.kind === "lut") return ["it has a Modality LUT"];
      return "missing" in suv ? [suv.missing] : [];
    }),
  );
  return [...missing].map((why) => ({
    code: "suv_missing",
    message: `Expected what SUV by body weight is computed from, but ${why}.`,
  }));
}

/** The only linear mapping to the units, and by the label, that the model names. */
function chosen(
  values: RealWorldValues,
  { realWorld = [] }: Interpretation,
): RealWorldMapping | undefined {
  const fitting = realWorld.filter(
    ({ units, label, linear }) =>
      linear !== undefined &&
      units === values.units &&
      (values.label === undefined || label === values.label),
  );
  return fitting.length === 1 ? fitting[0] : undefined;
}

/** Whether the same stored value means another modality value in some of the frames. */
export function differInMeaning(interpretations: readonly Interpretation[]): boolean {
  const meaning = ({ modality }: Interpretation) =>
    modality.kind === "lut"
      ? JSON.stringify([modality.lut.firstMapped, [...modality.lut.entries]])
      : JSON.stringify(linearOf(modality));
  return new Set(interpretations.map(meaning)).size > 1;
}

/** Whether the window or VOI LUT of that index is not the same in all frames. */
export function differInWindow(interpretations: readonly Interpretation[], index: number): boolean {
  const shown = ({ voi }: Interpretation) => {
    const found = voi[index];
    if (found?.kind !== "lut")
      return JSON.stringify([found?.function, found?.center, found?.width]);
    const { firstMapped, bits, entries } = found.lut;
    return JSON.stringify([firstMapped, bits, [...entries]]);
  };
  return new Set(interpretations.map(shown)).size > 1;
}

/** Slope and intercept of a modality transform that is no table. */
function linearOf(modality: ModalityTransform): { slope: number; intercept: number } {
  return modality.kind === "rescale" ? modality : { slope: 1, intercept: 0 };
}

function named({ units, linear }: RealWorldMapping): string {
  return `${units ?? "no units"}${linear === undefined ? " by a table" : ""}`;
}

/**
 * Warnings about a frame's values as the model takes them: that the file has a real world value
 * beside the modality value that is taken, that a mapping was used beyond its range, and what was
 * assumed for SUV.
 * @param data the stored values of the frame
 */
export function valueCaveats(
  values: Values,
  image: Image,
  frame: number,
  data: Uint8Array,
): Warning[] {
  const interpretation = image.interpretation(frame);
  if (values.kind === "modality" || values.kind === "window" || values.kind === "windows") {
    const { modality, realWorld = [] } = interpretation;
    const { slope, intercept } = linearOf(modality);
    const others = realWorld.filter(
      ({ linear }) =>
        linear?.slope !== slope || linear.intercept !== intercept || modality.kind === "lut",
    );
    if (others.length === 0) return [];
    const units = [...new Set(others.map((each) => named(each)))].join(", ");
    const message = `The image has a Real World Value Mapping (${units}) that differs from its modality values; the model was given modality values.`;
    return [{ code: "real_world_value_ignored", message }];
  }
  if (values.kind === "stored" && differInMeaning([image.interpretation(0), interpretation])) {
    const message =
      "RescaleSlope or RescaleIntercept differ from frame to frame, and the model was given stored values: those of one frame cannot be compared with those of another.";
    return [{ code: "stored_values_differ", message }];
  }
  if (values.kind === "suv_bw") {
    const { suv } = interpretation;
    return suv !== undefined && "factor" in suv && suv.caveat !== undefined ? [suv.caveat] : [];
  }
  if (values.kind !== "real_world") return [];
  const mapping = chosen(values, interpretation);
  if (mapping === undefined) return [];
  const { first, last } = mapping;
  const beyond = someValue(
    data,
    image.format,
    interpretation.padding,
    (v) => v < first || v > last,
  );
  if (!beyond) return [];
  const message = `Some stored values lie outside ${first} to ${last}, for which the mapping to ${values.units} is defined; it was applied to them too.`;
  return [{ code: "real_world_range", message }];
}

/** The warning that the type of a tensor cut off values of the image. */
export function cutCaveats(manifest: Manifest, preparation: Preparation): Warning[] {
  const { others = [], parts = [] } = preparation;
  if (parts.length > 0) return parts.flatMap((part) => cutCaveats(manifest, part)).slice(0, 1);
  if (![preparation, ...others].some(({ cut }) => cut)) return [];
  const types = [...new Set(imageInputs(manifest).map(({ dtype }) => dtype))].join(" and ");
  const message = `Values of the image lie beyond what a tensor of ${types} holds, and were cut off there. Do values, clip and normalisation in the manifest suit that type?`;
  return [{ code: "values_cut", message }];
}

/**
 * Says of a frame of floating-point pixels how many of its values are no numbers: models are given
 * their background there, as for padding. A frame whose Pixel Padding is NaN has said so itself.
 * @param data the stored values of the frame
 * @throws RadserveError decode_suspect if none is a number
 */
export function checkNumbers(image: Image, frame: number, data: Uint8Array): Warning[] {
  const { format } = image;
  if (!format.float) return [];
  const read = valueReader(data, format);
  const all = format.rows * format.columns;
  let none = 0;
  for (let i = 0; i < all; i++) if (!Number.isFinite(read(i))) none++;
  const found = `${none} of the ${all} values of frame ${frame + 1} are not numbers (NaN or infinite)`;
  if (none === all)
    throw errors.decode_suspect(
      `Expected numbers as pixels, but ${found}. Send the image again from its source; nothing was computed from this frame.`,
      { reason: "not_a_number", frame: frame + 1 },
    );
  if (none === 0 || Number.isNaN(image.interpretation(frame).padding?.from)) return [];
  return [{ code: "not_a_number", message: `${found}; the model was given its background there.` }];
}
