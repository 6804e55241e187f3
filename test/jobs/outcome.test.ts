/** What the end of an item means, where the moment decides. */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { pathsOf } from "../../src/jobs/item-paths.js";
import type { LeasedItem } from "../../src/jobs/leases.js";
import { judge } from "../../src/jobs/outcome.js";

t.test(
  "an image that was not found, and is there when that is judged, is no failure",
  async (t) => {
    const folder = t.testdir({ input: { "1.dcm": "", "2.dcm": "" }, output: {} });
    const [input, output, away] = ["input", "output", "away"].map((name) =>
      path.join(folder, name),
    ) as [string, string, string];
    const item: LeasedItem = {
      job_id: "5f0c9a52-4f0e-4a51-9d0c-6c7a3a2a9b10",
      index: 0,
      subject: "one",
      input: "1.dcm",
      output: null,
      created_at: new Date(0),
      lease: 1,
      attempts: 1,
      alone: false,
      started_at: null,
      request: { input_folder_path: input, output_folder_path: output },
      input_roots: null,
      output_roots: null,
      marked: false,
      pins: null,
      traceparent: null,
    };
    const where = {
      item,
      paths: pathsOf(item.request, item, []),
      roots: { input: [input], output: [output] },
    };
    t.equal(where.paths.input, path.join(input, "1.dcm"));
    const error = {
      error: "input_not_found",
      message: "Expected a file; nothing is there.",
    } as const;
    const judged = () => judge({ ok: false, error }, where);

    t.match(await judged(), { ending: { state: "queued", counts: false } }, "it came back");
    renameSync(input, away);
    mkdirSync(input);
    t.match(await judged(), {
      ending: { state: "queued", counts: false },
      pause: { code: "share_unavailable" },
    });
    writeFileSync(path.join(input, "2.dcm"), "");
    t.match(
      await judged(),
      { ending: { state: "failed", error } },
      "its neighbour is there, it is not",
    );

    const failing = (side: string, errno: string) =>
      judge(
        {
          ok: false,
          error: { error: "share_unavailable", message: "It fails.", details: { errno, side } },
          errno,
        },
        where,
      );
    t.match(
      await failing("output", "EIO"),
      { ending: { state: "queued", counts: false }, pause: { code: "share_unavailable" } },
      "whatever image comes next would fail there, too",
    );
    t.match(
      await failing("input", "EIO"),
      { ending: { state: "queued", counts: true } },
      "a bad place of a disk of images is one file's",
    );
  },
);
