/** Which models a request is about, and which of them take the image. */
import { accepts, roleReasons } from "../models/acceptance.js";
import type { Reason } from "../models/attribute-values.js";
import { preferred } from "../models/prefer.js";
import {
  chooseCase,
  faultReason,
  fill,
  isRegridded,
  rolesIn,
  type Filled,
} from "../models/roles.js";
import type { MemoryClaim } from "../base/process-memory.js";
import { tried } from "../base/errno.js";
import { errors, RadserveError, type ErrorObject } from "../base/errors.js";
import type { Engine } from "../engine/engine.js";
import { framesAhead, mostHelpers } from "../images/dicom/decoders.js";
import { volumeOf } from "../images/dicom/volume.js";
import type { Candidates } from "../images/dicom/case.js";
import type { SeriesVerdict } from "../images/dicom/series.js";
import { largestCodec, type Case, type Image } from "../images/image.js";
import { straightOf } from "../models/straighten.js";
import {
  firstModelOf,
  imageInputs,
  takesWhole,
  toleranceOf,
  type Manifest,
  type OutputKind,
} from "../manifest/manifest.js";
import type { ModelEntry } from "../models/entry.js";
import { isUnwanted } from "../models/wanted.js";
import { unitsToRun } from "./parts.js";
import { withColours } from "../results/colour.js";
import { nearestName } from "../base/validation.js";

export interface PlannedModel {
  entry: ModelEntry;
  /** Empty if the model takes the image. */
  reasons: Reason[];
  /** Which kinds are written for it. */
  outputs: readonly OutputKind[];
  /** The request names the kinds itself. */
  asked: boolean;
}

export interface Plan {
  /** In order of names, those that do not take the image too: a receipt leaves none out. */
  models: PlannedModel[];
  /** Kinds as the request or the settings ask, or `default`. */
  outputs: string[];
  /** The origin of these kinds. */
  from: "request" | "settings" | "manifest";
}

export const accepting = ({ models }: Plan): PlannedModel[] =>
  models.filter(({ reasons }) => reasons.length === 0);

/**
 * Bytes of stored values in memory at once: those of a frame, or of all if a model takes them
 * together.
 */
export function bytesInMemory(image: Image, plan: Plan): number {
  if (image.case !== undefined)
    return image.case.members.reduce((all, member) => all + bytesOf(member, true), 0);
  return bytesOf(
    image,
    accepting(plan).some(({ entry }) => takesWhole(entry.manifest)),
  );
}

function bytesOf({ format, frameCount }: Image, whole: boolean): number {
  const { rows, columns, samplesPerPixel, bitsAllocated } = format;
  return (rows * columns * samplesPerPixel * bitsAllocated * (whole ? frameCount : 1)) / 8;
}

const FLOAT_BYTES = 4;

/**
 * Members of a case as real numbers: one as it is, and those on the grid of the first that are
 * there at once. That is one after the other; for a model that crops all of them together it is
 * all.
 */
function bytesRegridded(image: Image, plan: Plan): number {
  const bytes = accepting(plan).map(({ entry: { manifest } }) => {
    const [leading, ...others] = rolesIn(manifest, image).map((filled) => filled.image);
    if (leading === undefined) return 0;
    const moved = others.filter((other) => isRegridded(manifest, leading, other));
    const together = imageInputs(manifest).some(({ resampling }) => resampling?.crop === "nonzero");
    const kept = voxels(leading) * Math.min(moved.length, together ? Infinity : 1);
    return FLOAT_BYTES * (kept + Math.max(0, ...moved.map(voxels)));
  });
  return Math.max(0, ...bytes);
}

const voxels = ({ format, frameCount }: Image): number => format.rows * format.columns * frameCount;

/**
 * Bytes for each pixel that a segmentation or a heat map takes on the source's own grid: tensors,
 * probabilities, masks and pictures, the most that were measured.
 */
const BYTES_A_MAPPED_PIXEL = 24;
/** The same for models without maps, and for the picture. */
const BYTES_A_PIXEL = 8;

/**
 * Bytes of the model that needs most to run over the volume in windows; models run one after the
 * other.
 */
