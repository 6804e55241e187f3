/**
 * Whether a model takes an image, and if not, every reason why. Each refusal has its own code, and
 * its message names the rule, what was expected and what was found, but never a value that could
 * tell who the patient is.
 *
 * Which rules apply to which formats: `formats`, `units`, `photometric`, `dimensions`,
 * `max_frames`, `min_rows`, `min_columns` and the demands of `inputs` apply to every image.
 * `modality`, `sop_class`, `body_part`, `rules`, `any_of` and the `envelope` are about DICOM
 * attributes and apply to DICOM alone: a PNG has no attributes, and `formats` says whether the
 * model takes PNG. In DICOM an absent or empty attribute is refused if a list demands a value; each
 * of the `rules` says for itself what happens then (`if_absent`). Every slice of a series is looked
 * at; a slice that is refused refuses the whole series.
 */
import { rangeOf } from "../base/range.js";
import { sopClassName } from "../images/dicom/dictionary.js";
import { volumeOf } from "../images/dicom/volume.js";
import { RadserveError } from "../base/errors.js";
import { count } from "../base/table.js";
import type {
  Attributes,
  Image,
  Interpretation,
  StackTolerance,
  Warning,
} from "../images/image.js";
import {
  imageInputs,
  isVolume,
  neighboursOf,
  takesWhole,
  toleranceOf,
  type ImageInput,
  type Manifest,
} from "../manifest/manifest.js";
import { coversPart } from "../manifest/outputs/map-cover.js";
import { seenBy } from "../manifest/roles.js";
import { attributeCaveats, attributeReasons } from "./attribute-numbers.js";
import {
  dataSets,
  numbersOf,
  picked,
  snakeCase,
  stringsOf,
  TECHNICAL,
  valuesByFrame,
  type Reason,
} from "./attribute-values.js";
import { differInMeaning, differInWindow, valueReasons } from "./input-values.js";
import {
  coverageCaveats,
  faultReason,
  identityCaveats,
  fill,
  rolesIn,
  type Filled,
} from "./roles.js";

/** Longer lists are not spelled out in a message. */
const MAX_LISTED = 6;
/** All slices of a volume are in memory at once: 2 GiB are 4,000 slices of 512 x 512 in 16 bits. */
const LARGEST_VOLUME_BYTES = 2 ** 31;

type Accepts = Manifest["accepts"];
type TagRule = NonNullable<Accepts["rules"]>[number];
type EnvelopeRule = NonNullable<Manifest["envelope"]>[number];

/**
 * Every reason why a model does not take an image, in the order of the rules; empty if it takes it.
 * A model with roles takes cases alone, and is asked of each role.
 */
export function accepts({ manifest }: { manifest: Manifest }, image: Image): Reason[] {
  if (manifest.roles !== undefined) return caseReasons(manifest, image);
  if (image.case === undefined) return imageReasons(manifest, image);
  const message =
    "The model takes one image or series; the folder is a case of several that another model takes together. Name one in series_instance_uid, or this model in models.";
  return [{ code: "case_not_accepted", message }];
}

function caseReasons(manifest: Manifest, image: Image): Reason[] {
  const filled = fill(manifest, image.case?.candidates ?? [{ image }]);
  return "reasons" in filled ? filled.reasons : roleReasons(manifest, filled.roles);
}

/** Why a model does not take images as its roles, each by itself. */
export function roleReasons(manifest: Manifest, roles: readonly Filled[]): Reason[] {
  return roles.flatMap(({ role, image }) =>
    imageReasons(seenBy(manifest, role), image).map(({ code, message }) => ({
      code,
      message: `Role "${role}": ${message}`,
    })),
  );
}

function imageReasons(manifest: Manifest, image: Image): Reason[] {
  const { accepts: rules } = manifest;
  return [
    ...among("format", rules.formats, [image.source.format], "The image format"),
    ...(image.source.format === "dicom" ? dicomReasons(rules, image) : []),
    ...among(
      "photometric",
      rules.photometric,
      [image.format.photometricInterpretation],
      "PhotometricInterpretation",
    ),
    ...unitReasons(rules, image),
    ...sizeReasons(rules, image),
    ...neighbourReasons(manifest, image),
    ...spacingReasons(manifest, image),
    ...imageInputs(manifest).flatMap((input) => inputReasons(input, image)),
    ...storedReasons(manifest, image),
    ...attributeReasons(manifest, image),
  ];
}

/**
 * Caveats for an image that is accepted but lies outside the envelope in which the model was
 * tested.
 */
