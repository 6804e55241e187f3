/** A real server on loopback for benches: own state directory, own key, ended with the bench. */
import {
  execFileSync,
  spawn,
  spawnSync,
  type ChildProcess,
  type ExecFileSyncOptionsWithStringEncoding,
} from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { request, type IncomingMessage } from "node:http";
import { availableParallelism, cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { setTimeout as delay } from "node:timers/promises";

import { databaseFolders } from "../../src/features/local-postgres/folders.js";
import { postmasterOf } from "../../src/features/local-postgres/process.js";
import { commandOf, descendants } from "../../test/crash/lib/processes.js";
import { removePlace } from "../../test/support/private-postgres.js";
import { freePort } from "../../test/support/server.js";
import { sum } from "./statistics.js";

export const root = fileURLToPath(new URL("../../..", import.meta.url));

export interface BenchServer {
  url: string;
  token: string;
  input: string;
  output: string;
  /** Another one after each `restart`. */
  readonly process: ChildProcess;
  /** From the start of the command until GET /health/ready said yes. */
  readonly readyMs: number;
  /** The first process of its private PostgreSQL, once there is one. */
  postmaster(): number | undefined;
  post(body: unknown): Promise<{ status: number; body: unknown }>;
  /** Ends it and starts it again with the same state. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** What a figure was measured on, and at which commit. */
export function machine(): { commit: string; node: string; cpu: string } {
  const { status, stdout } = spawnSync("git", ["rev-parse", "--short", "HEAD"], {
    cwd: root,
    encoding: "utf8",
  });
  return {
    commit: status === 0 ? stdout.trim() : "unknown",
    node: process.version,
    cpu: `${availableParallelism()} x ${cpus()[0]?.model ?? "unknown"}`,
  };
}

/** MiB that the server's processes hold. */
export function memoryOf(server: BenchServer): number {
  const own = server.process.pid!;
  const processes = [own, ...descendants(own)].filter(
    (pid) => commandOf(pid)[0] === process.execPath,
  );
  const resident = (pid: number) =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) / 1024;
  return sum(processes.map(resident));
}

const LOOK_MS = 5;
/** A server that loads the largest models on a slow disk is ready long before. */
const STARTS_WITHIN_MS = 300_000;

/**
 * Whether the server answers that it is ready.
 * @throws Error where a model has failed, which no waiting mends
 */
async function isReady(url: string): Promise<boolean> {
  const answer = await fetch(`${url}/health/ready`).catch(() => undefined);
  const text = (await answer?.text()) ?? "";
  if (text.includes('"model_failed"'))
    throw new Error(`Expected every model to serve; the server answers ${text}`);
  return answer?.ok === true;
}

/**
 * @param settings of its environment
 * @param checkout whose build is started
 */
export async function startServer(
  settings: Record<string, string> = {},
  checkout = root,
): Promise<BenchServer> {
  const cli = join(checkout, "dist/src/main.js");
  const folder = mkdtempSync(join(tmpdir(), "radserve-bench-"));
  const [input, output, state] = ["input", "output", "state"].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  for (const directory of [input, output, state]) mkdirSync(directory);
  const port = await freePort();
  const env = {
    ...process.env,
    RADSERVE_HOST: "127.0.0.1",
    RADSERVE_PORT: String(port),
    RADSERVE_STATE_DIR: state,
    RADSERVE_INPUT_ROOTS: input,
    RADSERVE_OUTPUT_ROOTS: output,
    RADSERVE_LOG_LEVEL: "warn",
    ...settings,
  };
  const run: ExecFileSyncOptionsWithStringEncoding = {
    env,
    cwd: state,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  };
  execFileSync(process.execPath, [cli, "init"], run);
  const url = `http://127.0.0.1:${port}`;
  const serve = async () => {
    const began = performance.now();
    const child = spawn(process.execPath, [cli, "serve"], {
      env,
      cwd: state,
      stdio: ["ignore", "ignore", "inherit"],
    });
    try {
      while (!(await isReady(url))) {
        if (child.exitCode !== null)
          throw new Error(`The server ended with status ${child.exitCode}.`);
        if (performance.now() - began > STARTS_WITHIN_MS)
          throw new Error(
            `Expected ${url} to be ready within ${STARTS_WITHIN_MS / 1000} s; it is not.`,
          );
        await delay(LOOK_MS);
      }
      return { child, readyMs: performance.now() - began };
    } catch (error) {
      child.kill();
      throw error;
    }
  };
  const end = async () => {
    const { child } = running;
    child.kill("SIGTERM");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  };
  let running = await serve();
  const token = execFileSync(
    process.execPath,
    [cli, "token", "issue", "--subject", "bench"],
    run,
  ).trim();
  return {
    url,
    token,
    input,
    output,
    get process() {
      return running.child;
    },
    get readyMs() {
      return running.readyMs;
    },
    postmaster: () => postmasterOf(databaseFolders(state).data),
    async post(body) {
      // fetch waits five minutes for an answer; all networks of a body take longer
      const asked = request(`${url}/single_inference`, {
        method: "POST",
        headers: { Authorization: token, "Content-Type": "application/json" },
      });
      asked.end(JSON.stringify(body));
      const [answer] = (await once(asked, "response")) as [IncomingMessage];
      return { status: answer.statusCode ?? 0, body: await json(answer) };
    },
    async restart() {
      await end();
      running = await serve();
    },
    async stop() {
      await end();
      await removePlace(databaseFolders(state));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
