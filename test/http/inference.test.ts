/** The main page with the real engine and a real image. */
import { copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import t from "tap";
import { answerSchema } from "../../src/results/receipt/receipt.js";
import { hold } from "../support/bulk.js";
import { ADDON, DICOM_FILES, needs } from "../support/needs.js";
import { makePlace, root, startServer } from "../support/server.js";
import { until } from "../support/until.js";

const slice = path.join(root, "../shared/dicom/ct-series-chest/000021.dcm");
const cine = path.join(root, "../shared/dicom/jpeg50-us-ybr422-30frame.dcm");
const skip = needs(ADDON, DICOM_FILES);

t.test("single inference", { skip }, async (t) => {
  const place = makePlace({ RADSERVE_MODELS_DIR: path.join(root, "models") });
  place.environment["RADSERVE_PATH_MAP"] = JSON.stringify([
    { from: "\\\\pacs\\in", to: place.input },
    { from: "\\\\pacs\\out", to: place.output },
  ]);
  copyFileSync(slice, path.join(place.input, "slice.dcm"));
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const body = {
    input_image_path: path.join(place.input, "slice.dcm"),
    output_folder_path: path.join(place.output, "a"),
  };

  await t.test("writes what it says, and does it once", async (t) => {
    const response = await server.post("/single_inference", body, { "X-Request-Id": "first" });
    const answer = answerSchema.parse(await response.json());
    t.equal(response.status, 200);
    t.match(answer, {
      request_id: "first",
      status: "completed",
      reused: false,
      input_image_path: body.input_image_path,
    });
    t.equal(answer.receipt_path, path.join(place.output, "a", "slice.dcm.json"));
    const tissue = answer.models.find((model) => model.name === "ct-tissue");
    t.equal(tissue?.status, "succeeded");
    for (const output of tissue!.outputs) t.ok(existsSync(output.path), output.media_type);
    const again = await server.post("/single_inference", body);
    t.match(await again.json(), { reused: true, receipt_path: answer.receipt_path });
  });

  await t.test("answers in the client's names", async (t) => {
    const response = await server.post("/single_inference", {
      input_image_path: "\\\\PACS\\in\\slice.dcm",
      output_folder_path: "\\\\pacs\\out\\b\\",
    });
    const answer = answerSchema.parse(await response.json());
    t.equal(answer.input_image_path, "\\\\PACS\\in\\slice.dcm");
    t.equal(answer.receipt_path, "\\\\pacs\\out\\b\\slice.dcm.json");
    t.notMatch(JSON.stringify(answer), new RegExp(place.directory), "no name of ours");
    t.ok(existsSync(path.join(place.output, "b", "slice.dcm.json")));
  });

  await t.test("models: listed, chosen, mistaken", async (t) => {
    const listed = await (
      await fetch(`${server.url}/models`, { headers: { Authorization: server.token } })
    ).json();
    t.match(listed, {
      models: [
        { name: "burned-in-text", health: "ready" },
        { name: "ct-tissue", sha256: /^[0-9a-f]{64}$/ },
      ],
    });
    t.equal((await fetch(`${server.url}/health/ready`)).status, 200);
    const misspelt = await server.post("/single_inference", { ...body, models: ["ct-tisue"] });
    t.equal(misspelt.status, 404);
    t.match(await misspelt.json(), {
      message: /no model is called "ct-tisue"; the nearest is "ct-tissue"/,
    });
    const unfit = await server.post("/single_inference", {
      ...body,
      models: ["burned-in-text"],
      output_folder_path: place.output,
    });
    t.equal(unfit.status, 422);
    t.match(await unfit.json(), { error: "no_model_accepts" });
  });

  await t.test("a truncated file is 422, and the server goes on", async (t) => {
    const cut = path.join(place.input, "cut.dcm");
    writeFileSync(cut, readFileSync(slice).subarray(0, 100_000));
    const response = await server.post("/single_inference", { ...body, input_image_path: cut });
    t.equal(response.status, 422);
    t.match(await response.json(), { error: "truncated_image" });
    t.equal((await server.post("/single_inference", body)).status, 200);
  });

  await t.test("time over, and clients that go away", async (t) => {
    rmSync(path.join(place.output, "a"), { recursive: true });
    const late = await server.post("/single_inference", { ...body, timeout_ms: 1 });
    t.equal(late.status, 504);
    for (const timeout_ms of [5, 10, 20, 40, 80, 160]) {
      const folder = path.join(place.output, `within-${timeout_ms}`);
      const response = await server.post("/single_inference", {
        ...body,
        output_folder_path: folder,
        timeout_ms,
      });
      if (response.status === 200) {
        const { timings_ms } = answerSchema.parse(await response.json());
        t.ok(
          timings_ms["total"]! <= timeout_ms,
          `an answer within ${timeout_ms} ms took no longer`,
        );
      } else
        t.match(
          await response.json(),
          { error: "deadline_exceeded" },
          `not within ${timeout_ms} ms`,
        );
    }
    // It has no answer before its client has gone
    const letGo = await hold(t, path.join(place.output, "c"), ["slice.dcm"]);
    const request = http.request(`${server.url}/single_inference`, {
      method: "POST",
      headers: {
        Authorization: server.token,
        "Content-Type": "application/json",
        "X-Request-Id": "leaves",
      },
    });
    request
      .on("error", () => undefined)
      .end(JSON.stringify({ ...body, output_folder_path: path.join(place.output, "c") }));
    request.once("finish", () => setImmediate(() => request.destroy()));
    await server.logged((line) => line["request_id"] === "leaves" && line["status"] === 499);
    await letGo();
    t.equal((await server.post("/single_inference", body)).status, 200);
  });

  await t.test(
    "an image whose client has gone is stopped at its next frame, wherever it was",
    async (t) => {
      copyFileSync(cine, path.join(place.input, "cine.dcm"));
      const folder = path.join(place.output, "gone");
      // It cannot be finished before its client goes
      const letGo = await hold(t, folder, ["cine.dcm"]);
      const request = http.request(`${server.url}/single_inference`, {
        method: "POST",
        headers: { Authorization: server.token, "Content-Type": "application/json" },
      });
      request
        .on("error", () => undefined)
        .end(
          JSON.stringify({
            input_image_path: path.join(place.input, "cine.dcm"),
            output_folder_path: folder,
            outputs: ["json"],
          }),
        );
      const running = async () =>
        /\nradserve_inferences_running (\d+)/.exec(
          await (await fetch(`${server.url}/metrics`)).text(),
        )?.[1];
      await until("it runs", async () => (await running()) === "1");
      request.destroy();
      await until("it has ended", async () => (await running()) === "0");
      await letGo();
      t.notOk(existsSync(path.join(folder, "cine.dcm.json")));
    },
  );

  await t.test("many at once: each its own answer", async (t) => {
    const many = await Promise.all(
      Array.from({ length: 40 }, async (_, n) => {
        const folder = path.join(place.output, `many-${n}`);
        const response = await server.post(
          "/single_inference",
          { ...body, output_folder_path: folder, priority: n % 10 === 0 ? "stat" : "routine" },
          { "X-Request-Id": `many-${n}` },
        );
        const answer = answerSchema.parse(await response.json());
        return (
          answer.request_id === `many-${n}` &&
          answer.receipt_path === path.join(folder, "slice.dcm.json")
        );
      }),
    );
    t.ok(many.every(Boolean));
  });
});
