/**
 * Images whose type says that their values do not belong to one slice: projections, renderings,
 * maps of other quantities, and pages. Enhanced objects have VolumeBasedCalculationTechnique for it
 * (PS3.3 C.8.16.2.1.3); classic ones have their makers' words in ImageType from its third value on
 * (C.7.6.1.1.2), while RescaleType mostly says HU of all of them.
 */
import { cached, cachedWith } from "../../base/cached.js";
import { ownValue } from "../../base/own-value.js";
import { addWarnings, warn, type Attributes, type Warning } from "../image.js";
import { macrosOf, valuesIn } from "./frame-values.js";

/** The defined terms of VolumeBasedCalculationTechnique by the words that classic objects have. */
const TECHNIQUES: readonly (readonly [technique: string, words: RegExp])[] = [
  [
    "MAX_IP",
    /\b(?:(?:T|THIN|THICK|SLAB)?MIPS?(?:T|THIN|THICK|\d+(?:MM)?)?|MAX(?:IMUM)? ?(?:IP|INTENSITY))\b/,
  ],
  ["MIN_IP", /\b(?:(?:T|THIN|THICK|SLAB)?MINIPS?T?|MNIP|MIN(?:IMUM)? ?(?:IP|INTENSITY))\b/],
  [
    "VOLUME_RENDER",
    /\b(?:C?VRT|VOLREN\w*|VOL(?:UME)? ?REND\w*|3D ?REND\w*|CINEMATIC|ENDOSCOP\w*|FLY ?THR(?:U|OUGH))\b/,
  ],
  ["SURFACE_RENDER", /\b(?:3?D?SSD|SURFACE(?: REND\w*)?|SHADED)\b/],
  ["CURVED_MPR", /\b(?:CPR|CURVED|PANORAM\w*|UNFOLD\w*)\b/],
];
/** Words that say nothing in free text, where VR is mostly a value representation. */
const TYPE_TECHNIQUES: readonly (readonly [technique: string, words: RegExp])[] = [
  ["VOLUME_RENDER", /\bVR\b/],
  // Derived Pixel Contrast (PS3.3 C.8.16.1.4)
  ["MAX_IP", /^MAXIMUM$/],
  ["MIN_IP", /^MINIMUM$/],
];

/** CID 7203. */
const DERIVATIONS: Readonly<Record<string, string>> = {
  "113078": "MAX_IP",
  "113048": "MAX_IP",
  "113079": "MIN_IP",
  "113051": "MIN_IP",
  "113074": "VOLUME_RENDER",
  "113075": "SURFACE_RENDER",
  "113073": "CURVED_MPR",
};
/** Analysis of perfusion, addition, subtraction, multiplication and division. */
const OTHER_QUANTITIES: readonly string[] = ["129104", "113042", "113062", "113053", "113046"];
/** The mean of pixels, and energies weighted to one image. */
const MEAN = "113049";
const OF_ENERGIES = "113097";

const PERFUSION =
  /\b(?:R?CBF|R?CBV|MTT|TTP|TMAX|TTD|TTS|PBV|PERMEABILITY|KTRANS|K TRANS|PATLAK|PENUMBRA|BLOOD FLOW|BLOOD VOLUME|FFR ?(?:CT)?|CT ?FFR|ECV|EXTRACELLULAR VOLUME|VENTILATION|LUNG ?MAP)\b/;
const SPECTRAL =
  /\b(?:Z ?EFF(?:ECTIVE)?|EFF(?:ECTIVE)? Z|RHO ?Z|EFF(?:ECTIVE)? ATOMIC NUM(?:BER)?|ELEC(?:TRON)? DENSITY|IODINE\w*|IOD ?MAP|GOUT|URIC ACID|CALC(?:IUM)? SUPP\w*|COMPTON|PHOTO ?ELECTRIC|XENON|MAT(?:ERIAL)? (?:SPECIFIC|FRACTIONAL|VALUE BASED|MODIFIED|DENSITY|DECOMP\w*))\b/;

