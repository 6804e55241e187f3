/**
 * Which of several series of a folder is taken: rules joined by or, preferences, and what is said
 * of the others.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { seriesPath } from "../../src/jobs/item-paths.js";
import { scanFolder, type ScanResult } from "../../src/jobs/scan.js";
import { infer } from "../../src/inference/infer-image.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { manifestSchema } from "../../src/manifest/rules.js";
import { modelsCard } from "../../src/models/card.js";
import { chooseCase, fill } from "../../src/models/roles.js";
import { sourceOf } from "../../src/results/commit/compose.js";
import { readSeriesFolder } from "../../src/inference/read-input.js";
import { openInput } from "../../src/files/guarded-paths.js";
import { replay } from "../../src/inference/replay.js";
import { receiptSchema } from "../../src/results/receipt/receipt.js";
import { failure } from "../support/expect.js";
import { ADDON, needs } from "../support/needs.js";
import { engine, modelsOf } from "../support/real-engine.js";
import { folderOf, SERIES, slice } from "../support/series.js";
import { writeVolumeModel } from "../support/volume-model.js";

type Accepts = Manifest["accepts"];
const THIN = "1.9";
const SHARP = "1.10";

/** A series of so many even slices. */
const series = (
  uid: string,
  count: number,
  thickness: string | undefined,
  kernel: string | undefined,
) =>
  Object.fromEntries(
    Array.from({ length: count }, (_, i) => [
      `${uid}-${i}`,
      slice({
        z: 9 * i,
        fill: 200,
        attributes: {
          SeriesInstanceUID: uid,
          SOPInstanceUID: `${uid}.${i + 1}`,
          SliceThickness: thickness,
          ConvolutionKernel: kernel,
        },
      }),
    ]),
  );
const study = {
  ...series(SERIES, 4, "5", "B30f"),
  ...series(THIN, 3, "1", "B30f"),
  ...series(SHARP, 3, "1", "B70f"),
};

async function choosing(t: Test, change: Partial<Accepts>, files: Record<string, Buffer> = study) {
  const directory = t.testdir({});
  writeVolumeModel(directory, "bright", (manifest) => {
    manifest.accepts = { ...manifest.accepts, ...change };
  });
  const models = await modelsOf(directory);
  t.teardown(() => models.close());
  const folder = folderOf(t, files);
  const run = () =>
    infer(
      {
        requestId: "r",
        inputPath: folder,
        outputFolder: join(folder, "..", "out"),
        cancelId: 1,
        priority: "routine",
        roots: { input: undefined, output: undefined },
      },
      { engine: engine(), models: models.entries },
    );
  const source = async () => {
    const { receipt_path } = await run();
    return receiptSchema.parse(JSON.parse(readFileSync(receipt_path, "utf8"))).source;
  };
  /** What verification says of the result, for which the receipt names the series. */
  const verdicts = async () => {
    const receipt = receiptSchema.parse(
      JSON.parse(readFileSync((await run()).receipt_path, "utf8")),
    );
    const input = await openInput(folder, undefined);
    t.teardown(() => input.close());
    const uid = receipt.source.series_instance_uid;
    const image = await readSeriesFolder(input, undefined, undefined, { uid });
    const checks = await replay({ receipt, image, models: models.entries, engine: engine() });
    return checks.map(({ verdict }) => verdict);
  };
  return { run, source, folder, models, verdicts };
}

t.test("the series that a model prefers", { skip: needs(ADDON) }, async (t) => {
  await t.test("by each of the rules, and the receipt says why not the others", async (t) => {
    const chosen = await choosing(t, { prefer: [{ by: "most_slices" }] });
    const most = await chosen.source();
    t.strictSame(await chosen.verdicts(), ["ok", "ok"], "and it can be verified");
    t.match(most, { series_instance_uid: SERIES, frames: 4 });
    t.strictSame(
      most.not_chosen,
      [SHARP, THIN].map((uid) => ({
        modality: "CT",
        series_instance_uid: uid,
        frames: 3,
        why: [
          {
            model: "bright",
            code: "not_most_slices",
            message: "The chosen series has 4 slices; this one has 3.",
          },
        ],
      })),
    );
    const kernel = await (
      await choosing(t, { prefer: [{ by: "thinnest" }, { by: "kernel", order: ["B70f", "B30f"] }] })
    ).source();
    t.match(kernel, { series_instance_uid: SHARP });
    t.match(kernel.not_chosen, [
      {
        series_instance_uid: SERIES,
        why: [{ code: "not_thinnest", message: /1 mm thick; this one has 5 mm/ }],
      },
      {
        series_instance_uid: THIN,
        why: [
          { code: "not_kernel", message: /has the ConvolutionKernel B70f; this one has B30f\.$/ },
        ],
      },
    ]);
    // As scanners of Siemens write a kernel and the strength of its iterations
    const strength = { ...series(SERIES, 3, "1", "B30f\\2"), ...series(THIN, 3, "1", "B70f") };
    const first = await choosing(
      t,
      { prefer: [{ by: "kernel", order: ["B30f", "B70f"] }] },
      strength,
    );
    t.match(await first.source(), {
      series_instance_uid: SERIES,
      not_chosen: [{ why: [{ message: /has the ConvolutionKernel B30f; this one has B70f\.$/ }] }],
    });
  });

  await t.test("what does not say comes last, and what is left is not guessed", async (t) => {
    const silent = { ...series(SERIES, 3, undefined, undefined), ...series(THIN, 3, "1", "B30f") };
    const thinnest = await choosing(t, { prefer: [{ by: "thinnest" }] }, silent);
    t.match(await thinnest.source(), {
      series_instance_uid: THIN,
      not_chosen: [{ why: [{ message: /does not say it/ }] }],
    });
    const order = await choosing(t, { prefer: [{ by: "kernel", order: ["B70f"] }] }, silent);
    t.match(await failure(order.run()), { details: { reason: "several_series", found: 2 } });
    const tied = await choosing(t, { prefer: [{ by: "thinnest" }] });
    const error = await failure(tied.run());
    t.match(error, { code: "series_invalid", message: /take 2 of them/ });
    t.match(error.details, {
      series: [
        { series_instance_uid: SERIES, why: [{ model: "bright", code: "not_thinnest" }] },
        { series_instance_uid: SHARP },
        { series_instance_uid: THIN },
      ],
    });
  });

  await t.test("in a bulk job each folder has the items that are preferred", async (t) => {
    const { folder, models } = await choosing(t, { prefer: [{ by: "most_slices" }] });
    const found: ScanResult[] = [];
    for await (const one of scanFolder({ folder, roots: [folder], models: models.entries }))
      found.push(one);
    t.match(found, [
      { path: seriesPath("", SERIES), is: "input" },
      ...[SHARP, THIN].map((uid) => ({
        path: seriesPath("", uid),
        is: "skipped",
        reason: { code: "not_most_slices", message: /has 4 slices; this one has 3/ },
      })),
    ]);
    t.equal(found.length, 3, "and none of their slices by itself");
  });
});

