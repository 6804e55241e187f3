/**
 * `npm run bench -- pixels [--rounds 5] [--only preparation|decoding|cines]`: how long one image
 * takes from stored values to tensor and from compressed frame to stored values, on one thread,
 * with other libraries measured by turns in the same run. Rivals come from Python (RADSERVE_PYTHON
 * or python3: opencv-python-headless, numpy, python-gdcm, pylibjpeg-openjpeg, pyjpegls,
 * imagecodecs) and DCMTK's programs; what is absent is left out.
 */
import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { cines, type CineRow } from "./lib/cine.js";
import { decoding, type DecodingRow } from "./lib/decoding.js";
import { preparation, type PreparationRow } from "./lib/preparation.js";
import { Rivals } from "./lib/rivals.js";
import { machine } from "./lib/server.js";

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "5" }, only: { type: "string" } },
});

const number = (value: number | undefined) => (value === undefined ? "" : value.toFixed(2));

function list(times: Record<string, number> | undefined): string {
  const entries = Object.entries(times ?? {}).sort(([, a], [, b]) => a - b);
  return entries.map(([name, time]) => `${name} ${number(time)}`).join(", ");
}

/** A table of Markdown. */
function table(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(heads), `|${"---|".repeat(heads.length)}`, ...rows.map(line)].join("\n");
}

const preparationTable = (rows: PreparationRow[]): string =>
  table(
    ["picture", "to", "interpolation", "ours ms", "OpenCV and numpy, ms", "ratio"],
    rows.map((r) => [
      r.picture,
      r.size,
      r.interpolation,
      number(r.ours_ms),
      list(r.rivals_ms),
      number(r.ratio),
    ]),
  );

const decodingTable = (rows: DecodingRow[]): string =>
  table(
    ["file", "syntax", "ours ms", "others, ms", "ratio to DCMTK, GDCM, OpenJPEG", "ratio to any"],
    rows.map((r) => [
      r.file,
      r.transfer_syntax.replace("1.2.840.10008.1.2", "…"),
      number(r.ours_ms),
      list(r.rivals_ms),
      number(r.ratio),
      number(r.ratio_any),
    ]),
  );

const cineTable = (rows: CineRow[]): string =>
  table(
    ["cine 512x512 12-bit", "frames", "one thread ms", "decoder threads", "with them ms", "ratio"],
    rows.map((r) => [
      r.coding,
      `${r.frames}`,
      number(r.one_ms),
      `${r.threads}`,
      number(r.shared_ms),
      number(r.ratio),
    ]),
  );

const wants = (part: string) => values.only === undefined || values.only === part;

const scratch = mkdtempSync(join(os.tmpdir(), "radserve-bench-"));
const rivals = await Rivals.start();
if (rivals?.libraries["cv2"] === undefined)
  console.error("No Python with OpenCV and numpy (RADSERVE_PYTHON): its columns are left out.");
try {
  const rounds = Number(values.rounds);
  const turns = { scratch, rounds, rivals };
  console.log({ ...machine(), libraries: rivals?.libraries });
  if (wants("preparation")) console.log(preparationTable(await preparation(turns)));
  if (wants("decoding")) console.log(decodingTable(await decoding(turns)));
  if (wants("cines")) console.log(cineTable(await cines(rounds)));
} finally {
  rivals?.stop();
  rmSync(scratch, { recursive: true, force: true });
}
