/**
 * `npm run write -- pictures`: draws the pictures of the pages again. The product draws them, from
 * phantoms alone; they are written to docs/ at a smaller size.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import sharp from "sharp";
import { createEngine } from "../src/engine/engine.js";
import { infer } from "../src/inference/infer-image.js";
import { createLog } from "../src/base/log.js";
import { loadModels } from "../src/models/set.js";
import { ctSeries, samples } from "./demo/samples.js";

const docs = fileURLToPath(new URL("../../docs", import.meta.url));
const directory = fileURLToPath(new URL("../../models", import.meta.url));
const WIDTH = 1100;

const place = mkdtempSync(join(tmpdir(), "radserve-pictures-"));
const engine = createEngine({ provider: "cpu" });
const { entries } = await loadModels({
  directory,
  engine,
  providers: ["cpu"],
  log: createLog("silent"),
});

async function draw(inputPath: string, model: string, picture: string): Promise<void> {
  const answer = await infer(
    {
      requestId: "pictures",
      inputPath,
      outputFolder: join(place, "output"),
      models: [model],
      outputs: ["png"],
      priority: "routine",
      cancelId: 1,
      startedAt: "2026-01-01T12:00:00Z",
      roots: { input: undefined, output: undefined },
    },
    { engine, models: entries },
  );
  const [output] = answer.models.flatMap(({ outputs }) => outputs);
  const small = sharp(output?.path).resize({ width: WIDTH, withoutEnlargement: true });
  await small.png({ palette: true, effort: 10 }).toFile(join(docs, picture));
}

try {
  const { ct, ultrasound } = await samples();
  const series = join(place, "ct-series");
  mkdirSync(series);
  for (const [i, slice] of ctSeries(18, 12).entries())
    writeFileSync(join(series, `${i}.dcm`), slice);
  writeFileSync(join(place, "ct-phantom.dcm"), ct);
  writeFileSync(join(place, "ultrasound-burned-in.dcm"), ultrasound);
  await draw(join(place, "ct-phantom.dcm"), "ct-tissue", "ct-tissue.png");
  await draw(series, "ct-tissue", "ct-series.png");
  await draw(join(place, "ultrasound-burned-in.dcm"), "burned-in-text", "burned-in-text.png");
} finally {
  await engine.close();
  rmSync(place, { recursive: true });
}
