/**
 * What the settings say to write holds for every model, and a request's own list goes before it.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { samples } from "../../scripts/demo/samples.js";
import { SEGMENTATION } from "../../src/results/dicom/objects/seg.js";
import { LABEL_MAP_SEGMENTATION } from "../../src/results/dicom/segments.js";
import { answerSchema } from "../../src/results/receipt/receipt.js";
import { ADDON, needs } from "../support/needs.js";
import { makePlace, root, startServer } from "../support/server.js";

t.test("outputs from the settings", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace({
    RADSERVE_MODELS_DIR: path.join(root, "models"),
    RADSERVE_OUTPUTS: "json, sr",
  });
  const input_image_path = path.join(place.input, "ct.dcm");
  writeFileSync(input_image_path, (await samples()).ct);
  const server = await startServer(place);
  t.teardown(() => server.stop());
  const kinds = async (more: object = {}) => {
    const body = { input_image_path, output_folder_path: place.output, ...more };
    const response = await server.post("/single_inference", body);
    const { models, reused } = answerSchema.parse(await response.json());
    const tissue = models.find(({ name }) => name === "ct-tissue")!;
    return [reused, ...tissue.outputs.map((file) => /[a-z]+(?:\.dcm)?$/.exec(file.path)![0])];
  };
  t.strictSame(await kinds(), [false, "sr.dcm"], "narrower than the manifest");
  t.strictSame(await kinds(), [true, "sr.dcm"]);
  t.strictSame(await kinds({ outputs: ["seg", "png"] }), [false, "png", "seg.dcm"]);
  t.strictSame(
    await kinds({ outputs: ["json", "sr"] }),
    [false, "sr.dcm"],
    "the same, asked for by name",
  );
});

t.test(
  "results in another form than the settings say are made anew",
  { skip: needs(ADDON) },
  async (t) => {
    const place = makePlace({ RADSERVE_MODELS_DIR: path.join(root, "models") });
    t.teardown(() => place.remove());
    const input_image_path = path.join(place.input, "ct.dcm");
    writeFileSync(input_image_path, (await samples()).ct);
    const asked = async (settings: Record<string, string>, ...lists: string[][]) => {
      const server = await startServer({
        ...place,
        environment: { ...place.environment, ...settings },
        // The next one finds there what this one leaves
        remove: () => undefined,
      });
      const answers = [];
      for (const outputs of lists) {
        const folder = path.join(place.output, outputs.join("-"));
        const body = { input_image_path, output_folder_path: folder, outputs };
        const response = await server.post("/single_inference", body);
        const { models, reused } = answerSchema.parse(await response.json());
        const files = models.flatMap((model) => model.outputs);
        const seg = files.find(({ path: file }) => file.endsWith(".seg.dcm"));
        answers.push(seg === undefined ? [reused] : [reused, seg.sop_class_uid]);
      }
      await server.stop();
      return answers;
    };
    const lists = [["seg"], ["sc"], ["sr"]];
    const labelMaps = { RADSERVE_SEGMENTATION_TYPE: "labelmap" };
    const opaque = { RADSERVE_OVERLAY_OPACITY: "0.8" };
    t.strictSame(await asked(labelMaps, ...lists, ["seg"]), [
      [false, LABEL_MAP_SEGMENTATION],
      [false],
      [false],
      [true, LABEL_MAP_SEGMENTATION],
    ]);
    t.strictSame(
      await asked({}, ...lists, ["seg"]),
      [[false, SEGMENTATION], [true], [true], [true, SEGMENTATION]],
      "only what has a SEG is of another form now",
    );
    t.strictSame(
      await asked(opaque, ...lists, ["sc"]),
      [[true, SEGMENTATION], [false], [true], [true]],
      "only what has a picture",
    );
  },
);