export function caveats(manifest: Manifest, image: Image): Warning[] {
  const roles = rolesIn(manifest, image);
  const images = roles.length === 0 ? [image] : roles.map((filled) => filled.image);
  return unique([
    ...images
      .flatMap((one) => dataSets(one))
      .flatMap((attributes) =>
        (manifest.envelope ?? []).flatMap((rule) => envelopeCaveat(rule, attributes)),
      ),
    ...attributeCaveats(manifest, image),
    ...windowCaveats(manifest, image),
    ...identityCaveats(roles),
    ...coverageCaveats(manifest, roles),
    ...partCaveats(manifest),
  ]);
}

/** What a model sees, and does not say anything of, is not free of findings. */
const partCaveats = ({ outputs }: Manifest): Warning[] =>
  outputs.flatMap((output) => {
    if (!("covers" in output) || !coversPart(output)) return [];
    const part = output.covers === "centre" ? "the middle" : "the beginning";
    const message = `Of what the model is given, "${output.tensor}" covers ${part} only; outside it nothing is found.`;
    return [{ code: "part_covered", message }];
  });

/** Each entry once; entries are equal if code and message are. */
export function unique<T extends { code: string; message: string }>(found: readonly T[]): T[] {
  return [...new Map(found.map((each) => [`${each.code} ${each.message}`, each])).values()];
}

function dicomReasons(rules: Accepts, image: Image): Reason[] {
  const { source } = image;
  const all = dataSets(image);
  const bodyParts = all.map((attributes) => attributes.string("BodyPartExamined"));
  return [
    ...among("modality", rules.modality, [source.modality], "Modality"),
    ...among("sop_class", rules.sop_class, [source.sopClassUid], "SOPClassUID", sopClassName),
    ...among("body_part", rules.body_part, bodyParts, "BodyPartExamined"),
    ...ruleReasons(rules.rules, all),
    ...listReasons(rules.any_of, all),
  ];
}

const ruleReasons = (rules: readonly TagRule[] = [], all: readonly Attributes[]): Reason[] =>
  rules.flatMap((rule) => unique(all.flatMap((attributes) => tagReasons(rule, attributes))));

/** Why none of several lists of rules holds. */
function listReasons(
  lists: readonly (readonly TagRule[])[] = [],
  all: readonly Attributes[],
): Reason[] {
  const refused = lists.map((list) => ruleReasons(list, all));
  if (refused.length === 0 || refused.some((reasons) => reasons.length === 0)) return [];
  const said = refused.map((reasons) => reasons.map(({ message }) => message).join(" "));
  const message = `None of the ${lists.length} lists of rules in accepts.any_of holds. ${said.map((one, i) => `(${i + 1}) ${one}`).join(" ")}`;
  return [{ code: "any_of_not_accepted", message }];
}

/**
 * If there is a list, every found value must be in it; undefined stands for an absent value and is
 * in no list.
 */
function among(
  rule: string,
  expected: readonly string[] | undefined,
  found: readonly (string | undefined)[],
  what: string,
  shown: (value: string) => string = quotable,
): Reason[] {
  if (expected === undefined) return [];
  const wrong = found.filter((value) => value === undefined || !expected.includes(value));
  if (wrong.length === 0) return [];
  const values = [
    ...new Set(wrong.map((value) => (value === undefined ? "absent" : shown(value)))),
  ];
  const few = expected.length <= MAX_LISTED;
  const wanted = few
    ? expected.map(shown).join(" or ")
    : `${expected.length} others (accepts.${rule})`;
  const message = `${what} is ${values.join(", ")}; the model takes ${wanted}.`;
  return [{ code: `${rule}_not_accepted`, message }];
}

function unitReasons(rules: Accepts, image: Image): Reason[] {
  const found = among("units", rules.units, unitsOf(image), "The unit of pixel values");
  // Why an image that says HU has none stands among its warnings
  const why = image.warnings.filter(({ code }) => code === "derived_values");
  return found.map(({ code, message }) => ({
    code,
    message: [message, ...why.map((each) => each.message)].join(" "),
  }));
}

function unitsOf(image: Image): (string | undefined)[] {
  return [...new Set(interpretations(image).map((i) => i.units))];
}

function interpretations(image: Image): Interpretation[] {
  return Array.from({ length: image.frameCount }, (_, frame) => image.interpretation(frame));
}

function sizeReasons(rules: Accepts, image: Image): Reason[] {
  const { frameCount, format, series } = image;
  const reasons: Reason[] = [];
  const refuse = (code: string, message: string) => reasons.push({ code, message });
  if (rules.dimensions === "series")
    reasons.push(...volumeReasons(image, toleranceOf({ accepts: rules })));
  else if (series?.grouped === false && series.volume.flaws !== undefined)
    reasons.push(...volumeReasons(image));
  const single = rules.dimensions === "2d";
  // A group of files that are single images each
  const oneByOne =
    single && series?.grouped === true && series.slices.every((one) => one.frame === undefined);
  if (single && frameCount !== 1 && !oneByOne)
    refuse(
      "single_frame_required",
      `The model takes one frame; found ${count(frameCount)}${series === undefined ? "" : ' slices of a series: send them one by one, or with group "series"'}.`,
    );
  if (rules.max_frames !== undefined && frameCount > rules.max_frames && !oneByOne)
    refuse("too_many_frames", `Expected at most ${rules.max_frames} frames, found ${frameCount}.`);
  if (rules.min_rows !== undefined && format.rows < rules.min_rows)
    refuse("too_few_rows", `Expected at least ${rules.min_rows} rows, found ${format.rows}.`);
  if (rules.min_columns !== undefined && format.columns < rules.min_columns)
    refuse(
      "too_few_columns",
      `Expected at least ${rules.min_columns} columns, found ${format.columns}.`,
    );
  return reasons;
}

