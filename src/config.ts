/**
 * Every setting: its name, meaning, default and check. The only reader of the environment and of
 * radserve.config.json; the environment wins. README prints `settingsTable()`.
 */
import { withoutEnd } from "./base/ends.js";
import { constants, statSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { outputKindSchema } from "./manifest/output-kinds.js";
import { PROVIDERS } from "./manifest/providers.js";
import { jsonFault } from "./base/json-fault.js";
import { parseDuration } from "./base/duration.js";
import { AS_IT_IS, found, nearestName, problemsOf } from "./base/validation.js";
import { errno } from "./base/errno.js";
import { merged } from "./base/merged.js";
import { MAX_FILE_BYTES } from "./files/descriptor.js";
import { ABSOLUTE_NAME } from "./files/path-map.js";
import { textOfRegularSync } from "./files/regular-file.js";
import { folderFault } from "./files/usable.js";
import { ConfigError, PassingFault } from "./base/errors.js";
import { RESULT_FORMS, SEGMENTATION_TYPES, type ResultForms } from "./results/forms.js";

const SIZE = /^(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$/i;
const POWERS = ["b", "k", "m", "g", "t"];

/** "512MiB", "2GB" or a plain number of bytes; undefined where the text is none of these. */
export function parseSize(text: string): number | undefined {
  const match = SIZE.exec(text.trim());
  if (match === null) return undefined;
  const unit = (match[2] ?? "B").toLowerCase();
  const base = unit.includes("i") ? 1024 : 1000;
  return Math.round(Number(match[1]) * base ** POWERS.indexOf(unit.charAt(0)));
}

/** A path that does not depend on where the server was started. */
export const absolute = z
  .string()
  .refine(
    (p) => path.isAbsolute(p) && !p.includes("\0"),
    "Expected an absolute path, beginning with /",
  )
  .transform((p) => path.resolve(p));
const A_SIZE = 'Expected a size in bytes, or text like "512MiB" or "8GB"';
export const size = z.union([z.int().min(0), z.string()], A_SIZE).transform((value, context) => {
  const bytes = typeof value === "number" ? value : parseSize(value);
  if (bytes !== undefined) return bytes;
  context.addIssue({ code: "custom", message: A_SIZE });
  return z.NEVER;
});
/** Text such as "825d"; the value is in seconds. */
export const duration = z.string().transform((text, context) => {
  const seconds = parseDuration(text);
  if (seconds !== undefined) return seconds;
  context.addIssue({
    code: "custom",
    message: 'Expected a number with s, m, h, d, w or y, for example "825d", and at most 100y',
  });
  return z.NEVER;
});
const roots = z.array(absolute);
const EXPECTED_FROM =
  "Expected an absolute name, for example \\\\server\\share, D: or /Volumes/images";
export const network = z.union([z.cidrv4(), z.cidrv6(), z.ipv4(), z.ipv6()], {
  error: "Expected an IP address or a network, for example 10.0.0.5 or 10.0.0.0/8",
});
const networks = z.array(network).default([]);

/** A wrong one is refused here, because the errors of parsers quote it with its password. */
function isPostgresUrl(text: string): boolean {
  return /^postgres(ql)?:$/.test(URL.canParse(text) ? new URL(text).protocol : "");
}

const PATH_MAP_MEANING =
  'Clients\' paths and the server\'s paths for them, [{"from": "\\\\\\\\server\\\\share", "to": ' +
  '"/mnt/share"}]; answers have the client\'s path';
const STATE_DIR_MEANING =
  "Folder for keys, queue and caches, used by one server at a time (default: " +
  "$XDG_STATE_HOME/radserve or ~/.local/state/radserve)";
const TRUSTED_PROXIES_MEANING =
  "Addresses or networks of proxies whose X-Forwarded-For or Forwarded names the client; " +
  "without it these headers are ignored";
const MAX_CONNECTIONS_PER_ADDRESS_MEANING =
  "Connections at a time of one address (of IPv6: of one /64 network); more get 503 " +
  "overloaded; trusted proxies have no such limit";
const FAILED_TOKENS_MEANING =
  "Refused tokens of one address in a minute, after which each further 401 to it comes a " +
  "second later; good tokens never wait; 0: no limit";
const FILES_BY_HTTP_MEANING =
  "What clients may do over HTTP: upload images into input folders, download results from " +
  "output folders, view results with their images on the page; nothing unless set";
const OUTPUTS_MEANING =
  "What to write for every model, of json, png, sr, seg, rtstruct, sc (json always); the " +
  "`outputs` of a request override it (default: what each model's manifest says)";
const SEGMENTATION_TYPE_MEANING =
  "Form of SEG objects: binary, a bit plane for each label; or labelmap, one label map for all " +
  "labels, for labels that do not overlap and a PACS that reads Label Map Segmentation Storage";
const THREADS_MEANING =
  "Worker threads for single requests (default: one per core). Two more are always reserved: one " +
  "for stat requests, one that no single subject can occupy. Bulk jobs get the same number again";
const MEMORY_MEANING =
  'Memory for all images in progress, for example "8GiB"; what does not fit waits, then 503 ' +
  "overloaded (default: half of what the machine or the control group has beyond 512 MiB)";
const DEADLINE_SECONDS_MEANING =
  "Time limit of an inference, after which it fails with deadline_exceeded: for a request " +
  "without `timeout_ms` from its arrival, for a bulk item from its start";
const REQUESTS_PER_SUBJECT_MEANING =
  "Requests of one subject that may run or wait at a time; beyond them 429 rate_limited " +
  "(default: half of max_queue, and at least 64)";
const PROVIDERS_MEANING =
  "What models run on, in order of preference: cpu, cuda, openvino; the server refuses to start " +
  "if cuda or openvino is named and does not work";
const GPUS_MEANING =
  "Numbers of the GPUs to use; each model goes to one that has room, the one with the least " +
  "waiting work first (default: 0)";
const MODEL_IDLE_MEANING =
  'Idle time after which a model is unloaded from CPU and GPU memory, for example "30m"; the ' +
  "next request loads it again and waits (default: never)";
const DRAIN_SECONDS_MEANING =
  "On stop, time for which the server is not ready and still answers requests, so that a load " +
  "balancer sends them elsewhere; then it takes no more";
const JOBS_PER_SUBJECT_MEANING =
  "Bulk jobs of one subject that may be open, on all nodes together; beyond them 429 " +
  "rate_limited until one has ended";

/**
 * The settings as the configuration file spells them, by what they are about. The published tables
 * have this order.
 */
const topics = {
  Folders: {
    input_roots: roots
      .default([])
      .describe("Folders that images may be read from; required to serve"),
    output_roots: roots
      .default([])
      .describe("Folders that results may be written to; required to serve"),
    path_map: z
      .array(z.strictObject({ from: z.string().regex(ABSOLUTE_NAME, EXPECTED_FROM), to: absolute }))
      .default([])
      .describe(PATH_MAP_MEANING),
    models_dir: absolute
      .optional()
      .describe("Folder of model folders (default: the package's models)"),
    state_dir: absolute.optional().describe(STATE_DIR_MEANING),
    keys_dir: absolute
      .optional()
      .describe(
        "Keys, issued tokens and revocations; many nodes may share one (default: keys in the state directory)",
      ),
    minimum_free_disk: size
      .default(256 * 1024 * 1024)
      .describe("Free space below which work for an output folder is refused (disk_full)"),
  },
  "Address and TLS": {
    port: z
      .int()
      .min(0)
      .max(65535)
      .default(8500)
      .describe("TCP port; 0 takes a free one and prints it"),
    host: z
      .string()
      .min(1)
      .default("0.0.0.0")
      .describe("Address to listen on; 127.0.0.1 for this machine only"),
    tls_cert: absolute
      .optional()
      .describe(
        "Server certificate in PEM, then the intermediate certificates; with it, the port speaks only TLS",
      ),
    tls_key: absolute
      .optional()
      .describe("Private key of tls_cert in PEM, not readable by everybody"),
    tls_client_ca: absolute
      .optional()
      .describe(
        "CA certificates in PEM; with it, every client needs a certificate from one of them (mTLS)",
      ),
    trusted_proxies: networks.describe(TRUSTED_PROXIES_MEANING),
    max_connections: z
      .int()
      .min(1)
      .default(4096)
      .describe(
        "Connections at a time; beyond it, the longest idle one is closed, else the new one gets 503 overloaded",
      ),
    max_connections_per_address: z
      .int()
      .min(1)
      .default(1024)
      .describe(MAX_CONNECTIONS_PER_ADDRESS_MEANING),
    metrics_allow: networks.describe(
      "Addresses or networks that may read /metrics without a token, besides this machine",
    ),
  },
  Tokens: {
    issuer: z.string().min(1).optional().describe("Tokens must have this `iss`"),
    audience: z.string().min(1).optional().describe("Tokens must have this `aud`"),
    token_max_age: duration
      .optional()
      .describe(
        'Longest lifetime of a token, from its `iat` and from now, for example "825d" (default: no limit)',
      ),
    failed_tokens: z.int().min(0).default(20).describe(FAILED_TOKENS_MEANING),
  },
  "Files over HTTP, modalities and PACS": {
    files_by_http: z
      .array(z.enum(["upload", "download", "view"]))
      .default([])
      .describe(FILES_BY_HTTP_MEANING),
    upload_limit: size
      .default(MAX_FILE_BYTES)
      .describe("Largest upload; files larger than the default cannot be read"),
  },
  Results: {
    outputs: z.array(outputKindSchema).min(1).optional().describe(OUTPUTS_MEANING),
    overlay_opacity: z
      .number()
      .min(0.1)
      .max(0.9)
      .default(RESULT_FORMS.overlayOpacity)
      .describe("Opacity of masks in pictures, from 0.1 to 0.9"),
    segmentation_type: z
      .enum(SEGMENTATION_TYPES)
      .default(RESULT_FORMS.segmentationType)
      .describe(SEGMENTATION_TYPE_MEANING),
  },
  "Work and memory": {
    threads: z.int().min(1).max(1024).optional().describe(THREADS_MEANING),
    memory: size.optional().describe(MEMORY_MEANING),
    deadline_seconds: z.number().min(1).max(86_400).default(300).describe(DEADLINE_SECONDS_MEANING),
    max_queue: z
      .int()
      .min(1)
      .default(1000)
      .describe("Requests that may wait; beyond them 503 overloaded"),
    body_limit: size
      .default(8 * 1024 * 1024)
      .describe("Largest body of a bulk request; a single one may have 64 KiB"),
    rate_limit: z
      .number()
      .min(0)
      .default(0)
      .describe(
        "Requests a second of one subject, with bursts of ten times as many; beyond them 429; 0: no limit",
      ),
    requests_per_subject: z.int().min(1).optional().describe(REQUESTS_PER_SUBJECT_MEANING),
    providers: z.array(z.enum(PROVIDERS)).min(1).default(["cpu"]).describe(PROVIDERS_MEANING),
    gpu_fallback: z
      .literal("cpu")
      .optional()
      .describe("cpu: run on the CPU if cuda is requested and does not work"),
    gpus: z.array(z.int().min(0)).min(1).optional().describe(GPUS_MEANING),
    gpu_memory: size
      .optional()
      .describe(
        'Limit of memory for all models of one GPU, weights included, for example "8GiB" (default: no limit)',
      ),
    model_idle: duration.optional().describe(MODEL_IDLE_MEANING),
  },
  Jobs: {
    database_url: z
      .string()
      .refine(isPostgresUrl, "Expected postgres://USER:PASSWORD@HOST:PORT/DATABASE")
      .optional()
      .describe("PostgreSQL of the bulk queue (default: a private one)"),
    role: z
      .enum(["api", "worker", "both"])
      .default("both")
      .describe(
        "api: takes requests and runs no bulk items; worker: runs bulk items and takes no inference requests; both",
      ),
    node_name: z
      .string()
      .regex(
        /^[\w.-]{1,64}$/,
        "Expected 1 to 64 letters of ASCII, digits, dots, hyphens and underscores",
      )
      .optional()
      .describe("Name of this node among those of one database (default: the host name)"),
    pause_after_failures: z
      .int()
      .min(0)
      .default(50)
      .describe(
        "Pause a bulk job (repeated_failures) after so many consecutive images fail for one reason; 0: never",
      ),
    jobs_per_subject: z.int().min(1).default(1000).describe(JOBS_PER_SUBJECT_MEANING),
  },
  "Log and stop": {
    log_level: z
      .enum(["fatal", "error", "warn", "info", "debug", "trace", "silent"])
      .default("info")
      .describe("Lowest level that is logged"),
    drain_seconds: z.number().min(0).max(3600).default(0).describe(DRAIN_SECONDS_MEANING),
    grace_seconds: z
      .number()
      .min(0)
      .max(3600)
      .default(30)
      .describe(
        "On stop, time for accepted requests to finish before they fail with shutting_down. What stops the server has to wait longer than this and drain_seconds together: TimeoutStopSec of the unit and stop_grace_period of the compose files are 2 minutes",
      ),
  },
};

type Topics = typeof topics;
type CoreShape = Topics["Folders"] &
  Topics["Address and TLS"] &
  Topics["Tokens"] &
  Topics["Files over HTTP, modalities and PACS"] &
  Topics["Results"] &
  Topics["Work and memory"] &
  Topics["Jobs"] &
  Topics["Log and stop"];
export type Settings = z.output<z.ZodObject<CoreShape>>;

/** Settings by what they are about, as features bring them. */
export type SettingTopics = Readonly<Record<string, z.ZodRawShape>>;

/** All settings. In each topic the settings of features follow the settings of the core. */
function withFeatures(features: readonly SettingTopics[]): SettingTopics {
  const all: Record<string, z.ZodRawShape> = { ...topics };
  for (const feature of features)
    for (const [topic, more] of Object.entries(feature)) all[topic] = { ...all[topic], ...more };
  return all;
}

const shapeOf = (all: SettingTopics): z.ZodRawShape => merged(Object.values(all));

/** The settings of a feature, which loadConfig has checked with all others. */
export function settingsOf<S extends z.ZodRawShape>(
  shape: S,
  config: object,
): z.output<z.ZodObject<S>> {
  const all = config as Record<string, unknown>;
  const own = Object.keys(shape).map((key) => [key, all[key]] as const);
  return Object.fromEntries(own) as z.output<z.ZodObject<S>>;
}

export interface Config extends Settings {
  models_dir: string;
  state_dir: string;
  keys_dir: string;
  /** True where nobody named the keys folder: then it is ours, and made where it is missing. */
  keys_dir_is_default: boolean;
  node_name: string;
  threads: number;
  requests_per_subject: number;
  /** The configuration file that was read. */
  file?: string;
  /** Things that are probably mistakes but forbid nothing. */
  warnings: string[];
}

/** Read by commands and the build; not part of the configuration file. */
const ENVIRONMENT_ONLY: Record<string, string> = {
  RADSERVE_CONFIG:
    "The configuration file (default: ./radserve.config.json, else radserve.config.json in the state directory)",
  RADSERVE_NODE:
    "Absolute path of another Node.js binary to run on (default: the one that Radserve was measured with, which npm installs)",
  RADSERVE_URL:
    "Where client commands find the server (default: http://127.0.0.1 and the port; https:// where tls_cert is set)",
  RADSERVE_TOKEN: "Token of client commands",
  RADSERVE_TLS_CA:
    "CA certificates in PEM by which client commands know a server over https (default: those of Node.js, with NODE_EXTRA_CA_CERTS)",
  RADSERVE_TLS_CLIENT_CERT: "Certificate in PEM that client commands show to a server with mTLS",
  RADSERVE_TLS_CLIENT_KEY: "Private key of RADSERVE_TLS_CLIENT_CERT in PEM",
};

/**
 * The text of an environment variable as the value that its setting's type takes; what fits none
 * stays for the check.
 */
function valueOf(variable: string, type: z.core.$ZodType, text: string): unknown {
  if (type instanceof z.ZodOptional || type instanceof z.ZodDefault)
    return valueOf(variable, type.unwrap(), text);
  if (type instanceof z.ZodNumber) return /^-?\d+(\.\d+)?$/.test(text.trim()) ? Number(text) : text;
  if (!(type instanceof z.ZodArray)) return text;
  const { element } = type;
  if (element instanceof z.ZodObject) return jsonOfFile(variable, text);
  const parts = element === absolute ? text.split(":") : text.split(",").map((part) => part.trim());
  return parts.filter((part) => part !== "").map((part) => valueOf(variable, element, part));
}

function variableOf(key: string): string {
  return key === "database_url" ? "DATABASE_URL" : `RADSERVE_${key.toUpperCase()}`;
}

/** Settings of the version before whose names have changed: earlier keys, and the keys now. */
const EARLIER_NAMES = { doors: "gateway" };

/**
 * The values of one source under the names that settings have now.
 * @param place what its texts begin with
 * @param nameOf how the source writes a key
 * @param warn gets a text for each earlier name
 * @throws ConfigError where the earlier name and the new one have different values
 */
function underNewNames(
  values: Readonly<Record<string, unknown>>,
  place: string,
  nameOf: (key: string) => string,
  warn: (warning: string) => void,
): Record<string, unknown> {
  let now: Record<string, unknown> = { ...values };
  for (const [earlier, key] of Object.entries(EARLIER_NAMES)) {
    if (!(earlier in now)) continue;
    const { [earlier]: value, ...others } = now;
    if (key in others && others[key] !== value)
      throw new ConfigError(
        `${place}${nameOf(key)}: expected the value of ${nameOf(earlier)}, which is the earlier name of the same setting; ` +
          `found another. Remove ${nameOf(earlier)}.`,
      );
    now = { ...others, [key]: value };
    warn(
      `${place}${nameOf(earlier)} is now called ${nameOf(key)}. Rename it: the next version will not know the earlier name.`,
    );
  }
  return now;
}

export interface SettingRow {
  /** What it is about. */
  topic: string;
  variable: string;
  key: string | undefined;
  default: string;
  meaning: string;
}

/** One row a setting, for the README and `radserve doctor`. */
export function settingsTable(features: readonly SettingTopics[] = []): SettingRow[] {
  const all = Object.entries(withFeatures(features)).flatMap(([topic, those]) =>
    Object.entries(those as Record<string, z.ZodType>).map(
      ([key, type]) => [topic, key, type] as const,
    ),
  );
  const rows = all.map(([topic, key, type]) => {
    const fallback = type.safeParse(undefined);
    const value: unknown = fallback.success ? fallback.data : undefined;
    return {
      topic,
      variable: variableOf(key),
      key,
      default: value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value),
      meaning: type.description ?? "",
    };
  });
  const rest = Object.entries(ENVIRONMENT_ONLY).map(([variable, meaning]) => ({
    topic: "Only in the environment",
    variable,
    key: undefined,
    default: "",
    meaning,
  }));
  return [...rows, ...rest];
}

/** Messages about secrets say only what was expected. */
const withoutFound = (message: string) => message.replace(/; found .*/s, "");

/**
 * Fewer requests of one subject at a time are not refused by default, however short the line is.
 */
const FEWEST_OF_SUBJECT = 64;

type Environment = Readonly<Record<string, string | undefined>>;

export interface ConfigOptions {
  /** The --config option. */
  file?: string | undefined;
  environment?: Environment;
  directory?: string;
  /** Settings beside those of the core. */
  features?: readonly SettingTopics[];
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
    return textOfRegularSync(file);
  } catch (error) {
    // ENOTDIR: the state directory is a file, which is said where it is made.
    if (errno(error) === "ENOENT" || errno(error) === "ENOTDIR") return undefined;
    throw new ConfigError(
      `${file}: cannot be read (${error instanceof Error ? error.message : "unknown"}).`,
    );
  }
}

