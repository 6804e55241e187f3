/** Marks on the frames of the source: only of a segmentation that is in them. */
import t from "tap";
import { MemoryPlaces, ProcessMemory } from "../../../src/base/process-memory.js";
import { eachMarked, MarkReader } from "../../../src/features/viewer/marks.js";
import { readReceipt } from "../../../src/results/receipt/read-receipt.js";
import { SEGMENTATION } from "../../../src/results/dicom/objects/seg.js";
import { failure } from "../../support/expect.js";
import { receiptOf, writeReceipt } from "../../support/receipts.js";

t.test("a segmentation in the grid of the network has no marks in the source's", async (t) => {
  const folder = t.testdir();
  const receipt = receiptOf({ week: 0, study: 1, score: 0.9 });
  const [model] = receipt.models;
  Object.assign(model!, {
    outputs: [
      {
        path: "x.dcm.cxr.seg.dcm",
        media_type: "application/dicom",
        sop_class_uid: SEGMENTATION,
        sha256: "0".repeat(64),
      },
    ],
    segmentation_grid: {
      slices: 4,
      rows: 8,
      columns: 8,
      image_position_patient: [0, 0, 0],
      image_orientation_patient: [1, 0, 0, 0, 1, 0],
      pixel_spacing: [2, 2],
      slice_spacing: 1.7,
      segments: [],
    },
  });
  const found = await readReceipt(await writeReceipt(folder, "x.dcm", receipt));
  if (found.kind !== "receipt") return void t.fail(`Expected a receipt; found ${found.kind}`);
  const memory = new ProcessMemory(new MemoryPlaces(1, 2 ** 30).take());
  const result = { ...found, folder, name: "x.dcm.json" };
  const error = await failure(new MarkReader(memory).read(result, "cxr", 1));
  t.match(error, { code: "file_not_found", message: /is in the grid of the network/ });
});

t.test("no marked pixel is passed over, wherever the bytes lie", (t) => {
  const bytes = Uint8Array.from([0, 1, 0, 0, 0, 0, 0, 0, 128, 0, 0, 0, 0, 0, 0, 255, 0, 7]);
  for (let from = 0; from < 8; from++)
    for (let to = from; to <= bytes.length; to++) {
      const values = bytes.subarray(from, to);
      const found: [number, number][] = [];
      eachMarked(values, (at, value) => found.push([at, value]));
      t.same(
        found,
        [...values.entries()].filter(([, value]) => value !== 0),
      );
    }
  t.end();
});
