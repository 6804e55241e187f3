/**
 * A MONAI bundle's configs/inference.json (or .yaml) and configs/metadata.json as parts of a
 * manifest, as far as they are declarative: the steps of monai-steps.ts with all their arguments,
 * numbers, and references (@name). Expressions ($...) are not run; where one decides what goes in
 * or comes out, it is a gap.
 */
import { z } from "zod";
import type { GraphInfo } from "../../engine/types.js";
import { BundleConfig } from "./bundle-config.js";
import { rolesOf } from "./channels.js";
import { isOrientation, type Gaps, type ImportChoices, type Imported } from "./gaps.js";
import { parsedAs } from "./json.js";
import { boxesOf, findsBoxes } from "./monai-boxes.js";
import { PARTS, runStep, type Chain, type MeasuredStep } from "./monai-steps.js";

const dataFormat = <T extends z.ZodRawShape>(more: T) =>
  z.record(z.string(), z.object({ num_channels: z.int(), ...more }));

const names = z.record(z.string(), z.string()).optional();

const metadataSchema = z.object({
  version: z.string().optional(),
  monai_version: z.string().optional(),
  name: z.string().optional(),
  description: z.string().optional(),
  authors: z.string().optional(),
  intended_use: z.string().nullish(),
  network_data_format: z.object({
    inputs: dataFormat({ modality: z.string().optional(), channel_def: names }),
    outputs: dataFormat({ channel_def: names, label_def: names }),
  }),
});

export interface MonaiFiles {
  /** The text of inference.json or inference.yaml, with its name. */
  inference: { file: string; text: string };
  metadata: unknown;
  /** What --roles names. */
  roles?: unknown;
}

/** The network that is imported, as its graph and metadata.json tell of it. */
interface Network {
  pictures: boolean;
  channels: number;
  graph: GraphInfo;
}

/** @throws RadserveError bad_request for files that are not those of a bundle */
export function importMonai(
  files: MonaiFiles,
  graph: GraphInfo,
  choices: ImportChoices,
  gaps: Gaps,
): Imported {
  const config = new BundleConfig(files.inference.file, files.inference.text);
  const boxes = findsBoxes(config);
  const metadata = parsedAs(metadataSchema, files.metadata, "metadata.json");
  const { inputs, outputs } = metadata.network_data_format;
  const [input, ...moreInputs] = Object.values(inputs);
  const [output, ...moreOutputs] = Object.values(outputs);
  const chain: Chain = { measured: [] };
  for (const option of ["configuration", "mirror", "previous"] as const)
    if (choices[option] !== undefined)
      gaps.refuse(`--${option}`, "It is for networks of nnU-Net alone");
  const parts = boxes
    ? PARTS.filter(([path]) => path === "preprocessing")
    : PARTS.filter(([path]) => path in config.root || (path !== "dataset" && path !== "evaluator"));
  const at = { chain, config, gaps, images: ["image"], ...(boxes ? { enabled: "Spacingd" } : {}) };
  for (const [path, known] of parts) runStep(config.root[path], known, { ...at, path });
  const network = {
    pictures: graph.inputs[0]?.shape.length === 4 && chain.sliced === undefined,
    channels: input?.num_channels ?? 0,
    graph,
  };
  const { pictures, channels } = network;
  if (moreInputs.length > 0 || channels < 1 || (pictures && channels !== 1 && channels !== 3))
    gaps.refuse(
      "metadata.json: inputs",
      `Expected one image${pictures ? " of one channel or of three colours" : ""}, found ${Object.values(
        inputs,
      )
        .map((one) => `${one.num_channels} channels`)
        .join(" and ")}`,
    );
  if (output === undefined || moreOutputs.length > 0)
    gaps.refuse(
      "metadata.json: outputs",
      `Expected one, found ${Object.keys(outputs).join(", ") || "none"}`,
    );
  const modality = choices.modality ?? input?.modality;
  const accepted = accepts(modality, pictures, gaps);
  const several = !pictures && channels > 1;
  if (!several && files.roles !== undefined)
    gaps.refuse("--roles", "The network has one channel, or colours");
  const values = valuesOf(chain, network);
  const names =
    chain.joined?.length === channels ? chain.joined : namesOf(channels, input?.channel_def);
  if (several && names === undefined)
    gaps.refuse(
      "metadata.json: inputs.channel_def",
      `Expected a name for each of ${channels} channels`,
    );
  const roles = several
    ? rolesOf(
        (names ?? []).map((name) => ({ name, prepared: {} })),
        files.roles,
        accepted.modality,
        gaps,
      )
    : undefined;
  const trained = { version: metadata.monai_version, names: output?.channel_def };
  const found = boxes ? boxesOf(config, graph, trained, gaps) : undefined;
  return {
    accepts: accepted,
    ...(roles === undefined ? {} : { roles: roles.roles }),
    input: {
      ...(pictures
        ? pictureInput(chain, channels, choices, gaps, config.file)
        : volumeInput(
            { ...chain, multipleOf: found?.multipleOf },
            network,
            choices,
            gaps,
            config.file,
          )),
      ...(roles === undefined ? {} : { roles: roles.ofInput }),
      monochrome1: "refuse",
      ...values,
      background: modality === "CT" ? -1024 : 0,
    },
    ...(found === undefined
      ? {
          output: outputOf(
            output?.num_channels ?? 0,
            output?.channel_def ?? (chain.decided === "argmax" ? output?.label_def : undefined),
            chain,
            network,
            gaps,
            `${config.file}: postprocessing`,
          ),
        }
      : { output: found.output, namesTensors: true }),
    tiling: chain.tiling,
    about: {
      version: /^[0-9A-Za-z.+-]{1,64}$/.test(metadata.version ?? "")
        ? (metadata.version ?? "1")
        : "1",
      manufacturer: (metadata.authors ?? "").slice(0, 64) || "not stated",
      description: metadata.description ?? metadata.name ?? "A MONAI bundle",
      intended_use: metadata.intended_use ?? "Not stated in metadata.json.",
    },
  };
}

