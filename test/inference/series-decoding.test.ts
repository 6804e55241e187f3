/** Slices of one series decoded by several threads come out as they do from one. */
import { availableParallelism } from "node:os";
import { readFileSync, readdirSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { RadserveError } from "../../src/base/errors.js";
import { durations, setDurations } from "../../src/base/durations.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { MemoryPlaces, ProcessMemory } from "../../src/base/process-memory.js";
import { shareDecoding } from "../../src/images/dicom/decoders.js";
import type { Image } from "../../src/images/image.js";
import { readSeriesFolder } from "../../src/inference/read-input.js";
import { SliceMemory } from "../../src/inference/reading-memory.js";
import {
  attributesOf,
  compress,
  CT_SLICE,
  dicomFile,
  picture,
  SYNTAXES,
} from "../support/dicom.js";
import { until } from "../support/until.js";

const SLICES = 9;
const layout = { rows: 192, columns: 192, samples: 1, bitsAllocated: 16, bitsStored: 12 };
const raws = Array.from({ length: SLICES }, (_, i) => picture(layout, i + 1));
const coded = await Promise.all(
  raws.map(async (raw) => Buffer.from(await compress("jpeg-ls", raw))),
);

/**
 * A folder with one file for each slice.
 * @param damaged index of one whose code ends early
 * @param native the slices are not compressed
 */
function folder(t: Test, damaged?: number, native = false): string {
  const directory = t.testdir({});
  for (const [i, raw] of raws.entries()) {
    const code = coded[i]!;
    const fragments = [i === damaged ? code.subarray(0, code.length >> 1) : code];
    const pixels = native ? raw.data : { fragments };
    const attributes = attributesOf(raw, {
      ...CT_SLICE,
      SOPInstanceUID: `1.2.3.4.${i + 1}`,
      SeriesInstanceUID: "1.2.3.5",
      StudyInstanceUID: "1.2.3.6",
      FrameOfReferenceUID: "1.2.3.7",
      ImagePositionPatient: `0\\0\\${i}`,
      ImageOrientationPatient: "1\\0\\0\\0\\1\\0",
      PixelSpacing: "1\\1",
    });
    // Names in another order than the slices
    const syntax = native ? {} : { transferSyntax: SYNTAXES["jpeg-ls"] };
    const file = dicomFile({ ...syntax, attributes, pixels });
    writeFileSync(join(directory, `${(i * 4) % SLICES}.dcm`), file);
  }
  return directory;
}

interface Counted {
  slices: SliceMemory;
  places: MemoryPlaces;
}

/**
 * Bytes of images that may be in memory: all files stay there after the first look at them, or none
 * does.
 */
const [ROOM, NO_ROOM] = [2 ** 30, 2 ** 16];

async function withSeries<T>(
  directory: string,
  use: (image: Image, counted: Counted) => Promise<T> | T,
  most = NO_ROOM,
): Promise<T> {
  const opened = await openInput(directory, undefined);
  if (opened.kind !== "folder") throw new Error("A folder was opened");
  const places = new MemoryPlaces(1, most);
  const memory = new ProcessMemory(places.take());
  const slices = new SliceMemory(memory, { patient: true, check: () => undefined });
  try {
    return await use(await readSeriesFolder(opened, slices), { slices, places });
  } finally {
    await slices.close();
    opened.close();
  }
}

/** What reading all slices in order gives, up to the first error. */
async function outcome(image: Image): Promise<unknown[]> {
  const seen: unknown[] = [];
  for (let i = 0; i < image.frameCount; i++)
    try {
      const same = Buffer.from(raws[i]!.data).equals(await image.frame(i));
      seen.push(same ? `slice ${i}` : `slice ${i} differs`);
    } catch (error) {
      return [...seen, (error as Error).message, image.warnings];
    }
  return [...seen, image.warnings];
}

const threads = () =>
  process.getActiveResourcesInfo().filter((name) => name === "MessagePort").length;

t.teardown(() => {
  shareDecoding(() => true, availableParallelism() - 1);
});

for (const [what, damaged] of [
  ["good slices", undefined],
  ["one that is damaged", 5],
] as const)
  t.test(what, async (t) => {
    const directory = folder(t, damaged);
    shareDecoding(() => false);
    const alone = await withSeries(directory, outcome);
    shareDecoding(() => true, 2, 0);
    // A thread counts while it decodes, which may be over before the last slice is asked for
    let most = 0;
    let counting = setImmediate(function count() {
      most = Math.max(most, threads());
      counting = setImmediate(count);
    });
    const fromMemory = await withSeries(directory, outcome, ROOM);
    clearImmediate(counting);
    const shared = await withSeries(directory, outcome);
    t.strictSame(shared, alone, "the same slices, warnings and errors, in the same order");
    t.strictSame(fromMemory, alone, "and from files that stay in memory");
    t.ok(most > 0, "other threads decode what comes next");
  });

t.test(
  "a slice that changed since it was looked at is not read beyond the memory that it was given",
  async (t) => {
    const changes: [string, (path: string) => void][] = [
      ["became longer than any file that is read", (path) => truncateSync(path, 3 * 2 ** 30)],
      ["became shorter", (path) => truncateSync(path, 200)],
      [
        "has other bytes, as many",
        (path) => {
          const bytes = readFileSync(path);
          bytes[bytes.length - 20]! ^= 1;
          writeFileSync(path, bytes);
        },
      ],
    ];
    for (const ahead of [0, 2])
      for (const [what, change] of changes) {
        shareDecoding(() => ahead > 0, Math.max(1, ahead), 0);
        const directory = folder(t);
        const seen = await withSeries(directory, async (image) => {
          // The slice of index 5
          change(join(directory, `${(5 * 4) % SLICES}.dcm`));
          const codes: unknown[] = [];
          for (let i = 0; i < image.frameCount; i++)
            try {
              await image.frame(i);
              codes.push("read");
            } catch (error) {
              const { code, details } = error as RadserveError;
              codes.push([code, details?.["reason"]]);
            }
          return codes;
        });
        const expected = raws.map((_, i) => (i === 5 ? ["series_invalid", "changed"] : "read"));
        t.strictSame(seen, expected, `${what}; ${ahead} threads`);
      }
  },
);

t.test("slices that are not compressed are read ahead, and keep their bytes", async (t) => {
  shareDecoding(() => true, 2, 0);
  for (const room of [NO_ROOM, ROOM])
    t.strictSame(await withSeries(folder(t, undefined, true), outcome, room), [
      ...raws.map((_, i) => `slice ${i}`),
      [],
    ]);
});

t.test(
  "files that have room stay in memory, counted, until their pixels are asked for",
  async (t) => {
    for (const native of [false, true]) {
      const directory = folder(t, undefined, native);
      await withSeries(
        directory,
        async (image, { places }) => {
          const files = readdirSync(directory).map((name) => join(directory, name));
          t.ok(places.bytes > files.reduce((sum, file) => sum + statSync(file).size, 0));
          for (const file of files) truncateSync(file, 200);
          const read = await outcome(image);
          t.strictSame(
            read.slice(0, SLICES),
            raws.map((_, i) => `slice ${i}`),
          );
          await t.rejects(
            image.frame(3),
            { code: "series_invalid" },
            "the second time they are read again",
          );
        },
        ROOM,
      );
    }
  },
);

t.test("files stay in memory up to a sixteenth of it, whoever keeps them", async (t) => {
  const MIB = 2 ** 20;
  const places = new MemoryPlaces(2, 16 * 16 * MIB);
  const [one, other] = [0, 1].map(() => {
    const memory = new ProcessMemory(places.take());
    return new SliceMemory(memory, { patient: true, check: () => undefined });
  }) as [SliceMemory, SliceMemory];
  t.strictSame(
    [one, other, one, other].map((slices) => slices.keepWhole(5 * MIB, 10)),
    [true, true, true, false],
  );
  await one.close();
  t.ok(other.keepWhole(5 * MIB, 10), "until the others are done with");
  t.notOk(new SliceMemory(undefined, { patient: true, check: () => undefined }).keepWhole(1, 1));
});

t.test("files of one folder queue for room, and those of another lose patience", async (t) => {
  const { memoryRoom } = durations;
  setDurations({ memoryRoom: 1 });
  t.teardown(() => setDurations({ memoryRoom }));
  const MIB = 2 ** 20;
  const places = new MemoryPlaces(2, 4 * MIB);
  const slicesOf = (check: () => void) =>
    new SliceMemory(new ProcessMemory(places.take()), { patient: true, check });
  let looks = 0;
  const own = slicesOf(() => (looks += 1));
  const other = slicesOf(() => undefined);
  const bytes = new Uint8Array(1);
  // Each is larger than all files together may be
  const read = (
    from: SliceMemory,
    name: string,
    content: Promise<Uint8Array> = Promise.resolve(bytes),
  ) =>
    from.within(
      MIB,
      () => content,
      () => Promise.resolve(name),
    );
  let finish: () => void = () => undefined;
  const slow = new Promise<Uint8Array>((resolve) => (finish = () => resolve(bytes)));
  const all = Promise.all([read(own, "first", slow), read(own, "second"), read(own, "third")]);
  await Promise.all([
    t.rejects(read(other, "other"), { code: "overloaded" }),
    Promise.race([all, until("the others have looked often", () => looks >= 20)]),
  ]);
  finish();
  t.strictSame(await all, ["first", "second", "third"]);
  t.equal(places.bytes, 0);
});

t.test("a folder is done with only when nothing of it is read any more", async (t) => {
  const slices = new SliceMemory(undefined, { patient: true, check: () => undefined });
  let finish: (bytes: Uint8Array) => void = () => undefined;
  const reading = slices.again(() => new Promise((resolve) => (finish = resolve)));
  const ends: string[] = [];
  const closing = slices.close().then(() => ends.push("closed"));
  await new Promise((resolve) => setImmediate(resolve));
  ends.push("read");
  finish(new Uint8Array(1));
  await Promise.all([reading, closing]);
  t.strictSame(ends, ["read", "closed"]);
});

t.test("memory of the files that are read ahead is counted", async (t) => {
  shareDecoding(() => true, 2, 0);
  const { places } = await withSeries(folder(t), (image, counted) => {
    const ahead = counted.slices.filesAhead();
    t.ok(ahead > 0);
    t.ok(counted.places.bytes > (1 + ahead) * Math.max(...coded.map((code) => code.length)));
    t.equal(image.frameCount, SLICES);
    return counted;
  });
  t.equal(places.bytes, 0);
});
