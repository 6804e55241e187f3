/**
 * Progress of a job: a bar that is drawn over itself on a terminal, a plain line every few seconds
 * elsewhere.
 */
import type { Job } from "../jobs/schema.js";
import type { RadserveError } from "../base/errors.js";
import { progressBar, progressText } from "./job-text.js";

const LINE_EVERY_MS = 5_000;

export class ProgressBar {
  #lastLine = -Infinity;
  #drawn = false;
  #unreachable = false;

  constructor(
    private readonly stream: { isTTY?: boolean; columns?: number; write(text: string): unknown },
  ) {}

  show(job: Job): void {
    this.#unreachable = false;
    if (this.#terminal) this.#draw(progressBar(job, this.#columns));
    else this.#line(progressText(job));
  }

  /** The server does not answer; said once until it answers again. */
  unreachable(why: RadserveError): void {
    if (this.#terminal) this.#draw(`${why.message} Trying again.`.slice(0, this.#columns - 1));
    else if (!this.#unreachable) this.stream.write(`${why.message} Trying again.\n`);
    this.#unreachable = true;
  }

  end(): void {
    if (this.#drawn) this.stream.write("\n");
    this.#drawn = false;
  }

  get #terminal(): boolean {
    return this.stream.isTTY === true;
  }

  /** A terminal that does not know its width says 0. */
  get #columns(): number {
    return this.stream.columns === undefined || this.stream.columns === 0
      ? 80
      : this.stream.columns;
  }

  #draw(text: string): void {
    // ECMA-48: back to the first column, then erase to the end of the line
    this.stream.write(`\r\u001b[K${text}`);
    this.#drawn = true;
  }

  #line(text: string): void {
    const now = performance.now();
    if (now - this.#lastLine < LINE_EVERY_MS) return;
    this.#lastLine = now;
    this.stream.write(`${text}\n`);
  }
}
