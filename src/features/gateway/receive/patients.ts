/**
 * Whose a study is. An object is known by patient, study, series and instance, as an Orthanc knows
 * it: objects of another patient under the same StudyInstanceUID lie in a folder of their own, so
 * that neither keeps the other out, and no series is of two people.
 *
 *     patients/PEER/STUDY.json           hash of the PatientID that has the folder STUDY
 *     patients/PEER/STUDY.issuer.ID.json  hash of its IssuerOfPatientID, of the claim with that id
 *
 * The first object claims it, by a file that appears at once and only once, whichever node it
 * comes to. The claim decides between objects that come at one moment; once they lie there, they
 * do. So each object looks at it again when it lies there.
 *
 * An object without an issuer is of the patient with that PatientID. Two issuers are two patients,
 * though an object without one could be of either: so the first issuer that comes claims the study
 * in the same way, and the folder has one from then on.
 */
import { randomUUID } from "node:crypto";
import { closeSync, type BigIntStats } from "node:fs";
import path from "node:path";
import { z } from "zod";
import { errno } from "../../../base/errno.js";
import { DISK_FAULTS, RadserveError } from "../../../base/errors.js";
import { headOf } from "../../../jobs/classify.js";
import { readStart } from "../../../files/descriptor.js";
import { exactFacts, openPlain } from "../../../files/disk.js";
import { ifMissing, sha256 } from "../../../files/durable-files.js";
import { receiveFile } from "../../../files/new-file.js";
import type { Attributes } from "../../../images/image.js";
import { isDamaged } from "./judge.js";
import { filesIn, namesIn, removeFile, storedIn } from "./spool-folders.js";

const FIRST_BYTES = 16 * 1024;
/** Studies whose patient is kept in memory. */
const MOST_KNOWN = 10_000;
const PATIENTS = "patients";
/** Bytes of the file of a claim. */
const MOST_CLAIM = 1024;

/** By hashes, so that no file here has an identifier. */
interface Patient {
  id: string;
  /** Empty where nobody says who gave the id. */
  issuer: string;
}
const claimSchema = z.object({
  id: z.string(),
  issuer: z.string(),
  /** By which an issuer claims it; empty in those of versions before. */
  claim: z.uuid().or(z.literal("")).default(""),
});
const issuerSchema = z.object({ issuer: z.string().min(1) });

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
/** Whether a folder may be that of a study; others somebody else has made. */
export const isStudyFolder = (name: string): boolean =>
  /^[0-9][0-9.]{0,63}(?:=[0-9a-f]{16})?$/.test(name);
const folderBeside = (study: string, { id, issuer }: Patient): string =>
  `${study}${BETWEEN}${sha256(`${id}${issuer}`).slice(0, 16)}`;

