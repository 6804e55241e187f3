/**
 * Whether memory stays where it is: in a process of its own, because another bench's garbage would
 * count.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { execFileSync } from "node:child_process";
import { createEngine } from "../../src/engine/engine.js";
import { median } from "./statistics.js";
import { idOf, load, mixedPictures, withVersion, writeFolder } from "./engine-models.js";

export interface MemoryResult {
  /**
   * Drift of resident memory after the first fifth: median of the later half of the looks over that
   * of the earlier.
   */
  requests: number;
  reloads: number;
  /** Resident memory at each look. */
  mib_during_requests: number[];
  mib_during_reloads: number[];
  /** What each of DenseNet-121's sessions holds once it is warm, MiB. */
  densenet121_sessions_mib: number[];
}

export function measureMemory(quick: boolean): MemoryResult {
  const text = execFileSync(
    process.execPath,
    ["--expose-gc", fileURLToPath(import.meta.url), ...(quick ? ["--quick"] : [])],
    { encoding: "utf8" },
  );
  return JSON.parse(text) as MemoryResult;
}

/** Requests that are sent together. */
const AT_ONCE = 20;
const LOOKS = 16;

function resident(): number {
  globalThis.gc?.();
  return process.memoryUsage.rss() / 2 ** 20;
}

/** Median memory of the later half of the looks over that of the earlier half. */
function drift(looks: readonly number[]): number {
  const half = looks.length >> 1;
  return median(looks.slice(-half)) / median(looks.slice(0, half));
}

/**
 * Does it so often, after a fifth as often before, and looks at memory sixteen times in between.
 */
async function watched(times: number, once: (n: number) => Promise<unknown>): Promise<number[]> {
  const looks: number[] = [];
  const before = Math.ceil(times / 5);
  for (let n = 1; n <= before + times; n++) {
    await once(n);
    const done = n - before;
    if (Math.floor((done * LOOKS) / times) > Math.floor(((done - 1) * LOOKS) / times) && done > 0)
      looks.push(Math.round(resident()));
  }
  return looks;
}

async function main(quick: boolean): Promise<MemoryResult> {
  const directory = mkdtempSync(join(tmpdir(), "radserve-bench-memory-"));
  const engine = createEngine({ provider: "cpu" });
  try {
    const files = {
      dense: writeFolder(directory, "densenet121"),
      small: writeFolder(directory, "small_cnn"),
    };
    const set = await load(directory, engine);
    const pictures = mixedPictures();
    const small = idOf(set, "small_cnn");
    const requests = await watched(quick ? 50 : 500, (n) =>
      Promise.all(
        Array.from({ length: AT_ONCE }, (_, i) =>
          engine.infer(small, [pictures[(n + i) % 4]!], {}),
        ),
      ),
    );
    const manifest = readFileSync(files.dense.manifest, "utf8");
    const reloads = await watched(quick ? 16 : 100, (n) => {
      writeFileSync(files.dense.manifest, withVersion(manifest, `1.0.${n}`));
      return set.reload();
    });
    const { sessions } = await engine.load({
      modelPath: files.dense.graph,
      name: "densenet121",
      version: "1",
      provider: "cpu" as const,
      inputs: set.entries[0]!.manifest.inputs,
      outputs: set.entries[0]!.manifest.outputs,
      batching: { max: 1 },
    });
    await set.close();
    return {
      requests: drift(requests),
      reloads: drift(reloads),
      mib_during_requests: requests,
      mib_during_reloads: reloads,
      densenet121_sessions_mib: sessions.map(({ bytes }) => bytes / 2 ** 20),
    };
  } finally {
    await engine.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  console.log(JSON.stringify(await main(process.argv.includes("--quick"))));
