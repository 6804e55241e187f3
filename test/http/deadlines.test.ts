/**
 * Images that hold a worker thread beyond their time: what their own client hears, what becomes of
 * those on the same thread, and what the server says of itself meanwhile.
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import t from "tap";
import { answerSchema } from "../../src/results/receipt/receipt.js";
import { bulkOf, bulkPlace, ctPlace, hold, writeSlice } from "../support/bulk.js";
import { attributesOf, CT_SLICE, dicomFile, picture } from "../support/dicom.js";
import { withDurations } from "../support/durations.js";
import { heldImage, holdDecoding, holdHours, HOUR_MS, HOUR_SECONDS } from "../support/held.js";
import { deadMount, mountsNothing } from "../support/mounts.js";
import { ADDON, needs } from "../support/needs.js";
import { startServer, type TestServer } from "../support/server.js";
import { until } from "../support/until.js";

function cine(): Buffer {
  const size = { rows: 512, columns: 512, samples: 1, bitsAllocated: 16, bitsStored: 12 };
  const one = picture(size, 3);
  const frames = 12;
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

/** The setting; requests that are to be answered have a time of their own. */
const DEADLINE = { RADSERVE_DEADLINE_SECONDS: String(HOUR_SECONDS) };
const patient = { timeout_ms: 600_000 };

t.test("single requests", { skip: needs(ADDON) }, async (t) => {
  // A thread is stuck after ten pings
  const short = withDurations({ threadPing: 200, lastMoment: 300, connectionLinger: 20 });
  const place = bulkPlace(t, { ...short, ...DEADLINE, RADSERVE_THREADS: "1" });
  const held = holdDecoding(t, place);
  const endHours = holdHours(place);
  const at = (name: string) => path.join(place.input, name);
  writeFileSync(at("slow.dcm"), await heldImage(CT_SLICE));
  writeFileSync(at("cine.dcm"), cine());
  writeSlice(at("small.dcm"));
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
  const running = () => metric(server, "radserve_inferences_running");
  const ready = async () => (await fetch(`${server.url}/health/ready`)).status;

  await t.test(
    "without timeout_ms the setting counts, and the thread is stuck until then",
    async (t) => {
      const expected = {
        cine: await ask("cine.dcm", "before", patient),
        small: await ask("small.dcm", "before", patient),
      };
      t.equal(expected.cine.status, 200);
      // The thread for stat requests, too: one that loads its modules on a busy machine counts as
      // stuck
      await ask("small.dcm", "before", { ...patient, priority: "stat" });
      // It waits for its name on the thread
      const letGo = await hold(t, path.join(place.output, "neighbour"), ["cine.dcm"]);
      const neighbour = ask("cine.dcm", "neighbour", patient);
      await until("the neighbour is at work", async () => (await running()) === 1);
      const slow = ask("slow.dcm", "stuck");
      await held.atWork();
      const behind = ask("small.dcm", "behind", patient);
      await until("all three have the thread", async () => (await running()) === 3);

      const unready = await until("the server says that its thread is stuck", async () => {
        const answer = await fetch(`${server.url}/health/ready`);
        const body = (await answer.json()) as { details?: { threads_stuck?: number } };
        const stuck = await metric(server, "radserve_worker_threads_stuck");
        return (body.details?.threads_stuck ?? 0) >= 1 && stuck >= 1 && body;
      });
      t.match(unready, {
        error: "overloaded",
        message: /none has for 10 seconds/,
        details: { threads_stuck: Number },
      });
      const stat = await ask("small.dcm", "stat", { ...patient, priority: "stat" });
      t.equal(stat.status, 200);
      t.same(measurements(stat), measurements(expected.small));
      t.notOk(
        isThere("behind", "small.dcm.json"),
        "it went ahead of what waits for the stuck thread",
      );

      endHours();
      t.match(await slow, {
        status: 504,
        body: { error: "deadline_exceeded", message: /deadline_seconds/ },
      });
      await letGo();
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
    const slow = ask("slow.dcm", "stuck", { timeout_ms: HOUR_MS });
    await held.atWork();
    endHours();
    t.equal((await slow).status, 504);
    await until("one more thread was ended", async () => (await ended(server)) === before + 1);
    const found = await ask("small.dcm", "stuck", patient);
    t.equal(found.status, 200);
    writeSlice(path.join(place.input, "again", "slow.dcm"));
    const taken = await ask("again/slow.dcm", "stuck", patient);
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
    await held.atWork();
    request.destroy();
    await until("one more thread was ended", async () => (await ended(server)) === before + 1);
    t.equal((await ask("small.dcm", "after")).status, 200);
    await until("nothing runs", async () => (await running()) === 0);
    t.equal(await running(), 0);
  });
});

