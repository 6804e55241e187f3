/** What a request reads of a series: each slice as often for two models as for one. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { ADDON, needs } from "../support/needs.js";
import { slice } from "../support/series.js";
import { makePlace, startServer } from "../support/server.js";
import { writeVolumeModel } from "../support/volume-model.js";

const [SLICES, SIDE] = [24, 256];
const BYTES = 2 * SLICES * SIDE * SIDE;

/**
 * Bytes that a process has asked the system for so far, from wherever they came (proc(5), rchar).
 */
function bytesRead(pid: number): number {
  return Number(/^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1]);
}

t.test("a second model on a series reads nothing twice", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const names = ["first", "second", "third"];
  for (const name of names) writeVolumeModel(place.environment["RADSERVE_MODELS_DIR"]!, name);
  const series = join(place.input, "series");
  mkdirSync(series);
  for (let z = 0; z < SLICES; z++) {
    const attributes = { Rows: SIDE, Columns: SIDE };
    writeFileSync(
      join(series, `${z}.dcm`),
      slice({ z, attributes, frames: [Buffer.alloc(2 * SIDE * SIDE)] }),
    );
  }
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const readFor = async (models: readonly string[], output: string): Promise<number> => {
    const before = bytesRead(server.servingPid());
    const response = await server.post("/single_inference", {
      input_image_path: series,
      output_folder_path: join(place.output, output),
      models,
      outputs: ["json"],
    });
    t.equal(response.status, 200, await response.text());
    return bytesRead(server.servingPid()) - before;
  };
  // Modules and databases are read once, with the first request.
  await readFor(names, "warm");
  const one = await readFor(names.slice(0, 1), "one");
  const three = await readFor(names, "three");
  t.ok(one >= BYTES, `one model reads the ${BYTES} bytes of all slices: ${one}`);
  t.ok(three - one < BYTES / 8, `three read no slice again: ${three}`);
});
