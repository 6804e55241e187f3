/**
 * The rules of the model manifest over more than one field, and the schema of fields and rules
 * together.
 */
import { z } from "zod";
import {
  cascadeOf,
  channelsOf,
  imageInputs,
  isImageInput,
  inputOf,
  isVolume,
  isWholeType,
  manifestFields,
  MOST_CHANNELS,
  numbersOf,
  partsOf,
  takesWhole,
  type AttributeInput,
  type ImageInput,
  type Manifest,
} from "./manifest.js";
import { isDicomKind } from "./output-kinds.js";
import type { Around, Report } from "./outputs/kind.js";
import { kindOf, kindsThat, labelPath, labelsOf, type ModelOutput } from "./outputs/outputs.js";
import { coversPart } from "./outputs/map-cover.js";
import { isFractional, isInModelGrid, isSegmentation } from "./outputs/segmentation.js";
import { tiledAxes, type Tiling } from "./tiling.js";
import { checkEnsemble } from "./ensemble.js";
import { checkModelParts, unitsOf } from "./model-parts.js";
import { checkParts, checkRegion } from "./region.js";
import { checkRoles, partsOfModel, roleOf } from "./roles.js";
import { checkRange } from "./value-range.js";

/**
 * The rules over more than one field, apart from the schema so that they can be run beside other
 * mistakes.
 */
export function manifestCrossChecks(m: Manifest, issue: Report): void {
  let mistakes = 0;
  checkWhole(m, (path, message) => {
    mistakes++;
    issue(path, message);
  });
  // A part is a model by itself once the whole is without mistakes
  if (m.parts === undefined || mistakes > 0) return;
  unitsOf(m).forEach(({ manifest }, p) =>
    checkWhole(manifest, (path, message) => issue(["parts", p, ...path], message)),
  );
}

function checkWhole(m: Manifest, issue: Report): void {
  const around: Around = {
    outputs: m.outputs,
    volume: m.accepts.dimensions === "series",
    tiled: m.tiling !== undefined,
    final: m.stage === "final",
  };
  const eachOutput = (check: (output: ModelOutput, at: Report) => void) => {
    m.outputs.forEach((output, o) =>
      check(output, (path, message) => issue(["outputs", o, ...path], message)),
    );
  };
  eachOutput((output, at) => checkOutput(output, around, at));
  m.inputs.forEach((input, i) => {
    if (isImageInput(input))
      forEachPart(input, i, issue, (part, at) => checkInput(part, m.accepts.dimensions, at));
    else checkAttributes(input, (path, message) => issue(["inputs", i, ...path], message));
  });
  eachOutput((output, at) => {
    const { ofVolumes, ofImages = true } = kindOf(output);
    if (around.volume && !ofVolumes)
      at(["kind"], `Expected ${kindsThat("ofVolumes")} for volumes, found ${output.kind}`);
    if (!around.volume && !ofImages) at(["kind"], `Volumes alone have ${output.kind}`);
  });
  const types = new Set(m.outputs.filter(isSegmentation).map(isFractional));
  if (types.size > 1)
    issue(["outputs"], "Expected one segment_type: all segments are in one SEG object");
  if (m.stage === "final" && m.canary === undefined && m.parts === undefined)
    issue(["canary"], "Required in stage final: `radserve models canary` makes one");
  if (m.stage === "draft" && m.results.outputs.some(isDicomKind))
    issue(["results", "outputs"], "A draft writes json and png only");
  // These come last, because they look into objects that may be missing beside other mistakes.
  eachOutput((output, at) => {
    checkThresholds(output, at);
    kindOf(output).checkWhole?.(output, around, at);
  });
  if (
    m.accepts.formats.includes("dicom") &&
    m.accepts.modality === undefined &&
    m.accepts.sop_class === undefined
  )
    issue(
      ["accepts", "modality"],
      'Expected the modalities or the SOP classes that the model was made for, for example ["CT"] (or sop_class): without either it would take every DICOM image, a dose or a map too',
    );
  if (m.accepts.prefer !== undefined && m.roles === undefined && !takesWhole(m))
    issue(
      ["accepts", "prefer"],
      "Expected a model of whole series, with neighbours or with roles: others take the images of every series",
    );
  checkFrames(m, issue);
  m.inputs.forEach((input, i) => {
    if (isImageInput(input)) forEachPart(input, i, issue, checkRange);
  });
  checkTogether(m, issue);
  checkNames(m, issue);
  checkRoles(m, issue);
  if (m.tiling !== undefined)
    checkTiling(m, m.tiling, (path, message) => issue(["tiling", ...path], message));
  if (m.ensemble !== undefined)
    checkEnsemble(m, m.ensemble, (path, message) => issue(["ensemble", ...path], message));
  if (m.parts !== undefined)
    checkModelParts(m, m.parts, (path, message) => issue(["parts", ...path], message));
  if (m.region !== undefined)
    checkRegion(m, m.region, (path, message) => issue(["region", ...path], message));
  checkCrop(m, issue);
  checkForeground(m, issue);
  checkEnds(m, issue);
  checkMultiple(m, issue);
  checkCovers(m, issue);
  checkActivated(m, issue);
  checkInSource(m, issue);
  checkAcross(m, issue);
  checkSlices(m, issue);
  checkSegmentGrid(m, issue);
  checkCascade(m, issue);
  checkCanary(m, issue);
}

