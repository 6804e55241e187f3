/**
 * Small files that unfold to large ones: what they unfold to is counted before it is, and given
 * back afterwards.
 */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { constants, deflateRawSync, deflateSync } from "node:zlib";
import sharp from "sharp";
import t, { type Test } from "tap";
import { sampleTree } from "../soak/usage.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { bulkPlace } from "../support/bulk.js";
import {
  attributesOf,
  compress,
  CT_SLICE,
  DEFLATED,
  dicomFile,
  imageAttributes,
  SYNTAXES,
  Typed,
} from "../support/dicom.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { pngFile, tiffFile } from "../support/raster.js";
import { writeTestModel } from "../support/test-models.js";
import { startServer, type TestServer } from "../support/server.js";
import { until } from "../support/until.js";

const MIB = 2 ** 20;
/** Of pictures that no model takes. */
const SIDE = 4096;
const PIXELS = SIDE * SIDE;
/** Of which a quarter is for what files unfold to: not enough for two of these. */
const BUDGET_MIB = 128;
/**
 * Of a slice on which a model runs: what that takes shows beside all that a server takes anyway.
 */
const LARGE_SIDE = 8192;

/** One byte for each pixel, and no model takes it: nothing but reading takes memory. */
function deflated(): Buffer {
  const size = { Rows: SIDE, Columns: SIDE, BitsAllocated: 8, BitsStored: 8, HighBit: 7 };
  const attributes = imageAttributes({ ...size, Modality: "MR" });
  return dicomFile({
    transferSyntax: DEFLATED,
    attributes,
    pixels: Buffer.alloc(PIXELS, 5),
    pixelVr: "OB",
  });
}

/** Zeros, which are no data set. */
function deflatedZeros(mebibytes: number): Buffer {
  const empty = dicomFile({ transferSyntax: DEFLATED, attributes: {} });
  const zeros = deflateRawSync(Buffer.alloc(16 * MIB), { finishFlush: constants.Z_FULL_FLUSH });
  const end = deflateRawSync(Buffer.alloc(0));
  // An empty deflate stream is two bytes long
  return Buffer.concat([empty.subarray(0, -2), ...Array<Buffer>(mebibytes / 16).fill(zeros), end]);
}

/** A CT slice that a model takes, deflated. */
function slice(side: number): Buffer {
  const size = { Rows: side, Columns: side, BitsAllocated: 16, BitsStored: 16, HighBit: 15 };
  const attributes = imageAttributes({ ...CT_SLICE, ...size });
  return dicomFile({
    transferSyntax: DEFLATED,
    attributes,
    pixels: Buffer.alloc(side * side * 2, 1),
  });
}

/** A CT slice of 32 MiB that a model takes; its codec works on several times that. */
async function slice2000(): Promise<Buffer> {
  const size = { rows: 4096, columns: 4096, samples: 1, bitsAllocated: 16, bitsStored: 12 };
  const raw = { ...size, data: new Uint8Array(32 * MIB) };
  return dicomFile({
    transferSyntax: SYNTAXES.jpeg2000,
    attributes: attributesOf(raw, CT_SLICE),
    pixels: { fragments: [await compress("jpeg2000", raw)] },
  });
}

/** The pixels of two of them, which codecs have in memory at least once. */
const LEAST_OF_CODECS_MIB = 64;

const pixels = Buffer.alloc(PIXELS, 90);

/** Looking costs the system more than a little: it counts all pages of the processes. */
const settles = (holds: () => boolean) =>
  until("memory goes back", holds, (look) => setTimeout(look, 100));

/** MiB that the server counts. */
async function countedBy({ url }: TestServer): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/\nradserve_image_memory_bytes (\d+)/.exec(text)?.[1]) / MIB;
}

/**
 * Looks at what is taken beside `before`, and at what is counted, while requests are open. What is
 * taken is held against what is counted before and after it alone: this process may stand still
 * between two looks.
 */
async function lookAtBoth(
  server: TestServer,
  before: number,
  requests: { readonly open: number },
  most: { counted: number; held: number },
): Promise<void> {
  let last = 0;
  while (requests.open > 0) {
    const taken = sampleTree(server.process.pid!, 0).memory - before;
    const now = await countedBy(server);
    if (last > 0 && now > 0) {
      most.held = Math.max(most.held, taken);
      most.counted = Math.max(most.counted, last, now);
    }
    last = now;
    await delay(20);
  }
}

async function serve(t: Test, settings: Record<string, string> = {}) {
  const place = bulkPlace(t, {
    ...withDurations({ threadMoment: 100, decoderIdle: 500, connectionLinger: 20 }),
    ...settings,
  });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const at = (name: string) => path.join(place.input, name);
  const ask = (name: string, folder = name) =>
    server.post("/single_inference", {
      input_image_path: at(name),
      output_folder_path: path.join(place.output, folder),
      outputs: ["json"],
    });
  return { server, at, ask };
}

