/**
 * A viewing thread: reads results and images for people who look at them, one question after the
 * other.
 */
import { fstatSync } from "node:fs";
import { workerData } from "node:worker_threads";
import { errors } from "../../base/errors.js";
import { ProcessMemory } from "../../base/process-memory.js";
import { moved } from "../../base/remote.js";
import { answerOwner } from "../../base/service-thread.js";
import { createEngine } from "../../engine/engine.js";
import { readWhole } from "../../files/descriptor.js";
import { withPlain } from "../../files/durable-files.js";
import { withInput, type OpenedInput } from "../../files/guarded-paths.js";
import { deliveryName } from "../../files/helper-names.js";
import { isInside, rootsAround } from "../../files/roots.js";
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
import { NIFTI_TYPES } from "../../results/nifti/header.js";
import { labelMap, maskStack } from "../../results/nifti/masks.js";
import { segmentationOf } from "../../results/nifti/of-result.js";
import { imageVolume, type NiftiVolume } from "../../results/nifti/volume.js";
import { niftiFile } from "../../results/nifti/write.js";
import type { Section } from "../../results/picture/section.js";
import { areEqual, type ReceiptCheck } from "../../results/commit/verify.js";
import { deliveriesOf, readDelivery } from "../../results/receipt/delivery.js";
import { isOfReceipt } from "../../results/receipt/of-receipt.js";
import { nameOfReceipt } from "../../results/receipt/read-receipt.js";
import type { Receipt } from "../../results/receipt/receipt.js";
import { requireImage, withFileOf, type Reading } from "../../results/receipt/unchanged.js";
import { MarkReader } from "./marks.js";
import type {
  OfNifti,
  OfPicture,
  OfPlace,
  OfStudy,
  Shown,
  ViewerThreadOptions,
  Verification,
  ViewingThread,
} from "./messages.js";
import { readWithin } from "./read-within.js";
import { trusted, withResult, type ResultFolder } from "./result-folder.js";
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
/** Files of results count as those of images do. */
const counted: Reading = (file, work) => withFile(memory, file, PATIENT, work);

const methods: ViewingThread = {
  receipt: (of) =>
    withResult(of, async (result) => {
      const { receipt, trust } = result;
      const deliveries = await deliveriesFrom(result, of.subject);
      const json = packed({ ...receipt, trust, ...deliveries });
      const shown = { study: receipt.source.study_instance_uid, json };
      return moved(shown, [json.buffer]);
    }),
  picture(of) {
    if (of.model !== undefined) return written(of, of.model);
    return of.across === undefined
      ? ofFrame(of, (...which) => pictures.draw(...which))
      : ofSection(of, (known, section) => drawnPlane(sectionPlane(known, section), engine));
  },
  frame: (of) =>
    of.across === undefined
      ? ofFrame(of, async (...which) => packed(await pictures.facts(...which)))
      : ofSection(of, (known, section) => packed(sectionFacts(known, section))),
  marks: (of) =>
    of.across === undefined
      ? withResult(of, (result) =>
          marks.read(trusted(result), of.model, of.fullest ?? of.frame, of.only),
        )
      : ofSection(of, (known, section, result) =>
          marks.readAcross(trusted(result), of.model, { known, section, only: of.only }),
        ),
  nifti,
  verify: verification,
  async row(receiptPath, roots) {
    const { results } = await listResults(
      roots,
      { text: receiptPath },
      {
        limit: 1,
        sees: (receipt) => receipt === receiptPath,
        read: (receipt) => readWithin(receipt, roots),
      },
    );
    return results[0];
  },
  list: (of) =>
    listResults(rootsAround(of.roots, of.folders), of.wanted, {
      ...of,
      sees: (receipt) => isInside(receipt, of.folders),
      read: (receipt) => readWithin(receipt, of.folders),
    }),
};

