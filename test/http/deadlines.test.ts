/**
 * Images that hold a worker thread beyond their time: what their own client hears, what becomes of
 * those on the same thread, and what the server says of itself meanwhile.
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { answerSchema } from "../../src/results/receipt/receipt.js";
import { bulkOf, bulkPlace, writeSlice } from "../support/bulk.js";
import {
  attributesOf,
  compress,
  CT_SLICE,
  dicomFile,
  picture,
  SYNTAXES,
} from "../support/dicom.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { startServer, type TestServer } from "../support/server.js";
import { slowImage } from "../support/slow-image.js";
import { until } from "../support/until.js";

/** Enough frames to be at work still when the next request has come. */
function cine(): Buffer {
  const size = { rows: 512, columns: 512, samples: 1, bitsAllocated: 16, bitsStored: 12 };
  const one = picture(size, 3);
  const frames = 60;
  return dicomFile({
    attributes: attributesOf(one, { ...CT_SLICE, NumberOfFrames: String(frames) }),
    pixels: Buffer.concat(Array<Uint8Array>(frames).fill(one.data)),
  });
}

async function metric(server: TestServer, name: string): Promise<number> {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  return Number(new RegExp(`\n${name} (\\d+)`).exec(text)?.[1]);
}

const ended = (server: TestServer) => metric(server, "radserve_worker_threads_ended_total");

