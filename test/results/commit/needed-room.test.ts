/**
 * A disk that is full, before the work and in the middle of a commit: a small file system in
 * memory, which takes root.
 */
import { spawnSync } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { samples } from "../../../scripts/demo/samples.js";
import { infer } from "../../../src/inference/infer-image.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import { openInput } from "../../../src/files/guarded-paths.js";
import { readInput } from "../../../src/inference/read-input.js";
import { withName } from "../../../src/results/commit/commit.js";
import { roomFor } from "../../../src/results/commit/needed-room.js";
import { engine } from "../../support/real-engine.js";
import { loadTestModel } from "../../support/test-models.js";
import { ADDON, needs } from "../../support/needs.js";
import { hash, receiptOf, sample } from "../../support/commits.js";

const MIB = 2 ** 20;

/** A file system of this size; false where nobody may mount one. */
function mount(size: number, folder: string, more = ""): boolean {
  const options = ["-t", "tmpfs", "-o", `size=${size}${more}`, "tmpfs", folder];
  return spawnSync("mount", options, { stdio: "ignore" }).status === 0;
}

function mounted(t: Test, size: number, more?: string): string {
  const folder = mkdtempSync(join(tmpdir(), "radserve-full-"));
  const there = mount(size, folder, more);
  t.teardown(() => {
    if (there) spawnSync("umount", [folder]);
    rmSync(folder, { recursive: true });
  });
  if (!there) throw new Error("A file system was mounted a moment ago");
  return folder;
}

/** Why there is no such disk; false where there is. */
const noMounts = ((): string | false => {
  const folder = mkdtempSync(join(tmpdir(), "radserve-full-"));
  const there = mount(MIB, folder);
  if (there) spawnSync("umount", [folder]);
  rmSync(folder, { recursive: true });
  return there ? false : "only root may mount a file system";
})();

/** Leaves this much room. */
function fill(folder: string, left: number): void {
  const { bavail, bsize } = statfsSync(folder);
  writeFileSync(join(folder, "filler"), Buffer.alloc(bavail * bsize - left));
}

const hashes = (folder: string) =>
  Object.fromEntries(
    readdirSync(folder).map((name) => [name, hash(readFileSync(join(folder, name)))]),
  );

t.test("ENOSPC in the middle of a commit leaves what was there", { skip: noMounts }, async (t) => {
  const disk = mounted(t, 4 * MIB);
  const folder = join(disk, "out");
  mkdirSync(folder);
  const commit = (contents: Record<string, Buffer>) => {
    const { receipt } = sample("x", "pixels", {});
    const files = Object.entries(contents).map(([name, bytes]) => ({
      name: `x.${name}.png`,
      bytes,
      sha256: hash(bytes),
    }));
    const models = sample(
      "x",
      "pixels",
      Object.fromEntries(Object.keys(contents).map((name) => [name, ""])),
    ).receipt.models.map((model, i) => ({
      ...model,
      outputs: [{ path: files[i]!.name, media_type: "image/png", sha256: files[i]!.sha256 }],
    }));
    const whole = { ...receiptOf("x", "pixels", models), source: receipt.source };
    return withName(folder, "x", {}, (held) => held.commit(files, whole));
  };
  await commit({ a: Buffer.alloc(MIB, 1) });
  const before = hashes(folder);
  const large = { a: Buffer.alloc(MIB, 2), b: Buffer.alloc(MIB, 3), c: Buffer.alloc(2 * MIB, 4) };
  await t.rejects(commit(large), { code: "disk_full", details: { errno: "ENOSPC" } });
  t.same(hashes(folder), before);
  fill(disk, 0);
  await t.rejects(
    commit({ a: Buffer.alloc(1) }),
    { code: "disk_full" },
    "no room for the lock either",
  );
  t.same(hashes(folder), before);
  rmSync(join(disk, "filler"));
  await commit({ a: Buffer.alloc(MIB, 2) });
  t.not(hashes(folder)["x.a.png"], before["x.a.png"]);
});

