/** What a scan finds in a folder, what it leaves out, and that it repeats itself. */
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { linkSync, mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import t, { type Test } from "tap";
import { scanFolder, type ScanResult } from "../../src/jobs/scan.js";
import { transaction } from "../../src/jobs/database.js";
import { insertJob, retryJob } from "../../src/jobs/jobs.js";
import { pathsOf, seriesPath } from "../../src/jobs/item-paths.js";
import { insertFound } from "../../src/jobs/scanner.js";
import { migrate } from "../../src/jobs/migrations.js";
import type { Pins } from "../../src/jobs/pins.js";
import type { ModelEntry } from "../../src/models/entry.js";
import { markName } from "../../src/files/folder-mark.js";
import { imageInputs, type Manifest } from "../../src/manifest/manifest.js";
import { shipped } from "../support/manifests.js";
import { slice } from "../support/series.js";
import { writeSlice } from "../support/bulk.js";
import { mountsNothing, oddMount } from "../support/mounts.js";
import { DEFLATED, dicomFile, imageAttributes } from "../support/dicom.js";
import { MemoryPlaces, ProcessMemory } from "../../src/base/process-memory.js";
import { sharedDatabase } from "../support/postgres.js";
import { PNG } from "../support/server.js";
import { newJob } from "../support/tables.js";

async function scan(
  folder: string,
  models: ModelEntry[] = [],
  roots = [folder],
): Promise<Map<string, ScanResult>> {
  const found = new Map<string, ScanResult>();
  for await (const one of scanFolder({ folder, roots, models })) {
    if (found.has(one.path)) throw new Error(`${one.path} was found twice`);
    found.set(one.path, one);
  }
  return found;
}

const seen = (found: Map<string, ScanResult>) =>
  Object.fromEntries(
    [...found].map(([name, one]) => [name, "reason" in one ? one.reason.code : one.is]),
  );

const file = (t: Test) => {
  const folder = t.testdir({});
  return { folder, at: (...parts: string[]) => path.join(folder, ...parts) };
};

t.test("by content, in any encoding, whatever the name", async (t) => {
  const { folder, at } = file(t);
  writeFileSync(at("picture.txt"), PNG);
  writeFileSync(at("x.png"), "no picture");
  writeFileSync(
    at(markName("70e4314d-7630-4332-af7d-60490550f5fe")),
    "no input, and no word about it",
  );
  writeFileSync(at(".radserve-share"), "as earlier versions left it");
  writeFileSync(at("no preamble"), slice({ z: 1, preamble: false, meta: false }));
  writeFileSync(at("deflated"), slice({ z: 1, transferSyntax: DEFLATED }));
  writeFileSync(
    at("long.dcm"),
    slice({
      z: 2,
      attributes: { ImageComments: "x".repeat(9_000), "00091010": new Uint8Array(60_000) },
    }),
  );
  const object = (uid: string) => dicomFile({ attributes: imageAttributes({ SOPClassUID: uid }) });
  writeFileSync(at("state"), object("1.2.840.10008.5.1.4.1.1.11.1"));
  writeFileSync(at("pdf"), object("1.2.840.10008.5.1.4.1.1.104.1"));
  writeFileSync(at("ecg"), object("1.2.840.10008.5.1.4.1.1.9.1.1"));
  writeFileSync(
    at("broken.dcm"),
    Buffer.concat([Buffer.alloc(128), Buffer.from("DICM"), Buffer.alloc(40, 0xff)]),
  );
  execFileSync("mkfifo", [at("pipe")]);
  const latin1 = (name: string) => Buffer.from(at(name), "latin1");
  for (const name of ["M\xfcller", "M\xf6ller"]) writeFileSync(latin1(name), PNG);
  mkdirSync(latin1("\xe4"));
  const found = await scan(folder);
  for (const name of ["M\\xfcller", "M\\xf6ller", "\\xe4"])
    t.match(found.get(name), { error: { message: /name in UTF-8.*new request/ } });
  t.strictSame(seen(found), {
    "M\\xf6ller": "failed",
    "M\\xfcller": "failed",
    "\\xe4": "failed",
    "broken.dcm": "input",
    deflated: "input",
    ecg: "no_image",
    "long.dcm": "input",
    "no preamble": "input",
    pdf: "no_image",
    "picture.txt": "input",
    pipe: "no_file",
    state: "no_image",
    "x.png": "no_image",
  });
});

t.test("formats that are not read have failed where images are in them", async (t) => {
  const { folder, at } = file(t);
  const heic = Buffer.from("\0\0\0\x18ftypheic\0\0\0\0mif1heic", "latin1");
  writeFileSync(at("photo.heic"), heic);
  writeFileSync(at("study.zip"), "PK\x03\x04\x14\0\0\0");
  writeFileSync(at("brain.nii"), Buffer.concat([Buffer.from([0x5c, 1, 0, 0]), Buffer.alloc(344)]));
  writeFileSync(at("slice.dcm.gz"), gzipSync(slice({ z: 1 })));
  writeFileSync(at("report.pdf"), "%PDF-1.7");
  writeFileSync(at("README"), "read me");
  const of = (formats: Manifest["accepts"]["formats"]): ModelEntry => {
    const one = entry("m", "2d");
    return { ...one, manifest: { ...one.manifest, accepts: { formats, dimensions: "2d" } } };
  };
  const expected = {
    "study.zip": "failed",
    "brain.nii": "failed",
    "slice.dcm.gz": "failed",
    "report.pdf": "no_image",
    README: "no_image",
  };
  const pictures = await scan(folder, [of(["jpeg", "png"])]);
  t.strictSame(seen(pictures), { ...expected, "photo.heic": "failed" });
  t.match(pictures.get("photo.heic"), {
    error: { error: "unsupported_format", message: /HEIC.*JPEG/, details: { format: "heic" } },
  });
  t.match(pictures.get("report.pdf"), { reason: { message: /PDF document/ } });
  const volumes = await scan(folder, [of(["dicom"])]);
  t.strictSame(seen(volumes), { ...expected, "photo.heic": "no_image" }, "no model of pictures");
});

t.test("links: every folder once, under its own name, and nothing outside the roots", async (t) => {
  const { folder, at } = file(t);
  mkdirSync(at("in", "z", "deep"), { recursive: true });
  mkdirSync(at("elsewhere"));
  writeFileSync(at("elsewhere", "secret.png"), PNG);
  mkdirSync(at("in2"));
  writeFileSync(at("in2", "b.png"), PNG);
  writeFileSync(at("in", "z", "deep", "a.png"), PNG);
  symlinkSync("z", at("in", "a"));
  symlinkSync("../..", at("in", "z", "deep", "up"));
  symlinkSync("../in2", at("in", "second"));
  symlinkSync("../elsewhere", at("in", "out"));
  symlinkSync("../elsewhere/secret.png", at("in", "out.png"));
  symlinkSync("z/deep/a.png", at("in", "alias.png"));
  symlinkSync("loop", at("in", "loop"));
  const found = await scan(at("in"), [], [at("in"), at("in2")]);
  t.strictSame(seen(found), {
    "alias.png": "input",
    loop: "failed",
    out: "failed",
    "out.png": "failed",
    "second/b.png": "input",
    "z/deep/a.png": "input",
  });
  t.match(found.get("out"), { error: { error: "path_not_allowed" } });
  await t.rejects(scan(at("in"), [], [at("in2")]), { code: "path_not_allowed" });
  await t.rejects(scan(at("none"), [], [folder]), { code: "input_not_found" });
});

t.test("a share that goes away fails nothing of what lies on it", async (t) => {
  const { folder, at } = file(t);
  for (const name of ["a", "b"]) {
    mkdirSync(at("share", name), { recursive: true });
    writeFileSync(at("share", name, "1.png"), PNG);
  }
  const half = async () => {
    const found = scanFolder({ folder: at("share"), roots: [folder], models: [] });
    t.match(await found.next(), { value: { path: "a/1.png" } });
    return found;
  };
  const begun = await half();
  renameSync(at("share"), at("away"));
  await t.rejects(begun.next(), { code: "input_not_found" });
  renameSync(at("away"), at("share"));
  const again = await half();
  renameSync(at("share"), at("away"));
  mkdirSync(at("share"));
  await t.rejects(again.next(), { code: "input_not_found" }, "its mount point is there");
  await t.rejects(scan(at("share")), { message: /it is empty/ });
  const empty = scanFolder({ folder: at("share"), roots: [folder], models: [], mayBeEmpty: true });
  t.match(await empty.next(), { done: true }, "one that was empty when its job was taken");
});

t.test("a share with large inode numbers, and files that cannot be read", async (t) => {
  if (mountsNothing !== false) {
    t.comment(mountsNothing);
    return;
  }
  const { folder: shown, at } = file(t);
  for (const name of ["a", "b", "busy", "series"]) mkdirSync(at(name));
  for (const name of ["a/1.png", "a/busy.png", "b/1.png", "busy/1.png"])
    writeFileSync(at(name), PNG);
  for (const z of [1, 2, 3]) writeSlice(at("series", `${z}.dcm`), z);
  writeFileSync(at("series", "ghost.dcm"), PNG);
  const { folder, refused } = await oddMount(t, shown);
  if (refused !== undefined) {
    t.comment(`no FUSE here: ${refused}`);
    return;
  }
  const found = await scan(folder, [entry("m", "series")]);
  t.strictSame(seen(found), {
    "a/1.png": "input",
    "a/busy.png": "failed",
    "b/1.png": "input",
    busy: "failed",
    // A file of it goes away each time that it is read: it is judged when it runs
    series: "input",
  });
  const error = { error: "share_unavailable", details: { errno: "EBUSY" } };
  t.match(found.get("a/busy.png"), { error });
  t.match(found.get("busy"), { error: { ...error, message: /Nothing in this folder was read/ } });
});

function entry(name: string, dimensions: "2d" | "2d_frames" | "series"): ModelEntry {
  const base = shipped(dimensions === "series" ? "examples/brain-tissue-3d" : "ct-tissue");
  const manifest = {
    ...base,
    accepts: { formats: ["dicom" as const], modality: ["CT"], dimensions },
  };
  return {
    name,
    version: "1",
    sha256: "0".repeat(64),
    manifest,
    site: { thresholds: {} },
    thresholds: [],
    state: "ready",
  };
}

t.test("a folder that is looked into as a series is counted, and waits for room", async (t) => {
  const { folder, at } = file(t);
  for (const z of [0, 1, 2]) writeSlice(at("even", `${z}.dcm`), z);
  const places = new MemoryPlaces(2, 2 ** 20);
  const memoryOf = () => new ProcessMemory(places.take());
  const giveBack = memoryOf().hold("files", 2 ** 20);
  let asked = 0;
  const found: string[] = [];
  const check = () => {
    asked += 1;
    t.notOk(found.includes("even"), "not before there is room");
    if (asked === 20) giveBack();
  };
  const options = {
    folder,
    roots: [folder],
    models: [entry("v", "series")],
    memory: memoryOf(),
    check,
  };
  for await (const { path: name } of scanFolder(options)) found.push(name);
  t.ok(asked >= 20, "it has waited");
  t.strictSame(found, ["even"]);
  t.equal(places.bytes, 0, "what was counted is given back");

  const full = memoryOf().hold("files", 2 ** 20);
  const stop = () => {
    throw new Error("stopped");
  };
  const stopped = scanFolder({ ...options, check: stop });
  await t.rejects(stopped.next(), { message: "stopped" }, "a scan that is stopped waits no more");
  full();
});

t.test("series", async (t) => {
  const { folder, at } = file(t);
  const [volume, frames, single] = [
    entry("v", "series"),
    entry("f", "2d_frames"),
    entry("s", "2d"),
  ];
  for (const z of [0, 1, 2]) writeSlice(at("even", `${z}.dcm`), z);
  writeSlice(at("even", "scout.dcm"), 9, { ImageType: "ORIGINAL\\PRIMARY\\LOCALIZER" });
  writeFileSync(at("even", "notes"), "x");
  t.strictSame(seen(await scan(folder, [volume, frames])), {
    "even/notes": "no_image",
    "even/scout.dcm": "input",
    even: "input",
  });
  t.strictSame(
    [...(await scan(folder, [volume, single])).keys()].sort(),
    ["even", "even/0.dcm", "even/1.dcm", "even/2.dcm", "even/notes", "even/scout.dcm"],
    "besides, where a model takes single images",
  );
  t.notOk((await scan(folder, [frames])).has("even"), "only where a model takes series");
  const [input] = imageInputs(frames.manifest);
  const neighbours = { before: 1, after: 1, edges: "repeat" as const };
  const stack = {
    ...frames,
    manifest: { ...frames.manifest, inputs: [{ ...input!, neighbours }] },
  };
  t.strictSame(
    seen(await scan(folder, [stack])),
    { "even/notes": "no_image", "even/scout.dcm": "input", even: "input" },
    "or slices with their neighbours",
  );
  const mr = {
    ...volume,
    manifest: { ...volume.manifest, accepts: { ...volume.manifest.accepts, modality: ["MR"] } },
  };
  t.notOk((await scan(folder, [mr])).has("even"), "and this one");
  t.notOk(
    (await scan(folder, [{ ...volume, state: "off" }])).has("even"),
    "and is not switched off",
  );
  t.ok(
    (await scan(folder, [{ ...volume, state: "failed" }])).has("even"),
    "whose item says that it is not loaded",
  );
  for (const z of [0, 1, 5]) writeSlice(at("uneven", `${z}.dcm`), z);
  for (const z of [0, 1, 2]) writeSlice(at("two", `${z}.dcm`), z);
  for (const z of [3, 4]) writeSlice(at("two", `${z}.dcm`), z, { SeriesInstanceUID: "1.2.3.5" });
  const found = seen(await scan(folder, [volume]));
  t.match(found, { uneven: "series_invalid", "uneven/0.dcm": "input", "uneven/5.dcm": "input" });
  t.equal(found["two"], undefined);
  t.equal(found["two/0.dcm"], undefined);
  t.match(found, { "two//1.2.3.4": "input", "two//1.2.3.5": "input" }, "each series is an item");
  const one = { input: "two//1.2.3.5", output: null };
  const request = { input_folder_path: "/in", output_folder_path: "/out" };
  t.match(pathsOf(request, one, []), {
    input: "/in/two",
    series: "1.2.3.5",
    name: "two.1.2.3.5",
    outputFolder: "/out",
    clientInput: "/in/two",
  });
  t.match(pathsOf(request, { input: seriesPath("", "1.2"), output: null }, []), {
    input: "/in",
    series: "1.2",
    name: "in.1.2",
    outputFolder: "/out",
  });
  writeSlice(at("two", "9.dcm"), 9, { SeriesInstanceUID: "1.2.3.5" });
  writeSlice(at("two", "other.dcm"), 9, { SeriesInstanceUID: "1.2.3.6", Modality: "MR" });
  const uneven = seen(await scan(folder, [volume]));
  t.match(uneven, {
    "two//1.2.3.4": "input",
    "two//1.2.3.5": "series_invalid",
    "two/other.dcm": "input",
  });
  t.match(uneven, { "two/9.dcm": "input" }, "files of a series that no model takes are items");
  t.equal(uneven["two/0.dcm"], undefined);
  const singles = seen(await scan(folder, [volume, single]));
  t.match(
    singles,
    { "two//1.2.3.4": "input", "two/0.dcm": "input" },
    "and where a model takes single images",
  );
  t.strictSame(seen(await scan(at("even"), [volume])), {
    "": "input",
    notes: "no_image",
    "scout.dcm": "input",
  });
});

t.test("a scan that is repeated adds what is new and keeps what was", async (t) => {
  const { folder, at } = file(t);
  const { pool } = await sharedDatabase(t, { empty: true });
  await migrate(pool);
  await Promise.all([migrate(pool), migrate(pool)]);
  const id = "5f0c7a52-9d0b-4d35-8f4e-6a1d3a1c9b11";
  await pool.query(
    "insert into radserve.job (id, subject, request, request_sha256) values ($1, 'x', '{}', '')",
    [id],
  );
  const rows = async () => {
    const found = await pool.query<{ index: number; input: string; state: string }>(
      "select index, input, state from radserve.item where job_id = $1 order by index",
      [id],
    );
    return found.rows;
  };
  writeFileSync(at("b.png"), PNG);
  writeFileSync(at("c.txt"), "x");
  t.ok(await insertFound(pool, id, [...(await scan(folder)).values()], null));
  const first = await rows();
  t.match(first, [
    { index: 0, input: "b.png", state: "queued" },
    { index: 1, input: "c.txt", state: "skipped" },
  ]);
  writeFileSync(at("a.png"), PNG);
  t.ok(await insertFound(pool, id, [...(await scan(folder)).values()], null));
  const second = [...first, { index: 2, input: "a.png", state: "queued" }];
  t.strictSame(await rows(), second);
  t.ok(await insertFound(pool, id, [...(await scan(folder)).values()], null), "nothing is new");
  const twice: ScanResult = { path: "twice.png", is: "input" };
  const strange = { code: "no_image", message: "found C\0T" };
  t.ok(
    await insertFound(
      pool,
      id,
      [twice, twice, { path: "x", is: "skipped", reason: strange }],
      null,
    ),
  );
  t.ok(await insertFound(pool, id, [{ path: "y.png", is: "input" }], null));
  t.match((await rows()).slice(3), [
    { index: 3, input: "twice.png" },
    { index: 4, input: "x", state: "skipped" },
    { index: 5, input: "y.png" },
  ]);
  await pool.query("delete from radserve.item where index > 2");
  t.strictSame(await rows(), second);

  symlinkSync("nowhere", at("dead.png"));
  mkdirSync(Buffer.from(at("\xe4"), "latin1"));
  t.ok(await insertFound(pool, id, [...(await scan(folder)).values()], null));
  const again = { mark: () => Promise.resolve(), scan: () => Promise.reject(new Error("scanned")) };
  await retryJob(pool, { subject: "x", admin: false }, id, again);
  t.match(
    new Map((await rows()).slice(3).map(({ input, state }) => [input, state])),
    new Map([
      ["dead.png", "queued"],
      ["\\xe4", "failed"],
    ]),
    "a folder that was never read is no image to be tried",
  );
  await pool.query("delete from radserve.item where index > 2");
  await pool.query("update radserve.job set cancelled_at = now()");
  t.notOk(
    await insertFound(pool, id, [{ path: "d.png", is: "input" }], null),
    "a cancelled job takes none",
  );
  t.equal((await rows()).length, 3);
});

t.test("what was found with other models than a job has by now is not added", async (t) => {
  const { pool } = await sharedDatabase(t);
  const id = randomUUID();
  const pinsOf = (version: string): Pins => ({
    release: "1",
    every: true,
    models: {
      ct: { version, sha256: "0".repeat(64), thresholds: null, state: "ready" },
    },
  });
  await transaction(pool, (client) => insertJob(client, newJob({ id, pins: pinsOf("1.0") }), 1));
  const add = (name: string, version: string) =>
    insertFound(pool, id, [{ path: name, is: "input" }], pinsOf(version));
  t.ok(await add("1.png", "1.0"));
  await pool.query("update radserve.job set pins = $1", [pinsOf("2.0")]);
  await t.rejects(add("2.png", "1.0"));
  await t.rejects(insertFound(pool, id, [], pinsOf("1.0")), "nor does its scan end");
  t.ok(await add("3.png", "2.0"));
  const { rows } = await pool.query<{ input: string }>(
    "select input from radserve.item order by index",
  );
  t.strictSame(
    rows.map(({ input }) => input),
    ["1.png", "3.png"],
  );
});

t.test("memory stays flat over many files", async (t) => {
  const { folder, at } = file(t);
  writeFileSync(at("one.dcm"), slice({ z: 1 }));
  const [folders, files] = [20, 500];
  for (let i = 0; i < folders; i++) {
    mkdirSync(at(String(i)));
    for (let n = 0; n < files; n++) linkSync(at("one.dcm"), at(String(i), `${n}.dcm`));
  }
  renameSync(at("one.dcm"), at("0", "one.dcm"));
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  let count = 0;
  let [early, late] = [0, 0];
  for await (const one of scanFolder({ folder, roots: [folder], models: [] })) {
    count += one.is === "input" ? 1 : 0;
    if (count % 1000 !== 0) continue;
    collect();
    const { heapUsed, external } = process.memoryUsage();
    if (count <= 3000) early = Math.max(early, heapUsed + external);
    else late = Math.max(late, heapUsed + external);
  }
  t.equal(count, folders * files + 1);
  t.ok(late < early + 5e6, `from ${early} to ${late} bytes`);
});
