/**
 * A real server in processes of its own, with throw-away roots and state, for tests over a real
 * socket.
 */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import jwt from "jsonwebtoken";
import { withDurations } from "./durations.js";
import { endsWithTest } from "./ends-with-test.js";
import { newToken } from "../../src/commands/token.js";
import type { Durations } from "../../src/base/durations.js";
import { ConfigError } from "../../src/base/errors.js";
import { loadConfig, type Config } from "../../src/config.js";
import { checks, settingTopics } from "../../src/features.js";
import { supervise } from "../../src/server/supervisor.js";
import { rememberTried } from "./tried-model.js";
import { inTime, LONGEST_WAIT_MS, until } from "./until.js";

export const root = fileURLToPath(new URL("../../../", import.meta.url));
const main = path.join(root, "dist/src/main.js");

/** A white picture of 8 by 8 pixels. */
export const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAQAAAADsdIMmAAAADklEQVR4nGP4DwUMuBgAVfsP8Q36F5oAAAAASUVORK5CYII=",
  "base64",
);

export interface Place {
  directory: string;
  input: string;
  output: string;
  environment: Record<string, string>;
  /** The main file of another copy of the project. */
  main?: string;
  /** Another copy of Node.js, for its server. */
  node?: string;
  remove(): void;
}

/**
 * Where the run of the tests keeps compiled code (scripts/test.mjs), for all that a test starts.
 */
const compiled = process.env["NODE_COMPILE_CACHE"];

/** Folders for one test, and the settings that name them. */
export function makePlace(extra: Record<string, string> = {}): Place {
  const directory = realpathSync(mkdtempSync(path.join(os.tmpdir(), "radserve-test-")));
  endsWithTest(directory);
  const [input, output, models] = ["input", "output", "models"].map((name) =>
    path.join(directory, name),
  );
  for (const folder of [input!, output!, models!]) mkdirSync(folder);
  writeFileSync(path.join(input!, "image.png"), PNG);
  return {
    directory,
    input: input!,
    output: output!,
    environment: {
      PATH: process.env["PATH"] ?? "",
      HOME: directory,
      RADSERVE_STATE_DIR: path.join(directory, "state"),
      RADSERVE_INPUT_ROOTS: input!,
      RADSERVE_OUTPUT_ROOTS: output!,
      RADSERVE_MODELS_DIR: models!,
      RADSERVE_HOST: "127.0.0.1",
      RADSERVE_PORT: "0",
      RADSERVE_THREADS: "1",
      ...(compiled === undefined ? {} : { NODE_COMPILE_CACHE: compiled }),
      ...extra,
    },
    remove: () => rmSync(directory, { recursive: true, force: true }),
  };
}

/**
 * The clock of what is started of a place is one of its own. @returns sets it so many milliseconds
 * ahead of the machine's
 */
export function shiftClock({ directory, environment }: Place): (ms: number) => void {
  const shift = path.join(directory, "shift");
  const set = (ms: number) => {
    writeFileSync(`${shift}.new`, String(ms));
    renameSync(`${shift}.new`, shift);
  };
  set(0);
  const clock = fileURLToPath(new URL("./shifted-clock.js", import.meta.url));
  environment["TEST_CLOCK"] = shift;
  environment["NODE_OPTIONS"] = `${environment["NODE_OPTIONS"] ?? ""} --import ${clock}`;
  return set;
}

/** Ports that the kernel gives to nobody by itself: neither to clients, nor to who listens on 0. */
function portsToName(): [least: number, most: number] {
  const range = readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "latin1");
  const [least, most] = range.trim().split(/\s+/).map(Number) as [number, number];
  if (least > 12_000) return [10_000, least - 1];
  return most < 63_000 ? [most + 1, 65_535] : [least, most];
}

/**
 * A port of this machine that nothing listens on now, and that stays so until the test uses it:
 * tests beside this one make thousands of connections meanwhile.
 */
