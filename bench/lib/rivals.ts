/**
 * Other decoders and OpenCV, in a Python process that lives as long as the bench and starts DCMTK's
 * programs too.
 */
import { spawn, type ChildProcessByStdio } from "node:child_process";
import { createInterface, type Interface } from "node:readline";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { root } from "./server.js";

/** Milliseconds of each repetition, by name of the rival. */
export type Times = Record<string, number[]>;

/** How a part of the bench measures ours and the rivals by turns. */
export interface Turns {
  /** A folder for files that only this run needs. */
  scratch: string;
  rounds: number;
  /** undefined if there is no Python. */
  rivals: Rivals | undefined;
}

export class Rivals {
  readonly #python: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;
  readonly #reader: Interface;
  libraries: Record<string, string> = {};

  private constructor(program: string, script: string, args: readonly string[]) {
    this.#python = spawn(program, [join(root, script), ...args], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.#reader = createInterface(this.#python.stdout);
    this.#lines = this.#reader[Symbol.asyncIterator]();
    this.#python.on("error", () => this.#reader.close());
  }

  /** RADSERVE_PYTHON or python3; undefined where that does not run. */
  static async start(
    script = "bench/lib/rivals.py",
    args: readonly string[] = [],
  ): Promise<Rivals | undefined> {
    const rivals = new Rivals(process.env["RADSERVE_PYTHON"] ?? "python3", script, args);
    try {
      rivals.libraries = (await rivals.ask({ command: "hello" })) as Record<string, string>;
      return rivals;
    } catch {
      return undefined;
    }
  }

  /** Of the process that answers. */
  get pid(): number {
    return this.#python.pid!;
  }

  async ask(request: Record<string, unknown>): Promise<unknown> {
    this.#python.stdin.write(`${JSON.stringify(request)}\n`);
    const line = await this.#lines.next();
    if (line.done === true) throw new Error("The Python process ended.");
    return JSON.parse(line.value) as unknown;
  }

  stop(): void {
    this.#python.stdin.end();
    this.#reader.close();
  }
}
