/**
 * Composes a receipt, the answer that a client reads from it, and the summary that a bulk job keeps
 * of that.
 */
import { withoutEnd } from "../../base/ends.js";
import type { Stopwatch } from "../../base/stopwatch.js";
import { VERSION } from "../../base/version.js";
import { translateIn, type PathMapping } from "../../files/path-map.js";
import type { Image, NotChosen, Series, Warning } from "../../images/image.js";
import { receiptName } from "../receipt/names.js";
import {
  RECEIPT_SCHEMA,
  type Answer,
  type Receipt,
  type ReceiptModel,
  type OutputFile,
} from "../receipt/receipt.js";
import path from "node:path";

/** The facts of a request that a receipt and an answer have beside its results. */
interface RequestFacts {
  /** Paths as the client gave them. */
  task: {
    requestId: string;
    traceparent?: string | undefined;
    inputPath: string;
    outputFolder: string;
  };
  /** NAME, the stem of the results. */
  name: string;
  image: Image;
  /** What the gateway says of how the image came. */
  reception: readonly Warning[];
  /** SOPInstanceUIDs of objects that took the place of others there. */
  replaced: readonly string[];
  plan: { outputs: string[]; from: Receipt["outputs_from"] };
  watch: Stopwatch;
}

export function sourceOf(name: string, image: Image, pixelSha256: string): Receipt["source"] {
  const { source, format } = image;
  return {
    name,
    format: source.format,
    bytes: source.bytes,
    file_sha256: source.fileSha256,
    pixel_sha256: pixelSha256,
    rows: format.rows,
    columns: format.columns,
    frames: image.frameCount,
    photometric_interpretation: format.photometricInterpretation,
    ...present("modality", source.modality),
    ...present("manufacturer", equipment(image, "Manufacturer")),
    ...present("manufacturer_model_name", equipment(image, "ManufacturerModelName")),
    ...present("transfer_syntax_uid", source.transferSyntaxUid),
    ...uidsOf(image),
    ...(image.series?.grouped === true ? { group: "series" as const } : {}),
    ...(image.case === undefined ? {} : { case: image.case.members.map(memberOf) }),
    ...(image.notChosen === undefined || image.notChosen.length === 0
      ? {}
      : { not_chosen: image.notChosen.slice(0, MOST_NOT_CHOSEN).map(notChosenOf) }),
  };
}

/** A receipt lists no more of what was not taken: a folder may hold thousands of files. */
const MOST_NOT_CHOSEN = 50;

const notChosenOf = ({ image: { source, frameCount }, why }: NotChosen) => ({
  ...present("modality", source.modality),
  ...present("series_instance_uid", source.seriesInstanceUid),
  ...present("sop_instance_uid", source.sopInstanceUid),
  frames: frameCount,
  why: [...why],
});

function memberOf(image: Image): NonNullable<Receipt["source"]["case"]>[number] {
  const { source, format, frameCount } = image;
  return {
    bytes: source.bytes,
    file_sha256: source.fileSha256,
    rows: format.rows,
    columns: format.columns,
    frames: frameCount,
    ...present("modality", source.modality),
    ...uidsOf(image),
  };
}

/** The names of an image in DICOM, and those of the slices of a series. */
function uidsOf({ source, series }: Image) {
  return {
    ...present("sop_class_uid", source.sopClassUid),
    ...present("sop_instance_uid", source.sopInstanceUid),
    ...present("series_instance_uid", source.seriesInstanceUid),
    ...present("study_instance_uid", source.studyInstanceUid),
    ...(series === undefined ? {} : { slices: slicesOf(series) }),
  };
}

/** Characters of a Long String (PS3.5 section 6.2), of which both attributes are. */
const LONGEST_LO = 64;

/**
 * The attributes by which a reader of many receipts tells scanners apart (PS3.3 C.7.5.1); of a
 * series, those of its first slice.
 */
function equipment({ attributes }: Image, keyword: string): string | undefined {
  const text = attributes
    ?.string(keyword)
    ?.replace(/\p{Cc}/gu, " ")
    .trim()
    .slice(0, LONGEST_LO);
  return text === "" ? undefined : text;
}

function slicesOf({ slices, attributes, grouped }: Series) {
  return slices.map(({ sopInstanceUid, fileSha256, frame, file }) => {
    const number = grouped ? attributes[file]?.number("InstanceNumber") : undefined;
    return {
      ...present("sop_instance_uid", sopInstanceUid),
      file_sha256: fileSha256,
      ...(frame === undefined ? {} : { frame }),
      ...(Number.isInteger(number) ? { instance_number: number } : {}),
    };
  });
}

function present<K extends string>(key: K, value: string | undefined): Partial<Record<K, string>> {
  return value === undefined ? {} : ({ [key]: value } as Record<K, string>);
}