export async function freePort(): Promise<number> {
  const [least, most] = portsToName();
  for (;;) {
    const probe = createServer().listen(randomInt(least, most + 1), "127.0.0.1");
    const isFree = await once(probe, "listening").then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    const { port } = probe.address() as AddressInfo;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}

export interface Ran {
  status: number;
  stdout: string;
  stderr: string;
}

/** Commands that wait for seconds alone until a server answers, and tell that it does not. */
const ASKING = new Set(["status", "doctor"]);

/**
 * The environment in which such a command waits as long as its test does: on a busy machine a
 * server may stand still for some seconds. A place that says how long it waits has its way.
 */
function waiting({ environment }: Place): Record<string, string> {
  const said = JSON.parse(environment["TEST_DURATIONS"] ?? "{}") as Partial<Durations>;
  const lengths = withDurations({ commandAnswer: LONGEST_WAIT_MS, ...said });
  const options = `${environment["NODE_OPTIONS"] ?? ""} ${lengths["NODE_OPTIONS"]}`.trim();
  return { ...environment, ...lengths, NODE_OPTIONS: options };
}

/**
 * Runs a command to its end.
 * @throws Error where that does not come
 */
export async function radserve(place: Place, ...args: string[]): Promise<Ran> {
  const late = new AbortController();
  const ran = promisify(execFile)(process.execPath, [place.main ?? main, ...args], {
    env: ASKING.has(args[0] ?? "") ? waiting(place) : place.environment,
    cwd: place.directory,
    signal: late.signal,
    killSignal: "SIGKILL",
  }).then(
    (output) => ({ status: 0, ...output }),
    (error: unknown) => {
      const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
      return { status: code, stdout, stderr };
    },
  );
  try {
    return await inTime(`radserve ${args.join(" ")} ends`, ran);
  } finally {
    late.abort();
  }
}

const TOPICS = await settingTopics();
/** The settings of a place, those of features too. */
export const configOf = ({ environment, directory }: Place): Config =>
  loadConfig({ environment, directory, features: TOPICS });

/**
 * What `radserve serve` refuses to start with, from the same functions in this process. A few tests
 * run the command, for its status and its streams.
 */
export async function refusedStart(place: Place): Promise<string> {
  const before = process.listeners("SIGHUP");
  try {
    await supervise(configOf(place), checks);
  } catch (error) {
    if (error instanceof ConfigError) return `${error.message}\n`;
    throw error;
  } finally {
    for (const listener of process.listeners("SIGHUP"))
      if (!before.includes(listener)) process.off("SIGHUP", listener);
  }
  return "";
}

/** Issues a token with the place's own key, as `radserve token issue` does, but in this process. */
export async function issueToken(place: Place, ...args: string[]): Promise<string> {
  if (place.environment["TEST_CLOCK"] !== undefined) {
    // Its clock is that of the place's own processes
    const { status, stdout, stderr } = await radserve(
      place,
      "token",
      "issue",
      "--subject",
      "tester",
      ...args,
    );
    if (status !== 0) throw new Error(stderr);
    return stdout.trim();
  }
  const { values } = parseArgs({
    args,
    options: {
      subject: { type: "string", default: "tester" },
      expires: { type: "string", default: "365d" },
      admin: { type: "boolean", default: false },
      "input-root": { type: "string", multiple: true, default: [] },
      "output-root": { type: "string", multiple: true, default: [] },
      destination: { type: "string", multiple: true, default: [] },
      "no-deliver": { type: "boolean", default: false },
    },
  });
  const {
    "input-root": inputRoot,
    "output-root": outputRoot,
    destination,
    "no-deliver": never,
    ...rest
  } = values;
  const config = configOf(place);
  const { token } = await newToken(config, {
    ...rest,
    ...(inputRoot.length === 0 ? {} : { inputRoot }),
    ...(outputRoot.length === 0 ? {} : { outputRoot }),
    ...(destination.length === 0 ? {} : { destination }),
    ...(never ? { deliver: false } : {}),
  });
  return token;
}

/** A token that has expired: its second is over. */
export async function expiredToken(place: Place): Promise<string> {
  const token = await issueToken(place, "--expires", "1s");
  const { exp = Infinity } = jwt.decode(token) as { exp?: number };
  await until("the token has expired", () => Date.now() / 1000 > exp);
  return token;
}

type LogLine = Record<string, unknown> & { msg: string };

export interface TestServer {
  place: Place;
  url: string;
  port: number;
  process: ChildProcess;
  token: string;
  /** Lines logged so far. */
  log: LogLine[];
  /** Resolves with the first line, past or coming, that fits. */
  logged(fits: (line: LogLine) => boolean): Promise<LogLine>;
  /**
   * All lines that fit, once there are so many: an answer by HTTP may be here before the lines that
   * were logged before it, which come through a pipe.
   */
  told(fits: (line: LogLine) => boolean, least?: number): Promise<LogLine[]>;
  /** The process that serves now. */
  servingPid(): number;
  post(page: string, body: unknown, headers?: Record<string, string>): Promise<Response>;
  /** Sends SIGTERM and gives the exit status. */
  stop(): Promise<number | null>;
}

interface Dispatcher {
  close(): Promise<void>;
  readonly constructor: new () => Dispatcher;
}

/**
 * Closes the connections that fetch keeps for another request, when nothing is on them: a server
 * that stops waits a moment for what may be on the way.
 */
function closeQuietConnections(): void {
  // Where undici, which is Node's fetch, keeps what all requests go through; it is there once there
  // was one. Node.js 22 has the first name alone, 24 the same object under both, and 26 a wrapper
  // of the second under the first.
  const all = globalThis as unknown as Record<symbol, Dispatcher | undefined>;
  const names = ["1", "2"].map((version) => Symbol.for(`undici.globalDispatcher.${version}`));
  const dispatcher = names.map((name) => all[name]).findLast((one) => one !== undefined);
  if (dispatcher === undefined) return;
  const fresh = new dispatcher.constructor();
  for (const name of names) if (all[name] === dispatcher) all[name] = fresh;
  void dispatcher.close();
}

/**
 * Starts `radserve serve` and waits until it serves.
 * @param keys whose keys the token is of
 */
export async function startServer(place = makePlace(), keys = place): Promise<TestServer> {
  rememberTried(place.environment["RADSERVE_STATE_DIR"]!);
  const child = spawn(place.node ?? process.execPath, [place.main ?? main, "serve"], {
    env: place.environment,
    cwd: place.directory,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const log: LogLine[] = [];
  const waiting: { fits: (line: LogLine) => boolean; resolve: (line: LogLine) => void }[] = [];
  let rest = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines.map((one) => JSON.parse(one) as LogLine)) {
      log.push(line);
      for (const wait of waiting.filter(({ fits }) => fits(line))) wait.resolve(line);
    }
  });
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  const logged = (fits: (line: LogLine) => boolean) => {
    const line = new Promise<LogLine>((resolve, reject) => {
      const before = log.find(fits);
      if (before !== undefined) resolve(before);
      waiting.push({ fits, resolve });
      void exited.then((status) =>
        reject(new Error(`radserve serve ended with ${status}: ${stderr}`)),
      );
    });
    return inTime(`a line of the log with ${String(fits)}`, line);
  };
  const { port } = (await logged((line) => line.msg === "serving")) as LogLine & { port: number };
  const url = `http://127.0.0.1:${port}`;
  const token = await issueToken(keys);
  return {
    place,
    url,
    port,
    process: child,
    token,
    log,
    logged,
    told: (fits, least = 1) =>
      until(`${least} lines of the log with ${String(fits)}`, () => {
        const lines = log.filter(fits);
        return lines.length >= least && lines;
      }),
    servingPid: () =>
      Number(
        readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").trim().split(" ")[0],
      ),
    post: (page, body, headers = {}) =>
      fetch(url + page, {
        method: "POST",
        headers: { "Content-Type": "application/json", Authorization: token, ...headers },
        body: typeof body === "string" ? body : JSON.stringify(body),
      }),
    async stop() {
      closeQuietConnections();
      child.kill("SIGTERM");
      const status = await inTime("the server ends", exited);
      place.remove();
      return status;
    },
  };
}

/** How many descriptors the server has at a path and below it. */
export function openBelow(server: TestServer, at: string): number {
  const folder = `/proc/${server.servingPid()}/fd`;
  return readdirSync(folder).filter((descriptor) => {
    try {
      return readlinkSync(path.join(folder, descriptor)).startsWith(at);
    } catch {
      // It was closed since the folder was read
      return false;
    }
  }).length;
}