/** As much of a field's name as is shown. */
const LONGEST_SHOWN = 64;

/**
 * Editors of Windows begin UTF-8 with a byte order mark. @param file or the variable that holds the
 * text
 */
export function jsonOfFile(file: string, given: string): unknown {
  const text = given.replace(/^\ufeff/, "");
  const fault = jsonFault(text);
  if (fault === undefined) return JSON.parse(text) as unknown;
  const place = `line ${fault.line}, column ${fault.column}`;
  // The parser's own message quotes the text, which may be the password of database_url
  throw new ConfigError(
    fault.kind === "repeated"
      ? `${file}: expected each field once; found "${fault.field.slice(0, LONGEST_SHOWN)}" again at ${place}.`
      : `${file}: expected JSON; found a fault at ${place}.`,
  );
}

/**
 * What the JSON file holds that a setting names.
 * @param variable the setting, with which messages begin
 * @throws ConfigError naming the field that is wrong
 */
export function readNamedFile<T>(variable: string, file: string, schema: z.ZodType<T>): T {
  let text = "";
  try {
    text = textOfRegularSync(file);
  } catch (error) {
    throw new ConfigError(
      `${variable}: expected a file at ${file}; it cannot be read (${errno(error) || "no plain file"}).`,
    );
  }
  const value = jsonOfFile(file, text);
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const problems = problemsOf(schema, value, parsed.error).map(
    ({ field, message }) => `${field === "" ? "the file" : field}: ${message}.`,
  );
  throw new ConfigError(`${variable}: ${problems.join(" ")}`);
}

