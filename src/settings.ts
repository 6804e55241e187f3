/** Every setting: its name, meaning, default and check. README prints `settingsTable()`. */
import path from "node:path";
import { z } from "zod";
import { outputKindSchema } from "./manifest/manifest.js";

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

const absolute = z
  .string()
  .refine((p) => path.isAbsolute(p) && !p.includes("\0"), "Expected an absolute path, beginning with /")
  .transform((p) => path.resolve(p));
const size = z.union([z.int().min(0), z.string()]).transform((value, context) => {
  const bytes = typeof value === "number" ? value : parseSize(value);
  if (bytes !== undefined) return bytes;
  context.addIssue({ code: "custom", message: 'Expected a size in bytes, or text like "512MiB" or "8GB"' });
  return z.NEVER;
});
const roots = z.array(absolute);

/** A wrong one is refused here, because the errors of parsers quote it with its password. */
function isPostgresUrl(text: string): boolean {
  return /^postgres(ql)?:$/.test(URL.canParse(text) ? new URL(text).protocol : "");
}

/** The settings as the configuration file spells them. Order is the order of the published table. */
export const settings = {
  port: z.int().min(0).max(65535).default(8500).describe("TCP port; 0 takes a free one and says which"),
  host: z
    .string()
    .min(1)
    .default("0.0.0.0")
    .describe("Address to listen on; 127.0.0.1 for this machine only"),
  input_roots: roots.default([]).describe("Folders that inputs may lie in; required to serve"),
  output_roots: roots.default([]).describe("Folders that results may go to; required to serve"),
  path_map: z
    .array(z.strictObject({ from: z.string().min(1), to: absolute }))
    .default([])
    .describe(
      'Clients\' names of folders, [{"from": "\\\\\\\\server\\\\share", "to": "/mnt/share"}]; answers are mapped back',
    ),
  models_dir: absolute.optional().describe("Folder of model folders (default: the package's models)"),
  state_dir: absolute
    .optional()
    .describe(
      "Keys, queue, caches; one process at a time (default: $XDG_STATE_HOME/radserve or ~/.local/state/radserve)",
    ),
  keys_dir: absolute
    .optional()
    .describe(
      "Keys, issued tokens and revocations; many boxes may share one (default: keys in the state directory)",
    ),
  outputs: z
    .array(outputKindSchema)
    .min(1)
    .optional()
    .describe(
      "What to write for every model, of json, png, sr, seg, sc (json always); a request's own `outputs` goes before (default: what each model's manifest says)",
    ),
  database_url: z
    .string()
    .refine(isPostgresUrl, "Expected postgres://USER:PASSWORD@HOST:PORT/DATABASE")
    .optional()
    .describe("PostgreSQL of the bulk queue; a private one where absent"),
  role: z
    .enum(["api", "worker", "both"])
    .default("both")
    .describe(
      "api: takes requests and runs no bulk items; worker: runs bulk items and takes no inference requests; both",
    ),
  postgres_bin: absolute
    .optional()
    .describe(
      "Folder of PostgreSQL's programs for the private database (default: the newest of the distribution, else the npm package's)",
    ),
  providers: z
    .array(z.enum(["cpu", "cuda"]))
    .min(1)
    .default(["cpu"])
    .describe(
      "Where models run: cpu, cuda, or both in order of preference; cuda refuses to start where it cannot work",
    ),
  gpu_fallback: z
    .literal("cpu")
    .optional()
    .describe("cpu: run there where cuda was asked for and cannot work"),
  gpus: z
    .array(z.int().min(0))
    .min(1)
    .optional()
    .describe("Numbers of the GPUs to use; models run on the first of them (default: 0)"),
  gpu_memory: size
    .optional()
    .describe(
      'Most GPU memory that the runs of each model may take, beside its weights, for example "8GiB" (default: no limit)',
    ),
  threads: z
    .int()
    .min(1)
    .max(1024)
    .optional()
    .describe(
      "Worker threads that read and write images, and as many again for those of bulk jobs (default: one a core)",
    ),
  max_queue: z.int().min(1).default(1000).describe("Requests that may wait; beyond them 503 overloaded"),
  body_limit: size
    .default(8 * 1024 * 1024)
    .describe("Largest body of a bulk request; a single one may have 64 KiB"),
  minimum_free_disk: size
    .default(256 * 1024 * 1024)
    .describe("Free space below which an output folder is disk_full"),
  rate_limit: z
    .number()
    .min(0)
    .default(0)
    .describe(
      "Requests a second of one subject, with bursts of ten times as many; beyond them 429; 0: no limit",
    ),
  metrics_allow: z
    .array(
      z.union([z.cidrv4(), z.cidrv6(), z.ipv4(), z.ipv6()], {
        error: "Expected an IP address or a network, for example 10.0.0.5 or 10.0.0.0/8",
      }),
    )
    .default([])
    .describe("Addresses or networks that read /metrics without a token, beside this machine"),
  issuer: z.string().min(1).optional().describe("Tokens must have this `iss`"),
  audience: z.string().min(1).optional().describe("Tokens must have this `aud`"),
  grace_seconds: z
    .number()
    .min(0)
    .max(3600)
    .default(30)
    .describe("On stop, time for admitted requests to finish before they fail with shutting_down"),
  log_level: z
    .enum(["fatal", "error", "warn", "info", "debug", "trace", "silent"])
    .default("info")
    .describe("Least severe lines that are logged"),
};
export const schema = z.strictObject(settings);
export type Key = keyof typeof settings;
export type Settings = z.output<typeof schema>;

/** Read by commands and the build; not part of the configuration file. */
const ENVIRONMENT_ONLY: Record<string, string> = {
  RADSERVE_CONFIG:
    "The configuration file (default: ./radserve.config.json, else radserve.config.json in the state directory)",
  RADSERVE_URL: "Where client commands find the server (default: http://127.0.0.1 and the port)",
  RADSERVE_TOKEN: "Token of client commands",
};

/** The environment variable of a setting. */
export function variableOf(key: string): string {
  return key === "database_url" ? "DATABASE_URL" : `RADSERVE_${key.toUpperCase()}`;
}

export interface SettingRow {
  variable: string;
  key: string | undefined;
  default: string;
  meaning: string;
}

/** One row a setting, for the README and `radserve doctor`. */
export function settingsTable(): SettingRow[] {
  const rows = Object.entries(settings).map(([key, type]) => {
    const fallback = type.safeParse(undefined);
    const value: unknown = fallback.success ? fallback.data : undefined;
    return {
      variable: variableOf(key),
      key,
      default: value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value),
      meaning: type.description ?? "",
    };
  });
  const rest = Object.entries(ENVIRONMENT_ONLY).map(([variable, meaning]) => ({
    variable,
    key: undefined,
    default: "",
    meaning,
  }));
  return [...rows, ...rest];
}
