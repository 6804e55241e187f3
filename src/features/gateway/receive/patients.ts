/**
 * Whose a study is: a study of a peer has one patient. Objects of another one under its UIDs would
 * make one series of two people, and results with one UID for both.
 */
import { closeSync } from "node:fs";
import { readdir } from "node:fs/promises";
import path from "node:path";
import { errno } from "../../../base/errno.js";
import { headOf } from "../../../jobs/classify.js";
import { readStart } from "../../../files/descriptor.js";
import { openPlain } from "../../../files/disk.js";
import type { Attributes } from "../../../images/image.js";
import { isDamaged } from "./judge.js";

const FIRST_BYTES = 16 * 1024;
/** Studies whose patient is kept in memory. */
const MOST_KNOWN = 10_000;

interface Patient {
  id: string;
  /** Empty where nobody says who gave the id. */
  issuer: string;
}

const patientOf = (attributes: Attributes): Patient => ({
  id: attributes.comparable("PatientID"),
  issuer: attributes.comparable("IssuerOfPatientID"),
});
const isOne = (a: Patient, b: Patient): boolean =>
  a.id === b.id && (a.issuer === b.issuer || a.issuer === "" || b.issuer === "");

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
  /** By the folder of the study. The first object that comes says it, before it lies there. */
  readonly #known = new Map<string, Patient>();

  /**
   * Whether an object may come into the folder of its study, as the file `own`. Two boxes that
   * receive the first objects of a study at one moment may both say yes; the series is refused by
   * its reader then.
   */
  async isOf(folder: string, own: string, attributes: Attributes): Promise<boolean> {
    const coming = patientOf(attributes);
    const known = this.#known.get(folder);
    if (known !== undefined && isOne(known, coming)) return true;
    // Removed meanwhile, or said by an object that did not come to lie there
    const there = await patientIn(folder, own);
    const now = this.#known.get(folder);
    const said = there ?? (now === known ? undefined : now);
    if (this.#known.size >= MOST_KNOWN) this.#known.clear();
    this.#known.set(folder, said ?? coming);
    return said === undefined || isOne(said, coming);
  }
}