/** The rules for a model that takes the labels of another model as channels. */
function checkCascade(m: Manifest, issue: Report): void {
  const cascade = cascadeOf(m);
  if (cascade === undefined) return;
  const at = [
    "inputs",
    m.inputs.findIndex((input) => isImageInput(input) && input.cascade !== undefined),
    "cascade",
  ];
  if (m.inputs.length > 1) issue(at, "Expected a single input");
  if (imageInputs(m)[0]?.resampling === undefined)
    issue(at, "Expected resampling: it says how the labels go to the network's grid");
  if (m.region !== undefined || m.accepts.slices !== undefined)
    issue(at, "Expected neither region nor accepts.slices beside it");
  if (new Set(cascade.labels).size !== cascade.labels.length)
    issue([...at, "labels"], "Expected each label once");
  if (cascade.model === m.name) issue([...at, "model"], "Expected another model than this one");
}

/**
 * The rules for segments in the model's grid: one grid, whose place follows from a straight and
 * whole volume.
 */
function checkSegmentGrid(m: Manifest, issue: Report): void {
  const first = m.outputs.findIndex(isInModelGrid);
  if (first < 0) return;
  const at: Report = (path, message) => issue(["outputs", first, "segment_grid", ...path], message);
  if (m.accepts.dimensions !== "series")
    at([], "Volumes alone have segments in the grid of the model");
  const segmentations = m.outputs.filter(isSegmentation);
  if (segmentations.some((output) => !isInModelGrid(output)))
    at([], "Expected one segment_grid: all segments are in one SEG object");
  if (new Set(segmentations.map((output) => inputOf(m, output))).size > 1)
    at([], "Expected one input for all segmentations: all segments are in one SEG object");
  if (m.accepts.slices !== undefined)
    at(
      [],
      "Expected no accepts.slices: the grid of a stack that was straightened has no exact place",
    );
  if (m.region?.when_empty === "negative")
    at([], "Expected region.when_empty refuse or whole: a model that did not run has no grid");
}

/** The box around what is not 0 is cut from single images as they are stored. */
function checkCrop(m: Manifest, issue: Report): void {
  const [input, another] = imageInputs(m);
  if (input?.crop === undefined && another?.crop === undefined) return;
  const at = (message: string) => issue(["inputs", 0, "crop"], message);
  if (
    another !== undefined ||
    m.roles !== undefined ||
    m.region !== undefined ||
    m.accepts.dimensions !== "2d"
  )
    at('Expected one image input, accepts.dimensions "2d", and neither roles nor region beside it');
  if (input?.values.kind !== "stored") at('Expected values of the kind "stored"');
  const wholly = ["MONOCHROME2", "RGB"];
  if (!(m.accepts.photometric ?? [""]).every((one) => wholly.includes(one)))
    at(`Expected accepts.photometric of ${wholly.join(" and ")} alone: elsewhere 0 is not black`);
  checkParts(m, at);
}

/**
 * What lies behind a volume is background for networks that look for boxes; on maps it was never
 * tried.
 */
function checkMultiple(m: Manifest, issue: Report): void {
  imageInputs(m).forEach(({ tensor, resampling }) => {
    if (resampling?.multiple_of !== undefined && !m.outputs.every(ofBoxes))
      issue(
        [
          "inputs",
          m.inputs.findIndex((input) => input.tensor === tensor),
          "resampling",
          "multiple_of",
        ],
        "Expected it where all outputs are boxes in volumes alone",
      );
  });
}

/** The rules for maps of a part of the tensor. */
function checkCovers({ outputs, tiling: windows }: Manifest, issue: Report): void {
  outputs.forEach((output, o) => {
    if (!("covers" in output || "stride" in output)) return;
    if (output.stride !== undefined && !coversPart(output))
      issue(["outputs", o, "stride"], "Only with covers centre or start");
    if (windows !== undefined && coversPart(output))
      issue(
        ["outputs", o, "covers"],
        "Windows of maps that cover a part of them are not offered: expected no tiling beside it",
      );
  });
}