/** A name for each channel; undefined unless there is one for each. */
function namesOf(channels: number, names: Record<string, string> = {}): string[] | undefined {
  const all = Array.from({ length: channels }, (_, channel) => names[channel]);
  const whole = Object.keys(names).length === channels;
  return whole && all.every((name) => name !== undefined) ? all : undefined;
}

/** `clip`, `normalisation` and `intensity`. */
function valuesOf(
  { clip, normalisation, measured, ...chain }: Chain,
  { pictures, channels }: Network,
): Record<string, unknown> {
  const placed = chain.spacing !== undefined || chain.resized !== undefined;
  const several = channels > 1;
  // Of several series each is by itself
  for (const { eachChannel, refuse } of measured)
    if (several && !pictures && !eachChannel)
      refuse(
        "channel_wise",
        "Expected true: statistics of several series together are not offered",
      );
  // Statistics of the image as it comes, all channels together, are those of `normalisation`
  const [first, ...others] = measured;
  const isBefore = ({ after }: MeasuredStep): boolean => placed && !after;
  const plain =
    normalisation === undefined &&
    first !== undefined &&
    !first.nonzero &&
    !others.some(isBefore) &&
    !(first.after && placed) &&
    !(pictures && several && first.eachChannel) &&
    first.step["clip"] !== true;
  const steps = plain ? others : measured;
  for (const step of steps)
    if (isBefore(step) && normalisation !== undefined)
      step.refuse(
        undefined,
        "Expected it behind Spacingd or Resized, or before all other changes of values",
      );
  const over = pictures ? "image" : "volume";
  return {
    ...(clip === undefined ? {} : { clip: clip.range }),
    // What is not cut off has no word there
    normalisation: plain
      ? { ...first.step, clip: undefined, over }
      : (normalisation ?? { kind: "none" }),
    ...(steps.length === 0
      ? {}
      : {
          intensity: steps.map((one) => ({
            ...one.step,
            at: isBefore(one) ? "source" : "tensor",
            of: one.nonzero ? "nonzero" : "all",
            channels: one.eachChannel ? "each" : "together",
          })),
        }),
  };
}

