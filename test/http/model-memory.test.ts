/** Networks that ask for more memory than there is, and runs that do not end: who pays for it. */
import { mkdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { modelListSchema } from "../../src/server/model-list.js";
import { bulkOf, bulkPlace, writeSlice } from "../support/bulk.js";
import { endlessOver, hungryOver } from "../support/endless.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { issueToken, startServer } from "../support/server.js";
import { until } from "../support/until.js";

/** 2^47 bytes. */
const NUMBERS = 2 ** 45;

t.test("networks that take too much", { skip: needs(ADDON) }, async (t) => {
  const place = bulkPlace(t, { RADSERVE_THREADS: "2" });
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  hungryOver(models, NUMBERS, 4_000);
  endlessOver(models, 4_000);
  copyModel(models, "ct-tissue", "ct-tissue");
  // What warms a model, and most images, are below the limits
  const images = path.join(place.input, "images");
  mkdirSync(images);
  writeSlice(path.join(images, "a.dcm"));
  writeSlice(path.join(images, "bright.dcm"), 2, { RescaleIntercept: "5000" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const other = await issueToken(place, "--subject", "other");
  let folder = 0;
  const ask = (model: string, image: string, token = server.token, more: object = {}) =>
    server.post(
      "/single_inference",
      {
        input_image_path: path.join(images, image),
        output_folder_path: path.join(place.output, String((folder += 1))),
        models: [model],
        outputs: ["json"],
        ...more,
      },
      { Authorization: token },
    );
  const health = async () =>
    (await (await fetch(`${server.url}/health/ready`)).json()) as {
      status: string;
      conditions?: { condition: string; where: string }[];
    };

  await t.test("memory that there never is fails the image, by name", async (t) => {
    t.equal((await ask("hungry-over", "a.dcm")).status, 200);
    const answer = await ask("hungry-over", "bright.dcm");
    t.equal(answer.status, 422);
    t.match(await answer.json(), { error: "memory_exceeded", message: /MiB/ });
    t.equal((await ask("ct-tissue", "a.dcm")).status, 200, "others go on");
    const bulk = bulkOf(server);
    const id = await bulk.submit({
      input_folder_path: images,
      output_folder_path: path.join(place.output, "job"),
      models: ["hungry-over"],
    });
    t.match(await bulk.ended(id), {
      state: "completed",
      counts: { succeeded: 1, failed: 1 },
      failures: [{ code: "memory_exceeded", images: 1 }],
    });
  });

  await t.test("runs that do not end keep nobody else waiting", async (t) => {
    const begun = async () => {
      const answer = await fetch(`${server.url}/models`, {
        headers: { Authorization: server.token },
      });
      const { models } = modelListSchema.parse(await answer.json());
      return models.find(({ name }) => name === "endless-over")!.work!.started.routine;
    };
    const before = await begun();
    const timeout = { timeout_ms: 5_000 };
    const endless = [1, 2, 3].map(() => ask("endless-over", "bright.dcm", server.token, timeout));
    // What runs may have ended at the next look, and what has begun stays counted
    await until("two of them run", async () => (await begun()) >= before + 2);
    t.equal((await ask("ct-tissue", "a.dcm", other)).status, 200);
    for (const answer of endless) t.equal((await answer).status, 504);
    t.equal((await ask("ct-tissue", "a.dcm")).status, 200);
    const ofModels = async () =>
      (await health()).conditions?.filter(({ where }) => where.startsWith("model "));
    // A run goes on for a moment after its client was answered
    await until("no run is late", async () => (await ofModels())?.length === 0);
    t.match(await health(), { status: "ready" });
  });
});
