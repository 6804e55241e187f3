/** Jobs of one subject, under tokens of which one is narrower than the other. */
import { mkdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { jobListSchema } from "../../src/jobs/schema.js";
import { bulkPlace, JOB_PAGES, startBulk, writeSlice } from "../support/bulk.js";
import { ADDON, needs } from "../support/needs.js";
import { issueToken } from "../support/server.js";

t.test(
  "a narrowed token steers no job whose folders lie outside",
  { skip: needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t);
    const [into, out] = [place.input, place.output].map(
      (root) =>
        (...parts: string[]) =>
          path.join(root, ...parts),
    );
    for (const ward of ["a", "b"]) {
      mkdirSync(out!(ward));
      writeSlice(into!(ward, "1.dcm"));
    }
    const { send, submit, ended } = await startBulk(t, place);
    const narrow = await issueToken(place, "--input-root", into!("a"), "--output-root", out!("a"));
    const half = await issueToken(place, "--output-root", out!("a"));
    const narrowAdmin = await issueToken(place, "--admin", "--output-root", out!("a"));
    const folder = (ward: string) => ({
      input_folder_path: into!(ward),
      output_folder_path: out!(ward, "folder"),
    });
    const item = (from: string, to: string) => ({
      input_image_path: into!(from, "1.dcm"),
      output_folder_path: out!(to, "items"),
    });
    const inside = [
      await submit(folder("a")),
      await submit({ items: [item("a", "a")] }),
      await submit(folder("a"), narrow),
    ];
    const outside = [
      await submit({ ...folder("b"), idempotency_key: "b" }),
      await submit({ items: [item("a", "a"), item("a", "b")] }),
    ];
    const inputOutside = await submit({ items: [item("b", "a")] });
    for (const id of [...inside, ...outside, inputOutside]) await ended(id);

    const refused = async (id: string, token: string, name: string) => {
      for (const [method, page] of JOB_PAGES)
        t.match(
          await send(method, `/bulk_inference/${id}${page}`, undefined, token),
          { status: 404, body: { error: "job_not_found" } },
          `${name}: ${method} ${page}`,
        );
    };
    for (const id of outside) {
      await refused(id, narrow, "narrow");
      await refused(id, half, "output alone");
      await refused(id, narrowAdmin, "admin");
    }
    await refused(inputOutside, narrow, "input outside");
    t.match(await send("GET", `/bulk_inference/${inputOutside}`, undefined, half), { status: 200 });
    for (const id of inside)
      for (const token of [narrow, half, narrowAdmin, undefined]) {
        t.match(await send("GET", `/bulk_inference/${id}/items`, undefined, token), {
          status: 200,
        });
        t.match(await send("POST", `/bulk_inference/${id}/retry`, undefined, token), {
          status: 200,
        });
      }
    const listed = async (token?: string) => {
      const ids: string[] = [];
      for (let cursor: string | null = ""; cursor !== null;) {
        const query: string = `?limit=1${cursor === "" ? "" : `&cursor=${cursor}`}`;
        const { body } = await send("GET", `/bulk_inference${query}`, undefined, token);
        const page = jobListSchema.strict().parse(body);
        ids.push(...page.jobs.map((job) => job.job_id));
        cursor = page.next_cursor;
      }
      return ids.sort();
    };
    t.strictSame(await listed(narrow), [...inside].sort());
    t.strictSame(await listed(half), [...inside, inputOutside].sort());
    t.strictSame(await listed(), [...inside, ...outside, inputOutside].sort());
    t.match(
      await send("POST", "/bulk_inference", { ...folder("b"), idempotency_key: "b" }, narrow),
      { status: 403, body: { error: "path_not_allowed" } },
      "an idempotency key opens nothing",
    );
    t.match(await send("POST", "/bulk_inference", { ...folder("b"), idempotency_key: "b" }), {
      status: 200,
    });
  },
);