/** A picture, whose columns are the rows of MONAI's arrays. */
function pictureInput(
  chain: Chain,
  channels: number,
  choices: ImportChoices,
  gaps: Gaps,
  file: string,
): Record<string, unknown> {
  const { resized, orientation, spacing, foreground, inverted, measured, windows } = chain;
  if (choices.orientation !== undefined)
    gaps.refuse("--orientation", "It is for networks of volumes alone");
  if (orientation !== undefined || spacing !== undefined || foreground !== undefined)
    gaps.refuse(
      `${file}: preprocessing`,
      "Orientationd, Spacingd and CropForegroundd are for volumes, and the graph takes pictures",
    );
  if (windows !== undefined && windows.sides !== 2)
    windows.refuse("roi_size", "Expected two numbers for a graph of pictures");
  if (measured.length === 0)
    gaps.note(
      `${file}: preprocessing`,
      "Nothing is scaled by an image's own values: DICOM images of more than 8 bits have others than pictures have; accepts may leave them out",
    );
  checkResized(chain);
  const [width, height] = resized?.sides ?? [];
  if (resized !== undefined && (resized.sides.length !== 2 || resized.volumes))
    resized.refuse(
      undefined,
      "Expected two numbers and a mode of pictures for a graph of pictures",
    );
  if (resized !== undefined && inverted !== undefined && resized.how["interpolation"] !== "linear")
    resized.refuse("mode", "Expected bilinear before Invertd; other ways back are not offered");
  return {
    layout: "NCWH",
    ...(resized === undefined
      ? { size: { kind: "source" }, fit: "none", interpolation: "linear" }
      : { size: { kind: "fixed", height, width }, fit: "stretch", ...resized.how }),
    values: { kind: channels === 3 ? "stored" : "modality" },
    channels: channels === 3 ? "rgb" : "grayscale",
    colour_source: channels === 3 ? "accept" : "refuse",
  };
}

/** Where an image has a fixed size, a manifest has neither a box nor windows beside it. */
function checkResized({
  resized,
  foreground,
  tiling,
  multipleOf,
}: Chain & { multipleOf?: number[] | undefined }): void {
  if (foreground === true) resized?.refuse(undefined, "Expected no CropForegroundd beside it");
  if (tiling !== undefined)
    resized?.refuse(
      undefined,
      "Expected no SlidingWindowInferer or SliceInferer beside it: windows go over images as they are, or as Spacingd makes them",
    );
  if (multipleOf !== undefined)
    resized?.refuse(undefined, "Expected Spacingd in its place for a network that finds boxes");
}

