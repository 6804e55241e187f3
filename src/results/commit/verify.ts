/**
 * Verifies a result without computing it again: whether the receipt is as it was written, whether
 * its files are there and unchanged, and whether each DICOM object says the same as the receipt.
 */
import { readdir } from "node:fs/promises";
import { openFile } from "../../images/dicom/dicom-file.js";
import { RadserveError } from "../../base/errors.js";
import type { Attributes } from "../../images/image.js";
import { isDicomKind, outputKindSchema } from "../../manifest/output-kinds.js";
import { emptyFaults } from "../dicom/check.js";
import { isOwnObject } from "../dicom/modules.js";
import { deviceUid } from "../dicom/subject.js";
import { oneLine } from "../dicom/values.js";
import { sha256, withPlain } from "../../files/durable-files.js";
import { MAX_FILE_BYTES, readWhole } from "../../files/descriptor.js";
import { knownFaults, type Evidence } from "./known-faults.js";
import type { OutputFile, Receipt, ReceiptModel } from "../receipt/receipt.js";
import { distrust, type Trust } from "../receipt/seal.js";
import { mayBe, UNCOUNTED, type Reading } from "../receipt/unchanged.js";
import { gridFaults } from "../dicom/segmentation-grid.js";

/**
 * ok: equal; differs; missing; not_replayed: it could not be computed again here; known_fault: the
 * version that made the result is known to be wrong in such a case; unsigned: nothing says that
 * this installation wrote it.
 */
export const VERDICTS = [
  "ok",
  "differs",
  "missing",
  "not_replayed",
  "known_fault",
  "unsigned",
] as const;
export type CheckVerdict = (typeof VERDICTS)[number];

export interface ReceiptCheck {
  /** Name of a file, of a model, or `source` and `receipt`. */
  what: string;
  verdict: CheckVerdict;
  detail: string;
}

export const check = (what: string, verdict: CheckVerdict, detail: string): ReceiptCheck => ({
  what,
  verdict,
  detail,
});

/**
 * Whether all is as it was written. What was computed again and is equal is right whoever wrote it,
 * so that a receipt without a MAC may be.
 */
export const areEqual = (checks: readonly ReceiptCheck[]): boolean =>
  checks.every(({ verdict }) => verdict === "ok" || verdict === "unsigned");

/** What the MAC of a receipt says. */
export function checkMac(trust: Trust): ReceiptCheck {
  if (trust.trusted) return check("MAC", "ok", `by the key ${trust.key_id} of this installation`);
  return check("MAC", trust.why === "wrong_mac" ? "differs" : "unsigned", distrust(trust));
}

/** Known faults of results of the version that made this one. */
export function checkFaults(evidence: Evidence): ReceiptCheck[] {
  const { radserve_version: version } = evidence.receipt;
  return knownFaults(evidence).map((text) => check(`Radserve ${version}`, "known_fault", text));
}

/**
 * Checks the files that a receipt lists, names that it lists twice, and objects of Radserve beside
 * it that it does not list.
 * @param dir folder of the receipt
 */
export async function checkFiles(
  dir: string,
  receipt: Receipt,
  reading: Reading = UNCOUNTED,
): Promise<ReceiptCheck[]> {
  const checks = checkLists(receipt);
  for (const model of receipt.models)
    for (const file of model.outputs)
      checks.push(await checkFile({ dir, receipt, model, reading }, file));
  return [...checks, ...(await checkUnlisted(dir, receipt, reading))];
}

function checkLists({ models, outputs_requested }: Receipt): ReceiptCheck[] {
  const lists = {
    models: models.map(({ name }) => name),
    outputs: models.flatMap(({ outputs }) => outputs.map(({ path }) => path)),
    outputs_requested,
  };
  return Object.entries(lists)
    .filter(([, names]) => new Set(names).size < names.length)
    .map(([list]) => check("receipt", "differs", `something is listed twice in its ${list}`));
}

/** What follows NAME and a dot in the name of an object. */
const OBJECT_OF_MODEL = new RegExp(
  String.raw`^[a-z0-9_-]+\.(?:${outputKindSchema.options.filter(isDicomKind).join("|")})\.dcm$`,
);

