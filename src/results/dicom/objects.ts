/**
 * The DICOM objects of one model's results over one image: which can be made, made, and checked.
 */
import { phasesOf } from "../../images/dicom/shared-places.js";
import type { Attributes, Image, Warning } from "../../images/image.js";
import type { DicomKind, OutputKind } from "../../manifest/manifest.js";
import { objectName, type ResultFile } from "../receipt/names.js";
import type { Picture } from "../../addon/picture.js";
import type { SegmentationType } from "../forms.js";
import type { OutputFile, ReceiptModel } from "../receipt/receipt.js";
import { checkObjects, type Written } from "./check.js";
import { ObjectTooLarge } from "./elements.js";
import type { ReportContents } from "./groups.js";
import { frameOfReferenceOf, isThicknessAssumed } from "./frame-positions.js";
import type { ModelGrid } from "../findings/volume-outputs.js";
import { hasOwnPositions, sourceGrid, volumeGrid, type Masks } from "./grid.js";
import { segmentationForm, type FrameOutputs } from "./segments.js";
import { opticalPaths, slideGeometry } from "./slide.js";
import { companionIds, leftOut, sourceIds, type SourceIds } from "./source.js";
import type { Making, Material } from "./objects/kind.js";
import { segBytesOf, tooLong } from "./objects/seg.js";
import { isInPatient } from "./objects/sr.js";
import { OBJECTS } from "./objects/table.js";
import type { Subject } from "./subject.js";

const KINDS = Object.keys(OBJECTS) as DicomKind[];

interface ObjectsRequest {
  image: Image;
  model: Subject["model"];
  /** ISO 8601. */
  startedAt: string;
  /** Offset from UTC of the machine on which the analysis began: "+0100". */
  utcOffset: string;
  kinds: readonly OutputKind[];
  /** The request names the kinds itself: what cannot be written is then said. */
  asked: boolean;
  said: ReportContents;
  /** Outputs for each frame of the image; needed for a SEG and an RTSTRUCT. */
  outputs: FrameOutputs | undefined;
  /** Where the SEG lies in a grid of its own: that, and the outputs for each of its slices. */
  ownGrid?: { volume: ModelGrid; outputs: FrameOutputs };
  segmentationType: SegmentationType;
  /** Base name of the results. */
  name: string;
  /**
   * The overlay, the frames (from 0) that it shows, and its opacity; called if a secondary capture
   * is asked for.
   */
  picture: () => Promise<{ pixels: Picture; frames: readonly number[]; opacity: number }>;
  predecessor?: ReceiptModel["predecessor"];
  /** The series or image that the model took in each role of a case. */
  roles?: ReceiptModel["roles"];
}

export interface Objects {
  files: ResultFile[];
  outputs: OutputFile[];
  warnings: Warning[];
}

/** @throws RadserveError output_invalid if an object does not read back as what it should be */
export async function dicomObjects(request: ObjectsRequest): Promise<Objects> {
  const asked = KINDS.filter((kind) => request.kinds.includes(kind));
  const others = companionIds(request.image);
  const ids = "missing" in others ? others : sourceIds(request.image);
  const reasons = asked.map((kind) => ({ kind, why: whyNotMade(kind, request, ids) }));
  const kinds = reasons.flatMap(({ kind, why }) => (why === undefined ? kind : []));
  const isSaid = request.asked || isUnforeseen(request, ids);
  const warnings = reasons.flatMap(({ kind, why }) =>
    why === undefined || !isSaid ? [] : notWritten(kind, why),
  );
  const { attributes } = request.image;
  if (kinds.length === 0 || attributes === undefined || "missing" in ids || "missing" in others)
    return { files: [], outputs: [], warnings };
  const { image, model, utcOffset, roles } = request;
  const startedAt = new Date(request.startedAt);
  const phases = phasesIn(request.image, request.ownGrid);
  const own = { image, attributes, ids, others, model, startedAt, utcOffset, phases };
  const subject: Subject = roles === undefined ? own : { ...own, roles };
  const masks = masksOf(subject, request);
  const making = { ...materialOf(request), ...request, subject, masks, seg: undefined };
  const made = await make(kinds, making);
  const written = made.filter(isWritten);
  await checkObjects(making, written);
  return {
    ...filesAndOutputs(request.name, model.name, written),
    warnings: [
      ...warnings,
      ...made.flatMap((each) => (isWritten(each) ? [] : notWritten(each.kind, each.why))),
      ...placesLeftOut(written, request, phases),
      ...thicknessAssumed(written, subject, masks),
      ...valuesLeftOut(attributes),
    ],
  };
}

