/** Reads the settings: the only reader of the environment, which wins, and of radserve.config.json. */
import { readFileSync, statSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { jsonFaultAt } from "./base/json-fault.js";
import { found, nearestName, problemsOf } from "./base/validation.js";
import { errno } from "./base/errno.js";
import { ConfigError } from "./base/errors.js";
import { schema, settings, settingsTable, variableOf, type Key, type Settings } from "./settings.js";

export interface Config extends Settings {
  models_dir: string;
  state_dir: string;
  keys_dir: string;
  /** True where nobody named the keys folder: then it is ours, and made where it is missing. */
  keys_dir_is_default: boolean;
  threads: number;
  /** The configuration file that was read. */
  file?: string;
  /** Things that are probably mistakes but forbid nothing. */
  warnings: string[];
}

/** How the text of an environment variable is read, if it is not taken as it is. */
const READ: Partial<Record<Key, (text: string) => unknown>> = {
  outputs: commaList,
  providers: commaList,
  gpus: (text) => commaList(text).map(numberOr),
  metrics_allow: commaList,
  input_roots: colonList,
  output_roots: colonList,
  path_map: jsonOr,
  port: numberOr,
  threads: numberOr,
  max_queue: numberOr,
  rate_limit: numberOr,
  grace_seconds: numberOr,
};

function colonList(text: string): string[] {
  return text.split(":").filter((part) => part !== "");
}
function commaList(text: string): string[] {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");
}
function numberOr(text: string): unknown {
  return /^-?\d+(\.\d+)?$/.test(text.trim()) ? Number(text) : text;
}
function jsonOr(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** The message about a secret says what was expected, not what was found. */
const withoutFound = (message: string) => message.replace(/; found .*/s, "");

type Environment = Readonly<Record<string, string | undefined>>;

export interface LoadOptions {
  /** The --config option. */
  file?: string | undefined;
  environment?: Environment;
  directory?: string;
}

const packageRoot = fileURLToPath(new URL("../../", import.meta.url));

function defaultStateDir(environment: Environment): string {
  const base = environment["XDG_STATE_HOME"];
  const home =
    base !== undefined && path.isAbsolute(base) ? base : path.join(os.homedir(), ".local", "state");
  return path.join(home, "radserve");
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    // ENOTDIR: the state directory is a file, which is said where it is made.
    if (errno(error) === "ENOENT" || errno(error) === "ENOTDIR") return undefined;
    throw new ConfigError(`${file}: cannot be read (${error instanceof Error ? error.message : "unknown"}).`);
  }
}

/** Editors of Windows begin UTF-8 with a byte order mark. */
function jsonOfFile(file: string, given: string): unknown {
  const text = given.replace(/^\ufeff/, "");
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // The parser's own message quotes the text, which may be the password of database_url.
    const { line, column } = jsonFaultAt(text);
    throw new ConfigError(`${file}: expected JSON; found a fault at line ${line}, column ${column}.`);
  }
}

/** The file that counts and its values: named (then it must exist), else in the directory, else in the state directory. */
function readFile(options: LoadOptions, environment: Environment): { file?: string; values: object } {
  const directory = options.directory ?? process.cwd();
  const named = options.file ?? environment["RADSERVE_CONFIG"];
  const state = environment["RADSERVE_STATE_DIR"] ?? defaultStateDir(environment);
  const places =
    named !== undefined
      ? [path.resolve(directory, named)]
      : [directory, state].map((folder) => path.join(folder, "radserve.config.json"));
  for (const file of places) {
    const text = readIfThere(file);
    if (text === undefined) continue;
    const values = jsonOfFile(file, text);
    if (typeof values === "object" && values !== null && !Array.isArray(values)) return { file, values };
    throw new ConfigError(`${file}: expected one JSON object.`);
  }
  if (named !== undefined)
    throw new ConfigError(`${places[0] ?? named}: expected the configuration file; nothing is there.`);
  return { values: {} };
}

function fromEnvironment(environment: Environment): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const key of Object.keys(settings) as Key[]) {
    const text = environment[variableOf(key)];
    if (text === undefined || text === "") continue;
    values[key] = READ[key]?.(text) ?? text;
  }
  return values;
}

const PREFIX = "RADSERVE_";