function volumeInput(
  chain: Chain & { multipleOf?: number[] | undefined },
  { graph }: Network,
  choices: ImportChoices,
  gaps: Gaps,
  file: string,
): Record<string, unknown> {
  const { spacing, clip, resized, foreground, sliced, inverted, windows, multipleOf } = chain;
  // The network looks at slices across the axis that is named
  const sorted = <T>(axes: readonly T[]): T[] =>
    sliced === undefined
      ? [...axes]
      : [...axes.slice(sliced, sliced + 1), ...axes.toSpliced(sliced, 1)];
  if (resized !== undefined && (resized.sides.length !== 3 || resized.pictures))
    resized.refuse(
      undefined,
      "Expected three numbers and a mode of volumes for a graph of volumes",
    );
  checkResized(chain);
  if (resized !== undefined && inverted !== undefined && resized.how["interpolation"] !== "linear")
    resized.refuse("mode", "Expected trilinear before Invertd; other ways back are not offered");
  if (windows !== undefined && sliced === undefined && windows.sides !== 3)
    windows.refuse("roi_size", "Expected three numbers for a graph of volumes");
  const [depth = -1, height = -1, width = -1] =
    resized === undefined ? (graph.inputs[0]?.shape.slice(2) ?? []) : sorted(resized.sides);
  const fixed = chain.tiling === undefined && Math.min(depth, height, width) > 0;
  const resampled = spacing !== undefined || foreground === true || multipleOf !== undefined;
  const orientation = orientationOf(chain, choices.orientation, file, gaps);
  const stretched = { fit: "stretch", ...resized?.how };
  const asItLies = { fit: "none", interpolation: "linear" };
  return {
    layout: "NCDHW",
    size:
      fixed && multipleOf === undefined
        ? { kind: "fixed", depth, height, width }
        : { kind: "source" },
    ...(resampled
      ? { fit: "stretch", interpolation: "spline" }
      : resized !== undefined
        ? stretched
        : asItLies),
    values: { kind: "modality" },
    channels: "grayscale",
    colour_source: "refuse",
    ...(resampled
      ? {
          resampling: {
            grid: "first_voxel",
            spacing_mm: sorted(spacing ?? [null, null, null]),
            order: 1,
            order_back: inverted?.nearest === true ? 0 : 1,
            ...(multipleOf === undefined ? {} : { multiple_of: multipleOf }),
            keep_range: false,
            clip: clip?.after === true ? "after" : "before",
            crop: foreground === true ? "foreground" : "none",
            activation: chain.activation?.inverted === false ? "before" : "after",
          },
        }
      : {}),
    orientation: orientation === undefined ? undefined : sorted(Array.from(orientation)).join(""),
  };
}

/** Modalities in the words of metadata.json, where they are others than DICOM's. */
const MODALITIES = new Map([["MRI", "MR"]]);

function accepts(modality: string | undefined, pictures: boolean, gaps: Gaps) {
  const found = MODALITIES.get(modality ?? "") ?? modality;
  if (found === undefined || !/^[A-Z0-9_ ]{1,16}$/.test(found))
    gaps.refuse(
      "metadata.json: modality",
      `"${modality ?? "none"}" is not a modality of DICOM: say it with --modality`,
    );
  return {
    formats: pictures ? ["dicom", "png", "jpeg", "tiff"] : ["dicom"],
    modality: [found ?? "?"],
    dimensions: pictures ? "2d" : "series",
    ...(found === "CT" ? { units: ["HU"] } : {}),
  };
}

/** The axes that the network was trained with: Orientationd says it, or a person does. */
function orientationOf(
  { orientation: turned }: Chain,
  said: string | undefined,
  file: string,
  gaps: Gaps,
): string | undefined {
  if (turned !== undefined && said !== undefined && said !== turned)
    gaps.refuse(
      "--orientation",
      `Orientationd turns images to ${turned}: expected no other, found ${said}`,
    );
  const unread = gaps.have(/: preprocessing(\.Compose|\.\d+\.Orientationd|$)/);
  if (turned === undefined && !isOrientation(said) && !unread)
    gaps.refuse(
      `${file}: preprocessing`,
      "There is no Orientationd: images are taken as they lie in their files, and the bundle does not say how the training images lay. Say it with --orientation, for the network's three sides: mostly LPS, LAS or RAS, the codes of nibabel.aff2axcodes of a training image",
    );
  return turned ?? said;
}