const notWritten = (kind: DicomKind, why: string): Warning => ({
  code: "output_not_written",
  message: `No ${kind.toUpperCase()} was written: ${why}.`,
});

const hasSeg = (written: readonly Written[]): boolean => written.some(({ kind }) => kind === "seg");

/** The frames by phases, as the objects part them; a grid of its own is one phase. */
export function phasesIn(image: Image, ownGrid: ObjectsRequest["ownGrid"]): Subject["phases"] {
  const { attributes } = image;
  if (attributes === undefined || ownGrid !== undefined || isAdrift(image)) return undefined;
  const paths = opticalPaths(image, attributes);
  if (paths !== undefined) return paths;
  if (!hasOwnPositions(image, attributes)) return undefined;
  const phases = phasesOf(image, attributes);
  return typeof phases === "string" || phases.length > 1 ? phases : undefined;
}

/**
 * A SEG says nowhere where its frames lie if they would overlap for programs that read it by
 * geometry, if only some frames of the source have a place, or if what their places refer to is no
 * UID.
 */
function placesLeftOut(
  written: readonly Written[],
  { image, ownGrid }: ObjectsRequest,
  phases: Subject["phases"],
): Warning[] {
  const why =
    typeof phases === "string" ? phases : ownGrid === undefined ? notPlaced(image) : undefined;
  if (why === undefined || !hasSeg(written)) return [];
  const message = `The SEG does not say where its frames lie: ${why}. It refers to the source's frames.`;
  return [{ code: "place_left_out", message }];
}

function notPlaced(image: Image): string | undefined {
  const frames = Array.from({ length: image.frameCount }, (_, frame) => frame);
  const without = frames.filter((frame) => image.plane(frame) === undefined).length;
  const { attributes } = image;
  if (isAdrift(image)) {
    const isNamed = attributes?.strings("FrameOfReferenceUID")?.some((value) => value !== "");
    const isTiled = attributes !== undefined && slideGeometry(image, attributes) !== undefined;
    return isNamed === true && (without < frames.length || isTiled)
      ? "the source's FrameOfReferenceUID is not a UID"
      : undefined;
  }
  if (without === 0 || without === frames.length) return undefined;
  return `${without} of the source's ${frames.length} frames have no position or orientation`;
}

function thicknessAssumed(
  written: readonly Written[],
  subject: Subject,
  masks: Masks | undefined,
): Warning[] {
  if (masks === undefined || !hasSeg(written) || !isThicknessAssumed(subject, masks.grid))
    return [];
  const message =
    "The source does not say how thick its frames are, neither by SliceThickness nor by an even distance: the SEG makes them as thick as a pixel is wide, so that readers place them. Take no volumes from it.";
  return [{ code: "thickness_assumed", message }];
}

/** The masks of which the SEG is made. */
function masksOf(subject: Subject, { outputs, ownGrid }: ObjectsRequest): Masks | undefined {
  if (ownGrid !== undefined) return { grid: volumeGrid(ownGrid.volume), outputs: ownGrid.outputs };
  return outputs === undefined ? undefined : { grid: sourceGrid(subject), outputs };
}

/** Whether nothing ties a grid other than the source's own to it. */
function isAdrift({ attributes }: Image): boolean {
  return attributes === undefined || frameOfReferenceOf(attributes) === undefined;
}

/**
 * A DICOM source that nothing can refer to, or in which nothing can be placed, is a fault of the
 * source, and said even if nobody asked; so is a SEG that is too long.
 */
