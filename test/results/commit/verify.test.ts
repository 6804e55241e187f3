/** `radserve verify`: what is true passes, and whatever is not is told. */
import { spawnSync } from "node:child_process";
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import t from "tap";
import { samples } from "../../../scripts/demo/samples.js";
import { infer } from "../../../src/inference/infer-image.js";
import { type InferTask } from "../../../src/inference/task.js";
import type { OutputKind } from "../../../src/manifest/manifest.js";
import type { ModelEntry } from "../../../src/models/entry.js";
import { readImage } from "../../../src/images/read-image.js";
import { replay } from "../../../src/inference/replay.js";
import { sha256 } from "../../../src/files/durable-files.js";
import { RESULT_FORMS, type ResultForms } from "../../../src/results/forms.js";
import { LABEL_MAP_SEGMENTATION } from "../../../src/results/dicom/segments.js";
import { receiptSchema, receiptText, type Receipt } from "../../../src/results/receipt/receipt.js";
import { checkFiles, type ReceiptCheck } from "../../../src/results/commit/verify.js";
import { engineWithFolder } from "../../support/real-engine.js";
import { loadTestModel } from "../../support/test-models.js";
import { ADDON, needs } from "../../support/needs.js";

const MAIN = resolve("dist/src/main.js");

const problems = (checks: readonly ReceiptCheck[]) =>
  checks.filter(({ verdict }) => verdict !== "ok");
const told = (checks: readonly ReceiptCheck[]) =>
  checks.map(({ what, verdict }) => [what, verdict]);

