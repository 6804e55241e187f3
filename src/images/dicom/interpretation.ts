/**
 * Stored values to meaning: modality transform, units, VOI, padding, palette (PS3.3 C.11,
 * C.7.5.1.1.2, C.7.6.3).
 */
import { cachedWith } from "../../base/cached.js";
import { errors } from "../../base/errors.js";
import {
  warn,
  type Interpretation,
  type LookupTable,
  type ModalityTransform,
  type PixelFormat,
  type VoiTransform,
  type Warning,
} from "../image.js";
import { modalityValue, someValue, storedRange } from "../stored-values.js";
import type { DataSetAttributes } from "./attributes.js";
import { hounsfieldOf } from "./derived-values.js";
import { holderOf, onlyItem, perFrame } from "./functional-groups.js";
import { readLut, readPalette, readVoiLut } from "./lookup-tables.js";
import { readRealWorld } from "./real-world.js";
import { readSuv } from "./suv.js";
import { decimal } from "./value-forms.js";

const CT_CLASSES = new Set([
  "1.2.840.10008.5.1.4.1.1.2",
  "1.2.840.10008.5.1.4.1.1.2.1",
  "1.2.840.10008.5.1.4.1.1.2.2",
]);

/**
 * Interpretation by frame (from 0). Per-frame functional groups override shared ones, and those the
 * top of the data set. Reading throws corrupt_image for broken tables.
 */
export function interpretationReader(
  attributes: DataSetAttributes,
  format: PixelFormat,
  warnings: Warning[],
): (frame: number) => Interpretation {
  const isPalette = format.photometricInterpretation === "PALETTE COLOR";
  const palette = isPalette ? readPalette(attributes, format.signed, warnings) : undefined;
  if (!isPalette) checkUnusedPalette(attributes, warnings);
  const padding = readPadding(attributes, format, warnings);
  const suv = readSuv(attributes);
  checkPolarity(attributes, format, warnings);
  // Each frame asks for the tables and windows that all share
  const lutOf = cachedWith((item: DataSetAttributes) => readLut(item, format.signed));
  const voiOf = [false, true].map((signed) =>
    cachedWith((source: DataSetAttributes) => readVoi(source, signed, warnings)),
  );
  return perFrame(attributes, (frame) => {
    const group = holderOf(
      attributes,
      frame,
      "PixelValueTransformationSequence",
      RESCALE,
      warnings,
    );
    const modality = readModality(attributes, group, format, lutOf, warnings);
    const shown = holderOf(attributes, frame, "FrameVOILUTSequence", WINDOW, warnings);
    return {
      modality,
      units: readUnits(
        attributes,
        group,
        frame,
        { modality, bitsStored: format.bitsStored },
        warnings,
      ),
      voi: voiOf[canBeNegative(format, modality) ? 1 : 0]?.(shown) ?? [],
      padding,
      palette,
      realWorld: format.samplesPerPixel > 1 ? [] : readRealWorld(attributes, frame, warnings),
      suv,
    };
  });
}

const RESCALE = ["RescaleSlope", "RescaleIntercept", "RescaleType"];

/** Grey images may have a table whose values show colours and measure nothing (PS3.3 C.7.6.19). */
function checkUnusedPalette(attributes: DataSetAttributes, warnings: Warning[]): void {
  const [, first] = attributes.numbersAs("RedPaletteColorLookupTableDescriptor", "US") ?? [];
  if (first !== undefined)
    warn(
      warnings,
      "palette_ignored",
      `A palette stands beside grey pixels: stored values from ${first} on may show colours, and were read as grey.`,
    );
}

/**
 * Presentation LUT Shape goes with the photometric interpretation (PS3.3 C.8.11.3); viewers differ
 * in which they follow.
 */
function checkPolarity(
  attributes: DataSetAttributes,
  format: PixelFormat,
  warnings: Warning[],
): void {
  const expected = { MONOCHROME1: "INVERSE", MONOCHROME2: "IDENTITY" }[
    format.photometricInterpretation as string
  ];
  const shape = attributes.string("PresentationLUTShape");
  if (expected !== undefined && shape !== expected && (shape === "INVERSE" || shape === "IDENTITY"))
    warn(
      warnings,
      "polarity_mismatch",
      `PresentationLUTShape is ${shape} with PhotometricInterpretation ${format.photometricInterpretation}, which calls for ` +
        `${expected}; PhotometricInterpretation was believed.`,
    );
}

const X_RAY_CLASSES = new Set([
  "1.2.840.10008.5.1.4.1.1.12.1",
  "1.2.840.10008.5.1.4.1.1.12.2",
  "1.2.840.10008.5.1.4.1.1.12.3",
]);

