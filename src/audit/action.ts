/** One action of a caller, from its begin to its end: a request, or an item of a bulk job. */
import { reasonOf, type RadserveError } from "../base/errors.js";
import type { AuditedModel, AuditFacts } from "./entry.js";
import type { Audit } from "./audit.js";
import type { HashedKind } from "./folders.js";

/** Whose image it is, as far as its file says. */
export interface PatientAndStudy {
  patientId?: string | undefined;
  studyInstanceUid?: string | undefined;
}

/** Something that is about to appear, or to be given out. */
export interface AuditOutcome {
  outcome: "completed" | "partial" | "reused";
  whose: PatientAndStudy;
  models: AuditedModel[];
}

/** The facts that an inference tells of itself. */
export interface Trail {
  /**
   * Resolves when the disk has the line of what will be committed now.
   * @throws RadserveError audit_failed
   */
  willCommit(verdict: AuditOutcome): Promise<void>;
  /** The image of a task that came to nothing. */
  wasOf(whose: PatientAndStudy): void;
}

/**
 * The facts that are known when an action begins, or while it goes on. Paths are those of this
 * machine.
 */
export type About = Omit<AuditFacts, "outcome" | "patient" | "study" | "input" | "output"> & {
  inputPath?: string;
  outputPath?: string;
};

export class Action implements Trail {
  readonly #began = performance.now();
  #whose: PatientAndStudy = {};
  #written: string | undefined;

  constructor(
    private readonly audit: Pick<Audit, "record" | "hash">,
    private about: About,
  ) {}

  note(more: Partial<About>): void {
    this.about = { ...this.about, ...more };
  }

  wasOf(whose: PatientAndStudy): void {
    this.#whose = whose;
  }

  willCommit({ outcome, whose, models }: AuditOutcome): Promise<void> {
    this.#whose = whose;
    this.note({ models });
    return this.#write(outcome);
  }

  /**
   * Writes, before anything is changed, that it was asked for. @throws RadserveError audit_failed
   */
  async asked(): Promise<void> {
    await this.#write("asked");
  }

  /** It went well, where no line has said what came of it. @throws RadserveError audit_failed */
  async done(): Promise<void> {
    if (this.#written === undefined || this.#written === "asked") await this.#write("done");
  }

  /** It came to an error, whatever the line before says. @throws RadserveError audit_failed */
  async failed(error: RadserveError): Promise<void> {
    if (error.code === this.#written) return;
    const reason = reasonOf(error);
    if (reason !== undefined) this.note({ reason });
    await this.#write(error.code);
  }

  async #write(outcome: string): Promise<void> {
    const { inputPath, outputPath, ...about } = this.about;
    const { patientId, studyInstanceUid } = this.#whose;
    const hash = (what: HashedKind, name: string | undefined) =>
      name === undefined ? undefined : this.audit.hash(what, name);
    await this.audit.record({
      ...about,
      patient: hash("patient", patientId),
      study: hash("study", studyInstanceUid),
      input: hash("path", inputPath),
      output: hash("path", outputPath),
      outcome,
      ms: Math.round(performance.now() - this.#began),
    });
    this.#written = outcome;
  }
}