t.test("receipts are replayed", { skip: needs(ADDON) }, async (t) => {
  const { engine, folder } = engineWithFolder(t, "verify");
  const sample = await samples();
  writeFileSync(join(folder, "ct.dcm"), sample.ct);
  const segmenter = await loadTestModel(engine, folder, "segmenter");
  const overlapping = await loadTestModel(engine, folder, "overlapping");
  const entries = [overlapping, segmenter];
  const all: OutputKind[] = ["json", "png", "sr", "seg", "rtstruct", "sc"];
  const ofSite: OutputKind[] = ["json", "sr"];
  let count = 0;
  const made = async (
    task: Partial<InferTask> = {},
    models: readonly ModelEntry[] = entries,
    forms: ResultForms = RESULT_FORMS,
  ) => {
    const outputFolder = task.outputFolder ?? join(folder, `out-${++count}`);
    const roots = { input: undefined, output: undefined };
    const whole = { requestId: "test", inputPath: join(folder, "ct.dcm"), outputFolder, roots };
    const answer = await infer(
      { ...whole, priority: "routine", cancelId: 1, outputs: ["sr", "seg"], ...task },
      {
        engine,
        models,
        forms,
        outputs: task.outputs === undefined && "outputs" in task ? ofSite : undefined,
      },
    );
    const read = () => receiptSchema.parse(JSON.parse(readFileSync(answer.receipt_path, "utf8")));
    return { outputFolder, receiptPath: answer.receipt_path, receipt: read(), answer };
  };
  const image = await readImage(sample.ct);
  const again = (receipt: Receipt, models: readonly ModelEntry[] = entries, source = image) =>
    replay({ receipt, image: source, engine, models });

  await t.test("what is true is equal, and nothing is written", async (t) => {
    const { outputFolder, receipt } = await made({ outputs: all });
    const facts = () =>
      readdirSync(outputFolder).map((name) => [name, statSync(join(outputFolder, name)).mtimeMs]);
    const before = facts();
    const files = await checkFiles(outputFolder, receipt);
    t.equal(files.length, 10, "picture, SEG, RTSTRUCT, SC and SR of both models");
    t.strictSame(problems(files), []);
    const results = await again(receipt);
    t.strictSame(told(results), [
      ["source", "ok"],
      ["test-overlapping", "ok"],
      ["test-segmenter", "ok"],
    ]);
    t.strictSame(facts(), before);
  });

  await t.test("whoever asked for the outputs, and with the thresholds of then", async (t) => {
    const { receipt: ofRequest } = await made();
    t.match(ofRequest, { outputs_from: "request", outputs_requested: ["seg", "sr"] });
    const bySite: object = { outputs: undefined };
    const { receipt: ofSettings } = await made(bySite);
    t.match(ofSettings, { outputs_from: "settings", outputs_requested: ["json", "sr"] });
    t.strictSame(problems(await again(ofSettings)), []);
    const site = { thresholds: { bright: 0.75 } };
    const strict = { ...overlapping, site, thresholds: [[0.75, 0.55]] };
    const { receipt } = await made({}, [strict]);
    t.strictSame(problems(await again(receipt)), [], "though the site has another threshold now");
  });

  await t.test(
    "label maps, though the settings say another form now, and structure sets",
    async (t) => {
      const forms = { ...RESULT_FORMS, segmentationType: "labelmap" as const };
      const { receipt } = await made({ outputs: all }, undefined, forms);
      const classes = receipt.models.flatMap(({ outputs }) =>
        outputs.map(({ sop_class_uid }) => sop_class_uid),
      );
      t.ok(classes.includes(LABEL_MAP_SEGMENTATION));
      t.ok(classes.includes("1.2.840.10008.5.1.4.1.1.481.3"));
      t.strictSame(problems(await again(receipt)), []);
    },
  );

  await t.test("pictures, though the settings say another opacity now", async (t) => {
    const forms = { ...RESULT_FORMS, overlayOpacity: 0.8 };
    const { receipt } = await made({ outputs: all }, undefined, forms);
    t.strictSame(problems(await again(receipt)), []);
    t.strictSame(
      receipt.models.map(({ overlay_opacity }) => overlay_opacity),
      [0.8, 0.8],
    );
    const { receipt: usual } = await made({ outputs: all });
    for (const each of [receipt, usual])
      for (const model of each.models) delete model.overlay_opacity;
    t.strictSame(problems(await again(usual)), [], "one of before is drawn by the settings");
    t.match(problems(await again(receipt)), [
      { detail: /other outputs \(ct\.dcm\.test-overlapping\.png, [^,]+\.sc\.dcm\)$/ },
      { detail: /other outputs/ },
    ]);
  });

  await t.test("on a machine in another time zone", async (t) => {
    const { receipt } = await made();
    const { TZ } = process.env;
    t.teardown(() => {
      if (TZ === undefined) delete process.env["TZ"];
      else process.env["TZ"] = TZ;
    });
    process.env["TZ"] = receipt.timings.utc_offset === "+0900" ? "UTC" : "Asia/Tokyo";
    t.strictSame(problems(await again(receipt)), []);
    const { utc_offset, ...timings } = receipt.timings;
    t.match(utc_offset, /^[+-]\d{4}$/);
    t.equal(
      problems(await again({ ...receipt, timings })).length,
      2,
      "the objects' times follow from it",
    );
  });

  await t.test("one byte in any file", async (t) => {
    const { outputFolder, receipt } = await made({ outputs: all });
    for (const { path } of receipt.models.flatMap(({ outputs }) => outputs)) {
      const whole = readFileSync(join(outputFolder, path));
      const harmed = Buffer.from(whole);
      harmed[Math.floor(harmed.length * 0.7)]! ^= 1;
      writeFileSync(join(outputFolder, path), harmed);
      t.strictSame(told(problems(await checkFiles(outputFolder, receipt))), [[path, "differs"]]);
      unlinkSync(join(outputFolder, path));
      t.strictSame(told(problems(await checkFiles(outputFolder, receipt))), [[path, "missing"]]);
      writeFileSync(join(outputFolder, path), whole);
    }
    t.strictSame(problems(await checkFiles(outputFolder, receipt)), []);
  });

  await t.test("a receipt that tells something else than was computed", async (t) => {
    const { receipt } = await made();
    const changes: [string, (r: Receipt) => unknown][] = [
      ["findings", ({ models: [, m] }) => (m!.findings[0]!.area!.pixels += 1)],
      ["measurements", ({ models: [, m] }) => (m!.measurements[0]!.value += 1)],
      ["warnings", ({ models: [, m] }) => m!.warnings.push({ code: "none", message: "None." })],
      ["transforms", ({ models: [, m] }) => (m!.transforms[0]!["step"] = "other")],
      ["raw_sha256", ({ models: [, m] }) => (m!.raw_sha256 = "0".repeat(64))],
      ["provider", ({ models: [, m] }) => delete m!.provider],
      ["outputs", ({ models: [, m] }) => m!.outputs.pop()],
      ["overlay_opacity", ({ models: [, m] }) => (m!.overlay_opacity = 0.3)],
    ];
    for (const [field, change] of changes) {
      const lie = structuredClone(receipt);
      change(lie);
      t.match(problems(await again(lie)), [
        { what: "test-segmenter", verdict: "differs", detail: new RegExp(field) },
      ]);
    }
    const later = structuredClone(receipt);
    later.timings.started_at = "2026-01-01T00:00:00.000Z";
    t.match(problems(await again(later)), [
      { detail: /other outputs/ },
      { detail: /other outputs/ },
    ]);
    later.timings.started_at = "yesterday";
    t.match(problems(await again(later)), [{ verdict: "differs" }, { verdict: "differs" }]);
    const size = structuredClone(receipt);
    size.source.rows += 1;
    t.match(problems(await again(size))[0], { what: "source", detail: /other source/ });
  });

  await t.test("what a receipt lists twice, and objects that it does not list", async (t) => {
    const { outputFolder, receipt } = await made({ outputs: ["sr", "seg", "rtstruct", "sc"] });
    const twice = structuredClone(receipt);
    twice.models.push(twice.models[0]!);
    t.match(problems(await checkFiles(outputFolder, twice)), [
      { what: "receipt", verdict: "differs", detail: /its models/ },
      { what: "receipt", verdict: "differs", detail: /its outputs/ },
    ]);
    const asked = { ...receipt, outputs_requested: ["seg", "sr", "sr"] };
    t.match(problems(await checkFiles(outputFolder, asked)), [{ detail: /its outputs_requested/ }]);
    const cut = { ...receipt, models: receipt.models.slice(1) };
    t.strictSame(told(problems(await checkFiles(outputFolder, cut))), [
      ["ct.dcm.test-overlapping.rtstruct.dcm", "differs"],
      ["ct.dcm.test-overlapping.sc.dcm", "differs"],
      ["ct.dcm.test-overlapping.seg.dcm", "differs"],
      ["ct.dcm.test-overlapping.sr.dcm", "differs"],
    ]);
    writeFileSync(join(outputFolder, "ct.dcm.copy.sc.dcm"), sample.ct);
    writeFileSync(join(outputFolder, "ct.dcm.note.sr.dcm"), "a note");
    t.strictSame(
      problems(await checkFiles(outputFolder, receipt)),
      [],
      "what is not ours is not judged",
    );
  });

  await t.test("what is told of a model that does not take the image", async (t) => {
    const refusing = {
      ...overlapping,
      manifest: {
        ...overlapping.manifest,
        accepts: { ...overlapping.manifest.accepts, min_rows: 100_000 },
      },
    };
    const models = [refusing, segmenter];
    const { receipt } = await made({}, models);
    t.strictSame(problems(await again(receipt, models)), []);
    const changes: ((model: Receipt["models"][number]) => unknown)[] = [
      (m) => (m.version = "9"),
      (m) => m.warnings.push({ code: "none", message: "None." }),
      (m) => m.findings.push({ label: "bright", present: false }),
      (m) => (m.reasons = []),
    ];
    for (const change of changes) {
      const changed = structuredClone(receipt);
      change(changed.models[0]!);
      t.strictSame(told(problems(await again(changed, models))), [["test-overlapping", "differs"]]);
    }
  });

  await t.test("an object that does not say what the receipt says", async (t) => {
    const { outputFolder, receipt } = await made();
    const changes: [RegExp, (r: Receipt) => unknown][] = [
      [
        /SOPInstanceUID/,
        ({ models: [m] }) => m!.outputs.forEach((o) => (o.sop_instance_uid &&= "1.2")),
      ],
      [
        /SeriesInstanceUID/,
        ({ models: [m] }) => m!.outputs.forEach((o) => (o.series_instance_uid &&= "1.2")),
      ],
      [/StudyInstanceUID/, ({ source }) => (source.study_instance_uid = "1.2")],
      [/observer|equipment/, ({ models: [m] }) => (m!.sha256 = "0".repeat(64))],
      [/algorithm|equipment/, ({ models: [m] }) => (m!.version = "9")],
      [/neither the source/, ({ source }) => (source.sop_instance_uid = "1.2")],
      [/bytes instead/, ({ models: [m] }) => (m!.outputs[0]!.bytes! += 1)],
    ];
    for (const [detail, change] of changes) {
      const lie = structuredClone(receipt);
      change(lie);
      const found = problems(await checkFiles(outputFolder, lie));
      t.ok(found.length > 0 && found.every((each) => detail.test(each.detail)), String(detail));
    }
    const outside = structuredClone(receipt);
    outside.models[0]!.outputs[0]!.path = "../ct.dcm";
    t.match(problems(await checkFiles(outputFolder, outside)), [{ detail: /no plain file name/ }]);
    // Not DICOM at all, with a receipt that vouches for it
    const [file] = receipt.models[0]!.outputs.filter(({ path }) => path.endsWith(".sr.dcm"));
    const bytes = Buffer.from("no DICOM");
    writeFileSync(join(outputFolder, file!.path), bytes);
    Object.assign(file!, { bytes: bytes.length, sha256: sha256(bytes) });
    t.match(problems(await checkFiles(outputFolder, receipt)), [
      { what: file!.path, detail: "cannot be read as DICOM" },
    ]);
  });

  await t.test("what cannot be replayed is said, and why", async (t) => {
    const { receipt } = await made();
    const other = { ...segmenter, sha256: "f".repeat(64), version: "3.0.0" };
    t.match(problems(await again(receipt, [overlapping, other])), [
      { what: "test-segmenter", verdict: "not_replayed", detail: /another: version 3\.0\.0/ },
    ]);
    t.match(problems(await again(receipt, [overlapping])), [{ detail: /no model of this name/ }]);
    const old = { ...receipt, radserve_version: "0.0.1" };
    t.match(problems(await again(old)), [
      { detail: /0\.0\.1 made it/ },
      { verdict: "not_replayed" },
    ]);
    const onGpu = structuredClone(receipt);
    for (const model of onGpu.models) model.provider = "cuda";
    t.match(problems(await again(onGpu)), [{ detail: /ran on cuda/ }, { detail: /ran on cuda/ }]);
    const changed = Buffer.from(sample.ct);
    changed[changed.length - 100]! ^= 1;
    t.match(problems(await again(receipt, entries, await readImage(changed))), [
      { what: "source", verdict: "differs" },
      { verdict: "not_replayed" },
      { verdict: "not_replayed" },
    ]);
  });

  await t.test("a result that replaced another model's", async (t) => {
    const { outputFolder } = await made({ outputs: ["sr"] }, [
      { ...overlapping, sha256: "a".repeat(64) },
    ]);
    const { receipt } = await made({ outputFolder, outputs: ["sr"] }, [overlapping]);
    t.ok(receipt.models[0]!.predecessor);
    t.strictSame(problems(await again(receipt)), []);
    t.strictSame(problems(await checkFiles(outputFolder, receipt)), []);
    delete receipt.models[0]!.predecessor;
    t.match(problems(await checkFiles(outputFolder, receipt)), [{ detail: /predecessor/ }]);
    t.match(problems(await again(receipt)), [{ detail: /other outputs/ }]);
  });
});

