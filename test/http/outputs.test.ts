/**
 * What the settings say to write holds for every model, and a request's own list goes before it.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { samples } from "../../scripts/demo/samples.js";
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
