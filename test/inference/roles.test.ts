/**
 * Cases of several series and views against what SimpleITK and onnxruntime made of the same files
 * (test/reference/roles).
 */
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { createEngine } from "../../src/engine/engine.js";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { decodeNpy } from "../../src/engine/npy.js";
import { withImageFile } from "../../src/commands/files.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { toNumbers } from "../../src/models/compare.js";
import { modelsCard } from "../../src/models/card.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { inferOnce } from "../../src/inference/infer-once.js";
import { folderReading, modelsCanary } from "../../src/commands/models/canary.js";
import { readModelFolder } from "../../src/models/read.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { ADDON, needs } from "../support/needs.js";
import { reference, storedGraphs, writeReachModel } from "../support/reach-models.js";
import { bulkOf } from "../support/bulk.js";
import { databaseUrl } from "../support/postgres.js";
import { makePlace, radserve, startServer } from "../support/server.js";

const STORED = reference("roles");
const BRAIN = join(STORED, "brain");
const BREAST = join(STORED, "breast");
const ROOT = "1.2.826.0.1.3680043.10.1.60";

const stored = (name: string): number[] =>
  Array.from(toNumbers(decodeNpy(readFileSync(join(STORED, `${name}.npy`)))));

function furthest(found: ArrayLike<number>, expected: readonly number[]): number {
  if (found.length !== expected.length) return Infinity;
  return expected.reduce(
    (most, value, i) => Math.max(most, Math.abs(value - (found[i] ?? NaN))),
    0,
  );
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

/** Exchanges text of the same length in all files of a series. */
const exchange = (folder: string, series: string, from: string, to: string) => {
  for (const file of readdirSync(folder).filter((one) => one.includes(series))) {
    const bytes = readFileSync(join(folder, file));
    for (
      let at = bytes.indexOf(from, 0, "latin1");
      at >= 0;
      at = bytes.indexOf(from, at + 1, "latin1")
    )
      bytes.write(to, at, "latin1");
    writeFileSync(join(folder, file), bytes);
  }
};

t.test("the graphs are those that the references were made with", (t) => {
  for (const { path, bytes } of storedGraphs()) t.ok(readFileSync(path).equals(bytes), path);
  t.end();
});

t.test("roles", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace({ DATABASE_URL: databaseUrl(t) });
  t.teardown(() => {
    place.remove();
  });
  const models = place.environment["RADSERVE_MODELS_DIR"]!;
  const engine = createEngine({ provider: "cpu" });
  const options = { engine, providers: ["cpu"] as const };
  const together = writeReachModel(models, "together");
  // Both sides are findings then, and are held against the sides of the views
  const sensitive = (manifest: Manifest) => {
    const [output] = manifest.outputs;
    if (output?.kind === "classification") for (const label of output.labels) label.threshold = 0.1;
  };
  const views = writeReachModel(models, "views", sensitive);
  const prior = writeReachModel(models, "views", (manifest) => {
    manifest.name = "prior";
    sensitive(manifest);
    manifest.roles = manifest.roles!.map((role, i) => ({
      ...role,
      study: i < 2 ? "latest" : "earlier",
    }));
  });

  await t.test("canary and check know them", async (t) => {
    for (const [folder, input] of [
      [together, BRAIN],
      [views, BREAST],
    ] as const) {
      const { caseOf } = await folderReading(folder);
      const made = await withImageFile(input, (image) => modelsCanary(folder, image, options), {
        caseOf,
      });
      t.match(made.text, /Entered in model\.json/);
      const card = (await modelsCard(models, folder === together ? "together" : "views")).text;
      t.match(
        card,
        folder === together
          ? /Role t1:\*\* SeriesDescription contains t1; not contains flair/
          : /Role rcc:\*\* ImageLaterality in R; ViewPosition in CC/,
      );
      t.match(
        (await modelsCheck(folder, options)).text,
        /in order\n {2}It loads and its canary passes/,
      );
    }
  });

  await t.test("the tensors that go in and come out are the reference's", async (t) => {
    const tensorsOf = async (folder: string, input: string) => {
      const { model } = await readModelFolder(folder);
      const { caseOf } = await folderReading(folder);
      return withImageFile(
        input,
        async (image) => (await inferOnce(folder, model!, image, options)).result.tensors,
        { caseOf },
      );
    };
    const volume = await tensorsOf(together, BRAIN);
    for (const tensor of [...volume.inputs, ...volume.outputs]) {
      const off = furthest(toNumbers(tensor), stored(tensor.name));
      t.ok(off < 2e-5, `${tensor.name} is off by ${off}`);
    }
    t.strictSame(volume.inputs[0]!.shape, [1, 3, 6, 12, 14]);
    const four = await tensorsOf(views, BREAST);
    const all = four.inputs.flatMap((tensor) => Array.from(toNumbers(tensor)));
    t.strictSame(
      four.inputs.map(({ name }) => name),
      ["rcc", "lcc", "rmlo", "lmlo"],
    );
    t.ok(furthest(all, stored("views")) < 1e-6);
    t.ok(furthest(toNumbers(four.outputs[0]!), stored("cancer")) < 1e-5);
  });

  const withPrior = join(place.input, "prior");
  cpSync(BREAST, withPrior, { recursive: true });
  for (const name of ["a.dcm", "b.dcm"]) {
    exchange(withPrior, name, `${ROOT}.1\0`, `${ROOT}.5\0`);
    exchange(withPrior, name, "20261124", "20251124");
  }
  {
    const { caseOf } = await folderReading(prior);
    await withImageFile(withPrior, (image) => modelsCanary(prior, image, options), { caseOf });
  }

  const server = await startServer(place);
  t.teardown(async () => {
    await server.stop();
    await engine.close();
  });
  const post = async (input: string, name: string, more: object = {}) => {
    const output = join(place.output, name);
    mkdirSync(output, { recursive: true });
    const answer = await fetch(`${server.url}/single_inference`, {
      method: "POST",
      headers: { Authorization: server.token, "Content-Type": "application/json" },
      body: JSON.stringify({ input_image_path: input, output_folder_path: output, ...more }),
    });
    return { status: answer.status, text: await answer.text() };
  };
  const copied = (from: string, name: string) => {
    const folder = join(place.input, name);
    cpSync(from, folder, { recursive: true });
    return folder;
  };
  const receiptAt = (text: string) =>
    receiptSchema.parse(
      JSON.parse(readFileSync((JSON.parse(text) as { receipt_path: string }).receipt_path, "utf8")),
    );

  await t.test(
    "over HTTP: one receipt tells which series is what, and what became of each",
    async (t) => {
      const input = copied(BRAIN, "brain");
      const { status, text } = await post(input, "whole");
      t.equal(status, 200, text);
      const receipt = receiptAt(text);
      t.equal(receipt.source.name, "brain.case");
      t.strictSame(
        receipt.source.case?.map(({ series_instance_uid, frames }) => [
          series_instance_uid,
          frames,
        ]),
        [
          [`${ROOT}.2`, 6],
          [`${ROOT}.3`, 5],
          [`${ROOT}.4`, 6],
        ],
      );
      const model = receipt.models.find(({ name }) => name === "together")!;
      t.strictSame(
        model.roles?.map(({ role, series_instance_uid }) => [role, series_instance_uid]),
        [
          ["flair", `${ROOT}.2`],
          ["t1", `${ROOT}.3`],
          ["t2", `${ROOT}.4`],
        ],
      );
      const steps = model.transforms.filter(({ step }) => step === "role" || step === "regrid");
      t.match(steps, [
        { step: "role", role: "flair" },
        { step: "role", role: "t1" },
        { step: "regrid", grid_of: "flair", interpolation: "linear" },
        { step: "role", role: "t2" },
      ]);
      t.strictSame(
        model.transforms.filter(({ step }) => step.startsWith("normalise")).map(({ step }) => step),
        ["normalise_z_score", "normalise_z_score", "normalise_min_max"],
      );
      t.ok(model.warnings.some(({ code }) => code === "role_partly_outside"));
      const [first, second] = stored("scores");
      t.strictSame(
        model.findings.flatMap(({ label, score, volume }) =>
          volume ? [] : [[label, score?.toFixed(4)]],
        ),
        [
          ["Effusion", sigmoid(first!).toFixed(4)],
          ["Pneumothorax", sigmoid(second!).toFixed(4)],
        ],
      );
      t.equal(receipt.models.find(({ name }) => name === "views")?.status, "not_accepted");
      const path = (JSON.parse(text) as { receipt_path: string }).receipt_path;
      const verified = await radserve(place, "verify", path, "--input", input);
      t.equal(verified.status, 0, verified.stdout + verified.stderr);
      const again = await post(input, "whole");
      t.match(again.text, /"reused":true/);
      const name = readdirSync(input).find((file) => file.includes("-3-"))!;
      rmSync(join(input, name));
      const changed = await radserve(place, "verify", path, "--input", input);
      t.equal(changed.status, 1, "a series of the case that lacks a slice is another source");
    },
  );

  await t.test("views: the side of a finding is any of the views'", async (t) => {
    const { status, text } = await post(copied(BREAST, "breast"), "views");
    t.equal(status, 200, text);
    const model = receiptAt(text).models.find(({ name }) => name === "views")!;
    t.strictSame(
      model.findings.map(({ score }) => score?.toFixed(4)),
      stored("cancer").map((logit) => sigmoid(logit).toFixed(4)),
    );
    t.ok(model.findings.every(({ present }) => present));
    t.notOk(model.warnings.some(({ code }) => code.startsWith("laterality")));
    t.strictSame(
      model.roles?.map(({ role, sop_instance_uid }) => [role, sop_instance_uid]),
      ["rcc", "lcc", "rmlo", "lmlo"].map((role, i) => [role, `${ROOT}.70.${i + 1}`]),
    );
  });

  await t.test("a prior is of another study, and evidence of it", async (t) => {
    const { status, text } = await post(withPrior, "prior", { models: ["prior"] });
    t.equal(status, 200, text);
    const receipt = receiptAt(text);
    t.strictSame(
      receipt.source.case?.map(({ study_instance_uid }) => study_instance_uid),
      [`${ROOT}.1`, `${ROOT}.1`, `${ROOT}.5`, `${ROOT}.5`],
    );
    const report = receipt.models[0]!.outputs.find(({ path }) => path.endsWith(".sr.dcm"))!;
    const { attributes } = openFile(readFileSync(join(place.output, "prior", report.path)));
    t.equal(attributes.string("StudyInstanceUID"), `${ROOT}.1`);
    const studies = (attributes.sequence("PertinentOtherEvidenceSequence") ?? []).map((study) =>
      study.string("StudyInstanceUID"),
    );
    t.strictSame(studies, [`${ROOT}.5`]);
    const path = (JSON.parse(text) as { receipt_path: string }).receipt_path;
    const verified = await radserve(place, "verify", path, "--input", withPrior);
    t.equal(verified.status, 0, verified.stdout + verified.stderr);
    const one = await post(copied(BREAST, "no-prior"), "no-prior", { models: ["prior"] });
    t.equal(one.status, 422);
    t.match(one.text, /role_missing.*\\"rmlo\\"/);
  });

  const refused = async (from: string, name: string, change: (folder: string) => void) => {
    const folder = copied(from, name);
    change(folder);
    return post(folder, name, { models: [from === BRAIN ? "together" : "views"] });
  };
  await t.test("what is missing, there twice, or lies elsewhere is named", async (t) => {
    const missing = await refused(BRAIN, "missing", (folder) => {
      for (const file of readdirSync(folder).filter((one) => one.includes("-4-")))
        rmSync(join(folder, file));
    });
    t.equal(missing.status, 422);
    t.match(
      missing.text,
      /role_missing.*Expected one series for the role \\"t2\\", found none among 2/,
    );
    const twice = await refused(BRAIN, "twice", (folder) => {
      exchange(folder, "-4-", "Ax T2 TSE", "Ax T1 TSE");
    });
    t.equal(twice.status, 422);
    t.match(
      twice.text,
      /role_several.*\\"t1\\", found 2: 1\.2\.826\.0\.1\.3680043\.10\.1\.60\.\d, 1\.2/,
    );
    const elsewhere = await refused(BRAIN, "elsewhere", (folder) => {
      exchange(folder, "-3-", `${ROOT}.9`, `${ROOT}.8`);
    });
    t.equal(elsewhere.status, 422);
    t.match(
      elsewhere.text,
      /case_frame_of_reference.*10\.1\.60\.9\) in \\"t1\\", found .*10\.1\.60\.8/,
    );
    const others = await refused(BRAIN, "patients", (folder) => {
      exchange(folder, "-3-", "ROLES", "OTHER");
    });
    t.match(others.text, /case_several_patients/);
    t.notMatch(others.text, /OTHER/);
    const studies = await refused(BRAIN, "studies", (folder) => {
      exchange(folder, "-3-", `${ROOT}.1\0`, `${ROOT}.5\0`);
    });
    t.match(studies.text, /case_several_studies/);
    const gap = await refused(BRAIN, "gap", (folder) => {
      rmSync(join(folder, "d-3-2.dcm"));
    });
    t.match(gap.text, /series_gap.*Role \\"t1\\"/);
    const view = await refused(BREAST, "view", (folder) => {
      rmSync(join(folder, "a.dcm"));
    });
    t.match(view.text, /role_missing.*one image for the role \\"lmlo\\", found none among 3/);
    t.strictSame(readdirSync(join(place.output, "gap")), [], "nothing is written");
    const names: [string, string, (file: string) => void, RegExp][] = [
      [BRAIN, "d-3-2.dcm", (file) => writeFileSync(file, ""), /unreadable_slices/],
      [BREAST, "a.dcm", (file) => writeFileSync(file, ""), /unreadable_slices/],
      [
        BREAST,
        "a.dcm",
        (file) => writeFileSync(file, readFileSync(file).subarray(0, -99)),
        /truncated_image/,
      ],
    ];
    for (const [i, [from, name, spoil, expected]] of names.entries()) {
      const broken = await refused(from, `broken-${i}`, (folder) => spoil(join(folder, name)));
      t.equal(broken.status, 422);
      t.match(broken.text, expected);
    }
  });

  await t.test("a single series and a single file are no case, and say so", async (t) => {
    const folder = copied(BRAIN, "single");
    const series = await post(folder, "single", {
      series_instance_uid: `${ROOT}.3`,
      models: ["together"],
    });
    t.equal(series.status, 422);
    t.match(series.text, /role_missing.*\\"flair\\"/);
    const file = await post(join(copied(BREAST, "alone"), "a.dcm"), "alone");
    t.equal(file.status, 422);
    t.match(file.text, /role_missing.*\\"rcc\\"/);
  });

  await t.test("bulk: the folder is one item, and its files are none", async (t) => {
    const root = join(place.input, "job");
    copied(BRAIN, "job/p1");
    copied(BREAST, "job/p2");
    copied(BREAST, "job/p3");
    rmSync(join(root, "p3", "a.dcm"));
    const output = join(place.output, "job");
    mkdirSync(output);
    const bulk = bulkOf(server);
    const id = await bulk.submit({ input_folder_path: root, output_folder_path: output });
    await bulk.ended(id);
    const items = await bulk.items(id);
    t.match(
      items.map((item) => [item.input_image_path, item.state, item.receipt_path]),
      [
        [join(root, "p1"), "succeeded", join(output, "p1.case.json")],
        [join(root, "p2"), "succeeded", join(output, "p2.case.json")],
        [join(root, "p3"), "skipped", undefined],
        ...["b", "c", "d"].map((name) => [join(root, "p3", `${name}.dcm`), "skipped", undefined]),
      ],
    );
    t.match(
      JSON.stringify(items[2]),
      /No model took the folder as a case.*lmlo.*found none among 3/,
    );
    t.strictSame(await bulk.differences(id), [], "results belong to their items");
  });
});