/** When a map is activated says one field alone. */
function checkActivated(m: Manifest, issue: Report): void {
  m.outputs.forEach((output, o) => {
    if (!("activated" in output) || output.activated === undefined) return;
    const input = m.inputs[inputOf(m, output)];
    if (input !== undefined && isImageInput(input) && input.resampling !== undefined)
      issue(["outputs", o, "activated"], "Expected it in resampling.activation alone");
  });
}

/** The sides that a graph is given are those of the whole image of the request. */
function checkInSource(m: Manifest, issue: Report): void {
  const isWhole =
    m.region === undefined &&
    m.roles === undefined &&
    imageInputs(m).every(({ crop }) => crop === undefined);
  m.outputs.forEach((output, o) => {
    if (!isWhole && kindOf(output).inSource?.(output))
      issue(
        ["outputs", o],
        "Pixels of the source need the whole image: expected neither region, roles nor crop beside them",
      );
  });
}

/**
 * What lies outside of the box of a foreground is 0 in all channels of the model: it is the
 * background of those that exclude each other.
 */
function checkForeground(m: Manifest, issue: Report): void {
  m.inputs.forEach((input, i) => {
    if (!isImageInput(input) || input.resampling?.crop !== "foreground") return;
    const at = (message: string) => issue(["inputs", i, "resampling", "crop"], message);
    if (input.layout !== "NCDHW" || input.dtype !== "float32")
      at('Expected the layout "NCDHW" and the dtype float32 with foreground');
    if (m.inputs.length > 1 || m.roles !== undefined || input.cascade !== undefined)
      at("Expected a single input of one series, without cascade, with foreground");
    const decided = m.outputs.every(
      (output) => isSegmentation(output) && ["softmax", "argmax"].includes(output.activation),
    );
    if (!decided)
      at("Expected segmentations with the activation softmax or argmax with foreground");
  });
}

/** Resampling with ends aligned is one whole way, from the values to the labels. */
function checkEnds(m: Manifest, issue: Report): void {
  m.inputs.forEach((input, i) => {
    if (!isImageInput(input) || input.resampling?.grid !== "ends") return;
    const at = (field: string, message: string) =>
      issue(["inputs", i, "resampling", field], message);
    const { order, order_back, separate_above, keep_range, clip, crop } = input.resampling;
    if (order !== 1) at("order", `Expected 1 with the grid "ends", found ${order}`);
    if (order_back !== 0) at("order_back", `Expected 0 with the grid "ends", found ${order_back}`);
    if (separate_above !== undefined) at("separate_above", 'Expected none with the grid "ends"');
    if (keep_range) at("keep_range", 'Expected false with the grid "ends"');
    if (clip !== "after")
      at("clip", 'Expected "after" with the grid "ends": values are cut to whole numbers first');
    if (crop === "foreground") at("crop", 'Expected none or nonzero with the grid "ends"');
    if (input.layout !== "NCDHW" || input.dtype !== "float32" || input.channels !== "grayscale")
      at("grid", 'Expected the layout "NCDHW", the dtype float32 and grayscale with "ends"');
    if (m.inputs.length > 1 || m.roles !== undefined || input.cascade !== undefined)
      at("grid", 'Expected a single input of one series, without cascade, with "ends"');
    if (input.intensity !== undefined) at("grid", 'Expected no intensity with "ends"');
    if (input.normalisation.kind === "z_score" && input.normalisation.of !== undefined)
      issue(["inputs", i, "normalisation", "of"], 'Expected none with the grid "ends"');
    if (m.tiling === undefined || !m.outputs.every(isSegmentation))
      at("grid", 'Expected tiling and segmentations alone with "ends"');
  });
}

/** Only maps are turned back from a tensor whose rows are the image's columns. */
function checkAcross(m: Manifest, issue: Report): void {
  m.outputs.forEach((output, o) => {
    const input = m.inputs[inputOf(m, output)];
    if (
      input === undefined ||
      !isImageInput(input) ||
      input.layout !== "NCWH" ||
      !kindOf(output).placed
    )
      return;
    const maps = isSegmentation(output)
      ? output.activation !== "prototypes"
      : output.kind === "heatmap";
    if (!maps)
      issue(
        ["outputs", o, "kind"],
        `Expected classification, regression, heatmap or segmentation for layout NCWH`,
      );
  });
  const across = imageInputs(m).some(({ layout }) => layout === "NCWH");
  if (across && m.tiling?.mirror !== undefined)
    issue(["tiling", "mirror"], "Expected none for layout NCWH");
}

