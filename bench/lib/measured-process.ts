/**
 * A process of its own that measures itself as the bench asks, so that it and others can take
 * turns.
 */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";

export class MeasuredProcess<Setting extends object, Result> {
  readonly #child: ChildProcess;
  /** Rejects when the process ends, and never resolves. */
  readonly #ended: Promise<never>;

  /** @param script calls `answer` */
  constructor(script: string, args: readonly string[]) {
    this.#child = fork(script, args);
    this.#ended = once(this.#child, "exit").then(() => {
      throw new Error(`The process of ${script} has ended.`);
    });
    this.#ended.catch(() => undefined);
  }

  async run(setting: Setting): Promise<Result> {
    this.#child.send(setting);
    const [result] = (await Promise.race([once(this.#child, "message"), this.#ended])) as [Result];
    return result;
  }

  stop(): void {
    this.#child.disconnect();
  }
}

/**
 * Called in that process: measures each setting that the bench sends, until the bench disconnects.
 */
export function answer(measure: (setting: never) => Promise<object | number>): void {
  process.on("message", (setting) => {
    void measure(setting as never).then((result) => process.send?.(result));
  });
}
