/** A model that a server can do without keeps it neither from being ready nor from answering. */
import t from "tap";
import { modelListSchema } from "../../src/server/model-list.js";
import { withDurations } from "../support/durations.js";
import { endless } from "../support/endless.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, startServer } from "../support/server.js";
import { until } from "../support/until.js";

t.test("an optional model whose first run does not end", { skip: needs(ADDON) }, async (t) => {
  const models = t.testdir();
  // They are loaded in the order of their names
  endless(models);
  copyModel(models, "ct-tissue", "late", (m) => (m.required = false));
  copyModel(models, "ct-tissue", "needed");
  const server = await startServer(
    makePlace({
      RADSERVE_MODELS_DIR: models,
      ...withDurations({ optionalModels: 1_000, firstRun: 8_000 }),
    }),
  );
  t.teardown(() => server.stop());
  const ask = async (page: string) =>
    fetch(server.url + page, { headers: { Authorization: server.token } });
  await until("it is ready", async () => (await ask("/health/ready")).status === 200);
  const said = async (name: string) => server.told((line) => line["model"] === name);
  t.match(await said("needed"), [{ msg: "Model needed is ready" }]);
  for (const name of ["endless", "late"])
    t.match((await said(name))[0], {
      error: { message: /^Model \w+: .* is tried beside the others now/ },
    });

  const listed = async (name: string) =>
    modelListSchema
      .parse(await (await ask("/models")).json())
      .models.find((one) => one.name === name);
  await until("the rest joins", async () => (await listed("late"))?.health === "ready");
  t.match(await listed("endless"), {
    health: "failed",
    error: { message: /did not end within 8 s/ },
  });
});