function isUnforeseen(
  { image, ...request }: ObjectsRequest,
  ids: SourceIds | { missing: string },
): boolean {
  const places = request.ownGrid !== undefined || request.model.manifest.outputs.some(isInPatient);
  const isTooLong =
    request.kinds.includes("seg") && tooLong(materialOf({ image, ...request })) !== undefined;
  return (
    image.attributes !== undefined && ("missing" in ids || isTooLong || (places && isAdrift(image)))
  );
}

function whyNotMade(
  kind: DicomKind,
  request: ObjectsRequest,
  ids: SourceIds | { missing: string },
): string | undefined {
  if (request.model.manifest.stage === "draft") return "the model is a draft, without codes";
  if ("missing" in ids) return ids.missing;
  const material = materialOf(request);
  const object = OBJECTS[kind];
  return (object.ofMasks ? whyNoMasks(material) : undefined) ?? object.whyNot(material);
}

/** Why nothing can be made of masks, in words; undefined if it can. */
function whyNoMasks({ manifest, outputs }: Material): string | undefined {
  const segments = manifest.outputs.some((output) => output.kind === "segmentation");
  return !segments || outputs === undefined ? "the model does not segment" : undefined;
}

function materialOf({
  image,
  model,
  outputs,
  ownGrid,
  segmentationType,
}: ObjectsRequest): Material {
  const isAdriftHere = ownGrid !== undefined && isAdrift(image);
  const size = ownGrid?.volume ?? { ...image.format, slices: image.frameCount };
  const form = segmentationForm({ image, model }, segmentationType);
  const segBytes = segBytesOf(model.manifest.outputs, size, form);
  const phases = phasesIn(image, ownGrid);
  return { image, manifest: model.manifest, outputs, phases, isAdrift: isAdriftHere, segBytes };
}

function valuesLeftOut(attributes: Attributes): Warning[] {
  const { identity, others } = leftOut(attributes);
  const lacking = (code: string, names: readonly string[]): Warning[] =>
    names.length === 0
      ? []
      : [
          {
            code,
            message: `The DICOM objects lack the source's ${names.join(", ")}: DICOM does not allow the value that it has there, or its character set does not have it. Correct the source.`,
          },
        ];
  return [...lacking("identity_left_out", identity), ...lacking("value_left_out", others)];
}

/**
 * Objects beside the SEG refer to it. They are made together: other threads draw the picture
 * meanwhile. One that would be too large is left out, and takes no other with it.
 */
async function make(kinds: readonly DicomKind[], making: Making): Promise<Made[]> {
  const first = kinds.includes("seg") ? [await madeOf("seg", making)] : [];
  const seg = first.find(isWritten)?.object;
  const others = kinds.filter((kind) => kind !== "seg");
  const made = await Promise.all(others.map((kind) => madeOf(kind, { ...making, seg })));
  return [...first, ...made];
}

type Made = Written | { kind: DicomKind; why: string };

async function madeOf(kind: DicomKind, making: Making): Promise<Made> {
  try {
    return { kind, object: await OBJECTS[kind].make(making) };
  } catch (error) {
    if (error instanceof ObjectTooLarge) return { kind, why: error.message };
    throw error;
  }
}

const isWritten = (made: Made): made is Written => "object" in made;

function filesAndOutputs(
  name: string,
  model: string,
  written: readonly Written[],
): Pick<Objects, "files" | "outputs"> {
  const listed = written.map(({ kind, object }) => {
    const file = {
      name: objectName(name, model, kind),
      bytes: object.bytes,
      sha256: object.sha256,
    };
    const output = {
      path: file.name,
      media_type: "application/dicom",
      sop_class_uid: object.sopClassUid,
      sop_instance_uid: object.sopInstanceUid,
      series_instance_uid: object.seriesInstanceUid,
      bytes: file.bytes.length,
      sha256: file.sha256,
    };
    return { file, output };
  });
  return { files: listed.map(({ file }) => file), outputs: listed.map(({ output }) => output) };
}