/**
 * The Modality LUT of XA and XRF leads back to X-ray intensity if pixels are not linear to it;
 * windows are for the stored values and display leaves the LUT out (PS3.3 C.8.7.1, PS3.4 N.2.5), so
 * models and readers do not see it.
 */
function isOfIntensity(attributes: DataSetAttributes, warnings: Warning[]): boolean {
  const relationship = attributes.string("PixelIntensityRelationship")?.toUpperCase() ?? "";
  if (
    !X_RAY_CLASSES.has(attributes.string("SOPClassUID") ?? "") ||
    !["LOG", "DISP"].includes(relationship)
  )
    return false;
  warn(
    warnings,
    "modality_lut_ignored",
    `The Modality LUT leads from ${relationship} back to X-ray intensity and is not for display; it was not applied.`,
  );
  return true;
}

/** Items of a LUT sequence, without the empty ones that some writers leave in their objects. */
function filled(
  items: DataSetAttributes[] | undefined,
  keyword: string,
  warnings: Warning[],
): DataSetAttributes[] {
  const isEmpty = (item: DataSetAttributes) =>
    ["LUTDescriptor", "LUTData"].every((part) => (item.element(part)?.length ?? 0) === 0);
  const kept = (items ?? []).filter((item) => !isEmpty(item));
  if (kept.length < (items?.length ?? 0))
    warn(
      warnings,
      "lut_empty",
      `An item of ${keyword} has neither descriptor nor data and was ignored.`,
    );
  return kept;
}

function readModality(
  attributes: DataSetAttributes,
  source: DataSetAttributes,
  format: PixelFormat,
  lutOf: (item: DataSetAttributes) => LookupTable,
  warnings: Warning[],
): ModalityTransform {
  const luts = "ModalityLUTSequence";
  const item = onlyItem(filled(attributes.sequence(luts), luts, warnings), luts, warnings);
  // Colour has no modality transform (PS3.3 C.11.1 is for one sample a pixel)
  if (format.samplesPerPixel > 1) return { kind: "identity" };
  const slope = source.number("RescaleSlope") ?? attributes.number("DoseGridScaling");
  const intercept = source.number("RescaleIntercept");
  if (item !== undefined && !isOfIntensity(attributes, warnings)) {
    // One excludes the other (PS3.3 C.11.1); a slope of 1 and an intercept of 0 do nothing
    if ((slope ?? 1) !== 1 || (intercept ?? 0) !== 0)
      warn(
        warnings,
        "rescale_ignored",
        "RescaleSlope and RescaleIntercept stand beside a Modality LUT, which was taken.",
      );
    return { kind: "lut", lut: lutOf(item) };
  }
  if (slope === undefined && intercept === undefined) return { kind: "identity" };
  // Elsewhere slopes of their own are as common as right: an intercept is 0 unless something else
  // is known of it
  const needsBoth = CT_CLASSES.has(attributes.string("SOPClassUID") ?? "") || source !== attributes;
  if (slope === undefined)
    warn(warnings, "missing_attribute", "RescaleSlope is absent; 1 was taken.");
  else if (intercept === undefined && (needsBoth || source.string("RescaleType") === "HU"))
    warn(warnings, "missing_attribute", "RescaleIntercept is absent; 0 was taken.");
  if (slope === 0) {
    const empty = source.number("RescaleSlope") === 0 ? "RescaleSlope" : "DoseGridScaling";
    return { kind: "rescale", slope: 1, intercept: intercept ?? 0, empty };
  }
  return { kind: "rescale", slope: slope ?? 1, intercept: intercept ?? 0 };
}

/**
 * Whether an attribute's slope of 0 does no harm, because every stored value of the frame is 0 too,
 * as in the empty slices of some PET scanners. Throws corrupt_image if a value is not.
 */
export function checkEmpty(
  { modality, padding }: Interpretation,
  format: PixelFormat,
  data: Uint8Array,
  warnings: Warning[],
): void {
  if (modality.kind !== "rescale" || modality.empty === undefined) return;
  if (someValue(data, format, padding, (stored) => stored !== 0))
    throw errors.corrupt_image(
      `${modality.empty} is 0, which would make every pixel the same. Correct the attribute at the source.`,
      { attribute: modality.empty },
    );
  warn(
    warnings,
    "empty_slice",
    `${modality.empty} is 0 in a frame whose every stored value is 0: it was read as empty, and the slope as 1.`,
  );
}

/**
 * HU only if the object says so, or if its SOP class defines the rescaled values as HU (PS3.3
 * C.8.2.1).
 */
