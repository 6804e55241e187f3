/**
 * Several inputs of one model against what pydicom, numpy and onnxruntime made of the same series
 * (test/reference/inputs).
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { createEngine } from "../../src/engine/engine.js";
import { decodeNpy } from "../../src/engine/npy.js";
import { openInput } from "../../src/files/guarded-paths.js";
import type { Image } from "../../src/images/image.js";
import { readInput } from "../../src/inference/read-input.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { toNumbers } from "../../src/models/compare.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsTry } from "../../src/commands/models/try.js";
import { inferOnce } from "../../src/inference/infer-once.js";
import { modelsCanary } from "../../src/commands/models/canary.js";
import { readModelFolder } from "../../src/models/read.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { ADDON, needs } from "../support/needs.js";
import { reference, storedGraphs, writeReachModel } from "../support/reach-models.js";
import { makePlace, radserve, startServer } from "../support/server.js";

const SERIES = join(reference("inputs"), "series");
const SLICES = 5;

/** Slice number `slice` of a stored tensor. */
function stored(name: string, slice: number): number[] {
  const all = toNumbers(decodeNpy(readFileSync(join(reference("inputs"), `${name}.npy`))));
  const size = all.length / SLICES;
  return Array.from(all.slice(slice * size, (slice + 1) * size));
}

function furthest(found: ArrayLike<number>, expected: readonly number[]): number {
  if (found.length !== expected.length) return Infinity;
  return expected.reduce(
    (most, value, i) => Math.max(most, Math.abs(value - (found[i] ?? NaN))),
    0,
  );
}

async function seriesOf(folder: string): Promise<Image> {
  return readInput(await openInput(folder, undefined));
}

t.test("the graphs are those that the references were made with", (t) => {
  for (const { path, bytes } of storedGraphs()) t.ok(readFileSync(path).equals(bytes), path);
  t.end();
});

