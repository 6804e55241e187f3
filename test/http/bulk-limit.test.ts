/** How many jobs one subject may have open. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkPlace, hold, nameOf, startBulk, writeMany } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { issueToken } from "../support/server.js";

t.test("open jobs of one subject", { skip: needs(ADDON) }, async (t) => {
  const most = 2;
  const place = bulkPlace(t, { RADSERVE_JOBS_PER_SUBJECT: String(most) });
  const { send, submit, ended, job } = await startBulk(t, place);
  const bad = path.join(place.input, "bad");
  mkdirSync(bad);
  const input_image_path = path.join(bad, "no-image.dcm");
  writeFileSync(input_image_path, "no image");
  const failed = await submit({
    items: [{ input_image_path, output_folder_path: path.join(place.output, "failed") }],
  });
  t.match(await ended(failed), { counts: { failed: 1 } });

  const many = path.join(place.input, "many");
  writeMany(many, 8);
  const bodyOf = (n: number) => ({
    input_folder_path: many,
    output_folder_path: path.join(place.output, String(n)),
    idempotency_key: String(n),
  });
  const all = Array.from({ length: 8 }, (_, n) => n);
  // No job ends before the test lets it
  const releases = await Promise.all(
    all.map((n) => hold(t, bodyOf(n).output_folder_path, [nameOf(0)])),
  );
  const asked = await Promise.all(
    all.map(async (n) => {
      const answer = await send("POST", "/bulk_inference", bodyOf(n));
      const id = String(answer.body["job_id"]);
      if (answer.status === 202) await send("POST", `/bulk_inference/${id}/pause`);
      return { ...answer, id, n };
    }),
  );
  const taken = asked.filter(({ status }) => status === 202);
  t.equal(taken.length, most, "however many come at once");
  const refused = asked.filter(({ status }) => status === 429);
  t.equal(refused.length, asked.length - most);
  for (const { headers, body, n } of refused) {
    t.match(body, {
      error: "rate_limited",
      message: /at most 2 open jobs of one subject/,
      details: { limit: most },
    });
    t.equal(headers.get("Retry-After"), "30");
    await releases[n]!();
    t.strictSame(readdirSync(bodyOf(n).output_folder_path), [], "no mark of it is left");
  }
  const [first, second] = taken;
  t.match(
    await send("POST", "/bulk_inference", bodyOf(first!.n)),
    { status: 200 },
    "a key gives its job",
  );
  t.match(
    await send("POST", `/bulk_inference/${failed}/retry`),
    { status: 429, body: { error: "rate_limited" } },
    "a job that has ended is not opened again",
  );
  t.match(await job(failed), { state: "completed", counts: { failed: 1 } });
  const other = await issueToken(place, "--subject", "other");
  t.ok(await submit(bodyOf(first!.n), other), "another subject has its own");

  t.match(await send("DELETE", `/bulk_inference/${second!.id}`), { status: 200 });
  await releases[second!.n]!();
  await ended(second!.id);
  t.match(await send("POST", `/bulk_inference/${failed}/retry`), { status: 200 });
});
