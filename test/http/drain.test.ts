/** A server that is told to stop is not ready at once, and answers until its drain time is over. */
import path from "node:path";
import t from "tap";
import { monotonic } from "../../src/base/monotonic.js";
import { ctPlace, writeSlice } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { startServer } from "../support/server.js";
import { until } from "../support/until.js";

const DRAIN_SECONDS = 4;

t.test("it drains", { skip: needs(ADDON) }, async (t) => {
  const place = ctPlace({ RADSERVE_DRAIN_SECONDS: String(DRAIN_SECONDS) });
  const image = path.join(place.input, "image.dcm");
  writeSlice(image);
  const server = await startServer(place);
  const ready = () => fetch(`${server.url}/health/ready`);
  await until("it is ready", async () => (await ready()).status === 200);
  const began = monotonic();
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
  t.equal(await ended, 0);
  t.ok(monotonic() - began >= DRAIN_SECONDS * 1000, "not before its drain time was over");
  place.remove();
});