const ofBoxes = (output: ModelOutput): boolean => kindOf(output).mergesWindows === true;

/** The rules for a model that takes tilted stacks and missing slices. */
function checkSlices({ accepts: rules, region, roles, outputs }: Manifest, issue: Report): void {
  if (rules.slices === undefined) return;
  if (outputs.some(ofBoxes))
    issue(["accepts", "slices"], "Expected none: boxes lie in volumes that are straight and whole");
  if (rules.dimensions !== "series")
    issue(
      ["accepts", "slices"],
      `Expected accepts.dimensions "series", found "${rules.dimensions}"`,
    );
  if (region !== undefined)
    issue(
      ["accepts", "slices"],
      "Expected no region: a region is cut from slices that lie behind each other",
    );
  if (roles !== undefined)
    issue(["accepts", "slices"], "Expected no roles: the grid of a case is that of regular slices");
}

/**
 * Checks each part of an input by itself; a mistake of several parts is told once, where the field
 * is given.
 */
function forEachPart(
  input: ImageInput,
  place: number,
  issue: Report,
  check: (part: ImageInput, at: Report) => void,
): void {
  const told = new Set<string>();
  partsOf(input).forEach((part, p) =>
    check(part, (path, message) => {
      const own = input.roles?.[p];
      const inPart = own !== undefined && String(path[0]) in own;
      const at = ["inputs", place, ...(inPart ? ["roles", p] : []), ...path];
      const key = JSON.stringify([at, message]);
      if (!told.has(key)) issue(at, message);
      told.add(key);
    }),
  );
}

/**
 * Values that take the place of the file's own modality values, for all inputs of a model at once.
 */
const PHYSICAL: readonly ImageInput["values"]["kind"][] = ["real_world", "suv_bw"];

/**
 * Modalities whose frames are times or views, but for SOP classes of their own for volumes
 * (Enhanced US Volume).
 */
const NO_VOLUMES = ["CR", "DX", "ES", "GM", "IO", "MG", "OP", "PX", "RF", "SM", "US", "XA", "XC"];
/** Multi-frame ultrasound, X-ray angiography, X-ray fluoroscopy, and video. */
const CINE_CLASSES = [
  "1.2.840.10008.5.1.4.1.1.3.1",
  "1.2.840.10008.5.1.4.1.1.12.1",
  "1.2.840.10008.5.1.4.1.1.12.2",
  ...[1, 2, 4].map((kind) => `1.2.840.10008.5.1.4.1.1.77.1.${kind}.1`),
];

/** Frames of a clip lie nowhere: a model of volumes that takes clips alone takes nothing. */
function checkFrames(
  { accepts: { dimensions, modality, sop_class: classes } }: Manifest,
  issue: Report,
): void {
  if (dimensions !== "series") return;
  const clips =
    classes === undefined
      ? modality?.every((name) => NO_VOLUMES.includes(name)) === true
      : classes.every((uid) => CINE_CLASSES.includes(uid));
  if (clips)
    issue(
      ["accepts", classes === undefined ? "sop_class" : "dimensions"],
      `Frames of ${(classes ?? modality ?? []).join(", ")} are times or views, and no volume: such a model would take no image. 2d_frames looks at each frame; a clip as one tensor is not offered${classes === undefined ? ". Where there are volumes of this modality, name their SOP classes" : ""}`,
    );
}

/** The rules for several inputs, and for outputs on their grids. */
function checkTogether(m: Manifest, issue: Report): void {
  const images = imageInputs(m);
  if (images.length === 0)
    issue(["inputs"], "Expected an input of pixels: a model looks at an image");
  m.inputs.forEach(({ tensor }, i) => {
    if (tensor && m.inputs.findIndex((other) => other.tensor === tensor) < i)
      issue(["inputs", i, "tensor"], `The tensor "${tensor}" is there twice`);
  });
  const parts = partsOfModel(m);
  for (const seen of new Set(parts.map(roleOf))) {
    const own = parts.filter((part) => roleOf(part) === seen);
    const meanings = new Set(
      own
        .filter(({ values }) => values.kind !== "stored")
        .map(({ values }) => JSON.stringify(values)),
    );
    if (meanings.size > 1 && own.some(({ values }) => PHYSICAL.includes(values.kind)))
      issue(
        ["inputs"],
        "Expected the same values in all image inputs, where one takes real_world or suv_bw",
      );
  }
  const names = images.map(({ tensor }) => tensor);
  m.outputs.forEach((output, o) => {
    if (!kindOf(output).placed) return;
    const input = "input" in output ? output.input : undefined;
    if (input === undefined ? names.length > 1 : !names.includes(input))
      issue(
        ["outputs", o, "input"],
        `Expected the image input on whose grid it is: ${names.map((name) => `"${name}"`).join(" or ")}`,
      );
  });
}