t.test(
  "what large images took goes back when there is nothing to do",
  { skip: needs(ADDON) },
  async (t) => {
    const { server, at, ask } = await serve(t);
    const held = () => sampleTree(server.process.pid!, 0).memory;
    const before = held();
    writeFileSync(at("zeros.dcm"), deflatedZeros(480));
    t.match(await (await ask("zeros.dcm")).json(), {
      error: "unsupported_format",
      details: { most: 65_536 },
    });
    // No other work makes the thread collect
    await settles(() => held() < before + 128);
    // A model that ran on it keeps nothing for a next one of that size either
    writeFileSync(at("slice.dcm"), slice(LARGE_SIDE));
    t.match(await (await ask("slice.dcm")).json(), { status: "completed" });
    await settles(() => held() < before + 128);
    writeFileSync(at("bomb.dcm"), deflatedZeros(2048));
    t.match(await (await ask("bomb.dcm")).json(), {
      error: "unsupported_format",
      details: { most: 2 ** 29 },
    });
  },
);

t.test(
  "what codecs took goes back when there is nothing to do",
  { skip: needs(ADDON) },
  async (t) => {
    const { server, at, ask } = await serve(t);
    const held = () => sampleTree(server.process.pid!, 0).memory;
    writeFileSync(at("slice.dcm"), slice(64));
    // Two at once, so that both threads are there before
    for (const answer of await Promise.all(["a", "b"].map((name) => ask("slice.dcm", name))))
      t.match(await answer.json(), { status: "completed" }, "a deflated slice is read");
    const before = held();
    writeFileSync(at("slice-2000.dcm"), await slice2000());
    let most = 0;
    let round = 0;
    // What they took may have gone back between two looks: then they are asked for again
    await until("codecs take memory under the eyes of the test", async () => {
      const names = ["one", "two"].map((name) => `${name}-${round}`);
      round += 1;
      const requests = { open: names.length };
      const both = Promise.all(
        names.map((name) => ask("slice-2000.dcm", name).finally(() => (requests.open -= 1))),
      );
      while (requests.open > 0) {
        most = Math.max(most, held());
        await delay(50);
      }
      for (const answer of await both) t.match(await answer.json(), { status: "completed" });
      return most - before > LEAST_OF_CODECS_MIB;
    });
    await settles(() => held() - before < (most - before) / 8);
    t.match(
      await (await ask("slice-2000.dcm", "three")).json(),
      { status: "completed" },
      "they are made again",
    );
  },
);

t.test("what files unfold to", { skip: needs(ADDON) }, async (t) => {
  const { server, at, ask } = await serve(t, { RADSERVE_MEMORY: `${BUDGET_MIB}MiB` });
  const counted = async () => MIB * (await countedBy(server));
  /** The most that is counted while two requests for a file run at once. */
  const mostCounted = async (name: string) => {
    const requests = { open: 2 };
    const both = Promise.all([1, 2].map(() => ask(name).finally(() => (requests.open -= 1))));
    let most = 0;
    while (requests.open > 0) {
      most = Math.max(most, await counted());
      await delay(5);
    }
    for (const answer of await both) {
      t.equal(answer.status, 422, name);
      t.match(await answer.json(), { error: "no_model_accepts" });
    }
    t.equal(await counted(), 0, "is given back");
    return most;
  };

  const page = {
    width: SIDE,
    height: SIDE,
    photometric: 1,
    compression: 8,
    pixels: deflateSync(pixels),
  };
  const files: Record<string, { bytes: Buffer; takes: number }> = {
    "deflated.dcm": { bytes: deflated(), takes: PIXELS },
    "picture.png": {
      bytes: pngFile({ width: SIDE, height: SIDE, bits: 8, colour: 0, pixels }),
      takes: 3 * PIXELS,
    },
    "picture.tiff": { bytes: tiffFile([page]), takes: 3 * PIXELS },
    "picture.jpg": {
      bytes: await sharp(pixels, { raw: { width: SIDE, height: SIDE, channels: 1 } })
        .toColourspace("b-w")
        .jpeg()
        .toBuffer(),
      takes: 3 * PIXELS,
    },
  };
  for (const [name, { bytes, takes }] of Object.entries(files)) {
    writeFileSync(at(name), bytes);
    // No look may have come while an image was there
    let most = 0;
    await until(`all ${takes} bytes of ${name} are counted`, async () => {
      most = Math.max(most, await mostCounted(name));
      return most >= takes;
    });
    const two = 2 * takes;
    if (two > (BUDGET_MIB / 4) * MIB)
      t.ok(most < two, `${name}: one waits for the other, ${most} of ${two}`);
  }
});