/** Where a file of settings may lie, and the one that somebody named. */
function placesOf(options: ConfigOptions, environment: Environment) {
  const directory = options.directory ?? process.cwd();
  const named = options.file ?? environment["RADSERVE_CONFIG"];
  const state = environment["RADSERVE_STATE_DIR"] ?? defaultStateDir(environment);
  const places =
    named !== undefined
      ? [path.resolve(directory, named)]
      : [directory, state].map((folder) => path.join(folder, "radserve.config.json"));
  return { named, places };
}

/**
 * A folder of settings whose share or disk does not answer: who read from it would never come back.
 */
export async function silentSettings(options: ConfigOptions): Promise<string | undefined> {
  const { places } = placesOf(options, environmentOf(options));
  const folders = [...new Set(places.map((file) => path.dirname(file)))];
  const faults = await Promise.all(folders.map((folder) => folderFault(folder, constants.R_OK)));
  return folders.find((_, i) => faults[i]?.silent === true);
}

/**
 * The file that counts and its values: named (then it must exist), else in the directory, else in
 * the state directory.
 */
function readFile(
  options: ConfigOptions,
  environment: Environment,
): { file?: string; values: object } {
  const { named, places } = placesOf(options, environment);
  for (const file of places) {
    const text = readIfThere(file);
    if (text === undefined) continue;
    const values = jsonOfFile(file, text);
    if (typeof values === "object" && values !== null && !Array.isArray(values))
      return { file, values };
    throw new ConfigError(`${file}: expected one JSON object.`);
  }
  if (named !== undefined)
    throw new ConfigError(
      `${places[0] ?? named}: expected the configuration file; nothing is there.`,
    );
  return { values: {} };
}

