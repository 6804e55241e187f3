/**
 * Whose a study is. An object is known by patient, study, series and instance, as an Orthanc knows
 * it: objects of another patient under the same StudyInstanceUID lie in a folder of their own, so
 * that neither keeps the other out, and no series is of two people.
 *
 *     patients/PEER/STUDY.json   hashes of the PatientID that has the folder STUDY
 *
 * The first object claims it, by a file that appears at once and only once, whichever node it
 * comes to.
 */
import { closeSync } from "node:fs";
import { readdir, rm } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { errno } from "../../../base/errno.js";
import { RadserveError } from "../../../base/errors.js";
import { storedJson } from "../../../base/stored-json.js";
import { headOf } from "../../../jobs/classify.js";
import { readStart } from "../../../files/descriptor.js";
import { openPlain } from "../../../files/disk.js";
import { ifMissing, sha256 } from "../../../files/durable-files.js";
import { receiveFile } from "../../../files/new-file.js";
import { textOfRegular } from "../../../files/regular-file.js";
import type { Attributes } from "../../../images/image.js";
import { isDamaged } from "./judge.js";

const FIRST_BYTES = 16 * 1024;
/** Studies whose patient is kept in memory. */
const MOST_KNOWN = 10_000;
const PATIENTS = "patients";
/** Bytes of the file of a claim. */
const MOST_CLAIM = 1024;

/** By hashes, so that no file here has an identifier. */
const patientSchema = z.object({
  id: z.string(),
  /** Empty where nobody says who gave the id. */
  issuer: z.string(),
});
type Patient = z.infer<typeof patientSchema>;

function patientOf(attributes: Attributes): Patient {
  const issuer = attributes.comparable("IssuerOfPatientID");
  return {
    id: sha256(attributes.comparable("PatientID")),
    issuer: issuer === "" ? "" : sha256(issuer),
  };
}
const isOne = (a: Patient, b: Patient): boolean =>
  a.id === b.id && (a.issuer === b.issuer || a.issuer === "" || b.issuer === "");

/** Between a StudyInstanceUID and what tells its further patients apart; in no UID. */
const BETWEEN = "=";
/** The StudyInstanceUID of the folder of a study. */
export const studyOf = (folder: string): string => folder.split(BETWEEN)[0] ?? folder;
const folderBeside = (study: string, { id, issuer }: Patient): string =>
  `${study}${BETWEEN}${sha256(`${id}${issuer}`).slice(0, 16)}`;

/** Names in a folder, in order; none where there is none. */
async function namesIn(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).sort();
  } catch (error) {
    if (["ENOENT", "ENOTDIR"].includes(errno(error))) return [];
    throw error;
  }
}

/** Undefined of what cannot be read, or was removed just now: another object says it. */
async function patientBy(file: string): Promise<Patient | undefined> {
  const fd = await openPlain(file).catch(() => undefined);
  if (fd === undefined) return undefined;
  try {
    const head = await headOf(fd, await readStart(fd, FIRST_BYTES));
    return head?.attributes.string("StudyInstanceUID") === undefined
      ? undefined
      : patientOf(head.attributes);
  } finally {
    closeSync(fd);
  }
}

/**
 * By the first object of a study that can be read; undefined where there is none.
 * @param own the file of the object that comes: a damaged one there gives way, and says nothing
 */
async function patientIn(folder: string, own: string): Promise<Patient | undefined> {
  for (const series of await namesIn(folder))
    for (const name of await namesIn(path.join(folder, series))) {
      const file = path.join(folder, series, name);
      if (!name.endsWith(".dcm") || file === own) continue;
      const patient = await patientBy(file);
      if (patient !== undefined) return patient;
    }
  const patient = await patientBy(own);
  return patient === undefined || (await isDamaged(own)) ? undefined : patient;
}

export class Patients {
  /** By peer and study. */
  readonly #known = new Map<string, Patient>();

  /**
   * @param folder of the spool
   * @param made makes a folder below it
   */
  constructor(
    private readonly folder: string,
    private readonly made: (...names: string[]) => Promise<string>,
  ) {}

  /**
   * The name of the folder of an object's study: its StudyInstanceUID, or, of another patient than
   * that has it, one beside.
   * @param series of the object, with whose file a damaged one there may be replaced
   */
  async folderOf(
    peer: string,
    study: string,
    file: readonly [series: string, name: string],
    attributes: Attributes,
  ): Promise<string> {
    const key = `${peer}/${study}`;
    const coming = patientOf(attributes);
    const has = this.#known.get(key) ?? (await this.#claim(peer, study, file, coming));
    if (this.#known.size >= MOST_KNOWN) this.#known.clear();
    this.#known.set(key, has);
    return isOne(has, coming) ? study : folderBeside(study, coming);
  }

  /** The study is not there any more: whoever comes next has it. */
  async forget(peer: string, study: string): Promise<void> {
    this.#known.delete(`${peer}/${study}`);
    await rm(path.join(this.folder, PATIENTS, peer, `${study}.json`), { force: true });
  }

  /** @returns whose the study is, which is `coming` where nobody has it */
  async #claim(
    peer: string,
    study: string,
    file: readonly [series: string, name: string],
    coming: Patient,
  ): Promise<Patient> {
    const claim = path.join(this.folder, PATIENTS, peer, `${study}.json`);
    const read = async () => {
      const text = await textOfRegular(claim).catch(ifMissing(undefined));
      return text === undefined ? undefined : patientSchema.safeParse(storedJson(text)).data;
    };
    const has = await read();
    if (has !== undefined) return has;
    // A spool of an earlier version has no claims
    const there = path.join(this.folder, "series", peer, study);
    const mine = (await patientIn(there, path.join(there, ...file))) ?? coming;
    async function* pieces() {
      yield await Promise.resolve(Buffer.from(JSON.stringify(mine)));
    }
    const dir = await this.made(PATIENTS, peer);
    await receiveFile(dir, `${study}.json`, pieces(), {
      // One that cannot be read is none
      overwrite: async () => (await read()) === undefined,
      mostBytes: MOST_CLAIM,
      minimumFreeBytes: 0,
    }).catch((error: unknown) => {
      if (!(error instanceof RadserveError) || error.code !== "file_exists") throw error;
    });
    return (await read()) ?? mine;
  }
}