/** What types call images whose values are another quantity. */
const QUANTITIES: readonly (readonly [what: string, words: RegExp])[] = [
  ["a map of perfusion or flow", PERFUSION],
  ["a map of materials", SPECTRAL],
  ["a map of materials", /\bWATER\b/],
  // Dual energy applications of Siemens: materials are coloured or enhanced
  [
    "a map of materials",
    /\b(?:LUNG ?VESSELS?|LUNG ?NODULES?|COLLAGEN|TENDONS?|KIDNEY ?STONES?|HARD ?PLAQUES?|BONE ?MARROW|BRAIN ?HEMORRHAGE|FAT ?(?:MAP|FRACTION))\b/,
  ],
  // Derived Pixel Contrast (PS3.3 C.8.16.1.4)
  [
    "statistics or arithmetic of images",
    /^(?:STD ?DEV(?:IATION)?|VARIANCE|ADDITION|DIVISION|MULTIPLICATION)$/,
  ],
  [
    "a page or a picture of a screen",
    /\b(?:PROT(?:OCOL)?|DOSE|REPORT|SCREEN ?(?:SAVE|SHOT)?|CAPTURE|SUMMARY|GRAPH|CURVE|CHART|HISTOGRAM|TABLE|TEXT|EVAL\w*)\b/,
  ],
  [
    "a projection",
    /\b(?:SCOUT|TOPO(?:GRAM)?|SURVIEW|SCANO(?:GRAM)?|RAY ?SUM|DRR|PROJECTION|CT SOM\d+ TOP)\b/,
  ],
  ["labels", /\b(?:SEGMENTATIONS?|LABEL ?MAPS?|LABELS?|MASKS?)\b/],
  ["another quantity", /\b(?:PARAMETRIC|JACOBIAN|STRAIN)\b/],
  [
    "colours or a difference",
    /\b(?:OVERLAY|FUSION|FUSED|COLOU?R|RGB|\w*SUBTRACT\w*|DIFF(?:ERENCE)?)\b/,
  ],
];
/**
 * They name the scans too that maps and evaluations are made of, so that they tell only of derived
 * images.
 */
const IF_DERIVED: readonly (readonly [what: string, words: RegExp])[] = [
  ["a map of perfusion or flow", /\b(?:CTP|PERF(?:USION)?|BF|BV|PS)\b/],
  [
    "a page of an evaluation",
    /\b(?:CASC\w*|CA ?SCOR\w*|CALCIUM ?SCOR\w*|SMART ?SCORE|AGATSTON|DYN ?EVA\w*|OSTEO|PULMO)\b/,
  ],
];
/** An evaluation as the type of what does not say that it is derived. */
const EVALUATION = /\b(?:CASC\w*|DYN ?EVA\w*)\b/;

/** Types of images that have Hounsfield units, but others than those of a tube at 120 kV. */
const OTHER_HOUNSFIELD =
  /\b(?:VMI|MONO ?E\w*|MONO|MONOCHROMATIC|\d* ?KEV|VNC\w*|VUE|VIRTUAL NON ?CONTRAST|VIRTUAL UNENHANCED|MAT(?:ERIAL)? REMOVED|BONE REMOV\w*|ENERGY PROP\w*|OPTIMUM CONTRAST)\b/;
/** Means of several slices or times: Hounsfield units, as those of a thick slice are. */
const AVERAGE =
  /\b(?:AIPS?|AV(?:E|G|ERAGE)? ?IP|AVERAGED?|MEAN ?IP|(?:MEAN|AVERAGE) INTENSITY|T ?AVG|THICK ?SLAB)\b|^(?:AVG|MEAN)$/;

