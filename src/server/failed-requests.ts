/**
 * Single requests that came to nothing, for whoever asks why an image has no result: the audit
 * names images by keyed hashes, and only the client saw the answer. In memory, since the serving
 * process started; jobs keep their own in the database.
 */
import { z } from "zod";
import { errorObjectSchema, type RadserveError } from "../base/errors.js";
import type { NarrowedBy } from "../files/seen-folders.js";
import type { Caller } from "./tokens.js";

const failedRequestSchema = z.strictObject({
  request_id: z.string(),
  at: z.iso.datetime().describe("When it was answered"),
  subject: z.string(),
  input_image_path: z.string().describe("As the request named it"),
  output_folder_path: z.string(),
  error: errorObjectSchema.pick({ error: true, message: true, details: true }),
});
export type FailedRequest = z.infer<typeof failedRequestSchema>;

export const failedRequestsSchema = z.strictObject({
  failed: z.array(failedRequestSchema).describe("The last first"),
  since: z.iso
    .datetime()
    .describe("Since when they are remembered: at the earliest, since the server process started"),
  dropped: z
    .int()
    .min(0)
    .describe("Earlier ones since then, of any folders, that are not remembered any more"),
});
export type FailedRequestList = z.infer<typeof failedRequestsSchema>;

/** No client crowds out what others want to know. */
const MOST_OF_SUBJECT = 100;
const MOST_SUBJECTS = 100;

type Named = Pick<FailedRequest, "input_image_path" | "output_folder_path">;
const isOf = ({ request }: Failure, other: Named) =>
  request.input_image_path === other.input_image_path &&
  request.output_folder_path === other.output_folder_path;

/** With the folders of the token that sent it. */
interface Failure {
  request: FailedRequest;
  sender: NarrowedBy;
}

interface OfSubject {
  failures: Failure[];
  since: string;
  /** How many earlier ones are not remembered any more. */
  dropped: number;
}

export class FailedRequests {
  readonly #bySubject = new Map<string, OfSubject>();
  readonly #started = new Date().toISOString();
  /** When a subject was forgotten last: what one failed before then is not known any more. */
  #forgot = this.#started;
  #droppedOfForgotten = 0;

  /** Remembers why a request failed, in the place of an earlier one for the same image. */
  add(
    of: Omit<FailedRequest, "at" | "error">,
    { code, message, details }: RadserveError,
    { inputRoots, outputRoots }: NarrowedBy,
  ): void {
    const before = this.#of(of.subject);
    const error = { error: code, message, ...(details === undefined ? {} : { details }) };
    const request = { ...of, at: new Date().toISOString(), error };
    const all = [{ request, sender: { inputRoots, outputRoots } }, ...without(before, of)];
    const failures = all.slice(0, MOST_OF_SUBJECT);
    const dropped = before.dropped + all.length - failures.length;
    // In the order of their last use
    this.#bySubject.delete(of.subject);
    this.#bySubject.set(of.subject, { failures, since: before.since, dropped });
    if (this.#bySubject.size > MOST_SUBJECTS) this.#forgetOldest();
  }

  #forgetOldest(): void {
    const [oldest] = this.#bySubject;
    if (oldest === undefined) return;
    const [subject, { failures, dropped }] = oldest;
    this.#bySubject.delete(subject);
    this.#droppedOfForgotten += failures.length + dropped;
    this.#forgot = new Date().toISOString();
  }

  #of(subject: string): OfSubject {
    return this.#bySubject.get(subject) ?? { failures: [], since: this.#forgot, dropped: 0 };
  }

  /** Whether some of a subject are remembered. */
  has(subject: string): boolean {
    return this.#of(subject).failures.length > 0;
  }

  /** There is a result now. */
  succeeded(of: Named & { subject: string }): void {
    const before = this.#of(of.subject);
    if (this.has(of.subject))
      this.#bySubject.set(of.subject, { ...before, failures: without(before, of) });
  }

  /** Those of the caller's subject, or all with the claim admin; the last first. */
  of({ subject, admin }: Pick<Caller, "subject" | "admin">): OfSubject {
    const { failures, since, dropped } = admin ? this.#ofAll() : this.#of(subject);
    const sorted = failures.toSorted((a, b) => (a.request.at < b.request.at ? 1 : -1));
    return { failures: sorted, since, dropped };
  }

  #ofAll(): OfSubject {
    const all = [...this.#bySubject.values()];
    return {
      failures: all.flatMap(({ failures }) => failures),
      since: this.#started,
      dropped: all.reduce((sum, { dropped }) => sum + dropped, this.#droppedOfForgotten),
    };
  }
}

const without = ({ failures }: OfSubject, of: Named): Failure[] =>
  failures.filter((one) => !isOf(one, of));
