/**
 * `node dist/test/pictures/main.js FOLDER [KIND...]`: draws a picture of every kind, to be looked
 * at.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createEngine } from "../../src/engine/engine.js";
import { drawPicture } from "../../src/results/picture/draw-result.js";
import { withKind } from "./draw.js";
import { kinds } from "./kinds.js";

const [folder = "pictures", ...names] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const engine = createEngine({ provider: "cpu" });
for (const kind of kinds()) {
  if (names.length > 0 && !names.includes(kind.name)) continue;
  const { png } = await withKind(kind, engine, drawPicture);
  const bytes = await png();
  writeFileSync(join(folder, `${kind.name}.png`), bytes);
  console.log(`${kind.name}: ${bytes.length} bytes`);
}
await engine.close();
