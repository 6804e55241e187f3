/**
 * A viewing thread: reads results and images for people who look at them, one question after the
 * other.
 */
import { fstatSync } from "node:fs";
import { workerData, type Transferable } from "node:worker_threads";
import { errors } from "../../base/errors.js";
import { ProcessMemory } from "../../base/process-memory.js";
import { answerOwner } from "../../base/service-thread.js";
import { createEngine } from "../../engine/engine.js";
import { readWhole } from "../../files/descriptor.js";
import { withPlain } from "../../files/durable-files.js";
import { withInput, type OpenedInput } from "../../files/guarded-paths.js";
import { isInside } from "../../files/roots.js";
import { dropGrownCodecs } from "../../images/dicom/codecs.js";
import { ANY_STACK, type Image } from "../../images/image.js";
import { readImage } from "../../images/read-image.js";
import { bytesAtMost, planOf } from "../../inference/plan.js";
import { readSeriesFolder, type FolderChoice } from "../../inference/read-input.js";
import { SliceMemory, withFile } from "../../inference/reading-memory.js";
import { replay } from "../../inference/replay.js";
import { checkResult } from "../../inference/verify-result.js";
import { ModelReader } from "../../models/shared.js";
import { listResults } from "./list/list.js";
import type { Section } from "../../results/picture/section.js";
import { areEqual, type ReceiptCheck } from "../../results/commit/verify.js";
import type { Receipt } from "../../results/receipt/receipt.js";
import { MarkReader } from "./marks.js";
import type { ShownReceipt, ViewerThreadOptions, Verification, ViewCall } from "./messages.js";
import { fileOf, readWithin, withResult, type ResultFolder } from "./result-folder.js";
import { drawnPlane, SourcePictures } from "./source-picture.js";
import {
  sectionAt,
  sectionFacts,
  sectionPlane,
  VolumePlanes,
  type KnownVolume,
} from "./volume-planes.js";

const { engine: engineOptions, memory: place, forms } = workerData as ViewerThreadOptions;
const engine = createEngine(engineOptions);
const memory = new ProcessMemory(place, dropGrownCodecs);
const models = new ModelReader();
const pictures = new SourcePictures({ engine, memory });
const planes = new VolumePlanes(memory);
const marks = new MarkReader(memory);
const PATIENT = { patient: true, check: () => undefined };

type ViewOf<Kind extends ViewCall["kind"]> = Extract<ViewCall, { kind: Kind }>;

function handleCall(view: ViewCall, transfer: Transferable[]): Promise<unknown> {
  switch (view.kind) {
    case "receipt":
      return withResult(view.receiptPath, view.roots.output, ({ receipt, trust }) =>
        Promise.resolve({
          study: receipt.source.study_instance_uid,
          json: packed({ ...receipt, trust }, transfer),
        } satisfies ShownReceipt),
      );
    case "picture":
      if (view.model !== undefined) return written(view, view.model);
      return view.across === undefined
        ? ofFrame(view, (...which) => pictures.draw(...which))
        : ofSection(view, (known, section) => drawnPlane(sectionPlane(known, section), engine));
    case "frame":
      return view.across === undefined
        ? ofFrame(view, async (...which) => packed(await pictures.facts(...which), transfer))
        : ofSection(view, (known, section) => packed(sectionFacts(known, section), transfer));
    case "marks":
      return view.across === undefined
        ? withResult(view.receiptPath, view.roots.output, (result) =>
            marks.read(result, view.model, view.fullest ?? view.frame),
          )
        : ofSection(view, (known, section, result) =>
            marks.readAcross(result, view.model, known, section),
          );
    case "verify":
      return verification(view);
    case "input":
      return inputOf(view);
    case "list":
      return listResults(view.roots, view.wanted, {
        ...view,
        sees: (receipt) => isInside(receipt, view.folders),
        read: (receipt) => readWithin(receipt, view.folders),
      });
  }
}

/** The path of the image of a result, as the list has it. */
async function inputOf({ roots, receiptPath }: ViewOf<"input">): Promise<string | undefined> {
  const { results } = await listResults(
    roots,
    { text: receiptPath },
    {
      limit: 1,
      sees: (receipt) => receipt === receiptPath,
      read: (receipt) => readWithin(receipt, roots),
    },
  );
  return results[0]?.input;
}