t.test(
  "a disk without inodes is full, too, and keeps what was there",
  { skip: noMounts },
  async (t) => {
    const folder = mounted(t, 4 * MIB, ",nr_inodes=16");
    const { receipt, files } = sample("x", "pixels", { a: "1" });
    const commit = () => withName(folder, "x", {}, (held) => held.commit(files, receipt));
    await commit();
    const before = hashes(folder);
    const fillers: string[] = [];
    const { ffree } = statfsSync(folder);
    // The lock and the staging folder have room, and not all that is staged
    for (const left of [2, 0]) {
      for (let i = fillers.length; i < ffree - left; i++) {
        const filler = join(folder, `filler${i}`);
        writeFileSync(filler, "");
        fillers.push(filler);
      }
      await t.rejects(commit(), { code: "disk_full", details: { errno: "ENOSPC" } });
      const now = Object.entries(hashes(folder)).filter(([name]) => !name.startsWith("filler"));
      t.same(Object.fromEntries(now), before, `${left} left`);
    }
    for (const filler of fillers) rmSync(filler);
    await commit();
  },
);

t.test(
  "a disk that cannot hold the results is found before any work",
  { skip: needs(ADDON) || noMounts },
  async (t) => {
    const disk = mounted(t, 64 * MIB);
    const place = mkdtempSync(join(tmpdir(), "radserve-room-"));
    t.teardown(() => {
      rmSync(place, { recursive: true });
    });
    const inputPath = join(place, "slice.dcm");
    writeFileSync(inputPath, (await samples()).ct);
    const folder = join(disk, "out");
    const run = (model: ModelEntry) =>
      infer(
        {
          requestId: "test",
          inputPath,
          outputFolder: folder,
          priority: "routine",
          cancelId: 1,
          startedAt: "2026-11-21T10:00:00Z",
          roots: { input: undefined, output: undefined },
        },
        { engine: engine(), models: [model] },
      );
    const model = await loadTestModel(engine(), place, "segmenter");
    const input = await openInput(inputPath, undefined);
    t.teardown(() => input.close());
    const needed = roomFor(await readInput(input), [
      { entry: model, outputs: model.manifest.results.outputs },
    ]);
    fill(disk, needed - 8192);
    // A model that cannot run at all: the disk is looked at first
    await t.rejects(run({ ...model, nativeId: 999_999 }), {
      code: "disk_full",
      details: { needed_bytes: needed },
    });
    t.same(readdirSync(folder), []);
    rmSync(join(disk, "filler"));
    const { bavail: free, bsize } = statfsSync(disk);
    t.equal((await run(model)).reused, false);
    const used = (free - statfsSync(disk).bavail) * bsize;
    t.ok(used <= needed, `${used} of at most ${needed} bytes`);
    const before = hashes(folder);
    fill(disk, MIB);
    t.equal((await run(model)).reused, true, "what is there already needs no room");
    t.same(hashes(folder), before);
  },
);

t.test("what a result takes at most grows with the image", (t) => {
  const format = { rows: 512, columns: 512 };
  const image = (frameCount: number) => ({ format, frameCount }) as Parameters<typeof roomFor>[0];
  const outputs = [
    { kind: "heatmap", tensor: "h", activation: "none", label: { label: "a" } },
  ] as const;
  const room = (frames: number, ...kinds: ("json" | "png" | "seg" | "sc")[]) =>
    roomFor(image(frames), [{ entry: { manifest: { outputs: [...outputs] } }, outputs: kinds }]);
  t.ok(room(1, "json") < MIB);
  t.ok(room(1, "json", "png", "sc") > 10 * MIB);
  t.ok(room(600, "seg") > (600 * 512 * 512) / 8, "one bit a pixel and label");
  t.equal(roomFor(image(1), []), roomFor(image(9), []), "the receipt alone");
  t.end();
});
