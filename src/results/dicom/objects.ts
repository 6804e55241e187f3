/** The DICOM objects of one model's results over one image: which can be made, made, and checked. */
import type { Attributes, Image, Warning } from "../../images/image.js";
import type { DicomKind, OutputKind } from "../../manifest/manifest.js";
import type { ResultFile } from "../commit/commit.js";
import { objectName } from "../commit/names.js";
import type { Picture } from "../../addon/picture.js";
import type { SegmentationType } from "../forms.js";
import type { OutputFile, ReceiptModel } from "../receipt/receipt.js";
import { checkObjects, type Written } from "./check.js";
import type { Said } from "./groups.js";
import { frameOfReferenceOf } from "./frame-positions.js";
import { sourceGrid, volumeGrid, type GridVolume, type Masks } from "./grid.js";
import { secondaryCapture } from "./sc.js";
import { segmentation } from "./seg.js";
import { structureSet, whyNoContours } from "./rtstruct.js";
import { segmentationForm, type FrameOutputs } from "./segments.js";
import { companionIds, leftOut, sourceIds, type SourceIds } from "./source.js";
import { structuredReport } from "./sr.js";
import type { Subject } from "./subject.js";

const DICOM_KINDS: readonly DicomKind[] = ["seg", "rtstruct", "sc", "sr"];

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
  said: Said;
  /** Outputs for each frame of the image; needed for a SEG and an RTSTRUCT. */
  outputs: FrameOutputs | undefined;
  /** Where the SEG lies in a grid of its own: that, and the outputs for each of its slices. */
  ownGrid?: { volume: GridVolume; outputs: FrameOutputs };
  segmentationType: SegmentationType;
  /** Base name of the results. */
  name: string;
  /** The overlay, the frames (from 0) that it shows, and its opacity; called if a secondary capture is asked for. */
  picture: () => Promise<{ pixels: Picture; frames: readonly number[]; opacity: number }>;
  predecessor?: ReceiptModel["predecessor"];
  /** Of a case: which series or image the model took as what. */
  roles?: ReceiptModel["roles"];
}

export interface Objects {
  files: ResultFile[];
  outputs: OutputFile[];
  warnings: Warning[];
}

/** @throws RadserveError output_invalid if an object does not read back as what it should be */
export async function dicomObjects(request: ObjectsRequest): Promise<Objects> {
  const asked = DICOM_KINDS.filter((kind) => request.kinds.includes(kind));
  const others = companionIds(request.image);
  const ids = "missing" in others ? others : sourceIds(request.image);
  const kinds = asked.filter((kind) => whyNot(kind, request, ids) === undefined);
  const warnings = asked.flatMap((kind) => {
    const why = whyNot(kind, request, ids);
    return why === undefined || !(request.asked || isUnforeseen(request, ids)) ? [] : [notWritten(kind, why)];
  });
  const { attributes } = request.image;
  if (kinds.length === 0 || attributes === undefined || "missing" in ids || "missing" in others)
    return { files: [], outputs: [], warnings };
  const { image, model, utcOffset, roles } = request;
  const startedAt = new Date(request.startedAt);
  const own = { image, attributes, ids, others, model, startedAt, utcOffset };
  const subject: Subject = roles === undefined ? own : { ...own, roles };
  const masks = masksOf(subject, request);
  const written = await build(subject, kinds, masks, request);
  await checkObjects(subject, written, request.outputs, masks);
  return {
    ...listed(request.name, model.name, written),
    warnings: [...warnings, ...valuesLeftOut(attributes)],
  };
}

/** What the SEG is made of. */
function masksOf(subject: Subject, { outputs, ownGrid }: ObjectsRequest): Masks | undefined {
  if (ownGrid !== undefined) return { grid: volumeGrid(ownGrid.volume), outputs: ownGrid.outputs };
  return outputs === undefined ? undefined : { grid: sourceGrid(subject), outputs };
}

/** Whether nothing ties a grid other than the source's own to it. */
function isAdrift({ attributes }: Image): boolean {
  return attributes === undefined || frameOfReferenceOf(attributes) === undefined;
}

/**
 * A DICOM source that nothing can refer to, or in which nothing can be placed, is a fault of the source, and said even if
 * nobody asked.
 */
function isUnforeseen({ image, ownGrid }: ObjectsRequest, ids: SourceIds | { missing: string }): boolean {
  return image.attributes !== undefined && ("missing" in ids || (ownGrid !== undefined && isAdrift(image)));
}

function whyNot(
  kind: DicomKind,
  { image, model, outputs, ownGrid }: ObjectsRequest,
  ids: SourceIds | { missing: string },
): string | undefined {
  if (model.manifest.stage === "draft") return "the model is a draft, without codes";
  if ("missing" in ids) return ids.missing;
  if (kind !== "seg" && kind !== "rtstruct") return undefined;
  const segments = model.manifest.outputs.some((output) => output.kind === "segmentation");
  if (!segments || outputs === undefined) return "the model does not segment";
  if (kind === "seg" && ownGrid !== undefined && isAdrift(image))
    return "the source has no FrameOfReferenceUID, which would say where the model's grid lies";
  return kind === "rtstruct" ? whyNoContours(image, outputs) : undefined;
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

function notWritten(kind: DicomKind, why: string): Warning {
  return { code: "output_not_written", message: `No ${kind.toUpperCase()} was written: ${why}.` };
}

async function build(
  subject: Subject,
  kinds: readonly DicomKind[],
  masks: Masks | undefined,
  { outputs, segmentationType, said, picture, predecessor }: ObjectsRequest,
): Promise<Written[]> {
  const written: Written[] = [];
  const seg =
    kinds.includes("seg") && masks !== undefined
      ? segmentation(subject, masks, segmentationForm(subject, masks.outputs, segmentationType))
      : undefined;
  // Before the picture, which other threads draw meanwhile
  const sr = kinds.includes("sr") ? structuredReport({ subject, said, seg, predecessor }) : undefined;
  if (seg !== undefined) written.push({ kind: "seg", object: seg });
  if (kinds.includes("rtstruct") && outputs !== undefined)
    written.push({ kind: "rtstruct", object: structureSet(subject, outputs) });
  if (kinds.includes("sc")) {
    const { pixels, frames, opacity } = await picture();
    written.push({ kind: "sc", object: secondaryCapture(subject, pixels, frames, opacity), pixels });
  }
  if (sr !== undefined) written.push({ kind: "sr", object: sr });
  return written;
}

function listed(
  name: string,
  model: string,
  written: readonly Written[],
): Pick<Objects, "files" | "outputs"> {
  const listed = written.map(({ kind, object }) => {
    const file = { name: objectName(name, model, kind), bytes: object.bytes, sha256: object.sha256 };
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