/**
 * Findings, thresholds of site.json, measurements and DICOM objects know a label, or a value, by
 * its name alone: it is of one output.
 */
function checkNames({ outputs }: Manifest, issue: Report): void {
  const owners = new Map<string, number>();
  outputs.forEach((output, o) => {
    for (const { name, at, what } of kindOf(output).names(output)) {
      const owner = owners.get(`${what} ${name}`);
      if (owner === undefined) owners.set(`${what} ${name}`, o);
      else if (owner !== o || what === "value")
        issue(
          ["outputs", o, ...at],
          `The ${what} "${name}" is also one of outputs[${owner}], and findings are told apart by their names. Give each its own, for example "${name} (${o + 1})"`,
        );
    }
  });
}

/** The rules for inputs, outputs and execution of a model with tiling. */
function checkTiling(m: Manifest, tiling: Tiling, issue: Report): void {
  const [input, ...others] = m.inputs;
  if (input === undefined || others.length > 0 || !isImageInput(input)) {
    issue([], "Expected a single input, of pixels: windows of several are not offered");
    return;
  }
  if (tiling.window.length > 2 && !isVolume(input))
    issue(["window"], `Expected 2 sides for layout ${input.layout}, found ${tiling.window.length}`);
  const unknown = tiling.mirror?.filter((axis) => !tiledAxes(tiling).includes(axis)) ?? [];
  if (unknown.length > 0) issue(["mirror"], `The window has no ${unknown.join(", ")}`);
  if (new Set(tiling.mirror).size !== (tiling.mirror?.length ?? 0))
    issue(["mirror"], "Expected each axis once");
  if (input.size.kind !== "source")
    issue(
      [],
      'Expected size "source" for the input: windows go over the image as it is, or at spacing_mm',
    );
  if (m.outputs.every(ofBoxes)) {
    if (tiling.window.length < 3) issue(["window"], "Expected 3 sides for boxes in volumes");
    if (tiling.weights.kind !== "constant")
      issue(
        ["weights"],
        "Expected constant: boxes of windows are not blended, the output's windows says how they are merged",
      );
  }
  const wrong = m.outputs.find((output) => {
    const { blends, holdsLabels } = kindOf(output);
    return !m.outputs.every(ofBoxes) && (!blends || holdsLabels?.(output));
  });
  if (wrong !== undefined)
    issue(
      [],
      `Expected outputs that can be blended (${kindsThat("blends")}; no label_map), or boxes in volumes alone; found ${wrong.kind}`,
    );
  if (m.execution.providers.includes("cuda"))
    issue([], "Windows run on the CPU alone so far: expected execution.providers without cuda");
}

/** One tensor goes in as `input`, several as `inputs`. */
function checkCanary({ canary, inputs }: Manifest, issue: Report): void {
  if (canary === undefined) return;
  const several = inputs.length > 1;
  if ((canary.input === undefined) !== several)
    issue(
      ["canary", "input"],
      several ? "Expected inputs instead, one for each" : "Required for one input",
    );
  if ((canary.inputs === undefined) === several)
    issue(["canary", "inputs"], several ? "Required for several inputs" : "Expected input instead");
  if (canary.inputs === undefined || !several) return;
  const given = canary.inputs.map(({ tensor }) => tensor);
  const wanted = inputs.map(({ tensor }) => tensor);
  if ([...given].sort().join("\n") !== [...wanted].sort().join("\n"))
    issue(
      ["canary", "inputs"],
      `Expected the tensors ${wanted.join(", ")}, each once; found ${given.join(", ")}`,
    );
}

function checkAttributes({ layout, dtype, values }: AttributeInput, issue: Report): void {
  const count = values.reduce((sum, value) => sum + numbersOf(value), 0);
  if (layout === "N" && count !== 1) issue(["layout"], `N holds a single number, found ${count}`);
  values.forEach((value, i) => {
    const { if_absent } = value;
    if (if_absent.kind === "default" && if_absent.numbers.length !== numbersOf(value))
      issue(
        ["values", i, "if_absent", "numbers"],
        `Expected ${numbersOf(value)}, as many as the encoding gives, found ${if_absent.numbers.length}`,
      );
    const numbers = if_absent.kind === "default" && isWholeType(dtype) ? if_absent.numbers : [];
    if (!numbers.every((number) => Number.isSafeInteger(number)))
      issue(
        ["values", i, "if_absent", "numbers"],
        `Expected whole numbers, as ${dtype} holds them`,
      );
    if ("values" in value && new Set(value.values).size !== value.values.length)
      issue(["values", i, "values"], "Expected each value once");
  });
}

