/** Single requests that came to nothing: who may read of them, and what is not remembered. */
import { mkdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import type { FailedRequestList } from "../../src/server/failed-requests.js";
import { ADDON, needs } from "../support/needs.js";
import { issueToken, makePlace, startServer } from "../support/server.js";

t.test("failed single requests", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace({ RADSERVE_FAILED_TOKENS: "0" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const ward = path.join(place.input, "ward");
  const results = path.join(place.output, "ward");
  for (const folder of [ward, results]) mkdirSync(folder);
  const token = (...words: string[]) => issueToken(place, ...words);
  const wide = await token("--subject", "clinic");
  const ofWard = ["--input-root", ward, "--output-root", results];
  const narrow = await token("--subject", "clinic", ...ofWard);
  const narrowAdmin = await token("--subject", "head", "--admin", ...ofWard);
  const admin = await token("--subject", "head", "--admin");

  const fail = async (as: string, input: string, output: string) => {
    const body = { input_image_path: input, output_folder_path: output };
    t.not((await server.post("/single_inference", body, { Authorization: as })).status, 200);
  };
  const listed = async (as: string) => {
    const headers = { Authorization: as };
    const answer = await fetch(`${server.url}/failed_requests`, { headers });
    const { failed, dropped } = (await answer.json()) as FailedRequestList;
    return { names: failed.map(({ input_image_path: at }) => path.basename(at)), dropped };
  };

  await fail(wide, path.join(place.input, "elsewhere.dcm"), place.output);
  await fail(wide, path.join(ward, "in-ward.dcm"), results);
  await fail(wide, path.join(ward, "half.dcm"), place.output);
  const all = ["half.dcm", "in-ward.dcm", "elsewhere.dcm"];
  t.strictSame(await listed(wide), { names: all, dropped: 0 });
  t.strictSame(await listed(admin), { names: all, dropped: 0 });
  t.strictSame(await listed(narrow), { names: ["in-ward.dcm"], dropped: 0 });
  t.strictSame(await listed(narrowAdmin), { names: ["in-ward.dcm"], dropped: 0 });

  await fail(narrow, path.join(place.input, "refused.dcm"), results);
  t.strictSame((await listed(narrow)).names, ["refused.dcm", "in-ward.dcm"], "what it sent itself");

  for (let i = 0; i < 100; i += 1) await fail(wide, path.join(ward, `${i}.dcm`), results);
  const { names, dropped } = await listed(wide);
  t.equal(names.length, 100);
  t.equal(dropped, 4, "the earliest are counted");
  t.equal((await listed(admin)).dropped, 4);
});
