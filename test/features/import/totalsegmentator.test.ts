/**
 * Tasks of TotalSegmentator become models, from folders as its users have them; what a task does
 * that no manifest says is refused by that word.
 */
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { modelsCheck } from "../../../src/commands/models/check.js";
import { importTask, type TaskOptions } from "../../../src/features/import/totalsegmentator.js";
import type { Manifest } from "../../../src/manifest/manifest.js";
import { labelsOf } from "../../../src/manifest/outputs/outputs.js";
import { readModelFolder } from "../../../src/models/read.js";
import { failure } from "../../support/expect.js";
import { ADDON, needs } from "../../support/needs.js";
import { engine } from "../../support/real-engine.js";
import { writePackage, writeWeights, type Weights } from "../../support/task-weights.js";

const skip = needs(ADDON);
t.teardown(() => engine().close());
const options = { engine: engine(), providers: ["cpu"] as const };

const TASKS: [string, TaskOptions, number[], number, "CT" | "MR", number][] = [
  ["total", {}, [291, 292, 293, 294, 295], 1.5, "CT", 0.2],
  ["total", { fast: true }, [297], 3, "CT", 0.2],
  ["total", { fastest: true }, [298], 6, "CT", 0.2],
  ["total_v3", {}, [831, 832, 833, 834, 835], 1.5, "CT", 0.2],
  ["total_v3", { fast: true }, [836], 3, "CT", 0.2],
  ["total_v3", { fastest: true }, [837], 6, "CT", 0.2],
  ["total_mr", {}, [850, 851], 1.5, "MR", 0.2],
  ["total_mr", { fast: true }, [852], 3, "MR", 0.2],
  ["total_mr", { fastest: true }, [853], 6, "MR", 0.2],
  ["vertebrae_body", {}, [305], 1.5, "CT", 0.5],
  ["breasts", {}, [527], 1.5, "CT", 0.5],
  ["trunk_cavities", {}, [343], 1.5, "CT", 0.5],
  ["vertebrae_mr", {}, [756], 1.5, "MR", 0.5],
];

for (const [name, form, datasets, spacing, modality, overlap] of TASKS) {
  const title = [name, ...Object.keys(form)].join(" ");
  t.test(`the task ${title} becomes a model`, { skip }, async (t) => {
    const folder = t.testdir();
    const channel = modality === "CT" ? "CT" : "MRI";
    for (const dataset of datasets) writeWeights(folder, dataset, { spacing, channel });
    const to = join(folder, "models", "task");
    await importTask(name, folder, engine(), { ...form, to });
    t.match((await modelsCheck(to, options)).text, /in order\n {2}It loads and runs/);
    const { manifest } = (await readModelFolder(to)).model!;
    t.match(manifest, {
      accepts: { modality: [modality], dimensions: "series" },
      inputs: [
        {
          orientation: "SAR",
          resampling: { grid: "ends", spacing_mm: [spacing, spacing, spacing], crop: "nonzero" },
        },
      ],
      tiling: { overlap, window: [8, 8, 8] },
      outputs: [
        {
          labels: datasets.flatMap((one) => [
            { label: `label_${one}_a` },
            { label: `label_${one}_b` },
          ]),
        },
      ],
    });
    t.equal(manifest.tiling!.mirror, undefined);
    t.strictSame(
      manifest.parts?.map(({ name: part, normalisation }) => [part, normalisation]),
      datasets.length === 1
        ? undefined
        : datasets.map((one) => [
            `dataset-${one}`,
            modality === "CT"
              ? { kind: "mean_std", mean: [one], std: [100] }
              : { kind: "z_score", over: "volume" },
          ]),
    );
  });
}

t.test(
  "codes and colours are those of the installed package, which is named",
  { skip },
  async (t) => {
    const folder = t.testdir();
    const labels = ["label_297_a", "label_297_b", "infiltrate"];
    writeWeights(folder, 297, { spacing: 3, labels });
    const infiltrate =
      'infiltrate,SCT,49755003,Altered,SCT,47351003,Infiltrate,SCT,840539006,COVID-19,SCT,39607008,Lung,,,,"1,2,3"';
    const own = writePackage(join(folder, "site-packages"), ["label_297_a"], [infiltrate]);
    const to = join(folder, "fast");
    const { text, data } = await importTask("total", folder, engine(), {
      fast: true,
      package: own,
      to,
    });
    const { manifest } = data as { manifest: Manifest };
    t.match(manifest.outputs[0], {
      labels: [
        {
          label: "label_297_a",
          code: { value: "1000", scheme: "SCT", meaning: "Organ, made up" },
          category: { value: "123037004" },
          laterality: { value: "7771000", meaning: "Left" },
          colour: [0, 20, 30],
        },
        { label: "label_297_b" },
        { label: "infiltrate", finding_site: { value: "39607008" } },
      ],
    });
    const [output] = manifest.outputs;
    t.notOk("laterality" in labelsOf(output!)[2]!, "a modifier that is no side");
    t.match(manifest.description, /TotalSegmentator 9\.9\.9, licence Apache 2\.0/);
    t.match(text, /has none for label_297_b/);
  },
);