/** @param warn gets a text for each variable that has its earlier name */
function fromEnvironment(
  environment: Environment,
  shape: z.ZodRawShape,
  warn: (warning: string) => void,
): Record<string, unknown> {
  const texts = [...Object.keys(shape), ...Object.keys(EARLIER_NAMES)].flatMap((key) => {
    const text = environment[variableOf(key)];
    return text === undefined ? [] : [[key, text] as const];
  });
  const values = underNewNames(Object.fromEntries(texts), "", variableOf, warn);
  return Object.fromEntries(
    Object.entries(shape).flatMap(([key, type]) => {
      const text = values[key];
      return typeof text === "string" ? [[key, valueOf(variableOf(key), type, text)]] : [];
    }),
  );
}

const PREFIX = "RADSERVE_";

/**
 * Misspelt variables are told, not refused: container platforms set RADSERVE_SERVICE_HOST and the
 * like by themselves.
 */
function misspelt(environment: Environment, features: readonly SettingTopics[]): string[] {
  const bare = (name: string) => name.slice(PREFIX.length);
  const known = settingsTable(features)
    .map((row) => row.variable)
    .filter((name) => name.startsWith(PREFIX));
  const earlier = Object.keys(EARLIER_NAMES).map(variableOf);
  return Object.keys(environment)
    .filter((name) => name.startsWith(PREFIX) && ![...known, ...earlier].includes(name))
    .map((name) => {
      const nearest = nearestName(bare(name), known.map(bare));
      const hint = nearest === undefined ? "" : `; the nearest known is ${PREFIX}${nearest}`;
      return `The environment variable ${name} means nothing here${hint}.`;
    });
}

