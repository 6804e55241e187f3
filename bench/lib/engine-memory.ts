/** Whether memory stays where it is: in a process of its own, because another bench's garbage would count. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { execFileSync } from "node:child_process";
import { createEngine } from "../../src/engine.js";
import { idOf, load, picture, withVersion, writeFolder } from "./engine-models.js";

export interface MemoryResult {
  /** Resident memory at the end over that after the first fifth. */
  requests: number;
  reloads: number;
  mib_after_requests: number;
  mib_after_reloads: number;
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

function resident(): number {
  globalThis.gc?.();
  return process.memoryUsage.rss() / 2 ** 20;
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
    const pictures = [192, 256, 384, 512].map((side) => picture(side, side));
    const small = idOf(set, "small_cnn");
    const total = quick ? 1000 : 10_000;
    let early = 0;
    for (let done = 0; done < total; done += 20) {
      if (done === total / 5) early = resident();
      await Promise.all(
        Array.from({ length: 20 }, (_, i) => engine.infer(small, [pictures[(done + i) % 4]!], {})),
      );
    }
    const afterRequests = resident();
    const manifest = readFileSync(files.dense.manifest, "utf8");
    const reloads = quick ? 10 : 100;
    let first = 0;
    for (let n = 1; n <= reloads + reloads / 5; n++) {
      writeFileSync(files.dense.manifest, withVersion(manifest, `1.0.${n}`));
      await set.reload();
      if (n === reloads / 5) first = resident();
    }
    const afterReloads = resident();
    const { sessions } = await engine.load({
      ...{ modelPath: files.dense.graph, name: "densenet121", version: "1", provider: "cpu" as const },
      ...{ inputs: set.entries[0]!.manifest.inputs, outputs: set.entries[0]!.manifest.outputs },
      batching: { max: 1 },
    });
    await set.close();
    return {
      requests: afterRequests / early,
      reloads: afterReloads / first,
      mib_after_requests: afterRequests,
      mib_after_reloads: afterReloads,
      densenet121_sessions_mib: sessions.map(({ bytes }) => bytes / 2 ** 20),
    };
  } finally {
    await engine.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  console.log(JSON.stringify(await main(process.argv.includes("--quick"))));