t.test("tasks that are not covered are refused by what they do", { skip }, async (t) => {
  const folder = t.testdir();
  const refused = async (name: string, form: TaskOptions = {}) =>
    (await failure(importTask(name, folder, engine(), { ...form, to: join(folder, "m") }))).message;
  t.match(await refused("lung_vessels"), /lung_vessels cannot be imported\. It has a crop/);
  t.match(await refused("body"), /clean-up/);
  t.match(await refused("tissue_types"), /licence/);
  t.match(await refused("brain_aneurysm"), /all folds/);
  t.match(await refused("totall"), /Expected a task of total, total_v3/);
  t.match(await refused("breasts", { fast: true }), /no form "fast"/);
  t.match(await refused("total", { fast: true, fastest: true }), /found both/);
});

t.test("bad folders are refused, and nothing is written", { skip }, async (t) => {
  let place = 0;
  const refused = async (
    change: (folder: string, of: (dataset: number, given?: Partial<Weights>) => string) => unknown,
    more: TaskOptions = {},
  ) => {
    const folder = join(t.testdir({}), String(place++));
    mkdirSync(folder, { recursive: true });
    change(folder, (dataset, given) => writeWeights(folder, dataset, given));
    const to = join(folder, "model");
    const { code, message } = await failure(
      importTask("total_mr", folder, engine(), { to, ...more }),
    );
    t.equal(code, "bad_request");
    t.notOk(existsSync(to));
    return message;
  };
  const mr = { channel: "MRI" };
  t.match(
    await refused((_, of) => of(850, mr)),
    /Expected one folder Dataset851_.*found Dataset850/,
  );
  t.match(
    await refused((_, of) => [of(297, { spacing: 3 }), of(852, mr)]),
    /found Dataset297_test, Dataset852_test, networks of total --fast, total_mr --fast\./,
  );
  t.match(
    await refused((_, of) => [of(850, mr), of(851, { ...mr, graph: undefined })]),
    /found none of 851\..*\n.*export-nnunet > export_nnunet\.py\n.*--datasets 851 --folds 0/,
  );
  const graph = undefined;
  t.match(
    await refused((_, of) => [of(850, { ...mr, graph }), of(851, { ...mr, graph })]),
    /--datasets 850 851 --folds 0/,
  );
  t.match(
    await refused((_, of) => [
      of(850, mr),
      of(851, { ...mr, graph: undefined, folds: ["fold_1"] }),
    ]),
    /Expected fold_0 in/,
  );
  t.match(
    await refused((_, of) => [of(850, mr), of(851, mr), of(851, { ...mr, plans: "otherPlans" })]),
    /found .*otherPlans.*Choose with --plans/,
  );
  t.match(
    await refused((_, of) => [of(850, mr), of(851, { ...mr, spacing: 3 })]),
    /dataset-851: plans\.json: spacing: Expected 1\.5 mm .*found 3, 3, 3/,
  );
  t.match(
    await refused((_, of) => [of(850, mr), of(851, { ...mr, labels: ["label_850_a", "other"] })]),
    /The label "label_850_a" is also one of dataset-850/,
  );
  t.match(
    await refused((_, of) => [of(850, mr), of(851, mr)], { package: "/nowhere" }),
    /\/nowhere/,
  );
  const folder = t.testdir();
  writeWeights(folder, 297, { spacing: 3, channel: "MRI" });
  const to = join(folder, "model");
  const { message } = await failure(importTask("total", folder, engine(), { fast: true, to }));
  t.match(message, /Expected CT, which the task total, fast is for; found MRI/);
  const datasets = [291, 292, 293, 294, 295];
  const mixed = t.testdir({ mixed: {} });
  for (const one of datasets) writeWeights(mixed, one, one === 293 ? mr : {});
  const alone = await failure(importTask("total", mixed, engine(), { to: join(mixed, "model") }));
  t.match(alone.message, /dataset-293: dataset\.json: channel_names: Expected CT/);
  t.notMatch(alone.message, /same script/, "what follows of it is not said too");
});