function environmentOf(options: ConfigOptions): Environment {
  const all = options.environment ?? process.env;
  return Object.fromEntries(Object.entries(all).filter(([, text]) => text !== ""));
}

const OTHERS_READ = 0o004;
const OTHERS_ENTER = 0o001;

/** A warning where the file holds a password and every user of the machine may read it. */
function openPassword(file: string, url = ""): string[] {
  const isSecret = URL.canParse(url) && (new URL(url).password !== "" || /[?&]password=/.test(url));
  const mode = statSync(file).mode & 0o777;
  const isReached = (statSync(path.dirname(file)).mode & OTHERS_ENTER) !== 0;
  if (!isSecret || !isReached || (mode & OTHERS_READ) === 0) return [];
  return [
    `${file}: every user of this machine can read the password in database_url (mode ${mode.toString(8)}). Set DATABASE_URL in the server's environment instead (under systemd /etc/radserve/environment, mode 600), or run chmod 640 and give the file the group of the server's user.`,
  ];
}

/**
 * Reads and checks all settings. Throws ConfigError naming the key, what was expected, what was
 * found.
 */
export function loadConfig(options: ConfigOptions = {}): Config {
  const environment = environmentOf(options);
  const { file, values } = readFile(options, environment);
  const { features = [] } = options;
  const shape = shapeOf(withFeatures(features));
  const warnings = misspelt(environment, features);
  const warn = (warning: string) => void warnings.push(warning);
  const overrides = fromEnvironment(environment, shape, warn);
  const inFile = `${file ?? "configuration"}: `;
  const merged = { ...underNewNames({ ...values }, inFile, (key) => key, warn), ...overrides };
  // The core's own are among them
  const whole = z.strictObject(shape) as unknown as z.ZodObject<CoreShape>;
  const parsed = whole.safeParse(merged, AS_IT_IS);
  if (!parsed.success) {
    const lines = problemsOf(whole, merged, parsed.error).map(({ field, message }) => {
      const key = field.split(/[.[]/)[0] ?? field;
      // Within a list of names the name itself is quoted; within objects the place helps.
      const place = field.includes(".") ? field.slice(key.length) : "";
      const where = key in overrides ? variableOf(key) + place : inFile + field;
      return `${where}: ${key === "database_url" ? withoutFound(message) : message}.`;
    });
    throw new ConfigError(lines.join("\n"));
  }
  if (file !== undefined && !("database_url" in overrides))
    warnings.push(...openPassword(file, parsed.data.database_url));
  const state_dir = parsed.data.state_dir ?? defaultStateDir(environment);
  return {
    ...parsed.data,
    state_dir,
    keys_dir: parsed.data.keys_dir ?? path.join(state_dir, "keys"),
    keys_dir_is_default: parsed.data.keys_dir === undefined,
    models_dir: parsed.data.models_dir ?? path.join(packageRoot, "models"),
    node_name: parsed.data.node_name ?? os.hostname(),
    threads: parsed.data.threads ?? os.availableParallelism(),
    requests_per_subject:
      parsed.data.requests_per_subject ??
      Math.max(FEWEST_OF_SUBJECT, Math.floor(parsed.data.max_queue / 2)),
    ...(file === undefined ? {} : { file }),
    warnings,
  };
}

/**
 * Refuses a folder that somebody named and that is not there: a share that is not mounted must not
 * become an empty folder, and never a new private key.
 * @throws ConfigError; PassingFault where a share may be missing
 */
export function requireFolder(folder: string, variable: string): void {
  const found = statSync(folder, { throwIfNoEntry: false });
  if (found?.isDirectory() === true) return;
  const what = found === undefined ? "nothing" : "a file";
  const message = `${variable}: expected a folder at ${folder}; found ${what}. Create it or mount it.`;
  throw found === undefined ? new PassingFault(message) : new ConfigError(message);
}

/** The options of an engine that the settings ask for. */
export function engineSettings({ providers, gpus, gpu_memory, model_idle }: Settings): {
  provider: "cpu" | "cuda";
  openvino?: true;
  gpus?: number[];
  gpuMemory?: number;
  modelsLeave?: true;
} {
  return {
    provider: providers.includes("cuda") ? "cuda" : "cpu",
    ...(providers.includes("openvino") ? { openvino: true } : {}),
    ...(gpus === undefined ? {} : { gpus }),
    ...(gpu_memory === undefined ? {} : { gpuMemory: gpu_memory }),
    ...(model_idle === undefined ? {} : { modelsLeave: true }),
  };
}

/** Beyond the times of the settings, how long an orderly stop may take. */
const STOP_MARGIN_SECONDS = 10;

/** After so long a stop is enforced; the private PostgreSQL stops after it. */
export function longestStopSeconds({ drain_seconds, grace_seconds }: Settings): number {
  return drain_seconds + grace_seconds + STOP_MARGIN_SECONDS;
}

/** The forms of results that the settings choose. */
export function resultForms({ overlay_opacity, segmentation_type }: Settings): ResultForms {
  return { overlayOpacity: overlay_opacity, segmentationType: segmentation_type };
}

/**
 * The settings that decide the form of results, by their variables: nodes that share jobs have the
 * same.
 */
export function resultSettings(config: Settings): Record<string, string> {
  const { outputs, segmentation_type, overlay_opacity } = config;
  return {
    [variableOf("outputs")]: outputs === undefined ? "not set" : [...outputs].sort().join(" "),
    [variableOf("segmentation_type")]: segmentation_type,
    [variableOf("overlay_opacity")]: String(overlay_opacity),
  };
}

export interface ClientSettings {
  url: string;
  token: string | undefined;
  /** Files in PEM, for https. */
  ca: string | undefined;
  cert: string | undefined;
  key: string | undefined;
}

/**
 * The settings of client commands: the server's address, a token, and TLS. Throws ConfigError if
 * one of them is wrong.
 */
export function clientSettings(
  config: Config,
  environment: Environment = process.env,
): ClientSettings {
  const token = (environment["RADSERVE_TOKEN"] ?? "").trim();
  if (!/^[\x21-\x7e]*$/.test(token))
    throw new ConfigError(
      "RADSERVE_TOKEN: expected one token alone, without Bearer, as radserve token issue prints it; found more, or something else.",
    );
  const scheme = config.tls_cert === undefined ? "http" : "https";
  const url = environment["RADSERVE_URL"] ?? `${scheme}://127.0.0.1:${config.port}`;
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    throw new ConfigError(
      `RADSERVE_URL: expected an address such as http://127.0.0.1:8500; found ${found(url)}.`,
    );
  const file = (name: string) => environment[`RADSERVE_TLS_${name}`] || undefined;
  const [ca, cert, key] = [file("CA"), file("CLIENT_CERT"), file("CLIENT_KEY")];
  if ((cert === undefined) !== (key === undefined))
    throw new ConfigError(
      `RADSERVE_TLS_CLIENT_${cert === undefined ? "CERT" : "KEY"}: expected a file; found nothing. A certificate of this client needs its key.`,
    );
  return { url: withoutEnd(url, "/"), token: token || undefined, ca, cert, key };
}