t.test("the command", { skip: needs(ADDON) }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "radserve-verify-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const { ct } = await samples();
  const source = join(folder, "ct.dcm");
  writeFileSync(source, ct);
  const command = (...words: string[]) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...words], {
      encoding: "utf8",
      env: { ...process.env, RADSERVE_STATE_DIR: join(folder, "state") },
    });
    return { status, stdout, stderr };
  };
  t.equal(command("infer", source, folder, "--model", "ct-tissue").status, 0);
  const receipt = join(folder, "ct.dcm.json");
  const beside = command("verify", receipt);
  t.equal(beside.status, 0, beside.stdout + beside.stderr);
  t.match(
    beside.stdout,
    /^ok +ct-tissue +computed again.*\n(.*\n)*Verified: every file and every replayed result is equal\.\n$/m,
  );

  const picture = join(folder, "ct.dcm.ct-tissue.png");
  writeFileSync(picture, Buffer.concat([readFileSync(picture), Buffer.from("x")]));
  const harmed = command("verify", receipt, "--json");
  t.equal(harmed.status, 1);
  t.match(JSON.parse(harmed.stdout), { equal: false });
  t.match(
    (JSON.parse(harmed.stdout) as { checks: ReceiptCheck[] }).checks.find(
      ({ what }) => what === basename(picture),
    ),
    { verdict: "differs", detail: /SHA-256/ },
  );

  const moved = join(folder, "moved.dcm");
  writeFileSync(moved, ct);
  unlinkSync(source);
  const without = command("verify", receipt);
  t.equal(without.status, 1);
  t.match(without.stdout, /^missing +source +the source is not beside the receipt/m);
  t.match(command("verify", receipt, "--input", moved).stdout, /^ok +source/m);

  const text = readFileSync(receipt, "utf8");
  writeFileSync(receipt, text.replace("\n  ", "\n   "));
  t.match(command("verify", receipt, "--input", moved).stdout, /^differs +receipt +the text/m);
  writeFileSync(receipt, text.slice(0, -3));
  const cut = command("verify", receipt);
  t.equal(cut.status, 1);
  t.match(cut.stdout, /not a receipt of Radserve/);
  t.equal(receiptText(receiptSchema.parse(JSON.parse(text))), text);

  t.equal(command("verify", join(folder, "nothing.json")).status, 2);
  t.match(command("verify", folder), {
    status: 2,
    stderr: /found a folder. Name one of the receipts/,
  });
  t.equal(command("verify").status, 2);
});