function neighbourReasons(manifest: Manifest, image: Image): Reason[] {
  if (neighboursOf(manifest) === undefined) return [];
  if (image.frameCount > 1) return volumeReasons(image);
  const message =
    "The model takes slices with their neighbours; found a single image. Send the folder of the series.";
  return [{ code: "neighbours_required", message }];
}

/** Images that are taken for volumes of one slice are resampled by their spacing. */
function spacingReasons(manifest: Manifest, image: Image): Reason[] {
  if (manifest.accepts.dimensions === "series" || !imageInputs(manifest).some(isVolume)) return [];
  if (
    Array.from({ length: image.frameCount }).every((_, frame) => image.spacing(frame) !== undefined)
  )
    return [];
  const message = "The model resamples by pixel spacing; the image has none.";
  return [{ code: "spacing_required", message }];
}

/**
 * Why the image is no volume: it has one frame, or its frames do not form a volume; the code tells
 * the fault.
 */
function volumeReasons(image: Image, tolerance?: StackTolerance): Reason[] {
  if (image.frameCount === 1 && image.series === undefined)
    return [
      {
        code: "series_required",
        message: "The model takes a whole series, as a volume; found one image.",
      },
    ];
  const { rows, columns, samplesPerPixel, bitsAllocated } = image.format;
  const bytes = image.frameCount * rows * columns * samplesPerPixel * (bitsAllocated / 8);
  if (bytes > LARGEST_VOLUME_BYTES)
    return [
      {
        code: "volume_too_large",
        message: `A volume may have at most ${count(LARGEST_VOLUME_BYTES)} bytes of pixels; found ${count(bytes)}.`,
      },
    ];
  try {
    volumeOf(image, tolerance);
    return [];
  } catch (error) {
    if (!(error instanceof RadserveError) || error.code !== "series_invalid") throw error;
    return [faultReason(error)];
  }
}

/**
 * A model that is given several slices at once compares their values. Stored values of slices with
 * rescales of their own, as PET has them, are no values of one scale.
 */
export function storedReasons(manifest: Manifest, image: Image): Reason[] {
  const isStored = imageInputs(manifest).some(({ values }) => values.kind === "stored");
  if (!isStored || !takesWhole(manifest) || !differInMeaning(interpretations(image))) return [];
  const message =
    "The model takes stored values of several slices at once; RescaleSlope or RescaleIntercept differ from slice to slice, so that their stored values cannot be compared. It can take modality values (`inputs.values`).";
  return [{ code: "stored_values_differ", message }];
}

/**
 * A model that is given several slices at once, each by its file's own window, sees one tissue at
 * another brightness from slice to slice where the windows differ.
 */
export function windowCaveats(manifest: Manifest, image: Image): Warning[] {
  const { photometricInterpretation: photometric } = image.format;
  if (!takesWhole(manifest) || !photometric.startsWith("MONOCHROME")) return [];
  const indices = imageInputs(manifest).flatMap(({ values }) =>
    values.kind === "voi" ? values.index : [],
  );
  if (!indices.some((index) => differInWindow(interpretations(image), index))) return [];
  const message =
    "The model takes several slices at once by their own windows, and these differ (WindowCenter, WindowWidth, VOILUTFunction or VOI LUT): the same tissue had other values from slice to slice.";
  return [{ code: "windows_differ", message }];
}

