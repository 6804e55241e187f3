/**
 * `radserve explain` on failures of a real server: what came of it, by which model, and what to do.
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { ERRORS, type ErrorCode } from "../../src/base/errors.js";
import { linesOf } from "../support/audit.js";
import { bulkPlace, writeSlice } from "../support/bulk.js";
import { attributesOf, CT_SLICE, dicomFile, picture } from "../support/dicom.js";
import { ADDON, needs } from "../support/needs.js";
import { expiredToken, radserve, startServer } from "../support/server.js";
import { until } from "../support/until.js";

t.setTimeout(240_000);

t.test(
  "failures are explained by request, by path and by job",
  { skip: needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t);
    const models = place.environment["RADSERVE_MODELS_DIR"]!;
    cpSync(path.join(models, "ct-tissue"), path.join(models, "broken"), { recursive: true });
    const manifest = path.join(models, "broken", "model.json");
    writeFileSync(
      manifest,
      readFileSync(manifest, "utf8")
        .replace('"ct-tissue"', '"broken"')
        .replace(/"required": \w+/, '"required": false')
        .replace(/"sha256": "\w{4}/, '"sha256": "0123'),
    );
    const inside = (name: string) => path.join(place.input, name);
    for (const z of [1, 2]) writeSlice(inside(`${z}/slice.dcm`), z);
    writeFileSync(inside("cut.dcm"), readFileSync(inside("1/slice.dcm")).subarray(0, -20));
    writeFileSync(inside("note.txt"), "no image");
    const raw = picture({
      rows: 8,
      columns: 8,
      samples: 1,
      bitsAllocated: 16,
      bitsStored: 12,
      signed: false,
    });
    writeFileSync(
      inside("mr.dcm"),
      dicomFile({
        attributes: attributesOf(raw, { ...CT_SLICE, Modality: "MR" }),
        pixels: raw.data,
      }),
    );
    const server = await startServer(place);
    t.teardown(() => server.stop());
    await server.logged(({ msg }) => msg === "models loaded");
    Object.assign(place.environment, { RADSERVE_URL: server.url, RADSERVE_TOKEN: server.token });

    const told = async (...words: string[]) => {
      const { status, stdout } = await radserve(place, "explain", ...words, "--json");
      t.equal(status, 0, words.join(" "));
      return JSON.parse(stdout) as Record<string, unknown>[];
    };
    const outside = await server.post("/single_inference", {
      input_image_path: "/etc/hostname",
      output_folder_path: place.output,
    });
    t.equal(outside.status, 403);
    const [why] = await told(outside.headers.get("X-Request-Id")!);
    t.match(why, { outcome: "path_not_allowed", reason: "outside" });
    const named = await server.post("/single_inference", {
      input_image_path: "Z:/images/1.dcm",
      output_folder_path: place.output,
    });
    const [mapped] = await told(named.headers.get("X-Request-Id")!);
    t.match(mapped, {
      reason: "path_map",
      meaning: /RADSERVE_PATH_MAP does not/,
      cause: undefined,
    });
    await server.logged(({ reason, route }) => reason === "path_map" && route !== undefined);

    /** Sends it, and gives the request id. */
    const fails = async (code: ErrorCode, image: string, more: object = {}, headers = {}) => {
      const id = `explain-${code}-${Math.random().toString(36).slice(2)}`;
      const body = { input_image_path: image, output_folder_path: place.output, ...more };
      const answer = await server.post("/single_inference", body, {
        "X-Request-Id": id,
        ...headers,
      });
      t.match(await answer.json(), { error: code });
      return id;
    };

    const done = await server.post("/single_inference", {
      input_image_path: inside("1/slice.dcm"),
      output_folder_path: place.output,
    });
    t.equal(done.status, 200);
    const expired = await expiredToken(place);
    const single: [ErrorCode, string, object?, object?][] = [
      ["input_not_found", inside("none.dcm")],
      ["path_not_allowed", "/etc/hostname"],
      ["truncated_image", inside("cut.dcm")],
      ["unsupported_format", inside("note.txt")],
      ["no_model_accepts", inside("mr.dcm")],
      ["bad_request", inside("mr.dcm"), { model: ["x"] }],
      ["model_not_found", inside("mr.dcm"), { models: ["nobody"] }],
      ["model_unavailable", inside("1/slice.dcm"), { models: ["broken"] }],
      ["output_name_taken", inside("2/slice.dcm")],
      ["unauthorized", inside("mr.dcm"), {}, { Authorization: expired }],
    ];
    for (const [code, image, more, headers] of single) {
      const id = await fails(code, image, more, headers);
      // A refused token is answered before its line is on the disk
      await until("the audit knows the request", () =>
        linesOf(place).some(({ request_id }) => request_id === id),
      );
      const [one] = await told(id);
      const { cause, remedy } = ERRORS[code];
      t.match(one, {
        outcome: code,
        what: "POST /single_inference",
        request_id: id,
        cause,
        remedy,
      });
      if (code === "bad_request" || code === "unauthorized") continue;
      const byPath = await told(image);
      t.ok(
        byPath.some(({ request_id }) => request_id === id),
        `${code} by the path`,
      );
    }
    t.match(await told(inside("1/slice.dcm"), "--output", place.output), [
      {
        outcome: "partial",
        models: [{ name: "broken", status: "failed" }, { status: "succeeded" }],
      },
      { outcome: "model_unavailable" },
      {
        what: /^the receipt /,
        models: [
          { name: "broken", error: "model_unavailable", message: /Expected sha256 0123/ },
          { name: "ct-tissue", status: "succeeded" },
        ],
        remedy: ERRORS.model_unavailable.remedy,
      },
    ]);

    /** Runs a folder as a job to its end, and gives its id. */
    const ended = async (name: string, more: object = {}) => {
      const job = await server.post("/bulk_inference", {
        input_folder_path: inside(name),
        output_folder_path: path.join(place.output, name),
        ...more,
      });
      const { job_id } = (await job.json()) as { job_id: string };
      await until("the job has ended", async () => {
        const answer = await fetch(`${server.url}/bulk_inference/${job_id}`, {
          headers: { Authorization: server.token },
        });
        return ((await answer.json()) as { state: string }).state === "completed";
      });
      return job_id;
    };
    mkdirSync(inside("job"));
    cpSync(inside("cut.dcm"), inside("job/cut.dcm"));
    const job_id = await ended("job");
    const [first, ...others] = await told(job_id);
    t.match(first, {
      what: "images that failed",
      outcome: "truncated_image",
      images: 1,
      message: /The pixel data has/,
      examples: [{ item: 0, path: inside("job/cut.dcm") }],
      remedy: ERRORS.truncated_image.remedy,
    });
    t.match(others[0], { what: "the job", outcome: "completed", message: "1 failed" });

    mkdirSync(inside("mixed"));
    for (const [from, to] of [
      ["cut.dcm", "a"],
      ["1/slice.dcm", "b"],
      ["2/slice.dcm", "c"],
    ] as const)
      cpSync(inside(from), inside(`mixed/${to}`));
    const mixed = await ended("mixed", { models: ["ct-tissue"] });
    t.match(
      (await told(mixed, "--limit", "1")).map(({ outcome }) => outcome),
      ["truncated_image", "completed"],
      "what failed comes first",
    );
    const groups = await radserve(place, "explain", mixed);
    t.match(groups.stdout, /^1 images that failed: truncated_image/);
    t.match(groups.stdout, /\n {2}image \d: .*mixed\/a\n/);
    const { RADSERVE_TOKEN: kept = "" } = place.environment;
    place.environment["RADSERVE_TOKEN"] = "";
    t.match(
      (await told(mixed, "--limit", "1")).map(({ outcome }) => outcome),
      ["truncated_image", "2 ended well, 1 did not"],
      "without the server, what failed is not lost among what ended well",
    );
    place.environment["RADSERVE_TOKEN"] = kept;

    const page = await radserve(place, "explain", inside("cut.dcm"));
    t.match(
      page.stdout,
      /Z {2}POST \/single_inference of tester: truncated_image \(request explain-truncated/,
    );
    t.match(page.stdout, /\n {2}why: {5}.*\n {2}to do: {3}Wait until the file is complete/);
    t.match(await radserve(place, "explain", "nobody-asked"), {
      status: 1,
      stderr: /^Nothing is known of/,
    });

    const figures = await (await fetch(`${server.url}/metrics`)).text();
    t.match(
      figures,
      'radserve_http_errors_total{route="POST /single_inference",error="truncated_image"} 1',
    );
    t.match(
      figures,
      'radserve_model_answers_total{model="ct-tissue",status="succeeded",error=""} 1',
    );
    t.match(
      figures,
      'radserve_model_answers_total{model="broken",status="failed",error="model_unavailable"} 2',
    );
    t.notMatch(figures, /model="nobody"/);
    t.match((await server.told(({ error }) => error === "model_unavailable"))[0], {
      models: [{ name: "broken", status: "failed", error: "model_unavailable" }],
    });
  },
);