/** Words of types that change no values: planes, ways to scan and to compress, terms of PS3.3. */
const USUAL_WORDS = new Set(
  (
    "ORIGINAL DERIVED PRIMARY SECONDARY MIXED NONE AXIAL SAGITTAL CORONAL OBLIQUE DOUBLE ORTHO VOLUME STACK " +
    "HELIX HELICAL SPIRAL SEQUENCE SPI SEQ MPR MPRS REFORMAT REFORMATTED RESAMPLED FILTERED RECON " +
    "RECONSTRUCTED PARALLEL RADIAL CSA CSAPARALLEL CSARADIAL CSAMPR CT DUAL STD NORM ND JP2K JPEG LOSSY " +
    "LOSSLESS COMPRESSED CROPPED RESIZED ANGIO ATTENUATION CARDIAC GATED REST STRESS FLUOROSCOPY MOTION " +
    "PERFUSION PRE POST CONTRAST RESP STATIC THICK THIN"
  ).split(" "),
);
const isUsual = (word: string) => USUAL_WORDS.has(word) || /^(?:SOM)?\d*$|^[A-Z]$/.test(word);

/** Grey levels of so few bits show a window, and no Hounsfield units of a body. */
const PICTURE_BITS = 8;

const normal = (text: string): string =>
  text
    .toUpperCase()
    .replace(/[^A-Z0-9]+/g, " ")
    .trim();

/** Each value by itself; some writers leave the first ones out. */
const typesOf = (attributes: Attributes, frame: number | undefined): string[] =>
  ["ImageType", "FrameType"].flatMap((keyword) =>
    valuesIn(attributes, keyword, frame).flatMap((holder) =>
      (holder.strings(keyword) ?? []).map((type) => normal(type)),
    ),
  );

const codesOf = (attributes: Attributes, frame: number | undefined): string[] =>
  valuesIn(attributes, "DerivationCodeSequence", frame).flatMap((holder) =>
    (holder.sequence("DerivationCodeSequence") ?? []).flatMap(
      (code) => code.string("CodeValue") ?? [],
    ),
  );

/** Free text; what compresses and crops an image has one too. */
const descriptionsOf = (attributes: Attributes, frame: number | undefined): string[] =>
  valuesIn(attributes, "DerivationDescription", frame).flatMap((holder) =>
    normal(holder.string("DerivationDescription") ?? ""),
  );

/**
 * VolumeBasedCalculationTechnique, as the object says it, or as its type and derivation do where
 * only Enhanced objects have that attribute.
 * @param frame from 0; of all frames if it is absent
 */
export function calculationTechniques(attributes: Attributes, frame?: number): string[] {
  const keyword = "VolumeBasedCalculationTechnique";
  const stated = valuesIn(attributes, keyword, frame).flatMap(
    (holder) => holder.strings(keyword) ?? [],
  );
  const types = typesOf(attributes, frame);
  const texts = [...types, ...descriptionsOf(attributes, frame)];
  const named = TECHNIQUES.filter(([, words]) => texts.some((text) => words.test(text)));
  const codes = codesOf(attributes, frame).flatMap((code) => ownValue(DERIVATIONS, code) ?? []);
  const typed = TYPE_TECHNIQUES.filter(([, words]) => types.some((type) => words.test(type)));
  const found = [...stated, ...[...named, ...typed].map(([technique]) => technique), ...codes];
  return [...new Set(found)].filter((technique) => technique !== "");
}

/** The techniques whose values do not belong to one place. */
const OF_MANY_PLACES = new Set(TECHNIQUES.map(([technique]) => technique));

/** The other quantity that an image shows, whatever its units say; undefined if it shows none. */
function otherQuantity(
  attributes: Attributes,
  frame: number,
  bitsStored: number,
): string | undefined {
  const [first, second] = attributes.strings("ImageType") ?? [];
  const types = typesOf(attributes, frame);
  const known = QUANTITIES.find(([, words]) => types.some((type) => words.test(type)))?.[0];
  if (known !== undefined) return known;
  const derived = IF_DERIVED.find(([, words]) => types.some((type) => words.test(type)))?.[0];
  if (first === "DERIVED" && derived !== undefined) return derived;
  const texts = descriptionsOf(attributes, frame);
  if (texts.some((text) => PERFUSION.test(text) || SPECTRAL.test(text))) return "a map";
  if (codesOf(attributes, frame).some((code) => OTHER_QUANTITIES.includes(code)))
    return "a map or a difference (DerivationCodeSequence)";
  return second === "SECONDARY" && bitsStored <= PICTURE_BITS
    ? `a picture of ${bitsStored} bits (BitsStored, ImageType SECONDARY)`
    : undefined;
}