/**
 * Objects of a model that was cut out of the receipt, or of an earlier result: whoever takes all
 * objects of a folder takes them too.
 */
async function checkUnlisted(
  dir: string,
  receipt: Receipt,
  reading: Reading,
): Promise<ReceiptCheck[]> {
  const listed = new Set(receipt.models.flatMap(({ outputs }) => outputs.map(({ path }) => path)));
  const start = `${receipt.source.name}.`;
  const checks: ReceiptCheck[] = [];
  for (const name of (await readdir(dir)).sort()) {
    if (!name.startsWith(start) || listed.has(name)) continue;
    if (!OBJECT_OF_MODEL.test(name.slice(start.length))) continue;
    const isObject = await withPlain(
      `${dir}/${name}`,
      async (fd, { size }) =>
        size <= MAX_FILE_BYTES &&
        (await reading({ size, read: () => readWhole(fd) }, (bytes) =>
          Promise.resolve(isOurs(bytes)),
        )),
    );
    if (isObject === true)
      checks.push(
        check(
          name,
          "differs",
          "an object of Radserve under this name that the receipt does not list",
        ),
      );
  }
  return checks;
}

function isOurs(bytes: Uint8Array): boolean {
  try {
    return isOwnObject(openFile(bytes).attributes);
  } catch (error) {
    if (error instanceof RadserveError) return false;
    throw error;
  }
}

interface Listing {
  dir: string;
  receipt: Receipt;
  model: ReceiptModel;
  reading: Reading;
}

async function checkFile(listing: Listing, file: OutputFile): Promise<ReceiptCheck> {
  const { path } = file;
  if (/[/\0]/.test(path)) return check(path, "differs", "no plain file name beside the receipt");
  const faults = await fileFaults(listing, file);
  if (faults === undefined) return check(path, "missing", "no such file beside the receipt");
  if (faults.length > 0) return check(path, "differs", faults.join("; "));
  return check(
    path,
    "ok",
    file.sop_class_uid === undefined ? "unchanged" : "unchanged, agrees with the receipt",
  );
}

/** Undefined where there is no such file. */
function fileFaults(
  { dir, receipt, model, reading }: Listing,
  file: OutputFile,
): Promise<string[] | undefined> {
  const at = `${dir}/${file.path}`;
  return withPlain(at, async (fd, { size }) => {
    if (!(await mayBe(at, size, file)))
      return [
        ...(file.bytes === undefined ? [] : [`${size} bytes instead of ${file.bytes}`]),
        "another SHA-256",
      ];
    return reading({ size, read: () => readWhole(fd) }, async (bytes) => [
      ...(sha256(bytes) === file.sha256 ? [] : ["another SHA-256"]),
      ...(file.media_type === "application/dicom"
        ? await objectFaults(bytes, file, model, receipt)
        : []),
    ]);
  });
}

async function objectFaults(
  bytes: Uint8Array,
  file: OutputFile,
  model: ReceiptModel,
  receipt: Receipt,
): Promise<string[]> {
  try {
    const object = openFile(bytes);
    const { attributes } = object;
    const { segmentation_grid: grid } = model;
    const inGrid = grid !== undefined && attributes.string("Modality") === "SEG";
    return [
      ...emptyFaults(object),
      ...(inGrid ? await gridFaults(object, bytes, file, grid) : []),
      ...namesFaults(attributes, file, receipt),
      ...algorithmFaults(attributes, model),
      ...referenceFaults(attributes, model, receipt),
    ];
  } catch (error) {
    if (error instanceof RadserveError) return ["cannot be read as DICOM"];
    throw error;
  }
}

function namesFaults(attributes: Attributes, file: OutputFile, { source }: Receipt): string[] {
  const expected: [string, string | undefined][] = [
    ["SOPClassUID", file.sop_class_uid],
    ["SOPInstanceUID", file.sop_instance_uid],
    ["SeriesInstanceUID", file.series_instance_uid],
    ["StudyInstanceUID", source.study_instance_uid],
  ];
  return expected.flatMap(([keyword, value]) =>
    value === undefined || attributes.string(keyword) === value
      ? []
      : [`its ${keyword} is not the receipt's`],
  );
}