function readUnits(
  attributes: DataSetAttributes,
  source: DataSetAttributes,
  frame: number,
  { modality, bitsStored }: { modality: ModalityTransform; bitsStored: number },
  warnings: Warning[],
): string | undefined {
  if (modality.kind === "lut") {
    const type = attributes.sequence("ModalityLUTSequence")?.[0]?.string("ModalityLUTType");
    if (type === "HU") return hounsfieldOf(attributes, frame, bitsStored, warnings);
    return type === "US" ? undefined : type;
  }
  if (modality.kind === "identity") return undefined;
  const type = source.string("RescaleType");
  // US is "unspecified" (PS3.3 C.11.1.1.2)
  if (type !== undefined && type !== "HU") return type === "US" ? undefined : type;
  if (type === "HU" || CT_CLASSES.has(attributes.string("SOPClassUID") ?? ""))
    return hounsfieldOf(attributes, frame, bitsStored, warnings);
  // Dose: stored values times Dose Grid Scaling are Dose Units (PS3.3 C.8.8.3)
  if (source.string("RescaleSlope") === undefined && attributes.has("DoseGridScaling"))
    return attributes.string("DoseUnits");
  // Positron emission: Units says what rescaled values are (PS3.3 C.8.9.1)
  return attributes.string("Modality") === "PT" ? attributes.string("Units") : undefined;
}

const WINDOW = ["WindowCenter", "WindowWidth", "VOILUTFunction"];

/** @param signed whether the values that go in can be negative */
function readVoi(source: DataSetAttributes, signed: boolean, warnings: Warning[]): VoiTransform[] {
  const luts = filled(source.sequence("VOILUTSequence"), "VOILUTSequence", warnings).map(
    (item): VoiTransform => {
      const explanation = item.string("LUTExplanation");
      return {
        kind: "lut",
        lut: readVoiLut(item, signed, warnings),
        ...(explanation === undefined ? {} : { explanation }),
      };
    },
  );
  return [...readWindows(source, warnings), ...luts];
}

/**
 * Whether the modality transform can give negative values; a Modality LUT gives no sign (PS3.3
 * C.11.1.1.1).
 */
function canBeNegative(format: PixelFormat, modality: ModalityTransform): boolean {
  if (modality.kind === "lut") return false;
  return storedRange(format).some((stored) => modalityValue(modality, stored) < 0);
}

function readWindows(source: DataSetAttributes, warnings: Warning[]): VoiTransform[] {
  const centers = source.strings("WindowCenter") ?? [];
  const widths = source.strings("WindowWidth") ?? [];
  const explanations = source.strings("WindowCenterWidthExplanation") ?? [];
  const named = windowFunction(source, warnings);
  if (widths.length > centers.length)
    warn(
      warnings,
      "window_ignored",
      `WindowWidth has ${widths.length} values and WindowCenter ${centers.length}; widths without a centre were ignored.`,
    );
  return centers.flatMap((text, i): VoiTransform[] => {
    const [center, width] = [decimal(text), decimal(widths[i] ?? "")];
    if (center === undefined || width === undefined || width <= 0) {
      if (text !== "")
        warn(warnings, "window_ignored", `Window ${i + 1} has no usable centre and width.`);
      return [];
    }
    // LINEAR divides by width - 1 and needs 1 at least (PS3.3 C.11.2.1.2.1)
    const narrow = named === "LINEAR" && width < 1;
    if (narrow)
      warn(
        warnings,
        "window_narrow",
        `Window ${i + 1} is narrower than 1 and was taken as LINEAR_EXACT.`,
      );
    const explanation = explanations[i];
    return [
      {
        kind: "window",
        center,
        width,
        function: narrow ? "LINEAR_EXACT" : named,
        ...(explanation === undefined || explanation === "" ? {} : { explanation }),
      },
    ];
  });
}

function windowFunction(
  source: DataSetAttributes,
  warnings: Warning[],
): "LINEAR" | "LINEAR_EXACT" | "SIGMOID" {
  const name = source.string("VOILUTFunction") ?? "LINEAR";
  if (name === "LINEAR" || name === "LINEAR_EXACT" || name === "SIGMOID") return name;
  warn(warnings, "voi_function_unknown", "VOILUTFunction has no defined term; LINEAR was taken.");
  return "LINEAR";
}

/** Pixel Padding Value and Range Limit, in stored values (PS3.3 C.7.5.1.1.2). */
function readPadding(
  attributes: DataSetAttributes,
  format: PixelFormat,
  warnings: Warning[],
): Interpretation["padding"] {
  if (format.samplesPerPixel > 1) return undefined;
  const prefix = format.float ? (format.bitsAllocated === 64 ? "DoubleFloat" : "Float") : "";
  const [from, to] = ["Value", "RangeLimit"].map((end) =>
    attributes.number(`${prefix}PixelPadding${end}`),
  );
  if (from === undefined && to !== undefined)
    warn(
      warnings,
      "missing_attribute",
      `${prefix}PixelPaddingValue is absent beside ${prefix}PixelPaddingRangeLimit; no padding was taken.`,
    );
  return from === undefined ? undefined : { from, to: to ?? from };
}