/** What the channels of the graph's output are. */
function outputOf(
  channels: number,
  defined: Record<string, string> | undefined,
  chain: Chain,
  { pictures, graph }: Network,
  gaps: Gaps,
  place: string,
): Record<string, unknown> {
  const { activation, decided, inverted, resized, firstIsNone = false } = chain;
  const names = namesOf(channels, defined);
  if (names === undefined)
    gaps.refuse(
      "metadata.json: channel_def",
      `Expected a name for each of ${channels} channels, found ${Object.keys(defined ?? {}).length}`,
    );
  const labels = (names ?? []).map((label) => ({ label }));
  if (graph.outputs[0]?.shape.length === 2) return classificationOf(labels, chain, gaps, place);
  if (inverted === undefined)
    gaps.note(place, "There is no Invertd: results go back to the source's grid all the same");
  const unread = gaps.have(/: postprocessing/);
  const exclusive = activation?.kind !== "sigmoid";
  const common = {
    kind: "segmentation",
    ...(resized !== undefined && activation?.inverted === true ? { activated: "after" } : {}),
    postprocess: largestOf(names ?? [], exclusive, chain, gaps, place),
    measurements: [pictures ? "area" : "volume"],
  };
  if (!exclusive) {
    const threshold = typeof decided === "object" ? decided.threshold : undefined;
    if (threshold === undefined)
      gaps.refuse(
        place,
        "There is no AsDiscreted, so that nothing says from which probability on a label is present",
      );
    return {
      ...common,
      activation: "sigmoid",
      ...(firstIsNone ? { ignored: [0] } : {}),
      labels: labels.slice(firstIsNone ? 1 : 0).map(({ label }) => ({ label, threshold })),
    };
  }
  if (decided === undefined && activation === undefined && !unread)
    gaps.refuse(
      place,
      "There is neither Activationsd nor AsDiscreted, so that nothing says what the channels are",
    );
  else if (decided === undefined)
    gaps.note(place, "There is no AsDiscreted: the label with the highest probability counts");
  const [background] = names ?? [];
  if (background !== undefined && !/background|^bg$/i.test(background))
    gaps.refuse(
      "metadata.json: channel_def.0",
      `Expected "background": with softmax and argmax the first channel is none of the labels; found "${background}"`,
    );
  return { ...common, activation: activation?.kind ?? "argmax", labels: labels.slice(1) };
}

/**
 * KeepLargestConnectedComponentd as a step of `postprocess`; none where it changes nothing. Its
 * label numbers are the values of a map, or the places of several channels. Without a list MONAI
 * cleans all but number 0, even where channels do not exclude each other and 0 is a label too.
 */
function largestOf(
  names: readonly string[],
  exclusive: boolean,
  { largest, firstIsNone = false }: Chain,
  gaps: Gaps,
  place: string,
): Record<string, unknown>[] {
  if (largest === undefined || names.length === 0) return [];
  const { labels: listed, first, corners } = largest;
  const isLabel = (l: number): boolean => l >= first && (l > 0 || !(exclusive || firstIsNone));
  // One channel alone is a map of the values 0 and 1
  const numberOf = (l: number): number => (names.length - first === 1 ? 1 : l - first);
  const isCleaned = (number: number): boolean => listed?.includes(number) ?? number !== 0;
  const labels = names.filter((_, l) => isLabel(l) && isCleaned(numberOf(l)));
  const step = `${place}: KeepLargestConnectedComponentd`;
  if (labels.length === 0) {
    gaps.note(
      step,
      `It changes nothing in MONAI: no label has the number ${(listed ?? []).join(", ")}`,
    );
    return [];
  }
  const untouched = names.find((_, l) => isLabel(l) && numberOf(l) === 0);
  if (listed === undefined && untouched !== undefined)
    gaps.note(
      step,
      `Without applied_labels MONAI takes the first channel for background: of "${untouched}" all regions stay`,
    );
  return [{ step: "largest_component", labels, connected_by: corners ? "corners" : "edges" }];
}

/**
 * Scores of an image; from which on a label is present is for the person to say, unless the higher
 * one of two counts.
 */
function classificationOf(
  labels: { label: string }[],
  { activation, decided }: Chain,
  gaps: Gaps,
  place: string,
): Record<string, unknown> {
  if (activation === undefined && decided === undefined && !gaps.have(/: postprocessing/))
    gaps.refuse(
      place,
      "There is neither Activationsd nor AsDiscreted, so that nothing says what the scores are",
    );
  if (activation === undefined && decided === "argmax")
    gaps.note(
      place,
      "There is no Activationsd: scores are those of softmax, of which the same is the highest",
    );
  const two = decided === "argmax" && labels.length === 2 ? 0.5 : null;
  const threshold = typeof decided === "object" ? decided.threshold : two;
  return {
    kind: "classification",
    activation: activation?.kind ?? "softmax",
    calibration: { kind: "none" },
    labels: labels.map(({ label }) => ({ label, threshold })),
  };
}
