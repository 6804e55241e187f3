/** The images of a job by what went wrong with them. */
import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkOf, bulkPlace } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { slice } from "../support/series.js";
import { startServer } from "../support/server.js";

t.setTimeout(300_000);

t.test("a job's images by the code of their error", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const bulk = bulkOf(server);
  const whole = slice({ z: 1 });
  writeFileSync(path.join(place.input, "a.dcm"), whole);
  writeFileSync(path.join(place.input, "b.dcm"), whole.subarray(0, -10));
  writeFileSync(path.join(place.input, "c.dcm"), slice({ z: 2, attributes: { Modality: "MR" } }));
  const id = await bulk.submit({
    input_folder_path: place.input,
    output_folder_path: path.join(place.output, "job"),
  });
  const { failures } = await bulk.ended(id);
  t.ok(failures.length >= 2);
  for (const { code, images } of failures) {
    const items = await bulk.items(id, `&code=${code}`);
    t.equal(items.length, images, code);
    t.ok(items.every(({ error, reason }) => (error?.error ?? reason?.code) === code));
  }
  const unknown = await fetch(`${server.url}/bulk_inference/${id}/items?code=no+such`, {
    headers: { Authorization: server.token },
  });
  t.equal(unknown.status, 400);
});