/** @param pixelSha256 over the stored values of all frames, in order, hex */
export function receiptOf(
  { task, name, image, reception, replaced, plan, watch }: RequestFacts,
  models: ReceiptModel[],
  pixelSha256: string,
): Receipt {
  return {
    schema: RECEIPT_SCHEMA,
    radserve_version: VERSION,
    status: models.some((model) => model.status === "failed") ? "partial" : "completed",
    source: {
      ...sourceOf(name, image, pixelSha256),
      ...(replaced.length === 0 ? {} : { replaced: [...replaced] }),
    },
    transforms: image.transforms,
    warnings: [...image.warnings, ...reception],
    outputs_requested: plan.outputs,
    outputs_from: plan.from,
    models,
    timings: {
      request_id: task.requestId,
      ...present("traceparent", task.traceparent),
      started_at: watch.startedAt,
      utc_offset: watch.utcOffset,
      finished_at: new Date().toISOString(),
      milliseconds: watch.laps(),
    },
  };
}

/** @param reused the receipt is an earlier one, and nothing was computed */
export function answerOf(
  { task, name, watch }: RequestFacts,
  receipt: Receipt,
  reused: boolean,
): Answer {
  const folder = withoutEnd(task.outputFolder, "/");
  return {
    request_id: task.requestId,
    status: receipt.status,
    input_image_path: task.inputPath,
    receipt_path: `${folder}/${receiptName(name)}`,
    reused,
    models: receipt.models.map((model) => ({
      name: model.name,
      version: model.version,
      status: model.status,
      ...(model.error === undefined ? {} : { error: model.error }),
      ...(model.reasons === undefined ? {} : { reasons: model.reasons }),
      ...(model.shadow === undefined ? {} : { shadow: model.shadow }),
      findings: model.findings,
      measurements: model.measurements,
      outputs: model.outputs.map((file) => ({ ...file, path: `${folder}/${file.path}` })),
      ...(model.provider === undefined ? {} : { provider: model.provider }),
      ...(model.precision === undefined ? {} : { precision: model.precision }),
      warnings: model.warnings,
    })),
    warnings: receipt.warnings,
    timings_ms: { ...watch.laps(), total: watch.total() },
    finished_at: receipt.timings.finished_at,
  };
}

/** An answer in the words of its client, and what the server itself needs of it. */
export type AnswerText = ReturnType<typeof answerText>;

/** @param asked paths of the request as its client names them */
export function answerText(
  answer: Answer,
  asked: { input: string; output: string; pathMap: readonly PathMapping[] },
) {
  const { back } = translateIn(asked.output, asked.pathMap);
  const models = answer.models.map((model) => ({
    ...model,
    outputs: model.outputs.map((file) => ({ ...file, path: back(file.path) })),
  }));
  const named = {
    ...answer,
    input_image_path: asked.input,
    receipt_path: back(answer.receipt_path),
    models,
  };
  const statuses = models.map(({ name, status, error, reasons }) => {
    return { name, status, error: error?.error, reasons: reasons?.map(({ code }) => code) };
  });
  return { json: JSON.stringify(named), receiptPath: answer.receipt_path, models: statuses };
}

/** The part of an answer that a bulk job keeps; findings and measurements are in the receipt. */
export interface Summary {
  status: "completed" | "partial";
  reused: boolean;
  /** The receipt's name in the output folder; the outputs' paths are such names too. */
  receipt: string;
  outputs: OutputFile[];
  /** Absent in summaries that earlier versions stored, as `warnings` and `found` are. */
  finished_at?: Answer["finished_at"];
  warnings?: Answer["warnings"];
  models: {
    name: string;
    status: "succeeded" | "failed" | "not_accepted";
    shadow?: true | undefined;
    found?: string[];
  }[];
}

/** Labels that are present. */
export const foundIn = (findings: Answer["models"][number]["findings"]): string[] => [
  ...new Set(findings.flatMap(({ label, present }) => (present ? [label] : []))),
];

/**
 * A job keeps no more of hundreds of classes: its rows would be longer than the receipts. The page
 * shows one less, and says that there are more.
 */
const MOST_KEPT = 51;

/** Whether a receipt is of another result than the one that a job wrote down. */
export const isReplaced = (
  { timings }: Pick<Receipt, "timings">,
  { finished_at: finished }: Pick<Summary, "finished_at">,
): boolean => finished !== undefined && timings.finished_at !== finished;

export function summaryOf(answer: Answer): Summary {
  return {
    status: answer.status,
    reused: answer.reused,
    receipt: path.posix.basename(answer.receipt_path),
    outputs: answer.models.flatMap(({ outputs }) =>
      outputs.map((file) => ({ ...file, path: path.posix.basename(file.path) })),
    ),
    finished_at: answer.finished_at,
    warnings: answer.warnings,
    models: answer.models.map(({ name, status, shadow, findings }) => ({
      name,
      status,
      shadow,
      found: foundIn(findings).slice(0, MOST_KEPT),
    })),
  };
}