/** Undefined of what cannot be read, or was removed just now: another object says it. */
async function patientBy(file: string): Promise<Patient | undefined> {
  const fd = await openPlain(file).catch((error: unknown) => {
    if (DISK_FAULTS.has(errno(error))) throw error;
    return undefined;
  });
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

/** Whether two objects may be of one patient: where one cannot be read, nobody knows. */
export async function mayBeOnePatient(file: string, other: string): Promise<boolean> {
  const [one, two] = [await patientBy(file), await patientBy(other)];
  return one === undefined || two === undefined || isOne(one, two);
}

/**
 * By the first object of a study that can be read, and fits; undefined where there is none.
 * @param own the file of the object that comes, if it counts: a damaged one there gives way, and
 * says nothing
 */
async function patientIn(
  folder: string,
  own: string | undefined,
  fits: (patient: Patient) => boolean = () => true,
): Promise<Patient | undefined> {
  for (const series of await namesIn(folder))
    for (const name of await filesIn(path.join(folder, series))) {
      const file = path.join(folder, series, name);
      if (!name.endsWith(".dcm") || file === own) continue;
      const patient = await patientBy(file);
      if (patient !== undefined && fits(patient)) return patient;
    }
  if (own === undefined) return undefined;
  const patient = await patientBy(own);
  return patient === undefined || (await isDamaged(own)) ? undefined : patient;
}

/** Whose a study is, and the file that says it as it was then. */
interface Known {
  patient: Patient;
  claim: string;
  /** Of the file; undefined where none could be read. */
  file: Pick<BigIntStats, "ino" | "ctimeNs"> | undefined;
}

export class Patients {
  /** By peer and study. */
  readonly #known = new Map<string, Known>();

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
   * that has it, one beside. A claim alone says nothing against an object: where nothing of its
   * patient lies in the study any more, because a person has removed it, whoever comes has it.
   * @param file of the object, in whose place a damaged one may lie
   */
  async folderOf(
    peer: string,
    study: string,
    file: readonly [series: string, name: string],
    attributes: Attributes,
  ): Promise<string> {
    const coming = patientOf(attributes);
    const has = await this.#has(peer, study, coming);
    if (has !== undefined && isOne(has, coming)) return study;
    const beside = folderBeside(study, coming);
    const lies = await this.#patientIn(peer, study, file);
    if (has !== undefined && lies !== undefined && isOne(has, lies)) return beside;
    // What came of this patient before stays together
    const before = await namesIn(this.#objects(peer, beside));
    if (lies === undefined && before.length > 0) return beside;
    if (has !== undefined) await this.forget(peer, study);
    const mine = await this.#claim(peer, study, file, coming);
    // Something else may lie in the place of its file
    const now = (await this.#has(peer, study, coming)) ?? mine;
    return isOne(now, coming) ? study : beside;
  }

  /**
   * The same once the object lies in that folder: its claim may have gone meanwhile with what was
   * removed, and another patient's have come. What lies there is seen by whoever claims afterwards;
   * so an object whose claim is there after it has no other patient beside it.
   */
  async settled(
    peer: string,
    study: string,
    file: readonly [series: string, name: string],
    attributes: Attributes,
  ): Promise<string> {
    const now = await this.#unchanged(peer, study);
    if (now !== undefined && isOne(now.patient, patientOf(attributes))) return study;
    return this.folderOf(peer, study, file, attributes);
  }

  /** The study is not there any more: whoever comes next has it. */
  async forget(peer: string, study: string): Promise<void> {
    const folder = this.#claims(peer);
    const { claim } =
      this.#known.get(`${peer}/${study}`) ?? (await this.#claimed(peer, study)) ?? {};
    this.#known.delete(`${peer}/${study}`);
    if (claim !== undefined) await removeFile(folder, issuerName(study, claim));
    await removeFile(folder, `${study}.json`);
  }

  /**
   * Whose a study is. The first object that says who gave the PatientID says so of the study.
   * @returns undefined where nobody has it, or its claim is none that was written here
   */
  async #has(peer: string, study: string, coming: Patient): Promise<Patient | undefined> {
    const known = (await this.#unchanged(peer, study)) ?? (await this.#read(peer, study));
    if (known === undefined) return undefined;
    const { patient, claim } = known;
    // One without an issuer is of the study whoever gave its id
    if (patient.issuer !== "" || coming.issuer === "" || patient.id !== coming.id) return patient;
    const has = { ...patient, issuer: await this.#claimIssuer(peer, study, claim, coming) };
    this.#known.set(`${peer}/${study}`, { ...known, patient: has });
    return has;
  }

  /** @returns the issuer that the study has: that of `coming` where it is the first to have one */
  async #claimIssuer(peer: string, study: string, claim: string, coming: Patient): Promise<string> {
    const dir = this.#claims(peer);
    const name = issuerName(study, claim);
    const read = async () => (await storedIn(dir, name, issuerSchema))?.issuer;
    const there = await read();
    if (there !== undefined) return there;
    // An earlier version kept objects with an issuer, and claimed nothing for it
    const hasIssuer = ({ id, issuer }: Patient) => id === coming.id && issuer !== "";
    const before = await patientIn(this.#objects(peer, study), undefined, hasIssuer);
    const mine = before?.issuer ?? coming.issuer;
    await this.#appear(dir, name, { issuer: mine }, async () => (await read()) === undefined);
    return (await read()) ?? mine;
  }

  #claims(peer: string): string {
    return path.join(this.folder, PATIENTS, peer);
  }

  #objects(peer: string, study: string): string {
    return path.join(this.folder, "series", peer, study);
  }

  #patientIn(
    peer: string,
    study: string,
    file: readonly [series: string, name: string],
  ): Promise<Patient | undefined> {
    const folder = this.#objects(peer, study);
    return patientIn(folder, path.join(folder, ...file));
  }

  /** Whose it is as it was read; undefined where another node or a person has changed it since. */
  async #unchanged(peer: string, study: string): Promise<Known | undefined> {
    const known = this.#known.get(`${peer}/${study}`);
    if (known?.file === undefined) return undefined;
    const now = await this.#facts(peer, study);
    if (known.file.ino === now?.ino && known.file.ctimeNs === now.ctimeNs) return known;
    this.#known.delete(`${peer}/${study}`);
    return undefined;
  }

  async #facts(peer: string, study: string): Promise<Known["file"]> {
    const claim = path.join(this.#claims(peer), `${study}.json`);
    return exactFacts(claim).catch(ifMissing(undefined));
  }

  #claimed(peer: string, study: string): Promise<z.infer<typeof claimSchema> | undefined> {
    return storedIn(this.#claims(peer), `${study}.json`, claimSchema);
  }

  /** Undefined where nobody has it, or its claim is none that was written here. */
  async #read(peer: string, study: string): Promise<Known | undefined> {
    // Before it is read: one that takes its place is another one
    const file = await this.#facts(peer, study);
    const claimed = await this.#claimed(peer, study);
    if (claimed === undefined) return undefined;
    const { claim, ...patient } = claimed;
    if (this.#known.size >= MOST_KNOWN) this.#known.clear();
    const known = { patient, claim, file };
    this.#known.set(`${peer}/${study}`, known);
    return known;
  }

  /** @returns whose the study is where nobody has it, by what lies there or comes */
  async #claim(
    peer: string,
    study: string,
    file: readonly [series: string, name: string],
    coming: Patient,
  ): Promise<Patient> {
    // A spool of an earlier version has no claims
    const mine = (await this.#patientIn(peer, study, file)) ?? coming;
    const dir = await this.made(PATIENTS, peer);
    const claim = { ...mine, claim: randomUUID() };
    const isNone = async () => (await this.#claimed(peer, study)) === undefined;
    await this.#appear(dir, `${study}.json`, claim, isNone);
    return mine;
  }

  /** A file appears at once, and only once. @param isNone one that cannot be read is none */
  async #appear(
    dir: string,
    name: string,
    value: object,
    isNone: () => Promise<boolean>,
  ): Promise<void> {
    async function* pieces() {
      yield await Promise.resolve(Buffer.from(JSON.stringify(value)));
    }
    await receiveFile(dir, name, pieces(), {
      overwrite: isNone,
      mostBytes: MOST_CLAIM,
      minimumFreeBytes: 0,
    }).catch((error: unknown) => {
      if (!(error instanceof RadserveError) || error.code !== "file_exists") throw error;
    });
  }
}

const issuerName = (study: string, claim: string): string => `${study}.issuer.${claim}.json`;
