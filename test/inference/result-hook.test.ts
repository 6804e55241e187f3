/** What features do at the commit of a result, and that a result waits for it. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { errors } from "../../src/base/errors.js";
import { infer } from "../../src/inference/infer-image.js";
import { loadResultParts, type StagedResult } from "../../src/inference/result-hook.js";
import type { InferContext } from "../../src/inference/task.js";
import { failure } from "../support/expect.js";
import { CT_SLICE, dicomFile, imageAttributes } from "../support/dicom.js";
import { ADDON, needs } from "../support/needs.js";
import { engineWithFolder } from "../support/real-engine.js";
import { loadTestModel } from "../support/test-models.js";

t.test("a result at its commit", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "hook");
  const model = await loadTestModel(engine, folder, "segmenter");
  const inputPath = path.join(folder, "one.dcm");
  const attributes = imageAttributes({ ...CT_SLICE, Rows: 16, Columns: 16 });
  writeFileSync(inputPath, dicomFile({ attributes, pixels: Buffer.alloc(512) }));
  const run = (name: string, hooks: Pick<InferContext, "willCommit" | "staged">) => {
    const outputFolder = path.join(folder, name);
    mkdirSync(outputFolder);
    const roots = { input: undefined, output: undefined };
    const task = { requestId: "test", cancelId: 1, priority: "routine", inputPath, roots } as const;
    return infer({ ...task, outputFolder }, { engine, models: [model], ...hooks });
  };
  const names = (name: string) => readdirSync(path.join(folder, name));

  await t.test("is told to features after the audit has it, and before it is there", async (t) => {
    const told: string[] = [];
    let seen: StagedResult | undefined;
    await run("told", {
      willCommit: () => {
        told.push("audit");
        return Promise.resolve();
      },
      staged: (result) => {
        told.push(names("told").includes("one.dcm.json") ? "too late" : "features");
        seen = result;
        return Promise.resolve();
      },
    });
    t.same(told, ["audit", "features"]);
    t.match(seen, {
      name: "one.dcm",
      input: inputPath,
      folder: { realPath: path.join(folder, "told") },
      receipt: { status: "completed" },
    });
    t.ok(names("told").includes("one.dcm.json"));
  });

  await t.test("does not appear where a feature throws", async (t) => {
    const staged = () => Promise.reject(errors.overloaded("A feature cannot write."));
    const willCommit = () => Promise.resolve();
    t.match(await failure(run("refused", { willCommit, staged })), { code: "overloaded" });
    t.same(names("refused"), []);
  });
});

t.test("a part of a feature is loaded by its address, with its options", async (t) => {
  const code = "export const resultPart = (options) => ({ staged: () => options.seen.push('x') });";
  const options = { seen: [] as string[] };
  const [part] = await loadResultParts([{ module: `data:text/javascript,${code}`, options }]);
  await part?.staged({} as StagedResult);
  t.same(options.seen, ["x"]);
});
