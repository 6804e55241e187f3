/**
 * `npm run bench:picture [-- KIND...]`: processor time of each step from a CT slice and its masks to the picture and the
 * Secondary Capture's pixels, medians of rounds by turns. Of a volume, reading the planes across its slices too.
 */
import { performance } from "node:perf_hooks";
import { checkPanel } from "../src/addon/picture.js";
import { packRle } from "../src/addon/bytes.js";
import { createEngine } from "../src/engine/engine.js";
import { sha256 } from "../src/files/durable-files.js";
import { renderOverlay } from "../src/results/picture/overlay.js";
import { reslices } from "../src/results/picture/reslice.js";
import { pngOf } from "../src/results/picture/pixels.js";
import { VERSION } from "../src/base/version.js";
import { overlayInput } from "../src/results/picture/draw-result.js";
import { withKind } from "../test/pictures/draw.js";
import { kinds } from "../test/pictures/kinds.js";

const ROUNDS = 41;
const names = process.argv.slice(2);
const engine = createEngine({ provider: "cpu" });
console.log(`Radserve ${VERSION}, Node ${process.version}: CPU ms, median of ${ROUNDS} (bytes)`);
for (const kind of kinds()) {
  if (!(names.length > 0 ? names : ["ct-axial"]).includes(kind.name)) continue;
  const [overlay, marked] = await withKind(kind, engine, async (request) => [
    await overlayInput(request),
    request.marked,
  ]);
  const { picture, masked } = renderOverlay(overlay);
  let png = await pngOf(picture);
  const steps: Record<string, () => unknown> = {
    ...(marked === undefined ? {} : { "planes across the slices": () => reslices(marked, 0) }),
    "lay out and compose": () => renderOverlay(overlay),
    check: () => masked.map((panel) => checkPanel(picture, panel)),
    "PNG encoder": async () => (png = await pngOf(picture)),
    "RLE of the Secondary Capture": () => packRle(picture.rgb, picture.height, picture.width),
    "SHA-256 of the PNG": () => sha256(png),
  };
  const times = new Map<string, number[]>();
  for (let round = 0; round < ROUNDS; round++)
    for (const [name, step] of Object.entries(steps)) {
      const [before, start] = [process.cpuUsage(), performance.now()];
      await step();
      const { user, system } = process.cpuUsage(before);
      times.set(name, [...(times.get(name) ?? []), (user + system) / 1000]);
      if (performance.now() - start > 1000) throw new Error(`${name} takes a second`);
    }
  console.log(`${kind.name}: ${picture.width} x ${picture.height}, ${png.length} bytes`);
  for (const [name, all] of times) {
    const median = all.sort((a, b) => a - b)[ROUNDS >> 1] ?? NaN;
    console.log(`  ${name.padEnd(30)} ${median.toFixed(2)}`);
  }
}
await engine.close();