/**
 * HU, if the values of a frame can be those of a slice; undefined if what the image says of itself
 * makes them another quantity. Both are warned of where a reader may take them for a slice's.
 */
export function hounsfieldOf(
  attributes: Attributes,
  frame: number,
  bitsStored: number,
  warnings: Warning[],
): "HU" | undefined {
  const group = attributes.sequence("PerFrameFunctionalGroupsSequence")?.[frame];
  const isOwn = MACROS.some((macro) => group?.sequence(macro) !== undefined);
  const judgement = isOwn
    ? judge(attributes, frame, bitsStored)
    : judgeOfAll(attributes)(bitsStored);
  addWarnings(warnings, judgement.warnings);
  return judgement.units;
}

/** The functional groups that say how the values of a frame came to be. */
const MACROS = ["FrameType", "DerivationCodeSequence"].flatMap((keyword) => macrosOf(keyword));
/** Its number in place of a frame's leaves what all share. */
const NO_FRAME = -1;

interface Judgement {
  units: "HU" | undefined;
  warnings: readonly Warning[];
}

/** Each frame asks for what all share, and there may be very many words. */
const judgeOfAll = cachedWith((attributes: Attributes) =>
  cached((bitsStored: number) => judge(attributes, NO_FRAME, bitsStored)),
);

function judge(attributes: Attributes, frame: number, bitsStored: number): Judgement {
  const warnings: Warning[] = [];
  return { units: unitsOf(attributes, frame, bitsStored, warnings), warnings };
}

function unitsOf(
  attributes: Attributes,
  frame: number,
  bitsStored: number,
  warnings: Warning[],
): "HU" | undefined {
  const say = (message: string) => warn(warnings, "derived_values", message);
  // Its own kind, which is left out of series
  if (typesOf(attributes, frame).includes("LOCALIZER")) return undefined;
  const other = otherQuantity(attributes, frame, bitsStored);
  if (other !== undefined) {
    say(
      `ImageType or the derivation says that the image is ${other}: its values were taken as no Hounsfield units, and models that need them do not take it.`,
    );
    return undefined;
  }
  const techniques = calculationTechniques(attributes, frame);
  const many = techniques.filter((technique) => OF_MANY_PLACES.has(technique));
  const types = typesOf(attributes, frame);
  const isOf = (words: RegExp) => types.some((type) => words.test(type));
  const codes = codesOf(attributes, frame);
  if (many.length > 0)
    say(
      `ImageType, the derivation or VolumeBasedCalculationTechnique says ${many.join(", ")}: its values are not those of one place in the patient.`,
    );
  else if (isOf(OTHER_HOUNSFIELD) || codes.includes(OF_ENERGIES))
    say(
      "ImageType or the derivation says that the image was computed of several energies (virtual monoenergetic, or a material removed): its Hounsfield units are not those of a usual scan.",
    );
  else if (isOf(AVERAGE) || codes.includes(MEAN))
    say(
      "ImageType or the derivation says that values are means of several slices or times: they are those of a thick slice, in which small parts are lost and borders are blurred.",
    );
  else if (
    isOf(EVALUATION) ||
    (attributes.strings("ImageType")?.[1] === "SECONDARY" && types.includes("OTHER"))
  )
    say(
      "ImageType is SECONDARY and OTHER, or names an evaluation: whether its values are Hounsfield units of one slice, it does not say.",
    );
  else {
    const strange = types.filter((type) => !type.split(" ").every(isUsual));
    if (strange.length > 0 && (types.includes("DERIVED") || types.includes("SECONDARY")))
      say(
        `ImageType says that the image is derived, and ${strange.slice(0, 3).join(", ")}, which is not known: its values may be no Hounsfield units of one slice.`,
      );
  }
  return "HU";
}
