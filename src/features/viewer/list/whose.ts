/**
 * Whose a result is, as far as its file says it: a line of the list has it encrypted, and keyed
 * hashes of what can be looked for. The keys are made of the keys of results, which all nodes of an
 * installation have, so that each finds and tells what another wrote, and who only reads the share
 * learns nothing.
 */
import { createHmac, createSecretKey, type KeyObject } from "node:crypto";
import { z } from "zod";
import { storedJson } from "../../../base/stored-json.js";
import type { Attributes } from "../../../images/image.js";
import { DerivedKeys, type DerivedKey } from "../../../results/receipt/seal.js";
import type { Receipt } from "../../../results/receipt/receipt.js";
import { sealed, sealingKeys, unsealed, type SealingKeys } from "./result-name.js";

const text = z.string().optional();

export const whoseSchema = z.object({
  patient_name: text.describe("PatientName as people write it"),
  patient_id: text,
  study_date: text.describe("DICOM date, for example 20261120"),
  accession: text.describe("AccessionNumber"),
  description: text.describe("SeriesDescription, or else StudyDescription"),
});
/** Whose a result is, as its file said it when it was analysed. */
export type Whose = z.infer<typeof whoseSchema>;

/** Of a line in the file. */
export const sealedWhoseSchema = z.object({
  key: z.string().describe("Id of the key of results"),
  patient: z.string().optional().describe("Keyed hash of PatientID"),
  accession: z.string().optional().describe("Keyed hash of AccessionNumber"),
  sealed: z.string().describe("The rest, encrypted"),
});
type SealedWhose = z.infer<typeof sealedWhoseSchema>;

/** Longer texts are no names. */
const LONGEST_TEXT = 200;

/** PS3.5 6.2: spaces around PN, LO and SH mean nothing; `^` parts the components of a name. */
const shown = (value: string | undefined): string | undefined => {
  const trimmed = value?.trim().slice(0, LONGEST_TEXT);
  return trimmed === "" ? undefined : trimmed;
};

function whoseOf(attributes: Pick<Attributes, "string">): Whose {
  const read = (keyword: string) => shown(attributes.string(keyword));
  return {
    patient_name: shown(read("PatientName")?.split("=")[0]?.replaceAll("^", " ")),
    patient_id: read("PatientID"),
    study_date: read("StudyDate"),
    accession: read("AccessionNumber"),
    description: read("SeriesDescription") ?? read("StudyDescription"),
  };
}

/**
 * Of an id that somebody types or pastes: spaces around it mean nothing (PS3.5 6.2), and people do
 * not mind the case of letters.
 */
const comparable = (id: string): string => id.trim().normalize().toLowerCase();

type Identifier = "patient" | "accession";

interface ListKey {
  hashing: KeyObject;
  sealing: SealingKeys;
}
const keys = new DerivedKeys<ListKey>("viewer-list", (key) => ({
  hashing: createSecretKey(key),
  sealing: sealingKeys(key, "whose"),
}));

const hashOf = ({ hashing }: ListKey, what: Identifier, id: string): string =>
  createHmac("sha256", hashing)
    .update(`${what}\0${comparable(id)}`)
    .digest("hex")
    .slice(0, 32);

/** The hashes that lines may have of an id, one for each key. */
export async function hashesOf(what: Identifier, id: string): Promise<string[]> {
  return (await keys.all()).map(({ key }) => hashOf(key, what, id));
}

/** The image that it is said of: a line that was made for another result says nothing of this. */
const imageOf = ({ source }: Receipt): string => source.file_sha256;

/** Undefined where there is no key, or nothing to tell. */
export async function sealWhose(
  attributes: Pick<Attributes, "string"> | undefined,
  receipt: Receipt,
): Promise<SealedWhose | undefined> {
  const whose = attributes === undefined ? {} : whoseOf(attributes);
  const [signs] = await keys.all();
  if (signs === undefined || Object.values(whose).every((value) => value === undefined))
    return undefined;
  return sealedBy(signs, { ...whose, image: imageOf(receipt) });
}

function sealedBy({ id, key }: DerivedKey<ListKey>, of: Opened): SealedWhose {
  return { key: id, ...hashed(key, of), sealed: sealed(key.sealing, JSON.stringify(of)) };
}

function hashed(key: ListKey, { patient_id: patient, accession }: Whose) {
  return {
    ...(patient === undefined ? {} : { patient: hashOf(key, "patient", patient) }),
    ...(accession === undefined ? {} : { accession: hashOf(key, "accession", accession) }),
  };
}

const openedSchema = whoseSchema.extend({ image: z.string() });
type Opened = z.infer<typeof openedSchema>;

/** Undefined where another installation wrote it, or it was changed. */
async function opened({
  key: id,
  patient,
  accession,
  sealed: secret,
}: SealedWhose): Promise<Opened | undefined> {
  const key = (await keys.all()).find((one) => one.id === id)?.key;
  const text = key === undefined ? undefined : unsealed(key.sealing, secret);
  if (key === undefined || text === undefined) return undefined;
  const { data } = openedSchema.safeParse(storedJson(text));
  if (data === undefined) return undefined;
  const expected = hashed(key, data);
  return expected.patient === patient && expected.accession === accession ? data : undefined;
}

/** Undefined where another installation wrote it, or it was made for another result or changed. */
export async function openWhose(line: SealedWhose, receipt: Receipt): Promise<Whose | undefined> {
  const { image, ...whose } = (await opened(line)) ?? {};
  return image === imageOf(receipt) ? whose : undefined;
}

/**
 * The same with the key that signs now, so that the key of before can be removed; what cannot be
 * opened stays as it is.
 */
export async function sealedAgain(line: SealedWhose): Promise<SealedWhose> {
  const [signs] = await keys.all();
  if (signs === undefined || signs.id === line.key) return line;
  const of = await opened(line);
  return of === undefined ? line : sealedBy(signs, of);
}