function checkThresholds(output: ModelOutput, issue: Report): void {
  labelsOf(output).forEach(({ threshold }, i) => {
    const mistake = threshold === undefined ? undefined : thresholdMistake(output, threshold);
    if (mistake !== undefined) issue([...labelPath(output, i), "threshold"], mistake);
  });
}

/** The rules of every kind for its labels, and of a kind for its own fields. */
function checkOutput(output: ModelOutput, around: Around, issue: Report): void {
  const kind = kindOf(output);
  const needed = kind.needsThresholds(output);
  const names = new Set<string>();
  kind.labels(output).forEach((l, i) => {
    const at = labelPath(output, i);
    if (names.has(l.label)) issue([...at, "label"], `The label "${l.label}" is there twice`);
    // Beside other mistakes a label may have no name.
    if (l.label) names.add(l.label);
    if (around.final && l.code === undefined) issue([...at, "code"], "Required in stage final");
    if (needed && l.threshold === undefined)
      issue(
        [...at, "threshold"],
        "Expected a number, the score from which on it is present: nothing is guessed",
      );
  });
  checkIgnored(output, issue);
  kind.check?.(output, around, issue);
}

/** Columns that are no label are columns of the tensor, each once. */
function checkIgnored(output: ModelOutput, issue: Report): void {
  const { ignored: columns } = output as { ignored?: unknown };
  // Beside other mistakes it may be anything
  if (!Array.isArray(columns)) return;
  const kind = kindOf(output);
  const first = kind.ignoresFrom?.(output);
  if (first === undefined) {
    issue(["ignored"], "Expected none: it has no columns of scores");
    return;
  }
  const all = first + columns.length + Math.max(kind.labels(output).length, valuesIn(output));
  columns.forEach((column: unknown, i) => {
    if (typeof column === "number" && (column < first || column >= all))
      issue(["ignored", i], `Expected ${first} to ${all - 1}, of ${all} columns`);
    if (columns.indexOf(column) < i) issue(["ignored", i], "Expected each column once");
  });
}

const valuesIn = (output: ModelOutput): number =>
  "values" in output && Array.isArray(output.values) ? output.values.length : 0;

/** The fault of a threshold that would decide for every image alike; undefined if it would not. */
export function thresholdMistake(output: ModelOutput, threshold: number): string | undefined {
  if (!kindOf(output).hasUnitScores(output) || (threshold >= 0 && threshold <= 1)) return undefined;
  return `Expected 0 to 1, where the scores of this output lie; found ${threshold}, with which it would ${threshold > 1 ? "never" : "always"} be present`;
}

function checkInput(input: ImageInput, dimensions: string, issue: Report): void {
  const volume = isVolume(input);
  // An image alone may be a volume of one slice, whose depth nothing changes
  const isFlat = input.resampling?.spacing_mm[0] === null && input.orientation === "SPL";
  if (volume !== (dimensions === "series") && !isFlat)
    issue(["layout"], `Layout ${input.layout} does not go with accepts.dimensions "${dimensions}"`);
  if (input.size.kind === "fixed" && volume !== (input.size.depth !== undefined))
    issue(["size", "depth"], volume ? "Required for volumes" : "Only for volumes");
  if (input.fit === "none" && input.size.kind === "fixed" && !volume)
    issue(["fit"], 'fit "none" needs size "source" or "multiple_of"');
  if (volume) checkVolume(input, issue);
  checkResampling(input, issue);
  checkIntensity(input, issue);
  checkPlacement(input, issue);
  if (["real_world", "suv_bw"].includes(input.values.kind)) {
    if (input.monochrome1 === "invert")
      issue(["monochrome1"], "Physical values are never inverted; expected as_stored or refuse");
    if (input.channels === "grayscale" && input.colour_source !== "refuse")
      issue(["colour_source"], "Colour has no physical values; expected refuse");
  }
  for (const key of ["spacing_mm", "orientation", "resampling"] as const)
    if (!volume && input[key] !== undefined) issue([key], "Only for volumes");
  if ("over" in input.normalisation && (input.normalisation.over === "volume") !== volume)
    issue(
      ["normalisation", "over"],
      `Expected "${volume ? "volume" : "image"}" for layout ${input.layout}`,
    );
  checkChannels(input, dimensions, issue);
  const channels = channelsOf(input);
  if (input.normalisation.kind === "mean_std")
    for (const key of ["mean", "std"] as const) {
      const given: unknown = input.normalisation[key];
      if (Array.isArray(given) && given.length !== 1 && given.length !== channels)
        issue(
          ["normalisation", key],
          `Expected ${channels === 1 ? "1 number" : `1 or ${channels} numbers`} for ${input.neighbours === undefined ? input.channels : `${channels} channels`}, found ${given.length}`,
        );
    }
  if (input.normalisation.kind === "z_score" && input.normalisation.of !== undefined)
    if (!volume || input.resampling?.crop !== "nonzero")
      issue(["normalisation", "of"], 'Expected it with resampling whose crop is "nonzero" alone');
  if (
    input.normalisation.kind === "percentile" &&
    input.normalisation.low >= input.normalisation.high
  )
    issue(["normalisation", "low"], "Expected less than high");
  if (input.clip !== undefined && input.clip[0] >= input.clip[1])
    issue(["clip"], "Expected the lower limit first");
}

