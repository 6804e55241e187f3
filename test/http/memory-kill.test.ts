/** The system ends the serving process for memory while a model runs: who is named and left out. */
import path from "node:path";
import t from "tap";
import { ctPlace, writeSlice } from "../support/bulk.js";
import { growsOver } from "../support/endless.js";
import { memoryGroup } from "../support/memory-group.js";
import { ADDON, needs } from "../support/needs.js";
import { radserve, startServer } from "../support/server.js";
import { until } from "../support/until.js";

const LIMIT = 2 ** 29;

t.test("memory that runs out while a model runs", { skip: needs(ADDON) }, async (t) => {
  const into = memoryGroup(t, LIMIT);
  if (into === undefined) {
    t.comment("no control group can be made here");
    return;
  }
  const place = ctPlace({ RADSERVE_MEMORY: "512MiB" });
  growsOver(place.environment["RADSERVE_MODELS_DIR"]!, 4_000);
  writeSlice(path.join(place.input, "a.dcm"));
  writeSlice(path.join(place.input, "bright.dcm"), 2, { RescaleIntercept: "5000" });
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const ask = (model: string, image: string) =>
    server.post(
      "/single_inference",
      {
        input_image_path: path.join(place.input, image),
        output_folder_path: path.join(place.output, model),
        models: [model],
      },
      { "X-Request-Id": `${model}-${image}` },
    );
  const states = async () => {
    const headers = { Authorization: server.token };
    const { models } = (await (await fetch(`${server.url}/models`, { headers })).json()) as {
      models: { name: string; state: string; error?: { message: string } }[];
    };
    return models;
  };
  t.equal((await ask("grows-over", "a.dcm")).status, 200);
  t.equal((await ask("ct-tissue", "a.dcm")).status, 200);

  // Its limits are those of the machine, so that nothing but the system ends the run
  into(server.servingPid());
  await t.rejects(ask("grows-over", "bright.dcm"), "the connection goes with the process");
  t.match(await server.logged(({ msg }) => /^memory ran out while/.test(msg)), {
    models: ["grows-over"],
    requests: ["grows-over-bright.dcm"],
    memory: true,
  });
  await until("the models are loaded", async () => (await states()).length > 1);
  t.match(
    (await states()).find(({ name }) => name === "grows-over"),
    { error: { message: /Memory ran out while this model ran/ } },
  );
  t.equal((await ask("ct-tissue", "a.dcm")).status, 200, "the others go on");
  t.equal((await ask("grows-over", "a.dcm")).status, 503);

  t.match(await radserve(place, "models", "reload"), { status: 0 });
  t.equal((await ask("grows-over", "a.dcm")).status, 200, "a reload tries it again");
});
