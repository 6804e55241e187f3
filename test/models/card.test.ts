/**
 * Model cards: all that a manifest says, for each model that is shipped, and nothing that becomes
 * markup.
 */
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { labelsOf } from "../../src/manifest/outputs/outputs.js";
import { modelsCard } from "../../src/models/card.js";
import { readModelFolder } from "../../src/models/read.js";
import { shippedModels } from "../support/manifests.js";

t.test("each shipped model", async (t) => {
  for (const name of ["ct-tissue", "burned-in-text"]) {
    const { text, exitCode } = await modelsCard(shippedModels, name);
    t.equal(exitCode, 0);
    const { model } = await readModelFolder(join(shippedModels, name));
    if (model === undefined) throw new Error("The model is sound");
    const { manifest, sha256 } = model;
    t.match(text, `# ${name} ${manifest.version}\n`);
    t.ok(text.includes(sha256));
    for (const output of manifest.outputs)
      for (const { label, code } of labelsOf(output)) {
        t.ok(text.includes(label), label);
        t.ok(code === undefined || text.includes(code.value), `code of ${label}`);
      }
    for (const { caveat } of manifest.envelope ?? []) t.ok(text.includes(caveat), caveat);
    for (const key of Object.keys(manifest.accepts).filter(
      (one) => !["rules", "sop_class", "dimensions"].includes(one),
    ))
      t.ok(text.includes(`**${key.replaceAll("_", " ")}:**`), key);
    for (const { reason } of manifest.accepts.rules ?? []) t.ok(text.includes(reason), reason);
  }
});

t.test(
  "text of a manifest stays text; a site's thresholds; names that are not there",
  async (t) => {
    const folder = t.testdir();
    cpSync(join(shippedModels, "burned-in-text"), join(folder, "burned-in-text"), {
      recursive: true,
    });
    const file = join(folder, "burned-in-text", "model.json");
    const manifest = JSON.parse(readFileSync(file, "utf8")) as {
      description: string;
      outputs: { label: { label: string } }[];
    };
    manifest.description = "a | b\n# <script> [x](y)";
    writeFileSync(file, JSON.stringify(manifest));
    const label = manifest.outputs[0]?.label.label ?? "";
    writeFileSync(
      join(folder, "burned-in-text", "site.json"),
      JSON.stringify({ thresholds: { [label]: 0.77 } }),
    );
    const { text } = await modelsCard(folder, "burned-in-text");
    t.ok(text.includes("a \\| b \\# \\<script\\> \\[x\\](y)"));
    t.match(text, /\| 0\.77 \|/);
    await t.rejects(modelsCard(folder, "none"), { code: "model_not_found" });
    writeFileSync(file, "{}");
    await t.rejects(modelsCard(folder, "burned-in-text"), { code: "model_unavailable" });
  },
);