/** Misspelt variables are told, not refused: container platforms set RADSERVE_SERVICE_HOST and the like by themselves. */
function misspelt(environment: Environment): string[] {
  const bare = (name: string) => name.slice(PREFIX.length);
  const known = settingsTable()
    .map((row) => row.variable)
    .filter((name) => name.startsWith(PREFIX));
  return Object.keys(environment)
    .filter((name) => name.startsWith(PREFIX) && !known.includes(name))
    .map((name) => {
      const nearest = nearestName(bare(name), known.map(bare));
      const hint = nearest === undefined ? "" : `; the nearest known is ${PREFIX}${nearest}`;
      return `The environment variable ${name} means nothing here${hint}.`;
    });
}

function unusedGpus({ providers, gpus = [] }: Settings): string[] {
  if (gpus.length < 2 || !providers.includes("cuda")) return [];
  return [`RADSERVE_GPUS names ${gpus.length} GPUs; every model runs on the first of them, ${gpus[0]}.`];
}

function environmentOf(options: LoadOptions): Environment {
  const all = options.environment ?? process.env;
  return Object.fromEntries(Object.entries(all).filter(([, text]) => text !== ""));
}

/** Reads and checks all settings. Throws ConfigError naming the key, what was expected, what was found. */
export function loadConfig(options: LoadOptions = {}): Config {
  const environment = environmentOf(options);
  const { file, values } = readFile(options, environment);
  const overrides = fromEnvironment(environment);
  const merged = { ...values, ...overrides };
  const parsed = schema.safeParse(merged);
  if (!parsed.success) {
    const lines = problemsOf(schema, merged, parsed.error).map(({ field, message }) => {
      const key = field.split(/[.[]/)[0] ?? field;
      // Within a list of names the name itself is quoted; within objects the place helps.
      const place = field.includes(".") ? field.slice(key.length) : "";
      const where = key in overrides ? variableOf(key) + place : `${file ?? "configuration"}: ${field}`;
      return `${where}: ${key === "database_url" ? withoutFound(message) : message}.`;
    });
    throw new ConfigError(lines.join("\n"));
  }
  const state_dir = parsed.data.state_dir ?? defaultStateDir(environment);
  return {
    ...parsed.data,
    state_dir,
    keys_dir: parsed.data.keys_dir ?? path.join(state_dir, "keys"),
    keys_dir_is_default: parsed.data.keys_dir === undefined,
    models_dir: parsed.data.models_dir ?? path.join(packageRoot, "models"),
    threads: parsed.data.threads ?? os.availableParallelism(),
    ...(file === undefined ? {} : { file }),
    warnings: [...misspelt(environment), ...unusedGpus(parsed.data)],
  };
}

/**
 * Throws ConfigError where a folder that somebody named is not there: a share that is not mounted must not become an
 * empty folder, and never a new private key.
 */
export function requireFolder(folder: string, variable: string): void {
  const found = statSync(folder, { throwIfNoEntry: false });
  if (found?.isDirectory() === true) return;
  throw new ConfigError(
    `${variable}: expected a folder at ${folder}; found ${found === undefined ? "nothing" : "a file"}. Create it or mount it.`,
  );
}

/** What the settings ask of an engine. */
export function engineSettings({ providers, gpus, gpu_memory }: Settings): {
  provider: "cpu" | "cuda";
  gpu?: number;
  gpuMemory?: number;
} {
  return {
    provider: providers.includes("cuda") ? "cuda" : "cpu",
    ...(gpus?.[0] === undefined ? {} : { gpu: gpus[0] }),
    ...(gpu_memory === undefined ? {} : { gpuMemory: gpu_memory }),
  };
}

/** What client commands need: the server's address and a token. Throws ConfigError where either can be none. */
export function clientSettings(
  config: Config,
  environment: Environment = process.env,
): { url: string; token?: string } {
  const token = (environment["RADSERVE_TOKEN"] ?? "").trim();
  if (!/^[\x21-\x7e]*$/.test(token))
    throw new ConfigError(
      "RADSERVE_TOKEN: expected one token alone, without Bearer, as radserve token issue prints it; found more, or something else.",
    );
  const url = environment["RADSERVE_URL"] ?? `http://127.0.0.1:${config.port}`;
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    throw new ConfigError(
      `RADSERVE_URL: expected an address such as http://127.0.0.1:8500; found ${found(url)}.`,
    );
  return { url: url.replace(/\/+$/, ""), ...(token === "" ? {} : { token }) };
}
