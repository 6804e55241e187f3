/** A server that is told to stop is not ready at once, and answers until its drain time is over. */
import { readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { monotonic } from "../../src/base/monotonic.js";
import { ctPlace, writeSlice } from "../support/bulk.js";
import { withDurations } from "../support/durations.js";
import { ADDON, needs } from "../support/needs.js";
import { commandOf } from "../support/processes.js";
import { makePlace, openBelow, PNG, startServer } from "../support/server.js";
import { until } from "../support/until.js";

/** Beyond all that is asked while it drains, however long that takes. */
const LONG_DRAIN_SECONDS = 300;
const SHORT_DRAIN_SECONDS = 1;

t.test("while it drains it answers", { skip: needs(ADDON) }, async (t) => {
  const place = ctPlace({ RADSERVE_DRAIN_SECONDS: String(LONG_DRAIN_SECONDS) });
  const image = path.join(place.input, "image.dcm");
  writeSlice(image);
  const server = await startServer(place);
  const ready = () => fetch(`${server.url}/health/ready`);
  await until("it is ready", async () => (await ready()).status === 200);
  server.process.kill("SIGTERM");
  const refused = await until("it is not ready", async () => {
    const answer = await ready();
    return answer.status === 503 && answer;
  });
  t.match(await refused.json(), { error: "shutting_down" });
  t.equal(refused.headers.get("connection"), "close", "clients are sent elsewhere");
  const infer = (output: string) =>
    server.post("/single_inference", {
      input_image_path: image,
      output_folder_path: path.join(place.output, output),
    });
  const answer = await infer("draining");
  t.match([answer.status, await answer.json()], [200, { status: "completed" }]);
  const page = await fetch(`${server.url}/models`, { headers: { Authorization: server.token } });
  t.equal(page.status, 200);
  const ended = new Promise((resolve) => server.process.once("exit", resolve));
  const serving = server.servingPid();
  server.process.kill("SIGKILL");
  await ended;
  // It may write to the folders until it notices
  await until("the serving process has gone", () => (commandOf(serving) ?? "") === "");
  place.remove();
});

t.test("it ends when its drain time is over", async (t) => {
  const place = makePlace({ RADSERVE_DRAIN_SECONDS: String(SHORT_DRAIN_SECONDS) });
  const server = await startServer(place);
  const began = monotonic();
  t.equal(await server.stop(), 0);
  t.ok(monotonic() - began >= SHORT_DRAIN_SECONDS * 1000, "not before");
});

/** Longer than answers have at the end. */
const UPLOAD_MS = 4_000;
const PIECE_MS = 200;

t.test("an upload that goes on is whole before it ends", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace({
    // Longer than the client ever stands still
    ...withDurations({ stoppingPause: 60_000 }),
    RADSERVE_FILES_BY_HTTP: "upload",
    RADSERVE_MINIMUM_FREE_DISK: "0",
  });
  const server = await startServer(place);
  const file = path.join(place.input, "late.png");
  const page = `${server.url}/files?${new URLSearchParams({ path: file }).toString()}`;
  const request = http.request(page, { method: "PUT", headers: { Authorization: server.token } });
  const answered = new Promise<number | undefined>((resolve, reject) => {
    request.once("response", (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    });
    request.once("error", reject);
  });
  const pieces = [PNG.subarray(0, 8)];
  request.write(pieces[0]);
  await until("the upload has a file", () => openBelow(server, `${place.input}/`) > 0);
  const ended = new Promise((resolve) => server.process.once("exit", resolve));
  server.process.kill("SIGTERM");
  await server.logged(({ msg }) => msg.startsWith("stopping"));
  const began = monotonic();
  while (monotonic() - began < UPLOAD_MS) {
    await delay(PIECE_MS);
    const piece = Buffer.alloc(1_000, pieces.length);
    pieces.push(piece);
    request.write(piece);
  }
  request.end();
  t.equal(await answered, 201);
  t.equal(await ended, 0);
  t.strictSame(readFileSync(file), Buffer.concat(pieces));
  place.remove();
});
