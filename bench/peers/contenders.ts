/**
 * The programs that take turns: Radserve, and what somebody would run instead. Each listens on a
 * port of its own.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import jwt from "jsonwebtoken";
import { freePort } from "../../test/support/server.js";
import { watchPss } from "../lib/process-tree.js";
import { root, startServer } from "../lib/server.js";
import { buildRaw, Raw } from "../lib/raw.js";
import type { RivalModel } from "./models.js";
import { venv } from "./venv.js";

export type Outputs = "json" | "all";

/** What a contender is started for. */
export interface Place {
  /** Folder of the images, of the results, of the models' folders. */
  input: string;
  output: string;
  models: string;
  rival: RivalModel;
  outputs: Outputs;
}

/** What a contender without HTTP measured of itself. */
export interface BatchResult {
  images: number;
  seconds: number;
  /** Seconds of processor time. */
  cpu: number;
  p50: number;
  p99: number;
  peakMib: number;
}

export interface Service {
  port: number;
  token: string;
  /** The first process of its tree. */
  pid: number;
  /** Members of each request beside its paths. */
  more: object;
  /**
   * Set where it takes no requests: works on the folder of images by itself, a process on each
   * core.
   */
  batch?: (output: string, seconds: number) => Promise<BatchResult>;
  stop(): Promise<void>;
}

export interface Contender {
  title: string;
  /** Where it makes no more than a receipt. */
  outputs?: readonly Outputs[];
  start(place: Place): Promise<Service>;
}

async function radserve(
  { input, output, models, outputs }: Place,
  checkout?: string,
): Promise<Service> {
  const settings = {
    RADSERVE_INPUT_ROOTS: input,
    RADSERVE_OUTPUT_ROOTS: output,
    RADSERVE_MODELS_DIR: models,
  };
  const server = await startServer(settings, checkout);
  return {
    port: Number(new URL(server.url).port),
    token: server.token,
    pid: server.process.pid!,
    more: { outputs: outputs === "json" ? ["json"] : ["json", "png", "sr", "seg", "sc"] },
    stop: () => server.stop(),
  };
}

async function answers(port: number, process: ChildProcess): Promise<void> {
  for (;;) {
    const ready = await fetch(`http://127.0.0.1:${port}/health/ready`).then(
      (response) => response.ok,
      () => false,
    );
    if (ready) return;
    if (process.exitCode !== null)
      throw new Error(`A rival ended with status ${process.exitCode}.`);
    await delay(5);
  }
}

/**
 * Environment of a rival: thread pools of libraries are held to one thread, as each worker has one
 * core.
 */
function rivalEnvironment({ input, output, rival, outputs }: Place, same: boolean, key: string) {
  return {
    ...process.env,
    OMP_NUM_THREADS: "1",
    OPENBLAS_NUM_THREADS: "1",
    PEER: JSON.stringify({ ...rival, all: outputs === "all", same }),
    PEER_INPUT: input,
    PEER_OUTPUT: output,
    PEER_KEY: key,
  };
}

const script =
  (same: boolean) =>
  async (place: Place): Promise<Service> => {
    const port = await freePort();
    const key = randomBytes(32);
    const child = spawn(venv("script"), uvicorn(port), {
      cwd: join(root, "bench/peers"),
      env: rivalEnvironment(place, same, key.toString("hex")),
      stdio: ["ignore", "ignore", "inherit"],
    });
    await answers(port, child);
    return {
      port,
      token: jwt.sign({ sub: "bench" }, key, { algorithm: "HS256", expiresIn: "1h" }),
      pid: child.pid!,
      more: {},
      async stop() {
        child.kill("SIGTERM");
        if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
      },
    };
  };

/** The network alone on prepared tensors, a run on each core: no file, no HTTP, no result. */
async function raw({ rival }: Place): Promise<Service> {
  const program = buildRaw();
  const alone = new Raw(program, rival.model);
  const batch = async (_output: string, seconds: number): Promise<BatchResult> => {
    const lanes = availableParallelism();
    const setting = {
      lanes,
      threads: 1,
      spin: 0 as const,
      batch: rival.tensors,
      ...rival.size,
      seconds,
    };
    const { rate, cpu_us, p50, p99, rss_kib } = await alone.run(setting);
    const images = (rate * seconds) / rival.tensors;
    const cpu = (cpu_us * rival.tensors * images) / 1e6;
    return { images, seconds, cpu, p50, p99, peakMib: rss_kib / 1024 };
  };
  await batch("", 0.1);
  const stop = () => {
    alone.stop();
    return Promise.resolve();
  };
  return { port: 0, token: "", pid: alone.pid, more: {}, batch, stop };
}

/** The script without HTTP. Each turn is a process of its own; its start does not count. */
function overFolder(place: Place): Promise<Service> {
  const batch = async (output: string, seconds: number): Promise<BatchResult> => {
    const words = [
      "folder.py",
      place.input,
      output,
      String(seconds),
      String(availableParallelism()),
    ];
    const child = spawn(venv("script"), words, {
      cwd: join(root, "bench/peers"),
      env: rivalEnvironment(place, false, ""),
      stdio: ["ignore", "pipe", "inherit"],
    });
    const stopWatching = watchPss(child.pid!);
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (part: string) => (said += part));
    // The processes have ended by then: the most that was seen is what counts
    const [status] = (await once(child, "close")) as [number | null];
    const peakMib = stopWatching();
    if (status !== 0) throw new Error(`folder.py ended with status ${status}.`);
    return { ...(JSON.parse(said) as Omit<BatchResult, "peakMib">), peakMib };
  };
  return Promise.resolve({
    port: 0,
    token: "",
    pid: 0,
    more: {},
    batch,
    stop: () => Promise.resolve(),
  });
}

const uvicorn = (port: number): string[] => [
  "-m",
  "uvicorn",
  "service:app",
  "--workers",
  "2",
  "--loop",
  "uvloop",
  "--http",
  "httptools",
  "--host",
  "127.0.0.1",
  "--port",
  String(port),
  "--no-access-log",
  "--log-level",
  "warning",
  // With the usual 5 s it closes a connection whose next request waits behind an image, and ends a
  // worker that decodes one
  "--timeout-keep-alive",
  "300",
  "--timeout-worker-healthcheck",
  "300",
];

export const CONTENDERS: Record<string, Contender> = {
  radserve: { title: "Radserve", start: (place) => radserve(place) },
  script: { title: "script", start: script(false) },
  same: { title: "script, same hashes, fsync and rename", start: script(true) },
  folder: { title: "script over a folder, a process a core", start: overFolder },
  raw: { title: "ONNX Runtime alone in C++, the limit", outputs: ["json"], start: raw },
};

/** Radserve as another checkout of it has been built. */
export const built = (checkout: string): Contender => ({
  title: `Radserve in ${checkout}`,
  start: (place) => radserve(place, checkout),
});

/** A folder below `output` for one turn. */
export function turnFolder(output: string, name: string): string {
  const folder = join(output, name);
  mkdirSync(folder, { recursive: true });
  return folder;
}