/** The picture that a model wrote. */
function written({ receiptPath, roots }: ViewOf<"picture">, model: string): Promise<Uint8Array> {
  return withResult(receiptPath, roots.output, (result) => {
    const { outputs = [] } = result.receipt.models.find(({ name }) => name === model) ?? {};
    const png = outputs.find(({ media_type: type }) => type === "image/png");
    if (png !== undefined) return fileOf(result, png);
    throw errors.file_not_found("Expected a model of the receipt that wrote a picture.");
  });
}

/**
 * JSON as bytes that go over to the owner: megabytes of text would keep its thread from serving.
 */
function packed(value: unknown, transfer: Transferable[]): Uint8Array {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  transfer.push(bytes.buffer);
  return bytes;
}

/** Something of a plane across the slices. */
function ofSection<T>(
  { receiptPath, inputPath, roots, frame, across = "row" }: ViewOf<"picture" | "frame" | "marks">,
  use: (known: KnownVolume, section: Section, result: ResultFolder) => T | Promise<T>,
): Promise<T> {
  return withResult(receiptPath, roots.output, (result) =>
    withInput(inputPath, roots.input, async (source) => {
      const { receipt } = result;
      const choice = { uid: receipt.source.series_instance_uid };
      const open = <R>(read: (image: Image) => Promise<R>) => withSource(source, choice, read);
      const known = await planes.known(source.realPath, receipt, open);
      return use(known, sectionAt(known, across, frame), result);
    }),
  );
}

function ofFrame<T>(
  { receiptPath, inputPath, roots, frame }: ViewOf<"picture" | "frame">,
  use: (source: OpenedInput, receipt: Receipt, frame: number) => Promise<T>,
): Promise<T> {
  return withResult(receiptPath, roots.output, ({ receipt }) =>
    withInput(inputPath, roots.input, (source) => use(source, receipt, frame)),
  );
}

function verification(view: ViewOf<"verify">): Promise<Verification> {
  return withResult(view.receiptPath, view.roots.output, async (result) => {
    const bytes = await withPlain(`${result.folder}/${result.name}`, readWhole);
    const checks = await checkResult({
      folder: result.folder,
      receipt: result.receipt,
      trust: result.trust,
      text: Buffer.from(bytes ?? []).toString("utf8"),
      replayed: () => replayed(view, result),
      missing: view.inputPath === undefined ? "its path was not given" : "nothing is there",
    });
    return { equal: areEqual(checks), checks };
  });
}

async function replayed(
  { inputPath, roots, ...view }: ViewOf<"verify">,
  { receipt }: ResultFolder,
): Promise<ReceiptCheck[]> {
  if (inputPath === undefined)
    throw errors.input_not_found("The path of the source was not given.");
  const entries = models.read(view.models);
  const again = (image: Image) => {
    const mine = entries.filter(({ name }) => receipt.models.some((model) => model.name === name));
    const claim = bytesAtMost(image, planOf(mine, image, undefined, undefined), engine);
    return memory.within({ kind: "images", ...claim, ...PATIENT }, () =>
      replay({ receipt, image, engine, forms, models: entries }),
    );
  };
  const { series_instance_uid: uid, case: members, group } = receipt.source;
  const choice = { uid, members, grouped: group !== undefined, tolerance: ANY_STACK };
  return withInput(inputPath, roots.input, (source) => withSource(source, choice, again));
}

/** @param choice which series of a folder is meant, or which case */
async function withSource<T>(
  source: OpenedInput,
  choice: FolderChoice,
  use: (image: Image) => Promise<T>,
): Promise<T> {
  if (source.kind === "folder") {
    const slices = new SliceMemory(memory, PATIENT);
    try {
      return await use(await readSeriesFolder(source, slices, undefined, choice));
    } finally {
      await slices.close();
    }
  }
  const file = { size: fstatSync(source.fd).size, read: () => readWhole(source.fd) };
  return withFile(memory, file, PATIENT, async (bytes, most) =>
    use(await readImage(bytes, PATIENT.check, most)),
  );
}

answerOwner(handleCall);
