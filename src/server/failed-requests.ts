/**
 * Single requests that came to nothing, for whoever asks why an image has no result: the audit
 * names images by keyed hashes, and only the client saw the answer. In memory, since the serving
 * process started; jobs keep their own in the database.
 */
import { z } from "zod";
import { errorObjectSchema, type RadserveError } from "../base/errors.js";
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
  since: z.iso.datetime().describe("Since when they are remembered"),
});
export type FailedRequestList = z.infer<typeof failedRequestsSchema>;

/** No client crowds out what others want to know. */
const MOST_OF_SUBJECT = 100;
const MOST_SUBJECTS = 100;

type Named = Pick<FailedRequest, "input_image_path" | "output_folder_path">;
const isOf = (one: Named, other: Named) =>
  one.input_image_path === other.input_image_path &&
  one.output_folder_path === other.output_folder_path;

export class FailedRequests {
  readonly #bySubject = new Map<string, FailedRequest[]>();
  readonly #since = new Date().toISOString();

  /** Remembers why a request failed, in the place of an earlier one for the same image. */
  add(of: Omit<FailedRequest, "at" | "error">, { code, message, details }: RadserveError): void {
    const before = this.#without(of);
    const error = { error: code, message, ...(details === undefined ? {} : { details }) };
    const one = { ...of, at: new Date().toISOString(), error };
    // In the order of their last use
    this.#bySubject.delete(of.subject);
    this.#bySubject.set(of.subject, [one, ...before].slice(0, MOST_OF_SUBJECT));
    const [oldest] = this.#bySubject.keys();
    if (this.#bySubject.size > MOST_SUBJECTS && oldest !== undefined)
      this.#bySubject.delete(oldest);
  }

  /** Whether some of a subject are remembered. */
  has(subject: string): boolean {
    return (this.#bySubject.get(subject)?.length ?? 0) > 0;
  }

  /** There is a result now. */
  succeeded(of: Named & { subject: string }): void {
    if (this.has(of.subject)) this.#bySubject.set(of.subject, this.#without(of));
  }

  #without(of: Named & { subject: string }): FailedRequest[] {
    return (this.#bySubject.get(of.subject) ?? []).filter((one) => !isOf(one, of));
  }

  /** Those of the caller's subject, or all with the claim admin. */
  of({ subject, admin }: Pick<Caller, "subject" | "admin">): FailedRequestList {
    const mine = admin
      ? [...this.#bySubject.values()].flat()
      : (this.#bySubject.get(subject) ?? []);
    return { failed: mine.toSorted((a, b) => (a.at < b.at ? 1 : -1)), since: this.#since };
  }
}