function bytesOfWindows(image: Image, plan: Plan, engine: Pick<Engine, "plan">): number {
  const tiled = accepting(plan).filter(
    ({ entry: { manifest } }) =>
      manifest.tiling !== undefined && manifest.accepts.dimensions === "series",
  );
  if (tiled.length === 0) return 0;
  const bytes = tiled.map(({ entry }) => {
    const { manifest } = entry;
    try {
      const volume = volumeOf(image, toleranceOf(manifest));
      const whole = { slices: volume.frames.length, ...image.format, geometry: volume.geometry };
      const { slices, rows, columns, geometry } = straightOf(volume, image.format) ?? whole;
      const planned = { slices, rows, columns, geometry };
      // Beside the part that runs there is the label map of those before
      const units = unitsToRun(entry);
      const kept = units.length < 2 ? 0 : slices * rows * columns;
      return kept + Math.max(0, ...units.map(({ id }) => engine.plan(id, planned)));
    } catch {
      // The model says so itself when it runs, and takes nothing.
      return 0;
    }
  });
  return Math.max(...bytes);
}

/** What runs of the networks over such an image were seen to take; one of them runs at a time. */
function bytesOfRuns(image: Image, plan: Plan, engine: Pick<Engine, "runBytes">): number {
  const bytes = accepting(plan).map(({ entry }) => {
    const { manifest } = entry;
    const members = manifest.roles === undefined ? [image] : (image.case?.members ?? [image]);
    const pixels = members.map(({ format: { rows, columns }, frameCount }) =>
      takesWhole(manifest) ? rows * columns * frameCount : rows * columns,
    );
    const all = pixels.reduce((sum, one) => sum + one, 0);
    // One that was taken away says so itself when it is to run
    const runs = unitsToRun(entry).map(({ id }) => tried(() => engine.runBytes(id, all)) ?? 0);
    return Math.max(0, ...runs);
  });
  return Math.max(0, ...bytes);
}

/**
 * Bytes that the image takes at most while its models run: its stored values, what is made of them,
 * what the networks were seen to take, and the files of a series. The file of another image is
 * counted since before it was read.
 */
export function bytesAtMost(
  image: Image,
  plan: Plan,
  engine: Pick<Engine, "plan" | "runBytes">,
): Pick<MemoryClaim, "bytes" | "ofThread"> {
  const { format, frameCount, source, series } = image;
  const models = accepting(plan).map(({ entry }) => entry.manifest);
  const maps = models.some(({ outputs }) =>
    outputs.some(({ kind }) => kind === "segmentation" || kind === "heatmap"),
  );
  const whole = models.some(takesWhole);
  const pixels = format.rows * format.columns * (whole ? frameCount : 1);
  // A segmentation object holds the masks of all frames
  const kept = maps ? format.rows * format.columns * frameCount : 0;
  const cuts = models.some(
    (m) => m.region !== undefined || imageInputs(m).some(({ crop }) => crop !== undefined),
  );
  const parts = cuts ? bytesInMemory(image, plan) : 0;
  const made = parts + pixels * (maps ? BYTES_A_MAPPED_PIXEL : BYTES_A_PIXEL) + kept;
  const codec = codecClaim(image);
  const bytes =
    (series === undefined && image.case === undefined ? 0 : source.bytes) +
    bytesInMemory(image, plan) +
    bytesRegridded(image, plan) +
    made +
    Math.max(bytesOfWindows(image, plan, engine), bytesOfRuns(image, plan, engine)) +
    codec.bytes;
  return { bytes, ofThread: codec.ofThread };
}

/**
 * What the codecs have while frames of the image are decoded: those of this thread, and of others
 * that help it.
 */
function codecClaim(image: Image): { bytes: number; ofThread: number } {
  const codec = largestCodec(image.case?.members ?? [image]);
  if (codec === undefined) return { bytes: 0, ofThread: 0 };
  const { format, frameCount } = image;
  const ahead = Math.min(framesAhead(codec.kind, format, frameCount), frameCount - 1);
  const helpers = Math.min(ahead, mostHelpers());
  return { bytes: helpers * codec.bytes + ahead * bytesOf(image, false), ofThread: codec.bytes };
}

/**
 * The models of a request, in order of names: the named models and the models that find their
 * regions, or, if the request names none, all models that are not switched off. `problems` lists
 * models whose manifest cannot be read, so that they are told apart from unknown names.
 * @throws RadserveError bad_request for a name that is not there, with the nearest;
 * model_unavailable for a model that is not loaded
 */
