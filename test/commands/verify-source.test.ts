/**
 * `radserve verify` takes the sources that `infer` took, and finds them in a folder by their
 * SHA-256.
 */
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import t, { type Test } from "tap";
import { ADDON, needs } from "../support/needs.js";
import { slice } from "../support/series.js";
import { copyModel } from "../support/manifests.js";
import { writeVolumeModel } from "../support/volume-model.js";

const MAIN = resolve("dist/src/main.js");
const TILTED = "../shared/cases/dicom/verify-tilt";
const OPTIONS = { skip: needs(ADDON) };

/** A place with the models, and what runs commands there. */
function placeOf(t: Test) {
  const folder = t.testdir({ models: {}, out: {}, in: {} });
  const models = join(folder, "models");
  writeVolumeModel(models, "bright", ({ accepts }) => {
    accepts.modality = ["CT", "MR", "PT"];
    accepts.slices = { max_tilt_degrees: 30, max_missing: 3 };
  });
  copyModel(models, "ct-tissue", "ct-tissue");
  const env = { ...process.env, RADSERVE_STATE_DIR: folder, RADSERVE_MODELS_DIR: models };
  const command = (...words: string[]) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...words], {
      encoding: "utf8",
      env,
    });
    return { status, text: stdout + stderr };
  };
  return { input: join(folder, "in"), output: join(folder, "out"), command };
}

/** A tilted stack of which one slice is missing. */
function writeStack(folder: string, tilt: number, left: number): void {
  mkdirSync(folder, { recursive: true });
  for (let at = 0; at < 8; at++) {
    if (at === left) continue;
    const place = `-10\\${-20 + at * tilt}\\${at * 3}`;
    const bytes = slice({ z: at * 3, fill: 50 * at, attributes: { ImagePositionPatient: place } });
    writeFileSync(join(folder, `${at}.dcm`), bytes);
  }
}

t.test("tilted stacks, and those with missing slices", OPTIONS, (t) => {
  const { input, output, command } = placeOf(t);
  for (const [name, tilt, left] of [
    ["tilted", 0.6, -1],
    ["gapped", 0, 4],
    ["both", 0.6, 4],
  ] as const) {
    const stack = join(input, name);
    writeStack(stack, tilt, left);
    const made = command("infer", stack, output, "--model", "bright", "--outputs", "sr,seg");
    t.equal(made.status, 0, made.text);
    const { status, text } = command("verify", join(output, `${name}.json`), "--input", stack);
    t.equal(status, 0, text);
    t.match(text, /^ok +bright +computed again/m);
  }
  t.end();
});

t.test("the field's tilted stack", { skip: needs(ADDON, TILTED) }, (t) => {
  const { output, command } = placeOf(t);
  const made = command(
    "infer",
    resolve(TILTED),
    output,
    "--model",
    "bright",
    "--outputs",
    "sr,seg",
  );
  t.equal(made.status, 0, made.text);
  const { status, text } = command(
    "verify",
    join(output, "verify-tilt.json"),
    "--input",
    resolve(TILTED),
  );
  t.equal(status, 0, text);
  t.end();
});

t.test("a folder is searched for the source", OPTIONS, (t) => {
  const { input, output, command } = placeOf(t);
  const [deep, other] = [join(input, "2026/11"), join(input, "2025")];
  for (const one of [deep, other]) mkdirSync(one, { recursive: true });
  const file = join(other, "image.dcm");
  writeFileSync(file, slice({ z: 0, attributes: { PatientID: "1" } }));
  const made = command("infer", file, output);
  t.equal(made.status, 0, made.text);
  const receipt = join(output, "image.dcm.json");
  // The same under another name, beside images of the same size
  cpSync(file, join(deep, "renamed"));
  writeFileSync(file, slice({ z: 0, attributes: { PatientID: "2" } }));
  const found = command("verify", receipt, "--input", input);
  t.equal(found.status, 0, found.text);
  t.match(found.text, /^ok +source/m);
  const missing = command("verify", receipt, "--input", other);
  t.equal(missing.status, 1);
  t.match(
    missing.text,
    /^missing +source +nothing is there with the SHA-256 of the receipt's source$/m,
  );

  writeStack(join(deep, "stack"), 0, -1);
  writeStack(join(other, "stack"), 0, 4);
  t.equal(
    command("infer", join(deep, "stack"), output, "--model", "bright", "--outputs", "sr").status,
    0,
  );
  const series = command("verify", join(output, "stack.json"), "--input", input);
  t.equal(series.status, 0, series.text);
  const gapped = command("verify", join(output, "stack.json"), "--input", join(other, "stack"));
  t.equal(gapped.status, 1);
  t.match(gapped.text, /^differs +source +another SHA-256/m, "not all slices are there");
  t.end();
});

