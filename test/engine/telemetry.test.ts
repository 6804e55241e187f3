/**
 * ONNX Runtime's own builds report to their maker, and keep what is to be sent in the home
 * directory. Ours must not.
 */
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { shippedModels } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";

t.test("a model that runs leaves nothing to be sent", { skip: needs(ADDON) }, (t) => {
  for (const said of [undefined, "0"]) {
    const home = t.testdir();
    const env: NodeJS.ProcessEnv = { ...process.env, HOME: home, TMPDIR: home };
    // The first two would switch it off by themselves
    for (const name of ["CI", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY"])
      Reflect.deleteProperty(env, name);
    if (said !== undefined) env["ORT_DISABLE_TELEMETRY"] = said;
    const { status, stdout } = spawnSync(
      process.execPath,
      [path.resolve("dist/src/main.js"), "models", "check", path.join(shippedModels, "ct-tissue")],
      { env, encoding: "utf8" },
    );
    t.match({ status, stdout }, { status: 0, stdout: /its canary passes/ });
    t.strictSame(
      readdirSync(home),
      [],
      `no cache, no identifier and no log, with ${said ?? "nothing"} said before`,
    );
  }
  t.end();
});