/** The rules for how libraries resize, cut and pad. */
function checkPlacement(input: ImageInput, issue: Report): void {
  const { size, fit, placement, interpolation, antialias, align_corners, border } = input;
  if (antialias !== undefined && !["linear", "cubic", "gaussian"].includes(interpolation))
    issue(["antialias"], "Expected it with interpolation linear, cubic or gaussian");
  if (
    align_corners === true &&
    (fit !== "stretch" || interpolation !== "linear" || antialias !== false)
  )
    issue(
      ["align_corners"],
      'Expected it with fit "stretch", interpolation "linear" and antialias false',
    );
  if ((interpolation === "gaussian") !== (border !== undefined))
    issue(
      ["border"],
      border === undefined
        ? "Expected it with gaussian: mirror is skimage's default"
        : "Expected it with interpolation gaussian alone",
    );
  if (interpolation === "gaussian" && fit === "crop" && placement === undefined)
    issue(["placement"], "Expected it with gaussian: crop has to end with whole pixels");
  if (size.kind === "edges") {
    if (isVolume(input)) issue(["size", "kind"], 'Expected "edges" for single images alone');
    if (fit !== "letterbox")
      issue(["fit"], 'Expected "letterbox" with size "edges": proportions are kept');
    if (size.shortest > size.longest)
      issue(["size", "longest"], "Expected at least the shortest side");
  }
  if (placement === undefined) return;
  const at = (field: string, message: string) => issue(["placement", field], message);
  if (isVolume(input) || size.kind !== "fixed")
    at("kind", "Expected placement for single images of a fixed size");
  const wanted = placement.kind === "resize_then_pad" ? "letterbox" : "crop";
  if (fit !== wanted) issue(["fit"], `Expected "${wanted}" with placement ${placement.kind}`);
  if (placement.kind !== "resize_then_crop" || size.kind !== "fixed") return;
  const { shortest_edge: edge, rounding, height, width } = placement;
  if ((edge === undefined) !== (rounding === undefined))
    at("rounding", "Expected it with shortest_edge, whose longer side it is for");
  if (
    (edge === undefined) === (height === undefined) ||
    (height === undefined) !== (width === undefined)
  )
    at("shortest_edge", "Expected it, or else height and width");
  const [rows, columns] = [edge ?? height ?? size.height, edge ?? width ?? size.width];
  if (rows < size.height || columns < size.width)
    at(
      edge === undefined ? "height" : "shortest_edge",
      `Expected at least the tensor's sides, ${size.height} x ${size.width}: the tensor is cut out of the resized image`,
    );
}

/** Statistics are over a tensor that the image fills, or over an image as it comes. */
function checkIntensity({ intensity, ...input }: ImageInput, issue: Report): void {
  if (intensity === undefined) return;
  const at = (message: string) => issue(["intensity"], message);
  if (input.dtype !== "float32") at("Expected the dtype float32 with intensity");
  if (input.size.kind !== "source" && input.fit !== "stretch" && input.fit !== "crop")
    at(
      'Expected size "source", or fit stretch or crop, with intensity: a border has no values of the image',
    );
  if (input.cascade !== undefined) at("Expected no cascade with intensity");
  if (input.resampling?.multiple_of !== undefined && intensity.some((step) => step.at !== "source"))
    at(
      'Expected no resampling.multiple_of with intensity at the "tensor": what fills the tensor up has no values of the image',
    );
  intensity.forEach((step, i) => {
    const own = (field: string, message: string) => issue(["intensity", i, field], message);
    if ("low" in step && step.low >= step.high) own("low", "Expected less than high");
    if (step.at !== "source") return;
    if (isVolume(input) && input.channels !== "grayscale")
      own("at", 'Expected "tensor" for volumes of several channels');
    if (input.clip !== undefined || input.normalisation.kind !== "none")
      own("at", 'Expected "tensor" beside a clip or a normalisation, which come after resampling');
    if (intensity[i - 1]?.at === "tensor")
      own("at", 'Expected those at the source before those of the "tensor"');
  });
}

