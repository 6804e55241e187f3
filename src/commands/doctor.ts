/** `radserve doctor`: looks at everything that serving needs; each line is ok, or a problem with its fix. */
import { accessSync, constants, statfsSync, statSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import sharp from "sharp";
import { inspectDatabase } from "../bulk/database.js";
import { BulkUnavailable } from "../bulk/unavailable.js";
import { engineSettings, type Config } from "../config.js";
import { ConfigError } from "../base/errors.js";
import { modelFolders } from "../models/load.js";
import { readModelFolder } from "../models/read.js";
import { freeBytes } from "../files/disk.js";
import { createEngine } from "../engine/engine.js";
import { expiryWarning, readCertificates } from "../server/certificates.js";
import { readKeys } from "../server/keys.js";
import { exposures } from "../files/own-folders.js";
import { VERSION } from "../base/version.js";
import { tryDecoder } from "../images/decoder/decoder.js";
import { print, type ExitStatus } from "./run.js";
import { errno } from "../base/errno.js";

export interface Finding {
  name: string;
  ok: boolean;
  found: string;
  fix?: string;
}

const good = (name: string, found: string): Finding => ({ name, ok: true, found });
const bad = (name: string, found: string, fix: string): Finding => ({ name, ok: false, found, fix });
const wordsOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

const OLDEST_NODE = [20, 17] as const;

function machine(): Finding[] {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const fresh = major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]);
  const platform = `${process.platform} ${process.arch}`;
  const cpus = os.cpus();
  return [
    fresh
      ? good("Node.js", process.versions.node)
      : bad("Node.js", process.versions.node, `Install Node.js ${OLDEST_NODE.join(".")} or later.`),
    platform === "linux x64"
      ? good("platform", platform)
      : bad("platform", platform, "Radserve runs on Linux x64 with glibc."),
    good("CPU", `${os.availableParallelism()} usable cores, ${cpus[0]?.model ?? "unknown"}`),
  ];
}

async function engine(config: Config): Promise<Finding[]> {
  const options = engineSettings(config);
  const { provider } = options;
  try {
    const started = createEngine(options);
    const { onnxRuntimeVersion, providers } = started.info();
    await started.close();
    return [
      good("addon", "loads"),
      good("ONNX Runtime", `${onnxRuntimeVersion}, offers ${providers.join(", ")}`),
      good("GPU", provider === "cuda" ? "CUDA works" : "not asked for (RADSERVE_PROVIDERS is cpu)"),
    ];
  } catch (error) {
    const fix =
      provider === "cuda"
        ? "Run npm run setup:gpu and install what the message names, or set RADSERVE_GPU_FALLBACK=cpu."
        : "Run npm run rebuild; it says what is missing.";
    return [bad(provider === "cuda" ? "GPU" : "addon", wordsOf(error), fix)];
  }
}

async function codecs(): Promise<Finding[]> {
  try {
    await Promise.all([import("dcmjs-codecs"), import("@cornerstonejs/codec-charls/decodewasmjs")]);
    return [
      good(
        "codecs",
        `dcmjs-codecs, codec-charls; sharp ${sharp.versions.sharp} (libvips ${sharp.versions.vips})`,
      ),
    ];
  } catch (error) {
    return [bad("codecs", wordsOf(error), "Run npm ci again.")];
  }
}

async function decoder(): Promise<Finding> {
  const name = "decoder of PNG, JPEG and TIFF";
  try {
    await tryDecoder();
    return good(name, "runs in a process that can open neither files nor sockets");
  } catch (error) {
    return bad(
      name,
      wordsOf(error),
      "Run npm run rebuild. In a container or a unit of systemd, allow the system call seccomp.",
    );
  }
}

function allowed(folder: string, mode: number): string | undefined {
  try {
    accessSync(folder, mode);
    return statSync(folder).isDirectory() ? undefined : "is no folder";
  } catch (error) {
    return errno(error) || "cannot be used";
  }
}

async function roots(config: Config): Promise<Finding[]> {
  const findings = config.input_roots.map((root) => {
    const why = allowed(root, constants.R_OK | constants.X_OK);
    return why === undefined
      ? good("input root", `${root} can be read`)
      : bad("input root", `${root}: ${why}`, "Create or mount it, and let the server's user read it.");
  });
  if (findings.length === 0)
    findings.push(bad("input root", "none", "Set RADSERVE_INPUT_ROOTS or input_roots; serving needs one."));
  const outputs = config.output_roots.map((root) => {
    const why = allowed(root, constants.R_OK | constants.W_OK | constants.X_OK);
    return why === undefined
      ? good("output root", `${root} can be written`)
      : bad("output root", `${root}: ${why}`, "Create or mount it, and let the server's user write to it.");
  });
  if (outputs.length === 0)
    outputs.push(bad("output root", "none", "Set RADSERVE_OUTPUT_ROOTS or output_roots; serving needs one."));
  const exposed = (await exposures(config)).map(({ setting, found, fix }) =>
    bad(setting === "RADSERVE_INPUT_ROOTS" ? "input root" : "output root", found, fix),
  );
  return [...findings, ...outputs, ...exposed];
}