t.test("single requests", { skip: needs(ADDON) }, async (t) => {
  // A thread is stuck after ten pings: 2 s. On a busy machine some seconds of the deadline pass
  // before it decodes
  const short = withDurations({ threadPing: 200, lastMoment: 300, connectionLinger: 20 });
  const place = bulkPlace(t, { ...short, RADSERVE_THREADS: "1", RADSERVE_DEADLINE_SECONDS: "9" });
  const at = (name: string) => path.join(place.input, name);
  writeFileSync(at("slow.dcm"), await slowImage(12, CT_SLICE));
  writeFileSync(at("cine.dcm"), cine());
  writeSlice(at("small.dcm"));
  // Too small for a decoder process
  const coded = picture({ rows: 128, columns: 128, samples: 1, bitsAllocated: 16, bitsStored: 12 });
  const fragments = [await compress("jpeg2000", coded)];
  const attributes = attributesOf(coded, CT_SLICE);
  writeFileSync(
    at("coded.dcm"),
    dicomFile({ transferSyntax: SYNTAXES.jpeg2000, attributes, pixels: { fragments } }),
  );
  const server = await startServer(place);
  t.teardown(() => server.stop());

  const ask = async (name: string, folder: string, more: object = {}) => {
    const output_folder_path = path.join(place.output, folder);
    const response = await server.post("/single_inference", {
      input_image_path: at(name),
      output_folder_path,
      outputs: ["json"],
      ...more,
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  const measurements = (answer: { body: unknown }) =>
    answerSchema.parse(answer.body).models.map((model) => model.measurements);
  const isThere = (folder: string, file: string) =>
    existsSync(path.join(place.output, folder, file));
  const ready = async () => (await fetch(`${server.url}/health/ready`)).status;

  await t.test(
    "without timeout_ms the setting counts, and the thread is stuck until then",
    async (t) => {
      const patient = { timeout_ms: 120_000 };
      const expected = {
        cine: await ask("cine.dcm", "before", patient),
        small: await ask("small.dcm", "before", patient),
      };
      t.equal(expected.cine.status, 200);
      // The thread for stat requests, too: one that loads its modules on a busy machine counts as
      // stuck
      await ask("small.dcm", "before", { ...patient, priority: "stat" });
      // With the codecs loaded, the thread of the slow image has nothing to wait for once that has
      // begun
      await ask("coded.dcm", "before", patient);
      const neighbour = ask("cine.dcm", "neighbour", patient);
      await until("the neighbour is at work", () => isThere("neighbour", ".cine.dcm.lock"));
      const slow = ask("slow.dcm", "stuck");
      await until("the image that is held is at work", () => isThere("stuck", ".slow.dcm.lock"));
      const behind = ask("small.dcm", "behind", patient);
      const image = { isOver: false };
      void slow.then(() => (image.isOver = true));
      // Meanwhile, because the stat request may take longer than the slow image has; and its thread
      // counts while it is silent
      const unready = (async () => {
        while (!image.isOver) {
          const answer = await fetch(`${server.url}/health/ready`);
          const body = (await answer.json()) as { details?: { threads_stuck?: number } };
          const stuck = await metric(server, "radserve_worker_threads_stuck");
          // On a very busy machine others may be silent for as long
          if ((body.details?.threads_stuck ?? 0) >= 1 && stuck >= 1) return body;
          await delay(20);
        }
        return undefined;
      })();

      const stat = await ask("small.dcm", "stat", { ...patient, priority: "stat" });
      t.equal(stat.status, 200);
      t.same(measurements(stat), measurements(expected.small));
      t.notOk(
        isThere("behind", "small.dcm.json"),
        "it went ahead of what waits for the stuck thread",
      );

      t.match(await unready, {
        error: "overloaded",
        message: /none has for 10 seconds/,
        details: { threads_stuck: Number },
      });

      t.match(await slow, {
        status: 504,
        body: { error: "deadline_exceeded", message: /deadline_seconds/ },
      });
      const [again, after] = await Promise.all([neighbour, behind]);
      t.equal(again.status, 200);
      t.same(measurements(again), measurements(expected.cine), "a neighbour ran again");
      t.equal(after.status, 200);
      t.same(measurements(after), measurements(expected.small));
      await until("the server is ready again", async () => (await ready()) === 200);
      t.equal(await ended(server), 1);
      t.notOk(isThere("stuck", "slow.dcm.json"));
    },
  );

  await t.test("the same name can be written at once after its thread was ended", async (t) => {
    const before = await ended(server);
    t.equal((await ask("slow.dcm", "stuck", { timeout_ms: 3000 })).status, 504);
    await until("one more request has ended", async () => (await ended(server)) === before + 1);
    const found = await ask("small.dcm", "stuck", { timeout_ms: 25_000 });
    t.equal(found.status, 200);
    writeSlice(path.join(place.input, "again", "slow.dcm"));
    const taken = await ask("again/slow.dcm", "stuck", { timeout_ms: 25_000 });
    t.equal(taken.status, 200, JSON.stringify(taken.body));
  });

  await t.test("a client that goes away takes its work with it", async (t) => {
    const before = await ended(server);
    const request = http.request(`${server.url}/single_inference`, {
      method: "POST",
      headers: { Authorization: server.token, "Content-Type": "application/json" },
    });
    const folder = path.join(place.output, "gone");
    request
      .on("error", () => undefined)
      .end(JSON.stringify({ input_image_path: at("slow.dcm"), output_folder_path: folder }));
    await until("the image that is held is at work", () => isThere("gone", ".slow.dcm.lock"));
    request.destroy();
    await until("one more request has ended", async () => (await ended(server)) === before + 1);
    t.equal((await ask("small.dcm", "after")).status, 200);
    t.equal(await metric(server, "radserve_inferences_running"), 0);
  });
});

t.test(
  "frames on decoder threads are ended together with the thread that they are for",
  { skip: needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t, { RADSERVE_THREADS: "2" });
    const [input, small] = ["frames.dcm", "small.dcm"].map((name) => path.join(place.input, name));
    writeFileSync(input!, await slowImage(6, CT_SLICE, 3));
    writeSlice(small!);
    const server = await startServer(place);
    t.teardown(() => server.stop());
    const ask = (input_image_path: string, timeout_ms: number) =>
      server.post("/single_inference", {
        input_image_path,
        output_folder_path: place.output,
        timeout_ms,
      });
    t.equal((await ask(small!, 60_000)).status, 200);
    t.equal((await ask(input!, 4000)).status, 504);
    await until("the request has ended", async () => (await ended(server)) === 1);
    writeSlice(path.join(place.input, "again", "frames.dcm"));
    t.equal((await ask(path.join(place.input, "again", "frames.dcm"), 60_000)).status, 200);
  },
);

t.test(
  "an item of a bulk job fails, and the others of its job do not",
  { skip: needs(ADDON) },
  async (t) => {
    // Threads of bulk jobs give way: beside busy processes a fresh one takes seconds to load its
    // modules
    const place = bulkPlace(t, { RADSERVE_THREADS: "1", RADSERVE_DEADLINE_SECONDS: "20" });
    const folder = path.join(place.input, "job");
    mkdirSync(folder);
    writeFileSync(path.join(folder, "b-slow.dcm"), await slowImage(16, CT_SLICE));
    for (const name of ["a.dcm", "c.dcm", "d.dcm", "e.dcm", "f.dcm"])
      writeSlice(path.join(folder, name));
    const server = await startServer(place);
    t.teardown(() => server.stop());
    const bulk = bulkOf(server);
    const id = await bulk.submit({
      input_folder_path: folder,
      output_folder_path: path.join(place.output, "job"),
    });
    t.match(await bulk.ended(id), { counts: { succeeded: 5, failed: 1 } });
    const slow = (await bulk.items(id)).find(({ input_image_path }) =>
      input_image_path.endsWith("slow.dcm"),
    );
    t.match(slow, { state: "failed", attempts: 1, error: { error: "deadline_exceeded" } });
    // How often depends on who else was on the thread when its time was over
    await until("a request has ended", async () => (await ended(server)) >= 1);
  },
);
