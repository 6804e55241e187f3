/** One subject that floods: what it may have at a time, and that others do not wait for it. */
import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, writeSlice } from "../support/bulk.js";
import { CT_SLICE } from "../support/dicom.js";
import { heldImage, holdDecoding } from "../support/held.js";
import { ADDON, needs } from "../support/needs.js";
import { issueToken, startServer, type TestServer } from "../support/server.js";
import { until } from "../support/until.js";

async function queued(server: TestServer): Promise<number> {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  return Number(/\nradserve_inferences_queued (\d+)/.exec(text)?.[1]);
}

t.test("a subject that floods", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, { RADSERVE_THREADS: "1", RADSERVE_REQUESTS_PER_SUBJECT: "44" });
  const held = holdDecoding(t, place);
  const at = (name: string) => path.join(place.input, name);
  writeFileSync(at("slow.dcm"), await heldImage(CT_SLICE));
  writeSlice(at("small.dcm"));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const other = await issueToken(place, "--subject", "other");
  let folder = 0;
  const ask = (name: string, token = server.token) =>
    server.post(
      "/single_inference",
      {
        input_image_path: at(name),
        output_folder_path: path.join(place.output, String((folder += 1))),
        outputs: ["json"],
      },
      { Authorization: token },
    );

  // As many as a thread takes at a time, so that what follows waits
  const slow = Array.from({ length: 4 }, () => ask("slow.dcm"));
  await until(
    "four inferences run",
    async () =>
      Number(/running (\d)/.exec(await (await fetch(`${server.url}/metrics`)).text())?.[1]) === 4,
  );
  const order: string[] = [];
  const flood = Array.from({ length: 40 }, async () => {
    const { status } = await ask("small.dcm");
    order.push("flood");
    return status;
  });
  await until("forty requests are queued", async () => (await queued(server)) === 40);

  const refused = await ask("small.dcm");
  t.equal(refused.status, 429, "it has as many as it may have");
  t.equal(refused.headers.get("Retry-After"), "1");
  t.match(await refused.json(), {
    error: "rate_limited",
    message: /at most 44 requests of one subject/,
  });
  const models = await fetch(`${server.url}/models`, { headers: { Authorization: server.token } });
  t.equal(models.status, 429, "of any kind");

  const one = ask("small.dcm", other).then(({ status }) => {
    order.push("other");
    return status;
  });
  t.equal(await one, 200);
  held.release();
  t.ok(order.indexOf("other") < 12, `the other subject waited for ${order.indexOf("other")} of 40`);
  t.strictSame([...new Set(await Promise.all(flood))], [200], "nothing of the flood is lost");
  for (const answer of slow) t.ok((await answer).status < 500);
  t.equal((await ask("small.dcm")).status, 200, "once they are answered, it may send again");
});