/** Everything below a content item, itself included. */
function contentOf(item: Attributes): Attributes[] {
  return [item, ...(item.sequence("ContentSequence") ?? []).flatMap(contentOf)];
}

/**
 * Equipment, observer and algorithm identification name the receipt's model, its version and its
 * hash.
 */
function algorithmFaults(attributes: Attributes, model: ReceiptModel): string[] {
  const name = oneLine(model.name, 64);
  const device = deviceUid(model);
  const [equipment] = attributes.sequence("ContributingEquipmentSequence") ?? [];
  // The background of a label map is found by no model
  const segments = (attributes.sequence("SegmentSequence") ?? []).filter(
    (segment) => segment.number("SegmentNumber") !== 0,
  );
  const identifications = segments.map(
    (segment) => segment.sequence("SegmentationAlgorithmIdentificationSequence")?.[0],
  );
  const told = (code: string) =>
    contentOf(attributes)
      .filter((item) => item.sequence("ConceptNameCodeSequence")?.[0]?.string("CodeValue") === code)
      .map((item) => item.string("UID") ?? item.string("TextValue"));
  const expected: [string, string, (string | undefined)[]][] = [
    ["equipment", name, [equipment?.string("ManufacturerModelName")]],
    ["equipment", model.version, [equipment?.string("SoftwareVersions")]],
    ["equipment", device, [equipment?.string("DeviceUID")]],
    ["algorithm", name, identifications.map((each) => each?.string("AlgorithmName"))],
    ["algorithm", model.version, identifications.map((each) => each?.string("AlgorithmVersion"))],
    ["observer", device, told("121012")],
    ["algorithm", name, told("111001")],
    ["algorithm", model.version, told("111003")],
  ];
  const wrong = expected.filter(([, value, found]) => found.some((each) => each !== value));
  return [...new Set(wrong.map(([what]) => `its ${what} is not the receipt's model`))];
}

/**
 * Everything that an object refers to is the source, a file of the same model, or the report that
 * it replaces.
 */
function referenceFaults(
  attributes: Attributes,
  model: ReceiptModel,
  { source }: Receipt,
): string[] {
  const slices = [source, ...(source.case ?? [])].flatMap((member) => [
    member.sop_instance_uid,
    ...(member.slices ?? []).map(({ sop_instance_uid }) => sop_instance_uid),
  ]);
  const known = new Set([
    ...slices,
    ...model.outputs.map(({ sop_instance_uid }) => sop_instance_uid),
  ]);
  const instances = (holder: Attributes, ...path: string[]): Attributes[] => {
    const [keyword, ...rest] = path;
    if (keyword === undefined) return [holder];
    return (holder.sequence(keyword) ?? []).flatMap((item) => instances(item, ...rest));
  };
  const series = ["ReferencedSeriesSequence", "ReferencedSOPSequence"];
  const found = [
    ...instances(attributes, "SourceImageSequence"),
    ...instances(attributes, "ReferencedSeriesSequence", "ReferencedInstanceSequence"),
    ...instances(
      attributes,
      "PerFrameFunctionalGroupsSequence",
      "DerivationImageSequence",
      "SourceImageSequence",
    ),
    ...instances(attributes, "CurrentRequestedProcedureEvidenceSequence", ...series),
    ...instances(attributes, "PertinentOtherEvidenceSequence", ...series),
    ...instances(
      attributes,
      "StudiesContainingOtherReferencedInstancesSequence",
      "ReferencedSeriesSequence",
      "ReferencedInstanceSequence",
    ),
    ...contentOf(attributes).flatMap((item) => instances(item, "ReferencedSOPSequence")),
  ];
  const uidOf = (item: Attributes) => item.string("ReferencedSOPInstanceUID");
  const before = instances(attributes, "PredecessorDocumentsSequence", ...series).map(uidOf);
  return [
    ...(found.every((item) => known.has(uidOf(item)))
      ? []
      : ["it refers to an object that is neither the source nor listed beside it"]),
    ...(before.every((uid) => uid === model.predecessor?.sop_instance_uid)
      ? []
      : ["its predecessor is not the receipt's"]),
  ];
}