/** The rules for the other fields where windows or neighbours are channels. */
function checkChannels(input: ImageInput, dimensions: string, issue: Report): void {
  const { channels, values, neighbours } = input;
  if ((channels === "windows") !== (values.kind === "windows"))
    issue(
      ["channels"],
      values.kind === "windows"
        ? "Expected windows: each window is a channel"
        : 'Expected values of the kind "windows", which say what the channels are',
    );
  if (values.kind === "windows" && input.colour_source !== "refuse")
    issue(
      ["colour_source"],
      "Windows are over modality values, which colour does not have; expected refuse",
    );
  if (neighbours === undefined) return;
  if (dimensions !== "2d_frames")
    issue(
      ["neighbours"],
      `Neighbouring slices need accepts.dimensions "2d_frames", found "${dimensions}"`,
    );
  if (neighbours.before + neighbours.after === 0)
    issue(["neighbours"], "Expected at least one slice before or after");
  if (channelsOf(input) > MOST_CHANNELS)
    issue(["neighbours"], `Expected at most ${MOST_CHANNELS} channels, found ${channelsOf(input)}`);
  if (values.kind === "voi" && values.if_absent !== "refuse")
    issue(
      ["values", "if_absent"],
      "Expected refuse with neighbours; the others give each slice its own range",
    );
  if (values.kind === "full_range")
    issue(
      ["values", "kind"],
      "Expected another kind with neighbours: slices may have other ranges",
    );
  if (input.monochrome1 === "invert" && !["window", "windows", "voi"].includes(values.kind))
    issue(
      ["monochrome1"],
      "Expected as_stored or refuse with neighbours; each slice would be inverted by itself",
    );
}

/** Splines and `resampling` belong together, and take the place of size, fit and spacing. */
function checkResampling(input: ImageInput, issue: Report): void {
  const { interpolation, resampling } = input;
  if ((interpolation === "spline") !== (resampling !== undefined))
    issue(
      ["interpolation"],
      resampling === undefined
        ? "spline needs resampling, which says what the splines are"
        : 'Expected "spline" with resampling',
    );
  if (resampling === undefined) return;
  if (input.size.kind !== "source") issue(["size"], 'Expected "source" with resampling');
  if (input.fit !== "stretch") issue(["fit"], 'Expected "stretch" with resampling');
  if (input.spacing_mm !== undefined) issue(["spacing_mm"], "Expected it in resampling alone");
  if (channelsOf({ ...input, cascade: undefined }) !== 1)
    issue(["channels"], "Expected one channel of pixels with resampling");
  if (input.normalisation.kind === "percentile")
    issue(["normalisation"], "Percentiles are not offered with resampling");
}

function checkVolume(input: ImageInput, issue: Report): void {
  if (["cubic", "gaussian", "nearest_floor"].includes(input.interpolation))
    issue(
      ["interpolation"],
      `Expected linear, area or nearest for volumes; ${input.interpolation} is not offered`,
    );
  if (input.spacing_mm !== undefined && input.fit === "stretch")
    issue(
      ["fit"],
      "stretch gives voxels another size than spacing_mm; expected letterbox, crop or none",
    );
  if (input.values.kind === "full_range")
    issue(["values", "kind"], "Expected another kind for volumes: slices may have other ranges");
  if (input.values.kind === "voi" && input.values.if_absent !== "refuse")
    issue(
      ["values", "if_absent"],
      "Expected refuse for volumes; the others give each slice its own range",
    );
}

export const manifestSchema = manifestFields.superRefine((m, context) =>
  manifestCrossChecks(m, (path, message) => context.addIssue({ code: "custom", path, message })),
);

/**
 * JSON Schema 2020-12 of model.json, for editors and for other programs. Rules over several fields
 * are not in it; `radserve models check` has them all.
 */
export function modelJsonSchema(): Record<string, unknown> {
  const { $schema, ...schema } = z.toJSONSchema(manifestSchema, { io: "input" });
  return {
    $schema,
    title: "Radserve model manifest",
    description: "models/<name>/model.json; `radserve models check` explains every mistake.",
    ...schema,
  };
}