/** What became of the objects of a result, where this subject asked for it. */
async function deliveriesFrom(
  { folder, name, receipt, trust }: ResultFolder,
  subject: string | undefined,
): Promise<Pick<Shown, "deliveries">> {
  if (!trust.trusted) return {};
  const of = nameOfReceipt(name);
  const delivery = await readDelivery(`${folder}/${deliveryName(of)}`, of);
  const isTheirs = subject === undefined || delivery?.subject === subject;
  if (delivery === undefined || !isTheirs || !isOfReceipt(delivery, receipt)) return {};
  return { deliveries: deliveriesOf(delivery, (beside) => beside) };
}

/** The picture that a model wrote. */
function written(of: OfPicture, model: string): Promise<Uint8Array> {
  return withResult(of, (result) => {
    const { outputs = [] } =
      trusted(result).receipt.models.find(({ name }) => name === model) ?? {};
    const png = outputs.find(({ media_type: type }) => type === "image/png");
    if (png !== undefined)
      return withFileOf(result, png, (bytes) => Promise.resolve(bytes), counted);
    throw errors.file_not_found("Expected a model of the receipt that wrote a picture.");
  });
}

/**
 * JSON as bytes that go over to the owner: megabytes of text would keep its thread from serving.
 */
function packed(value: unknown): Uint8Array<ArrayBuffer> {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  return moved(bytes, [bytes.buffer]);
}

/** Something of a plane across the slices. */
function ofSection<T>(
  of: OfPlace,
  use: (known: KnownVolume, section: Section, result: ResultFolder) => T | Promise<T>,
): Promise<T> {
  const { inputPath, roots, frame, across = "row" } = of;
  return withResult(of, (result) =>
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
  of: OfPlace,
  use: (source: OpenedInput, receipt: Receipt, frame: number) => Promise<T>,
): Promise<T> {
  return withResult(of, ({ receipt }) =>
    withInput(of.inputPath, of.roots.input, (source) => use(source, receipt, of.frame)),
  );
}

function nifti(of: OfNifti): Promise<Uint8Array> {
  const { inputPath, roots, model } = of;
  return withResult(of, async (result) => {
    const { source: named } = trusted(result).receipt;
    if (model !== undefined)
      return withFileOf(
        result,
        segmentationOf(result.receipt, model),
        async (bytes, most) =>
          packedVolume(labelMap(maskStack(await readImage(bytes, PATIENT.check, most)))),
        counted,
      );
    return withInput(inputPath ?? "", roots.input, (source) =>
      withSource(source, choiceOf(named), async (image) => {
        await requireImage(image, named);
        return packedVolume(imageVolume(image));
      }),
    );
  });
}

/** A volume as a file in memory, which may take as much as its voxels. */
function packedVolume(volume: NiftiVolume): Promise<Uint8Array> {
  const { slices, rows, columns } = volume.grid;
  const voxel = NIFTI_TYPES[volume.type].array.BYTES_PER_ELEMENT;
  const bytes = (2 * slices + 2) * rows * columns * voxel;
  return memory.within({ kind: "images", bytes, ...PATIENT }, async () => {
    const pieces = [];
    for await (const piece of niftiFile(volume)) pieces.push(piece);
    const file = new Uint8Array(Buffer.concat(pieces));
    return moved(file, [file.buffer]);
  });
}

const choiceOf = ({ series_instance_uid: uid, case: members, group }: Receipt["source"]) => ({
  uid,
  members,
  grouped: group !== undefined,
  tolerance: ANY_STACK,
});

function verification(view: OfStudy): Promise<Verification> {
  return withResult(view, async (result) => {
    const bytes = await withPlain(`${result.folder}/${result.name}`, readWhole);
    const checks = await checkResult({
      folder: result.folder,
      receipt: result.receipt,
      trust: result.trust,
      reading: counted,
      text: Buffer.from(bytes ?? []).toString("utf8"),
      replayed: () => replayed(view, result),
      missing: view.inputPath === undefined ? "its path was not given" : "nothing is there",
    });
    return { equal: areEqual(checks), checks };
  });
}

async function replayed(
  { inputPath, roots, ...view }: OfStudy,
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
  const choice = choiceOf(receipt.source);
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

answerOwner(methods);
