/**
 * Folders of models in which other things than files lie, and graphs that never end: each is a
 * problem of its own.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { once } from "node:events";
import t from "tap";
import { durations, setDurations } from "../../src/base/durations.js";
import { createLog } from "../../src/base/log.js";
import { loadModels } from "../../src/models/set.js";
import { endless } from "../support/endless.js";
import { copyModel } from "../support/manifests.js";
import { ADDON, needs } from "../support/needs.js";
import { engineWithFolder } from "../support/real-engine.js";
import { untilRunning } from "../support/tiny-models.js";

const log = createLog("silent");

const pipe = (path: string) => {
  rmSync(path, { force: true });
  execFileSync("mkfifo", [path]);
};

/** ct-tissue, not needed by its server, with something else in place of one of its files. */
function odd(directory: string, name: string, file: string, put: (path: string) => void): void {
  const path = join(
    copyModel(directory, "ct-tissue", name, (m) => (m.required = false)),
    file,
  );
  rmSync(path, { force: true });
  put(path);
}

t.test("what is no file is named, and the others serve", { skip: needs(ADDON) }, async (t) => {
  const { firstRun } = durations;
  t.teardown(() => setDurations({ firstRun }));
  // The endless one alone has little time: others may be slow on a busy machine
  const loading = (name: string | undefined) => {
    setDurations({ firstRun: name === "endless" ? 500 : firstRun });
    return Promise.resolve();
  };
  const { engine, folder: place } = engineWithFolder(t, "odd");
  const directory = join(place, "models");
  copyModel(directory, "ct-tissue", "good");
  odd(directory, "pipe-manifest", "model.json", pipe);
  odd(directory, "pipe-site", "site.json", pipe);
  odd(directory, "pipe-graph", "model.onnx", pipe);
  odd(directory, "pipe-canary", "canary/tissue.npy", pipe);
  odd(directory, "device", "model.onnx", (path) => symlinkSync("/dev/zero", path));
  odd(directory, "folder", "model.onnx", (path) => mkdirSync(path));
  const server = createServer();
  odd(directory, "socket", "model.onnx", (path) => server.listen(path));
  if (!server.listening) await once(server, "listening");
  t.teardown(() => server.close());
  // A version behind a link, as updates are often put into place
  const versions = join(copyModel(directory, "ct-tissue", "linked"), "v2");
  mkdirSync(versions);
  renameSync(join(directory, "linked", "model.onnx"), join(versions, "model.onnx"));
  symlinkSync("v2", join(directory, "linked", "current"));
  symlinkSync("current/model.onnx", join(directory, "linked", "model.onnx"));
  endless(directory);

  const set = await loadModels({ directory, engine, providers: ["cpu"], log, loading });
  t.strictSame(
    set.entries.filter(({ state }) => state === "ready").map(({ name }) => name),
    ["good", "linked"],
  );
  const said = Object.fromEntries(set.problems.map(({ name, error }) => [name, error.message]));
  t.match(said, {
    "pipe-manifest": /model\.json: .*found a named pipe/,
    "pipe-site": /site\.json: .*found a named pipe/,
    "pipe-graph": /model\.onnx: .*found a named pipe/,
    "pipe-canary": /tissue\.npy: .*found a named pipe/,
    device: /model\.onnx: .*found a device/,
    folder: /model\.onnx: .*found a folder/,
    socket: /model\.onnx: .*found a socket/,
    endless: /a run of its graph did not end within 0\.5 s/,
  });
  copyModel(directory, "ct-tissue", "later");
  const report = await set.reload();
  t.strictSame(report.added, ["later"], "a reload comes to its end too");
  t.equal(report.failed.length, 8);
  await set.close();
});

t.test(
  "a model that is being loaded is ended with its server",
  { skip: needs(ADDON) },
  async (t) => {
    const { engine, folder: directory } = engineWithFolder(t, "endless");
    endless(directory);
    copyModel(directory, "ct-tissue", "next", (m) => (m.required = false));
    const stop = new AbortController();
    const loading = loadModels({ directory, engine, providers: ["cpu"], log, stop: stop.signal });
    // Its first run counts as work of the engine
    await untilRunning(engine);
    stop.abort();
    const set = await loading;
    t.strictSame(
      set.entries.map(({ name, state }) => [name, state]),
      [
        ["endless", "failed"],
        ["next", "failed"],
      ],
      "what was loaded is ended, and the next is not begun",
    );
    await set.close();
  },
);