export function candidatesOf(
  entries: readonly ModelEntry[],
  names: readonly string[] | undefined,
  problems: readonly { name: string; error: ErrorObject }[] = [],
): ModelEntry[] {
  if (names === undefined) return entries.filter(({ state }) => state !== "off");
  const named = names.map((name) => readyModel(entries, name, problems));
  const firsts = named.flatMap(({ manifest }) => firstModelOf(manifest) ?? []);
  const missing = [...new Set(firsts)].filter((name) => !names.includes(name));
  const all = [...named, ...missing.map((name) => readyModel(entries, name, problems))];
  return all.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function readyModel(
  entries: readonly ModelEntry[],
  name: string,
  problems: readonly { name: string; error: ErrorObject }[],
): ModelEntry {
  const entry = entries.find((candidate) => candidate.name === name);
  if (entry === undefined) {
    const problem = problems.find((candidate) => candidate.name === name);
    if (problem !== undefined)
      throw errors.model_unavailable(
        `The model "${name}" could not be loaded: ${problem.error.message}`,
        {
          model: name,
        },
      );
    const known = entries.map((candidate) => candidate.name);
    const nearest = nearestName(name, known);
    throw errors.model_not_found(
      `models: no model is called "${name}"${nearest === undefined ? "" : `; the nearest is "${nearest}"`}.`,
      { field: "models", known },
    );
  }
  if (entry.state === "ready") return entry;
  throw errors.model_unavailable(
    entry.state === "off"
      ? `The model "${name}" is switched off (release "off" in its model.json).`
      : `The model "${name}" could not be loaded: ${entry.error?.message ?? "GET /models says why."}`,
    { model: name },
  );
}

/** The model with a colour for each label, so that some of them alone keep theirs. */
export const coloured = (entry: ModelEntry): ModelEntry => ({
  ...entry,
  manifest: { ...entry.manifest, outputs: withColours(entry.manifest.outputs) },
});

/** The model in whose region another looks. */
const firstOf = (
  { manifest }: ModelEntry,
  entries: readonly ModelEntry[],
): ModelEntry | undefined => entries.find(({ name }) => name === firstModelOf(manifest));

/** The entry with the model that looks before it, as results pin that. */
export function withFirst(entry: ModelEntry, entries: readonly ModelEntry[]): ModelEntry {
  const found = firstOf(entry, entries);
  if (found === undefined) return entry;
  const { name, version, sha256, site } = found;
  return { ...entry, first: { name, version, sha256, site_thresholds: site.thresholds } };
}

/**
 * Every reason why a model does not take an image, including reasons of the model that finds its
 * region.
 */
export function reasonsOf(
  entry: ModelEntry,
  image: Image,
  entries: readonly ModelEntry[],
): Reason[] {
  const { region } = entry.manifest;
  const own = accepts(entry, image);
  if (isUnwanted(entry))
    own.push({
      code: "labels_not_held",
      message: "Expected a model that has any of the labels of the request; it has none of them.",
    });
  const found = firstOf(entry, entries);
  if (found !== undefined && accepts(found, image).length > 0)
    own.push({
      code: "region_model_not_accepting",
      message: `Expected an image that the model "${found.name}" takes, which runs before this one; it does not.`,
    });
  if (region === undefined) return own;
  const unmeasured = (_: unknown, frame: number) => image.spacing(frame) === undefined;
  const isVolume = entry.manifest.accepts.dimensions === "series";
  if (
    !isVolume &&
    region.margin_mm > 0 &&
    Array.from({ length: image.frameCount }).some(unmeasured)
  )
    own.push({
      code: "region_spacing_missing",
      message: `Expected a pixel spacing for the region's margin of ${region.margin_mm} mm, found none.`,
    });
  return own;
}

/**
 * Which series of a folder the models of whole series take: of all that one takes, those that it
 * prefers.
 * @param series each as an image, or why it is none
 * @param grouped series are for models of single images, too
 */
export function judgeSeries(
  candidates: readonly Pick<ModelEntry, "name" | "manifest" | "wanted">[],
  series: readonly (Image | RadserveError)[],
  grouped = false,
): SeriesVerdict[] {
  const verdicts = series.map(() => ({ taken: false, why: [] as SeriesVerdict["why"][number][] }));
  for (const entry of candidates.filter((one) => !isUnwanted(one))) {
    if (!(grouped || takesWhole(entry.manifest)) || entry.manifest.roles !== undefined) continue;
    const judged = series.map((image, i) => ({
      image,
      verdict: verdicts[i],
      reasons: image instanceof RadserveError ? [faultReason(image)] : accepts(entry, image),
    }));
    const isTaken = (one: (typeof judged)[number]): one is typeof one & { image: Image } =>
      one.reasons.length === 0;
    const { left, behind } = preferred(entry.manifest.accepts, judged.filter(isTaken));
    for (const { verdict } of left) if (verdict !== undefined) verdict.taken = true;
    for (const [{ reasons }, reason] of behind) reasons.push(reason);
    for (const { verdict, reasons } of judged)
      verdict?.why.push(...reasons.map((reason) => ({ model: entry.name, ...reason })));
  }
  return verdicts;
}

/**
 * The case that a folder is for the candidates with roles.
 * @param must there is nothing else that the folder could be
 * @returns undefined if none of them takes it, and it may be something else
 * @throws RadserveError no_model_accepts if it must be one; series_invalid if models take different
 * series
 */
export function caseFor(
  candidates: readonly ModelEntry[],
  found: Candidates,
  must: boolean,
): Case | undefined {
  const withRoles = candidates.filter(
    (entry) => entry.manifest.roles !== undefined && !isUnwanted(entry),
  );
  const takes = (manifest: Manifest, roles: readonly Filled[]) =>
    roleReasons(manifest, roles).length === 0;
  const chosen = chooseCase(withRoles, found, takes);
  if (chosen !== undefined || !must || withRoles.length === 0) return chosen;
  throw noModelAccepts(candidates.map((entry) => ({ entry, reasons: caseReasons(entry, found) })));
}

/**
 * Why a folder is no case for each of the models with roles; `partly` if one of its roles is there.
 */
export const whyNoCase = (
  candidates: readonly ModelEntry[],
  found: Candidates,
): { name: string; reasons: Reason[]; partly: boolean }[] =>
  candidates
    .filter(({ manifest }) => manifest.roles !== undefined)
    .map((entry) => {
      const reasons = caseReasons(entry, found);
      const missing = reasons.filter(({ code }) => code === "role_missing").length;
      return { name: entry.name, reasons, partly: missing < (entry.manifest.roles?.length ?? 0) };
    });

function caseReasons({ manifest }: Pick<ModelEntry, "manifest">, found: Candidates): Reason[] {
  if (manifest.roles === undefined)
    return [
      {
        code: "case_not_accepted",
        message: "The model takes one image or series; the folder has several.",
      },
    ];
  const series = manifest.accepts.dimensions === "series";
  const filled = fill(manifest, series ? found.series() : found.images());
  return "reasons" in filled ? filled.reasons : roleReasons(manifest, filled.roles);
}

/** Models of which the message says why; the details have all. */
const MOST_SAID = 3;

function noModelAccepts(
  models: readonly { entry: ModelEntry; reasons: Reason[] }[],
): RadserveError {
  const why = models
    .slice(0, MOST_SAID)
    .flatMap(({ entry, reasons: [first] }) =>
      first === undefined ? [] : [`${entry.name}: ${first.message}`],
    );
  const more = models.length > MOST_SAID ? ` (${models.length - MOST_SAID} more in details)` : "";
  const none = models.length === 0 ? "There is none that serves." : "";
  return errors.no_model_accepts(`No model takes this image. ${none}${why.join(" ")}${more}`, {
    models: models.map(({ entry, reasons }) => ({
      name: entry.name,
      version: entry.version,
      reasons,
    })),
  });
}

/**
 * Which of the candidates take the image, why the others do not, and what is written: what the
 * request asks, else what the settings say for all models, else what each manifest says.
 * @throws RadserveError no_model_accepts if no candidate takes the image
 */
export function planOf(
  candidates: readonly ModelEntry[],
  image: Image,
  outputs: readonly OutputKind[] | undefined,
  ofSite?: readonly OutputKind[],
): Plan {
  const named = outputs ?? ofSite;
  const models = candidates.map((entry) => ({
    entry: withFirst(entry, candidates),
    reasons: reasonsOf(entry, image, candidates),
    outputs: named ?? entry.manifest.results.outputs,
    asked: outputs !== undefined,
  }));
  if (models.every(({ reasons }) => reasons.length > 0)) throw noModelAccepts(models);
  const from = outputs !== undefined ? "request" : ofSite !== undefined ? "settings" : "manifest";
  return { models, outputs: named === undefined ? ["default"] : [...named].sort(), from };
}