t.test("the rules of the manifest", async (t) => {
  const models = t.testdir();
  const mistakes = async (name: string, change: (manifest: Manifest) => void) =>
    (await readModelFolder(writeReachModel(models, name, change))).problems
      .map(({ path, message }) => `${path}: ${message}`)
      .filter((line) => !line.startsWith("canary"))
      .join("\n");
  t.equal(await mistakes("together", () => undefined), "");
  t.match(
    await mistakes("together", ({ inputs }) => {
      Object.assign(inputs[0]!, { roles: [{ role: "flair" }, { role: "t1" }] });
    }),
    /roles\[2\]\.role: Expected an input whose roles name "t2"/,
  );
  t.match(
    await mistakes("together", ({ inputs }) => {
      Object.assign(inputs[0]!, { roles: [{ role: "t1" }, { role: "flair" }, { role: "t2" }] });
    }),
    /outputs\[0\]\.input: Expected an input that begins with the role "flair"/,
  );
  t.match(
    await mistakes("together", (manifest) => {
      delete manifest.roles;
    }),
    /inputs\[0\]\.roles: Only with roles of the model/,
  );
  t.match(
    await mistakes("together", ({ roles }) => {
      roles![0]!.rules = [{ tag: "SeriesDescription" }];
      roles![1]!.study = "earlier";
    }),
    /roles\[0\]\.rules\[0\]: Expected in, not_in, contains.*\n.*roles\[1\]\.study: Expected it in all roles/s,
  );
  t.match(
    await mistakes("together", ({ inputs }) => {
      Object.assign(inputs[0]!, {
        roles: [{ role: "flair" }, { role: "t1" }, { role: "t2", values: { kind: "stored" } }],
      });
    }),
    /values.*Expected values that mean the same in every slice/,
  );
  t.match(
    await mistakes("together", ({ inputs }) => {
      Object.assign(inputs[0]!, {
        normalisation: { kind: "z_score", over: "volume", of: "nonzero" },
      });
    }),
    /normalisation\.of: Expected it with resampling whose crop is "nonzero" alone/,
  );
  t.match(
    await mistakes("together", ({ inputs }) => {
      const resampling = {
        grid: "edges",
        spacing_mm: [1, 1, 1],
        order: 3,
        order_back: 1,
        keep_range: true,
        clip: "before",
        crop: "nonzero",
        activation: "after",
      };
      const more = {
        size: { kind: "source" },
        fit: "stretch",
        interpolation: "spline",
        resampling,
      };
      inputs.push({ ...Object.assign(inputs[0]!, more), tensor: "others" });
    }),
    /inputs\[0\]\.resampling\.crop: Expected "none" with roles in several inputs/,
  );
  t.match(
    await mistakes("views", (manifest) => {
      manifest.accepts.dimensions = "2d_frames";
      Object.assign(manifest.inputs[1]!, { roles: [{ role: "rlo" }] });
    }),
    /No role is called "rlo"/,
  );
});
