/** The comparison of weeks over HTTP: of what the token reaches, and off unless set. */
import { mkdirSync, renameSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import type { DriftView } from "../../../src/features/drift/messages.js";
import { useResultKeys } from "../../../src/results/receipt/seal.js";
import { bulkPlace } from "../../support/bulk.js";
import { ADDON, needs } from "../../support/needs.js";
import { receiptOf, writeReceipt } from "../../support/receipts.js";
import { issueToken, startServer, type TestServer } from "../../support/server.js";

t.setTimeout(300_000);

async function started(t: Test, byHttp: string) {
  const place = bulkPlace(t, { RADSERVE_MINIMUM_FREE_DISK: "0", RADSERVE_FILES_BY_HTTP: byHttp });
  const inner = path.join(place.output, "still");
  mkdirSync(inner);
  const second = path.join(place.directory, "second");
  mkdirSync(second);
  place.environment["RADSERVE_OUTPUT_ROOTS"] = [place.output, inner, second].join(":");
  const server = await startServer(place);
  t.teardown(() => server.stop());
  return { place, second, server };
}

async function get({ url, token }: TestServer, query: Record<string, string> = {}, as = token) {
  const response = await fetch(`${url}/drift?${new URLSearchParams(query).toString()}`, {
    headers: { Authorization: as },
  });
  return { status: response.status, body: (await response.json()) as DriftView };
}

t.test("it is not there unless the settings say so", { skip: needs(ADDON) }, async (t) => {
  const { server } = await started(t, "upload,download");
  t.match(await get(server), { status: 404, body: { message: /RADSERVE_FILES_BY_HTTP=view/ } });
});

t.test(
  "how models do, of the folders that the token reaches",
  { skip: needs(ADDON) },
  async (t) => {
    const { place, second, server } = await started(t, "view");
    useResultKeys(path.join(place.environment["RADSERVE_STATE_DIR"]!, "keys"));
    const write = async (folder: string, shift: number) => {
      mkdirSync(path.join(place.output, folder), { recursive: true });
      for (let week = 0; week < 4; week++)
        for (let study = 0; study < 30; study++) {
          const score = (study * 7 + week) % 30;
          const receipt = receiptOf({ week, study, score: score / 40 + (week === 3 ? shift : 0) });
          await writeReceipt(path.join(place.output, folder), `${week}-${study}`, receipt);
        }
    };
    await write("still", 0);
    await write("moved", 0.25);
    const driftOf = async (folder: string, week?: string) => {
      const token = await issueToken(place, "--output-root", path.join(place.output, folder));
      return (await get(server, week === undefined ? {} : { week }, token)).body;
    };
    const still = await driftOf("still");
    t.match(still, { receipts: 120, whole: true, false_marks: 0.05 });
    t.same(
      still.changes.filter(({ marked }) => marked),
      [],
    );
    const moved = await driftOf("moved");
    const marked = moved.changes.filter((one) => one.marked);
    t.match(marked, [{ measure: "score", label: "mass", test: "Mann-Whitney" }]);
    t.same(
      (await driftOf("moved", "2026-09-23")).changes.filter((one) => one.marked),
      [],
      "the week before the shift",
    );
    t.match(await get(server, { week: "soon" }), { status: 400 });
    t.match(
      (await get(server)).body,
      { receipts: 240, folders: [place.output, path.join(place.output, "still")] },
      "a folder within another one counts once",
    );
    renameSync(second, `${second}-away`);
    t.match((await get(server)).body, { receipts: 240, whole: false }, "a root is away");
    t.match(await driftOf("still"), { whole: true }, "of others nothing is lacking");
  },
);
