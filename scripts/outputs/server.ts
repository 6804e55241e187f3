/**
 * The server of any checkout, as a black box: started with fixed start times, own state and own
 * roots.
 */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { databaseFolders } from "../../src/features/local-postgres/folders.js";
import { removePlace } from "../../test/support/private-postgres.js";
import { freePort } from "../../test/support/server.js";
import type { Workplace } from "./workplace.js";

const FIXED_START = new URL("./fixed-start.js", import.meta.url).href;
export const OWN_CHECKOUT = fileURLToPath(new URL("../../..", import.meta.url));

export interface Answer {
  status: number;
  body: unknown;
}

export interface Server {
  /** Below it each case has a folder. */
  output: string;
  ask(method: "GET" | "POST", page: string, body?: unknown): Promise<Answer>;
  /** Runs a command of the same checkout to its end: exit status and standard output. */
  command(...args: string[]): Promise<{ status: number; stdout: string }>;
  stop(): Promise<void>;
}

async function untilReady(url: string, server: ChildProcess): Promise<void> {
  for (;;) {
    if (server.exitCode !== null)
      throw new Error(`The server ended with status ${server.exitCode}.`);
    const answer = await fetch(`${url}/health/ready`).catch(() => undefined);
    await answer?.arrayBuffer();
    if (answer?.ok) return;
    await delay(50);
  }
}

/**
 * Starts the server that a checkout has built. Its zone is not UTC, so that a time in the wrong
 * zone is seen.
 */
export async function startServer(checkout: string, { input, models }: Workplace): Promise<Server> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "radserve-outputs-")));
  const [output, state] = [join(folder, "output"), join(folder, "state")];
  for (const directory of [output, state]) mkdirSync(directory);
  const port = await freePort();
  const env: Record<string, string> = {
    PATH: process.env["PATH"] ?? "",
    HOME: folder,
    TZ: "Asia/Kolkata",
    NODE_OPTIONS: `--import=${FIXED_START}`,
    RADSERVE_STATE_DIR: state,
    RADSERVE_INPUT_ROOTS: input,
    RADSERVE_OUTPUT_ROOTS: output,
    RADSERVE_MODELS_DIR: models,
    RADSERVE_HOST: "127.0.0.1",
    RADSERVE_PORT: String(port),
    RADSERVE_THREADS: "2",
    RADSERVE_LOG_LEVEL: "error",
  };
  const cli = join(resolve(checkout), "dist/src/main.js");
  const command = async (...args: string[]) => {
    const run = promisify(execFile)(process.execPath, [cli, ...args], { env, cwd: folder });
    return run.then(
      ({ stdout }) => ({ status: 0, stdout }),
      (error: unknown) => {
        const { code, stdout } = error as { code: number; stdout: string };
        return { status: code, stdout };
      },
    );
  };
  const server = spawn(process.execPath, [cli, "serve"], {
    env,
    cwd: folder,
    stdio: ["ignore", "ignore", "inherit"],
  });
  const stop = async () => {
    server.kill("SIGTERM");
    if (server.exitCode === null) await once(server, "exit");
    await removePlace(databaseFolders(state));
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const url = `http://127.0.0.1:${port}`;
    await untilReady(url, server);
    const token = (await command("token", "issue", "--subject", "outputs")).stdout.trim();
    const headers = { Authorization: token, "Content-Type": "application/json" };
    const ask: Server["ask"] = async (method, page, body) => {
      const content = body === undefined ? {} : { body: JSON.stringify(body) };
      const answer = await fetch(url + page, { method, headers, ...content });
      return { status: answer.status, body: await answer.json() };
    };
    return { output, ask, command, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
