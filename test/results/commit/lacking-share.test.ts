/**
 * Output folders on a file system that lacks an operation (EOPNOTSUPP), as some shares do: a result
 * is made in another way, or refused with what is lacking. Nothing is left of it, and no result is
 * lost.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import path from "node:path";
import t from "tap";
import { bulkPlace, writeSlice } from "../../support/bulk.js";
import { withDurations } from "../../support/durations.js";
import { failingDisk } from "../../support/failing-disk.js";
import { ADDON, needs } from "../../support/needs.js";
import { startServer } from "../../support/server.js";

t.setTimeout(300_000);

/** A call, and the paths that it fails on; whether results are made all the same. */
const LACKING = [
  ["link", "*", true],
  ["link", "*.lock", true],
  // A file without a name is made by the path of its folder, which here ends with a digit
  ["open", "*[0-9]", true],
  ["fsync", "*[0-9]", true],
  ["open", "*", false],
  ["open", "*.part", false],
  ["write", "*", false],
  ["write", "*.sr.dcm", false],
  ["fsync", "*", false],
  ["mkdir", "*", false],
  ["rename", "*", false],
  ["rename", "*/receipt.json", false],
  ["rename", "*.sr.dcm", false],
  // Whoever has the name next takes over the lock that stays, after its lease
  ["unlink", "*.lock", true],
] as const;
const NAME = "one.dcm";
const RECEIPT = `${NAME}.json`;

t.test("a share without an operation", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, withDurations({ nameLease: 1_000 }));
  const { fault } = failingDisk(place, place.output);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  await server.logged(({ msg }) => msg === "models loaded");
  const image = path.join(place.input, NAME);
  writeSlice(image);
  const infer = async (folder: string, outputs: string[]) => {
    const answer = await server.post("/single_inference", {
      input_image_path: image,
      output_folder_path: folder,
      outputs,
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  for (const [i, [call, paths, isMade]] of LACKING.entries())
    for (const isNew of [true, false]) {
      const what = `${call} of ${paths}, ${isNew ? "a new result" : "an old one before it"}`;
      await t.test(what, async (t) => {
        const folder = path.join(place.output, `${isNew ? "new" : "old"}${i}`);
        mkdirSync(folder);
        const receipt = path.join(folder, RECEIPT);
        const outputs = isNew ? ["json"] : ["json", "sr"];
        if (!isNew) t.match(await infer(folder, ["json"]), { status: 200 });
        const before = isNew ? undefined : readFileSync(receipt, "utf8");
        writeFileSync(fault, `${constants.errno.EOPNOTSUPP} ${call} ${paths}`);
        const { status, body } = await infer(folder, outputs);
        t.comment(`${status} ${String(body["error"])} ${String(body["message"])}`);
        t.not(body["error"], "internal");
        if (isMade) t.equal(status, 200, "is made");
        if (status !== 200 && before !== undefined)
          t.equal(readFileSync(receipt, "utf8"), before, "the old one is as it was");
        rmSync(fault);
        t.match(await infer(folder, outputs), { status: 200 });
        t.same(
          readdirSync(folder).sort(),
          [...(isNew ? [] : [`${NAME}.ct-tissue.sr.dcm`]), RECEIPT].sort(),
          "nothing else is left",
        );
      });
    }
});