/** Assumptions that the pixel pipeline would have to make and the manifest forbids. */
function inputReasons(input: ImageInput, image: Image): Reason[] {
  const { photometricInterpretation, samplesPerPixel } = image.format;
  const colour = samplesPerPixel > 1 || photometricInterpretation === "PALETTE COLOR";
  const reasons: Reason[] = [];
  if (input.monochrome1 === "refuse" && photometricInterpretation === "MONOCHROME1")
    reasons.push({
      code: "monochrome1_not_accepted",
      message: "The model does not take PhotometricInterpretation MONOCHROME1.",
    });
  if (input.channels === "grayscale" && input.colour_source === "refuse" && colour)
    reasons.push({
      code: "colour_not_accepted",
      message: `The model takes grayscale images; found PhotometricInterpretation ${photometricInterpretation}.`,
    });
  const longest = Math.max(image.format.rows, image.format.columns);
  if (input.size.kind === "multiple_of" && input.fit === "none" && longest > input.size.max_side)
    reasons.push({
      code: "too_large",
      message: `The model takes at most ${count(input.size.max_side)} pixels a side; found ${count(longest)}.`,
    });
  reasons.push(...valueReasons(input.values, interpretations(image)));
  if (input.values.kind === "voi" && input.values.if_absent === "refuse" && !colour) {
    const { index } = input.values;
    const [fewest] = rangeOf(interpretations(image).map((i) => i.voi.length));
    if (fewest <= index)
      reasons.push({
        code: "voi_missing",
        message: `The model uses window or VOI LUT number ${index + 1}; the image has ${fewest}.`,
      });
  }
  return reasons;
}

/**
 * A tag rule, which every frame has to obey. With `index` it looks at that value only. Without
 * `index`, at least one value must be in the list of `in`, no value in that of `not_in`, and every
 * value within `min` and `max`. For these two, a value that is not a number counts as absent.
 */
export function tagReasons(rule: TagRule, attributes: Attributes): Reason[] {
  return unique(valuesByFrame(attributes, rule.tag).flatMap((found) => frameReasons(rule, found)));
}

function frameReasons(rule: TagRule, found: ReturnType<typeof valuesByFrame>[number]): Reason[] {
  const code = `rule_${snakeCase(rule.tag)}`;
  const demand = demandText(rule);
  const refuse = (found: string): Reason[] => [
    {
      code,
      message: `${sentence(rule.reason)} Expected ${rule.tag}${rule.index === undefined ? "" : ` value ${rule.index + 1}`} ${demand}, found ${found}.`,
    },
  ];
  const absent = (): Reason[] => (rule.if_absent === "accept" ? [] : refuse("none"));
  const values = picked(found.strings, rule.index);
  if (values.length === 0) return absent();
  const shown = shownValues(rule.tag, values);
  const listed = (list: readonly string[]) => values.some((value) => list.includes(value));
  if (rule.in !== undefined && !listed(rule.in)) return refuse(shown);
  if (rule.not_in !== undefined && listed(rule.not_in)) return refuse(shown);
  if (rule.min === undefined && rule.max === undefined) return [];
  const numbers = picked(found.numbers, rule.index);
  if (numbers.length === 0) return absent();
  return numbers.every((n) => within(n, rule)) ? [] : refuse(shown);
}

function envelopeCaveat(rule: EnvelopeRule, attributes: Attributes): Warning[] {
  const values = stringsOf(attributes, rule.tag);
  const numbers = numbersOf(attributes, rule.tag);
  const numeric = rule.min !== undefined || rule.max !== undefined;
  const demand = demandText(rule);
  if (values.length === 0 || (numeric && numbers.length === 0))
    return [
      {
        code: "envelope_unknown",
        message: `${sentence(rule.caveat)} ${rule.tag} is not stated; the model was tested with ${demand}.`,
      },
    ];
  const inside =
    (!numeric || numbers.every((n) => within(n, rule))) &&
    (rule.in === undefined || values.every((value) => rule.in?.includes(value)));
  if (inside) return [];
  const found = shownValues(rule.tag, values);
  const message = `${sentence(rule.caveat)} ${rule.tag} is ${found}; the model was tested with ${demand}.`;
  return [{ code: "outside_envelope", message }];
}

function within(
  value: number,
  { min, max }: { min?: number | undefined; max?: number | undefined },
): boolean {
  return (min === undefined || value >= min) && (max === undefined || value <= max);
}

function demandText(rule: Pick<TagRule, "in" | "not_in" | "min" | "max">): string {
  return [
    ...(rule.in === undefined ? [] : [rule.in.join(" or ")]),
    ...(rule.not_in === undefined ? [] : [`other than ${rule.not_in.join(", ")}`]),
    ...(rule.min === undefined ? [] : [`at least ${rule.min}`]),
    ...(rule.max === undefined ? [] : [`at most ${rule.max}`]),
  ].join(" and ");
}

function shownValues(keyword: string, values: readonly string[]): string {
  if (!TECHNICAL.has(keyword)) return "another value";
  return [...new Set(values.map(quotable))].join("\\");
}

/** Code strings, numbers and UIDs are quoted; free text could hold anything and is not. */
function quotable(value: string): string {
  return /^[A-Z0-9_ ]{1,16}$/.test(value) || /^[0-9.+-]{1,64}$/.test(value) || KNOWN.has(value)
    ? value
    : "another value";
}

const KNOWN = new Set(["dicom", "png", "jpeg", "tiff"]);

const sentence = (text: string): string => (/[.!?]$/.test(text) ? text : `${text}.`);
