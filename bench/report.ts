/**
 * A job of so many images (500), and how long its report takes after the last of them. With a folder as the second
 * argument, page and table are kept there. A fifth are ultrasound pictures with text in them, some are damaged, and some
 * are no images.
 */
import { copyFileSync, linkSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import path from "node:path";
import { ctSeries, samples } from "../scripts/demo/samples.js";
import { bulkOf, writeSlice } from "../test/support/bulk.js";
import { makePlace, root, startServer } from "../test/support/server.js";

const IMAGES = Number(process.argv[2] ?? 500);
const KEEP = process.argv[3];
const SCANNERS = [
  { Manufacturer: "Example Medical", ManufacturerModelName: "Helix 64" },
  { Manufacturer: "Example Medical", ManufacturerModelName: "Helix 128" },
  { Manufacturer: "Sample Imaging", ManufacturerModelName: "CT One" },
];

const place = makePlace({ RADSERVE_MODELS_DIR: path.join(root, "models"), RADSERVE_THREADS: "2" });
const folder = path.join(place.input, "november");
mkdirSync(folder, { recursive: true });
const { ultrasound } = await samples();
const series = ctSeries(24, 12, 512);
for (let i = 0; i < IMAGES; i++) {
  const file = path.join(folder, `${String(i).padStart(6, "0")}.dcm`);
  if (i % 50 === 49) writeFileSync(file.replace("dcm", "txt"), "A note beside the images");
  else if (i % 40 === 39) writeFileSync(file, series[0]!.subarray(0, -5_000));
  else if (i % 5 === 4) {
    if (i === 4) writeFileSync(file, ultrasound);
    else linkSync(path.join(folder, "000004.dcm"), file);
  } else if (i % 3 === 0) writeSlice(file, i, { ...SCANNERS[i % 7 === 0 ? 2 : (i / 3) % 2] });
  else writeFileSync(file, series[i % series.length]!);
}

const server = await startServer(place);
const bulk = bulkOf(server);
const output = path.join(place.output, "november");
const id = await bulk.submit({ input_folder_path: folder, output_folder_path: output });
const isDone = ({ total, counts }: { total: number | null; counts: Record<string, number> }) =>
  total !== null && counts["queued"] === 0 && counts["running"] === 0;
await bulk.until(id, isDone);
const done = performance.now();
const { report } = await bulk.ended(id);
console.log(`${IMAGES} images: the report took ${Math.round(performance.now() - done)} ms after the last`);
for (const file of [report?.html_path, report?.csv_path]) {
  if (typeof file !== "string") throw new Error(JSON.stringify(report));
  console.log(`${path.extname(file)} ${Math.round(statSync(file).size / 1024)} KiB`);
  if (KEEP !== undefined) copyFileSync(file, path.join(KEEP, `report${path.extname(file)}`));
}
server.process.kill("SIGTERM");
if (server.process.exitCode === null) await once(server.process, "exit");
place.remove();
