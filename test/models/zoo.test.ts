/**
 * The 32 inference configurations of the MONAI Model Zoo: each is imported, or refused by the name of what is missing,
 * with the line on which it stands. Graphs of the stated shapes stand for the weights, which are not there.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { onnxModel } from "../../scripts/lib/onnx-model.js";
import { RadserveError } from "../../src/base/errors.js";
import { modelsImport } from "../../src/models/import/import.js";
import { ADDON, needs } from "../support/needs.js";
import { engine } from "../support/real-engine.js";

const ZOO = "../shared/zoo";

interface Format {
  num_channels: number;
  spatial_shape?: unknown[];
}
const first = (record: Record<string, Format> = {}): Format | undefined => Object.values(record)[0];

/** One convolution of zeros, from as many channels to as many as metadata.json says. */
function graph({ inputs, outputs }: Record<"inputs" | "outputs", Record<string, Format>>): Uint8Array {
  const channels = Math.max(1, first(inputs)?.num_channels ?? 1);
  const labels = Math.max(1, first(outputs)?.num_channels ?? 1);
  const sides = Array.from({ length: first(inputs)?.spatial_shape?.length || 3 }, (_, i) => `side${i}`);
  const shape = [labels, channels, ...sides.map(() => 1)];
  return onnxModel({
    name: "stand-in",
    inputs: [{ name: "image", dtype: "float32", shape: ["n", channels, ...sides] }],
    outputs: [{ name: "pred", dtype: "float32", shape: ["n", labels, ...sides] }],
    initializers: [{ name: "w", dtype: "float32", shape, data: new Uint8Array(4 * labels * channels) }],
    nodes: [{ op: "Conv", inputs: ["image", "w"], outputs: ["pred"] }],
  });
}

/** Lays a configuration out as a bundle, and imports it; what is refused comes back as "field: message" lines. */
async function outcome(t: Test, name: string): Promise<string[]> {
  const bundle = join(t.testdir(), name);
  cpSync(join(ZOO, name), join(bundle, "configs"), { recursive: true });
  const metadata = JSON.parse(readFileSync(join(ZOO, name, "metadata.json"), "utf8")) as {
    network_data_format?: Parameters<typeof graph>[0];
  };
  mkdirSync(join(bundle, "models"));
  writeFileSync(
    join(bundle, "models", "model.onnx"),
    graph(metadata.network_data_format ?? { inputs: {}, outputs: {} }),
  );
  const to = join(bundle, "imported");
  try {
    const { data } = await modelsImport(bundle, engine(), { to });
    t.ok(existsSync(join(to, "model.json")));
    return [
      (data as { gaps: { field: string; message: string }[] }).gaps.map(
        (gap) => `note ${gap.field}: ${gap.message}`,
      ),
    ].flat();
  } catch (error) {
    if (!(error instanceof RadserveError) || error.code !== "bad_request") throw error;
    t.notOk(existsSync(to), "nothing is written");
    return error.message.split("\n");
  }
}

t.test("the MONAI Model Zoo", { skip: needs(ADDON, ZOO) }, async (t) => {
  t.teardown(() => engine().close());
  const names = readdirSync(ZOO).filter((name) => name !== "README.md");
  for (const name of names)
    await t.test(name, async (t) => {
      t.comment((await outcome(t, name)).join("\n"));
    });
});