function state(config: Config): Finding[] {
  const why = allowed(config.state_dir, constants.R_OK | constants.W_OK | constants.X_OK);
  const findings: Finding[] = [
    why === undefined
      ? good("state directory", config.state_dir)
      : bad("state directory", `${config.state_dir}: ${why}`, "Run radserve init as the user that serves."),
  ];
  try {
    const { keys, problems } = readKeys(config.keys_dir);
    findings.push(...problems.map((problem) => bad("keys", problem, "Correct or remove that file.")));
    findings.push(
      keys.length > 0
        ? good("keys", keys.map((key) => `${key.kid} (${key.algorithm})`).join(", "))
        : bad("keys", `none in ${config.keys_dir}`, "Run radserve init; serving creates the first one too."),
    );
  } catch (error) {
    findings.push(bad("keys", wordsOf(error), "Let the server's user list that folder."));
  }
  return findings;
}

async function certificates(config: Config): Promise<Finding[]> {
  try {
    const found = await readCertificates(config);
    if (found === undefined) return [good("TLS", "not asked for (RADSERVE_TLS_CERT is not set)")];
    return found.expiries.map((expiry) => {
      const name = expiry.certificate === "server" ? "certificate" : "client CA";
      const warning = expiryWarning(expiry);
      return warning === undefined
        ? good(name, `valid until ${expiry.at.toISOString()}`)
        : bad(name, warning, "Replace the file; a running server takes it within seconds.");
    });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return [bad("certificate", error.message, "Correct the file or the setting.")];
  }
}

function disks(config: Config): Finding[] {
  return [...config.output_roots, config.state_dir].flatMap((folder) => {
    if (allowed(folder, constants.R_OK) !== undefined) return [];
    const free = freeBytes(statfsSync(folder));
    const found = `${folder}: ${free === Infinity ? "its file system does not say how much is" : `${(free / 2 ** 30).toFixed(1)} GiB`} free`;
    return free >= config.minimum_free_disk
      ? [good("disk", found)]
      : [bad("disk", found, "Make room, or lower RADSERVE_MINIMUM_FREE_DISK.")];
  });
}

async function bulkDatabase(config: Config): Promise<Finding> {
  try {
    return good("bulk database", await inspectDatabase(config));
  } catch (error) {
    if (!(error instanceof BulkUnavailable)) throw error;
    return bad("bulk database", error.found, error.fix);
  }
}

/** A clock behind the program's own files is wrong, and makes tokens look not yet valid or never expired. */
function clock(): Finding {
  const built = statSync(new URL(import.meta.url)).mtimeMs;
  const now = new Date();
  return now.getTime() >= built
    ? good("clock", now.toISOString())
    : bad("clock", `${now.toISOString()} is before this program was built`, "Set the clock; use NTP.");
}

function configuration(config: Config): Finding[] {
  return [
    good("version", VERSION),
    good("configuration", config.file ?? "environment and defaults only"),
    ...config.warnings.map((warning) => bad("environment", warning, "Correct the name or remove it.")),
  ];
}

/** By their files alone; `radserve models check` runs them too. */
async function models(config: Config): Promise<Finding[]> {
  if (allowed(config.models_dir, constants.R_OK | constants.X_OK) !== undefined)
    return [bad("models", config.models_dir, "Set RADSERVE_MODELS_DIR to a folder of model folders.")];
  const reports = await Promise.all((await modelFolders(config.models_dir)).map(readModelFolder));
  const found = `${path.resolve(config.models_dir)}: ${reports.map(({ name }) => name).join(", ") || "none"}`;
  const unsound = reports.flatMap(({ name, directory, problems: [first] }) =>
    first === undefined
      ? []
      : [bad("model", `${name}: ${first.path}: ${first.message}`, `Run radserve models check ${directory}`)],
  );
  return [good("models", found), ...unsound];
}

async function settings(load: () => Promise<Config>): Promise<Finding[]> {
  let config;
  try {
    config = await load();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return [bad("configuration", error.message, "Correct the setting.")];
  }
  return [
    ...configuration(config),
    ...(await models(config)),
    ...(await engine(config)),
    ...(await codecs()),
    await decoder(),
    ...(await roots(config)),
    ...state(config),
    ...(await certificates(config)),
    ...disks(config),
    await bulkDatabase(config),
  ];
}

/** @param load reads the settings; what is wrong with them is one of the findings */
export async function doctor(load: () => Promise<Config>, json: boolean): Promise<ExitStatus> {
  const findings = [...machine(), ...(await settings(load)), clock()];
  if (json) print(JSON.stringify(findings, null, 2));
  else
    for (const { name, ok, found, fix } of findings)
      print(
        `${ok ? "ok     " : "problem"}  ${name}: ${found}${fix === undefined ? "" : `\n         fix: ${fix}`}`,
      );
  return findings.every((finding) => finding.ok) ? 0 : 1;
}
