/** Frames of one file decoded by several threads come out as they do from one. */
import { availableParallelism } from "node:os";
import t from "tap";
import { framesAhead, shareDecoding } from "../../../src/images/dicom/decoders.js";
import { ReadAhead } from "../../../src/images/dicom/read-ahead.js";
import type { Image } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import { until } from "../../support/until.js";
import { attributesOf, compress, dicomFile, picture, SYNTAXES } from "../../support/dicom.js";

const FRAMES = 14;
const layout = { rows: 64, columns: 64, samples: 1, bitsAllocated: 16, bitsStored: 12 };
const raws = [picture(layout, 1), picture(layout, 2), picture(layout, 3)];
const frames = await Promise.all(raws.map((raw) => compress("jpeg-ls", raw)));
const broken = Buffer.from(frames[0]!);
// A marker where code blocks lie, so that the codec itself has to notice
broken.fill(0xff, broken.length >> 1, (broken.length >> 1) + 60);

/** The third frame of each file lacks its end marker, which is a warning of that frame alone. */
const unended = Buffer.from(frames[2]!).subarray(
  0,
  Buffer.from(frames[2]!).lastIndexOf(Buffer.from([0xff, 0xd9])),
);

const file = (damaged: readonly number[] = []) =>
  dicomFile({
    transferSyntax: SYNTAXES["jpeg-ls"],
    attributes: attributesOf(raws[0]!, {
      NumberOfFrames: String(FRAMES),
      BitsStored: 13,
      HighBit: 12,
    }),
    pixels: {
      fragments: Array.from({ length: FRAMES }, (_, i) =>
        damaged.includes(i) ? broken : i === 2 ? unended : frames[i % 3]!,
      ),
    },
  });

/** What reading all frames in order gives, up to the first error. */
async function outcome(image: Image): Promise<unknown[]> {
  const seen: unknown[] = [];
  for (let i = 0; i < image.frameCount; i++) {
    try {
      const same = Buffer.from(raws[i % 3]!.data).equals(await image.frame(i));
      seen.push(same ? `frame ${i}` : `frame ${i} differs`);
    } catch (error) {
      const { code, message } = error as { code: string; message: string };
      return [...seen, code, message, image.warnings];
    }
  }
  return [...seen, image.warnings];
}

const threadsAtWork = () =>
  process.getActiveResourcesInfo().filter((name) => name === "MessagePort").length;

/**
 * Resolves once no thread has an order any more: what an error left behind is decoded to the end.
 */
async function untilIdle(): Promise<void> {
  await until("no thread has an order", () => threadsAtWork() === 0, setImmediate);
}

t.teardown(() => {
  shareDecoding(() => true, availableParallelism() - 1);
});

t.test("the same frames, warnings and first error as from one thread", async (t) => {
  for (const damaged of [[], [0], [3, 4], [FRAMES - 1]]) {
    shareDecoding(() => true, 0);
    const alone = await outcome(await readImage(file(damaged)));
    if (damaged[0] !== 0)
      t.match(alone.at(-1), [{ code: "precision_mismatch" }, { code: "missing_end_marker" }]);
    for (const threads of [1, 3]) {
      shareDecoding(() => true, threads, 0);
      t.strictSame(
        await outcome(await readImage(file(damaged))),
        alone,
        `${threads} threads, damaged: ${damaged.join()}`,
      );
    }
  }
});

t.test("other threads help a request that is alone, and only such", async (t) => {
  let alone = false;
  shareDecoding(() => alone, 2, 0);
  const image = await readImage(file());
  await untilIdle();
  const first = image.frame(0);
  t.equal(threadsAtWork(), 0, "not alone");
  await first;
  alone = true;
  const second = image.frame(1);
  t.ok(threadsAtWork() > 0, "alone");
  await second;
  alone = false;
  for (let i = 2; i < FRAMES; i++)
    t.ok(Buffer.from(raws[i % 3]!.data).equals(await image.frame(i)), `frame ${i}`);
  t.equal(threadsAtWork(), 0, "what was begun is done, nothing more was");
});

t.test("a thread that is there already is asked for less than one is started for", async (t) => {
  const image = await readImage(file());
  const large = { ...image.format, rows: 512, columns: 512 };
  shareDecoding(() => true, 2, 0);
  await image.frame(0);
  shareDecoding(() => true, 2);
  t.equal(framesAhead("jpeg-ls", image.format, FRAMES), 0, "a millisecond of work");
  t.ok(
    framesAhead("jpeg-ls", large, FRAMES) > 0,
    "73 ms of work, with the threads that decode the next frames",
  );
  // Threads without work end
  await until("the threads have ended", () => framesAhead("jpeg-ls", large, FRAMES) === 0);
  t.ok(framesAhead("jpeg-ls", large, 3 * FRAMES) > 0, "220 ms of work");
});

t.test("frames in any order, and little work", async (t) => {
  shareDecoding(() => true, 2);
  await untilIdle();
  const few = await readImage(file());
  for (let i = 0; i < 3; i++) t.ok(Buffer.from(raws[i % 3]!.data).equals(await few.frame(i)));
  t.equal(threadsAtWork(), 0, "so little is not worth a thread");
  shareDecoding(() => true, 2, 0);
  const image = await readImage(file());
  for (const i of [7, 2, 13, 2])
    t.ok(Buffer.from(raws[i % 3]!.data).equals(await image.frame(i)), `frame ${i}`);
  t.equal(threadsAtWork(), 0, "nor is a frame here and there");
});

t.test("read-ahead", async (t) => {
  const begun: string[] = [];
  let depth = 2;
  const ahead = new ReadAhead(
    6,
    (index, isAhead) => {
      begun.push(`${index}${isAhead ? " ahead" : ""}`);
      return index === 3 ? Promise.reject(new Error("three")) : Promise.resolve(index);
    },
    () => depth,
  );
  t.equal(await ahead.get(0), 0);
  t.strictSame(begun.splice(0), ["1 ahead", "2 ahead", "0"]);
  t.equal(await ahead.get(1), 1);
  t.strictSame(begun.splice(0), ["3 ahead"], "each is begun once");
  t.equal(await ahead.get(2), 2);
  await t.rejects(ahead.get(3), /three/, "for the one who asks");
  depth = 0;
  t.equal(await ahead.get(4), 4);
  t.strictSame(begun.splice(0), ["4 ahead", "5 ahead"]);
  t.equal(await ahead.get(0), 0);
  t.strictSame(begun.splice(0), ["0"], "back to the start: nothing is kept");
  depth = 9;
  t.equal(await ahead.get(1), 1);
  t.strictSame(
    begun.splice(0),
    ["2 ahead", "3 ahead", "4 ahead", "5 ahead", "1"],
    "not beyond the last",
  );
});