t.test("of many files and folders with one name, the source is adopted", OPTIONS, (t) => {
  const { input, output, command } = placeOf(t);
  t.equal(command("init").status, 0);
  const file = join(input, "p1/IM1");
  writeStack(join(input, "p1/SE1"), 0, -1);
  writeFileSync(file, slice({ z: 0, attributes: { PatientID: "1" } }));
  for (const [source, ...more] of [[file], [join(input, "p1/SE1"), "--model", "bright"]] as const) {
    const made = command("infer", source, output, ...more);
    t.equal(made.status, 0, made.text);
  }
  // Another patient's beside the results, where it is looked for first
  writeStack(join(output, "SE1"), 0.6, -1);
  writeFileSync(join(output, "IM1"), slice({ z: 0, attributes: { PatientID: "2" } }));
  for (const name of ["IM1.json", "SE1.json"]) {
    const receipt = join(output, name);
    const { mac: _mac, ...unsigned } = JSON.parse(readFileSync(receipt, "utf8")) as { mac: object };
    writeFileSync(receipt, `${JSON.stringify(unsigned, null, 2)}\n`);
    const { status, text } = command("adopt", receipt, "--input", input);
    t.equal(status, 0, text);
    t.match(text, /1 +verified and signed/);
  }
  t.end();
});

t.test("results in the folder of their own series change nothing of it", OPTIONS, (t) => {
  const { input, command } = placeOf(t);
  t.equal(command("init").status, 0);
  const stack = join(input, "stack");
  writeStack(stack, 0, -1);
  // As a job and a stopped server leave them
  writeFileSync(join(stack, ".radserve-job-00000000-0000-4000-8000-000000000000"), "");
  mkdirSync(join(stack, ".stack.radserve"));
  const infer = () => command("infer", stack, stack, "--model", "bright", "--outputs", "sr");
  const made = infer();
  t.equal(made.status, 0, made.text);
  const receipt = readFileSync(join(stack, "stack.json"), "utf8");
  t.strictSame((JSON.parse(receipt) as { warnings: object[] }).warnings, []);
  const verified = command("verify", join(stack, "stack.json"), "--input", stack);
  t.equal(verified.status, 0, verified.text);
  t.end();
});

t.test("what the gateway's note says of a series or an image is in its results", OPTIONS, (t) => {
  const { input, output, command } = placeOf(t);
  const stack = join(input, "stack");
  writeStack(stack, 0, -1);
  const note = join(stack, ".radserve-reception.json");
  const text = { series: { "1.2.3.4": { objects: 2, associations: 1 } } };
  const said = /2 objects begun and not kept, 1 association broken off before the end/;
  const sources = [
    [stack, "stack", "bright"],
    [join(stack, "3.dcm"), "3.dcm", "ct-tissue"],
  ] as const;
  for (const [source, name, model] of sources) {
    const made = () => {
      const { status, text } = command(
        "infer",
        source,
        output,
        "--model",
        model,
        "--outputs",
        "sr",
      );
      t.equal(status, 0, text);
      const receipt = JSON.parse(readFileSync(join(output, `${name}.json`), "utf8")) as {
        warnings: { code: string; message: string }[];
        models: { outputs: { path: string }[] }[];
      };
      const [report] = receipt.models[0]!.outputs.map((one) =>
        readFileSync(join(output, one.path), "latin1"),
      );
      return { told: receipt.warnings.filter(({ code }) => /reception/.test(code)), report };
    };
    const verified = () =>
      command("verify", join(output, `${name}.json`), "--input", source).status;
    writeFileSync(note, JSON.stringify(text));
    const marked = made();
    t.match(marked.told, [{ code: "reception_interrupted", message: said }]);
    // The other model has no codes, and so no report
    if (model === "ct-tissue") t.match(marked.report, said);
    t.equal(verified(), 0);
    // Its images are the same when the rest of them has come
    rmSync(note);
    t.equal(verified(), 0, "the receipt's word on how it came is believed");
    t.same(made().told, []);
    writeFileSync(note, "{");
    t.match(made().told, [{ message: /note beside it cannot be read/ }]);
    rmSync(note);
  }
  t.end();
});