/** A folder with one model, which takes any image of Modality OT and hardly any memory. */
function smallModel(t: Test): string {
  const models = t.testdir();
  const file = path.join(writeTestModel(models, "classifier"), "model.json");
  const manifest = JSON.parse(readFileSync(file, "utf8")) as Manifest;
  const accepts = { ...manifest.accepts, modality: ["OT"] };
  writeFileSync(
    file,
    JSON.stringify({ ...manifest, accepts, stage: "draft", results: { outputs: ["json"] } }),
  );
  return models;
}

t.test("what codecs take is counted", { skip: needs(ADDON) }, async (t) => {
  const { server, at, ask } = await serve(t, { RADSERVE_MODELS_DIR: smallModel(t) });
  writeFileSync(at("small.dcm"), dicomFile({ pixels: Buffer.alloc(16) }));
  t.match(await (await ask("small.dcm")).json(), { status: "completed" });
  // More samples than the system's OpenJPEG is given, of one value: they are coded soon, and codecs
  // take as much for them
  const size = { rows: 2400, columns: 2400, samples: 3, bitsAllocated: 8, bitsStored: 8 };
  const raw = { ...size, data: new Uint8Array(size.rows * size.columns * size.samples) };
  const pixels = { fragments: [await compress("jpeg2000", raw)] };
  writeFileSync(
    at("colour.dcm"),
    dicomFile({ transferSyntax: SYNTAXES.jpeg2000, attributes: attributesOf(raw), pixels }),
  );
  const before = sampleTree(server.process.pid!, 0).memory;
  const most = { counted: 0, held: 0 };
  let rounds = 0;
  await until("codecs are counted under the eyes of the test", async () => {
    const requests = { open: 1 };
    const folder = `colour-${(rounds += 1)}`;
    const answer = ask("colour.dcm", folder).finally(() => (requests.open -= 1));
    await lookAtBoth(server, before, requests, most);
    t.match(await (await answer).json(), { status: "completed" });
    return most.counted > 0;
  });
  t.ok(most.held < most.counted, `${most.held} MiB were taken, ${most.counted} counted`);
  // The thread drops its codecs
  await until("nothing is counted", async () => (await countedBy(server)) === 0);
});

const ITEM = Buffer.from("feff00e000000000", "hex");
const SEQUENCE_END = Buffer.from("feffdde000000000", "hex");

/**
 * Elements and items, nearly as many as are made of one sequence, as `one` holds them, one after
 * the other in a sequence that is looked at.
 */
function manyElements(one: Buffer, times: number): Buffer {
  const sequence = new Typed(
    "SQ",
    Buffer.concat([Buffer.alloc(one.length * times, one), SEQUENCE_END]),
    true,
  );
  const attributes = imageAttributes({
    Modality: "MR",
    PerFrameFunctionalGroupsSequence: sequence,
  });
  return dicomFile({ attributes, pixels: Buffer.alloc(32) });
}

/** An item that holds `inside`. */
function item(inside: Buffer): Buffer {
  const head = Buffer.from(ITEM);
  head.writeUInt32LE(inside.length, 4);
  return Buffer.concat([head, inside]);
}

t.test("what elements take is counted", { skip: needs(ADDON) }, async (t) => {
  const budget = 1024;
  const { server, at, ask } = await serve(t, { RADSERVE_MEMORY: `${budget}MiB` });
  const held = () => sampleTree(server.process.pid!, 0).memory;
  const sequence = Buffer.from("0800401153510000ffffffff", "hex");
  const files = {
    "elements.dcm": manyElements(item(Buffer.from("0800501155490000", "hex")), 250_000),
    "sequences.dcm": manyElements(item(Buffer.concat([sequence, ITEM, SEQUENCE_END])), 250_000),
  };
  writeFileSync(at("slice.dcm"), slice(64));
  await Promise.all([1, 2, 3].map((n) => ask("slice.dcm", `warm-${n}`)));
  for (const [name, bytes] of Object.entries(files)) {
    writeFileSync(at(name), bytes);
    const before = held();
    const most = { counted: 0, held: 0 };
    await until(`${name} is counted under the eyes of the test`, async () => {
      const requests = { open: 2 };
      const both = Promise.all(
        [1, 2].map((n) => ask(name, `${name}-${n}`).finally(() => (requests.open -= 1))),
      );
      await lookAtBoth(server, before, requests, most);
      for (const answer of await both)
        t.match(await answer.json(), { error: /no_model_accepts|corrupt_image|overloaded/ }, name);
      return most.counted > 0;
    });
    t.ok(
      most.held < 1.25 * most.counted,
      `${name}: ${most.held} MiB were taken, ${most.counted} counted`,
    );
    await settles(() => held() < before + 128);
  }
});