t.test("rules joined by or", { skip: needs(ADDON) }, async (t) => {
  const rule = { tag: "ConvolutionKernel", if_absent: "refuse", reason: "Kernel." } as const;
  const any_of = [
    [{ ...rule, in: ["B70f"] }],
    [
      { ...rule, in: ["B30f"] },
      { tag: "SliceThickness", min: 4, if_absent: "refuse" as const, reason: "Thick." },
    ],
  ];
  const first = await choosing(t, { any_of }, series(SERIES, 3, "5", "B30f"));
  t.match(await first.source(), { series_instance_uid: SERIES, not_chosen: undefined });
  const other = await choosing(t, { any_of }, series(SERIES, 3, "5", "B70f"));
  t.match(await other.source(), { series_instance_uid: SERIES });
  const neither = await choosing(t, { any_of }, series(SERIES, 3, "1", "B30f"));
  const { details } = await failure(neither.run());
  t.match(details, {
    models: [
      {
        reasons: [
          {
            code: "any_of_not_accepted",
            message:
              /None of the 2 lists of rules in accepts\.any_of holds\. \(1\) Kernel\. .* \(2\) Thick\. .*found 1\./,
          },
        ],
      },
    ],
  });
  const directory = t.testdir({});
  writeVolumeModel(directory, "bright", ({ accepts }) =>
    Object.assign(accepts, { any_of, prefer: [{ by: "kernel", order: ["B30f"] }] }),
  );
  const card = (await modelsCard(directory, "bright")).text;
  t.match(
    card,
    /\*\*One of, 2:\*\* ConvolutionKernel in B30f; if absent refuse; SliceThickness min 4/,
  );
  t.match(card, /\*\*Of several series:\*\* by kernel; order B30f/);
});

t.test("a role takes the candidate that is preferred", async (t) => {
  const input = await openInput(folderOf(t, study), undefined);
  t.teardown(() => input.close());
  const kernel = (...order: string[]) => [{ tag: "ConvolutionKernel", in: order }];
  const manifest = {
    accepts: { formats: ["dicom"], dimensions: "series", prefer: [{ by: "thinnest" }] },
    roles: [
      {
        role: "soft",
        rules: [{ tag: "Modality", in: ["CT"] }],
        any_of: [kernel("B30f"), kernel("B31f")],
      },
      { role: "sharp", rules: kernel("B70f") },
    ],
  } as unknown as Manifest;
  const image = await readSeriesFolder(input, undefined, undefined, {
    caseOf: (found) => chooseCase([{ name: "both", manifest }], found, () => true),
  });
  t.strictSame(
    image.case?.members.map(({ source }) => source.seriesInstanceUid),
    [THIN, SHARP],
  );
  const { not_chosen } = sourceOf("it", image, "");
  t.match(not_chosen, [
    {
      series_instance_uid: SERIES,
      frames: 4,
      why: [{ model: "both", role: "soft", code: "not_thinnest" }],
    },
  ]);
  const without = {
    ...manifest,
    accepts: { ...manifest.accepts, prefer: undefined },
  } as unknown as Manifest;
  t.match(fill(without, image.case!.candidates), { reasons: [{ code: "role_several" }] });
});

t.test("a preference is of models that take whole series", (t) => {
  const directory = t.testdir({});
  writeVolumeModel(directory, "bright");
  const path = join(directory, "bright", "model.json");
  const manifest = JSON.parse(readFileSync(path, "utf8")) as Manifest;
  const messages = (accepts: Accepts) =>
    manifestSchema
      .safeParse({ ...manifest, accepts })
      .error?.issues.map(({ message }) => message) ?? [];
  const prefer: Accepts["prefer"] = [{ by: "most_slices" }];
  t.strictSame(messages({ ...manifest.accepts, prefer }), []);
  t.ok(
    messages({ ...manifest.accepts, dimensions: "2d", prefer }).some((one) =>
      /whole series/.test(one),
    ),
  );
  t.end();
});