t.test("several inputs", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace();
  t.teardown(() => {
    place.remove();
  });
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  const image = await seriesOf(SERIES);
  const engine = createEngine({ provider: "cpu" });
  const options = { engine, providers: ["cpu"] as const };
  const folder = writeReachModel(models, "several");

  await t.test("canary, check and try know all of them", async (t) => {
    const made = await modelsCanary(folder, image, { ...options, frame: 3 });
    t.match(made.text, /in {3}ct: float32 \[1, 9, 12, 16\]\n {2}in {3}coarse.*\n {2}in {3}plain/);
    t.match(made.text, /wrote canary\/input-4\.npy\n {2}wrote canary\/output-1\.npy/);
    t.match(
      (await modelsCheck(folder, options)).text,
      /in order\n {2}It loads and its canary passes/,
    );
    const dump = join(place.output, "in.npy");
    await modelsTry(folder, image, { ...options, frame: 3, dump });
    const clinical = decodeNpy(readFileSync(join(place.output, "in-4.npy")));
    t.ok(furthest(toNumbers(clinical), stored("clinical", 2)) < 1e-6);
  });

  await t.test(
    "the tensors that go in and come out are the reference's, slice by slice",
    async (t) => {
      const { model } = await readModelFolder(folder);
      for (let slice = 0; slice < SLICES; slice++) {
        const { result } = await inferOnce(folder, model!, image, { ...options, frame: slice + 1 });
        const tensors = [...result.tensors.inputs, ...result.tensors.outputs];
        t.strictSame(
          tensors.map(({ name }) => name),
          ["ct", "coarse", "plain", "clinical", "mask", "scores"],
        );
        for (const tensor of tensors) {
          const off = furthest(toNumbers(tensor), stored(tensor.name, slice));
          t.ok(off < 2e-5, `${tensor.name} of slice ${slice + 1}: off by ${off}`);
        }
      }
    },
  );

  await t.test(
    "a canary of another input fails, and one that lacks an input is a mistake",
    async (t) => {
      const manifest = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as Manifest;
      const broken = join(t.testdir(), "several");
      cpSync(folder, broken, { recursive: true });
      const inputs = manifest.canary!.inputs!;
      [inputs[0]!.tensor, inputs[2]!.tensor] = [inputs[2]!.tensor, inputs[0]!.tensor];
      writeFileSync(join(broken, "model.json"), JSON.stringify(manifest));
      t.equal((await modelsCheck(broken, options)).exitCode, 1);
      inputs.pop();
      writeFileSync(join(broken, "model.json"), JSON.stringify(manifest));
      t.match(
        (await modelsCheck(broken, options)).text,
        /canary\.inputs: Expected the tensors ct, coarse/,
      );
    },
  );

  const server = await startServer(place);
  t.teardown(async () => {
    await server.stop();
    await engine.close();
  });
  const post = async (input: string, name: string) => {
    const output = join(place.output, name);
    mkdirSync(output, { recursive: true });
    const answer = await fetch(`${server.url}/single_inference`, {
      method: "POST",
      headers: { Authorization: server.token, "Content-Type": "application/json" },
      body: JSON.stringify({ input_image_path: input, output_folder_path: output }),
    });
    return { status: answer.status, text: await answer.text() };
  };

  await t.test(
    "over HTTP: the findings are the reference's, and the receipt tells each step",
    async (t) => {
      const input = join(place.input, "series");
      cpSync(SERIES, input, { recursive: true });
      const { status, text } = await post(input, "whole");
      t.equal(status, 200, text);
      const { receipt_path } = JSON.parse(text) as { receipt_path: string };
      const [model] = receiptSchema.parse(JSON.parse(readFileSync(receipt_path, "utf8"))).models;
      t.equal(model?.status, "succeeded");
      const effusion = model!.findings.filter(({ label }) => label === "Effusion");
      t.strictSame(
        effusion.map(({ score }) => score?.toFixed(4)),
        Array.from({ length: SLICES }, (_, i) =>
          (1 / (1 + Math.exp(-stored("scores", i)[0]!))).toFixed(4),
        ),
      );
      const steps = model!.transforms;
      t.match(
        steps.find(({ step }) => step === "windows"),
        {
          windows: [
            { center: -600, width: 1500, function: "LINEAR" },
            { center: 40 },
            { center: 300 },
          ],
        },
      );
      t.strictSame(
        steps.filter(({ step }) => step === "neighbours"),
        [
          { step: "neighbours", before: 1, after: 1, edges: "repeat" },
          { step: "neighbours", before: 0, after: 2, edges: "background" },
        ],
      );
      t.strictSame(
        steps.filter(({ step }) => step === "tensor").map(({ name }) => name),
        ["ct", "coarse", "plain", "clinical"],
      );
      const attributes = steps.filter(({ step }) => step === "attribute");
      t.match(attributes[1], { tag: "PatientAge", encoding: "age", unit: "months", from: "file" });
      t.notOk("numbers" in attributes[1]!, "the patient's age is not told");
      t.match(attributes[3], { tag: "KVP", numbers: [1.2] });
      t.ok(steps.some((step) => step.step === "normalise_percentile" && step["by_frame"] === true));
      const verified = await radserve(place, "verify", receipt_path, "--input", input);
      t.equal(verified.status, 0, verified.stdout + verified.stderr);
    },
  );

  await t.test("what is absent is refused, or a default with a caveat", async (t) => {
    const without = async (name: string, change: (text: Buffer) => Buffer) => {
      const input = join(place.input, name);
      mkdirSync(input);
      for (const file of ["a", "b", "c", "d", "e"])
        writeFileSync(join(input, file), change(readFileSync(join(SERIES, `${file}.dcm`))));
      return post(input, name);
    };
    const exchange = (from: string, to: string) => (bytes: Buffer) => {
      const at = bytes.indexOf(from, 0, "latin1");
      bytes.write(to, at, "latin1");
      return bytes;
    };
    const ageless = await without("ageless", exchange("045Y", "45YY"));
    t.equal(ageless.status, 422);
    t.match(ageless.text, /attribute_patient_age.*Expected PatientAge as an age, for example 045Y/);
    t.notMatch(ageless.text, /45YY/);
    const other = await without("other", exchange("CS\x02\x00F ", "CS\x02\x00O "));
    t.equal(other.status, 200, other.text);
    t.match(
      other.text,
      /attribute_default.*PatientSex is not stated, or not as PatientSex to be F or M.*0.5, 0.5/,
    );
    let count = 0;
    const mixed = await without("mixed", (bytes) =>
      count++ === 2 ? exchange("045Y", "046Y")(bytes) : bytes,
    );
    t.equal(mixed.status, 422);
    t.match(mixed.text, /different ones in the files or frames/);
  });

  await t.test("a slice without its neighbours is refused", async (t) => {
    const input = join(place.input, "alone.dcm");
    writeFileSync(input, readFileSync(join(SERIES, "a.dcm")));
    const { status, text } = await post(input, "alone");
    t.equal(status, 422);
    t.match(text, /neighbours_required.*Send the folder of the series/);
  });
});