t.test(
  "frames on decoder threads are ended together with the thread that they are for",
  { skip: needs(ADDON) },
  async (t) => {
    const short = withDurations({ lastMoment: 300 });
    const place = bulkPlace(t, { ...short, RADSERVE_THREADS: "2" });
    const held = holdDecoding(t, place);
    const endHours = holdHours(place);
    const [input, small] = ["frames.dcm", "small.dcm"].map((name) => path.join(place.input, name));
    writeFileSync(input!, await heldImage(CT_SLICE, 3));
    writeSlice(small!);
    const server = await startServer(place);
    t.teardown(() => server.stop());
    const ask = (input_image_path: string, timeout_ms: number) =>
      server.post("/single_inference", {
        input_image_path,
        output_folder_path: place.output,
        timeout_ms,
      });
    t.equal((await ask(small!, patient.timeout_ms)).status, 200);
    const slow = ask(input!, HOUR_MS);
    // One on the thread of the request, and one on a decoder thread
    await held.atWork(2);
    endHours();
    t.equal((await slow).status, 504);
    await until("its thread was ended", async () => (await ended(server)) === 1);
    writeSlice(path.join(place.input, "again", "frames.dcm"));
    t.equal(
      (await ask(path.join(place.input, "again", "frames.dcm"), patient.timeout_ms)).status,
      200,
    );
  },
);

t.test(
  "an item of a bulk job fails, and the others of its job do not",
  { skip: needs(ADDON) },
  async (t) => {
    const short = withDurations({ lastMoment: 300 });
    const place = bulkPlace(t, { ...short, ...DEADLINE, RADSERVE_THREADS: "1" });
    const held = holdDecoding(t, place);
    const endHours = holdHours(place);
    const folder = path.join(place.input, "job");
    mkdirSync(folder);
    writeFileSync(path.join(folder, "b-slow.dcm"), await heldImage(CT_SLICE));
    for (const name of ["a.dcm", "c.dcm", "d.dcm", "e.dcm", "f.dcm"])
      writeSlice(path.join(folder, name));
    const server = await startServer(place);
    t.teardown(() => server.stop());
    const bulk = bulkOf(server);
    const id = await bulk.submit({
      input_folder_path: folder,
      output_folder_path: path.join(place.output, "job"),
    });
    // The second time it has its thread for itself, so that nobody else is to blame
    for (let time = 0; time < 2; time++) {
      await held.atWork();
      endHours();
    }
    t.match(await bulk.ended(id), { counts: { succeeded: 5, failed: 1 } });
    const slow = (await bulk.items(id)).find(({ input_image_path }) =>
      input_image_path.endsWith("slow.dcm"),
    );
    t.match(slow, { state: "failed", attempts: 1, error: { error: "deadline_exceeded" } });
    // How often depends on who else was on the thread when its time was over
    await until("a thread was ended", async () => (await ended(server)) >= 1);
  },
);

t.test("a share that does not answer", { skip: needs(ADDON) || mountsNothing }, async (t) => {
  const place = ctPlace({});
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const refused = await deadMount(t, place.directory, path.join(place.input, "dead"));
  if (refused !== undefined) {
    t.comment(`no FUSE here: ${refused}`);
    return;
  }
  const response = await server.post("/single_inference", {
    input_image_path: path.join(place.input, "dead/image.dcm"),
    output_folder_path: place.output,
    timeout_ms: 500,
  });
  t.equal(response.status, 504);
  t.match(await response.json(), { error: "deadline_exceeded", message: /share .* not answer/ });
});
