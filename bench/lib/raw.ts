/** ONNX Runtime without the engine: native/bench/raw_ort.cc, built when a bench asks for it. */
import { spawn, spawnSync, type ChildProcessByStdio } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { root } from "./server.js";

const build = join(root, "build-bench");

function step(program: string, ...parameters: string[]): void {
  const { status, stdout, stderr } = spawnSync(program, parameters, {
    cwd: root,
    encoding: "utf8",
  });
  if (status !== 0)
    throw new Error(`${program} ${parameters.join(" ")} failed:\n${stdout}${stderr}`);
}

/** Builds raw_ort and gives its path. */
export function buildRaw(): string {
  step("cmake", "-S", root, "-B", build, "-DRADSERVE_ADDON=OFF", "-DRADSERVE_BENCH=ON");
  step("cmake", "--build", build, "--target", "raw_ort");
  return join(build, "bench", "raw_ort");
}

export interface RawSetting {
  lanes: number;
  threads: number;
  spin: 0 | 1;
  batch: number;
  height: number;
  width: number;
  seconds: number;
  /** Of a volume. */
  depth?: number;
}

export interface RawResult {
  /** Images a second. */
  rate: number;
  /** Processor time of one image in microseconds. */
  cpu_us: number;
  /** Milliseconds of one run. */
  p50: number;
  p95: number;
  p99: number;
  rss_kib: number;
}

/** A process of raw_ort with one model; it does nothing between its measurements. */
export class Raw {
  readonly pid: number;
  readonly #process: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string, undefined>;

  /** @param options of the CUDA provider, NAME=VALUE */
  constructor(
    program: string,
    model: string,
    provider: "cpu" | "cuda" = "cpu",
    options: readonly string[] = [],
  ) {
    if (!existsSync(program)) throw new Error(`${program} is not built.`);
    this.#process = spawn(program, [model, provider, "0", ...options], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.pid = this.#process.pid!;
    this.#lines = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]();
  }

  async #ask(command: string): Promise<unknown> {
    this.#process.stdin.write(`${command}\n`);
    const line = await this.#lines.next();
    if (line.done === true) throw new Error(`raw_ort ended at: ${command}`);
    return JSON.parse(line.value);
  }

  async run(s: RawSetting): Promise<RawResult> {
    const words = [s.lanes, s.threads, s.spin, s.batch, s.height, s.width, s.seconds, s.depth ?? 0];
    return (await this.#ask(`run ${words.join(" ")}`)) as RawResult;
  }

  /**
   * Milliseconds to make a session: from the model, also writing the optimised one, or from that.
   */
  async load(from: "model" | "optimised", optimised: string): Promise<number> {
    const { ms } = (await this.#ask(`load ${from === "model" ? 99 : 0} ${optimised}`)) as {
      ms: number;
    };
    return ms;
  }

  stop(): void {
    this.#process.stdin.end();
  }
}
