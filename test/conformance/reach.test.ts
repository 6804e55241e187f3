/**
 * SEG and SR of models with several inputs and steps, read by highdicom and held against references
 * from elsewhere.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import t from "tap";
import { createEngine } from "../../src/engine/engine.js";
import { decodeNpy, encodeNpy } from "../../src/engine/npy.js";
import { openInput } from "../../src/files/guarded-paths.js";
import type { Image } from "../../src/images/image.js";
import { infer } from "../../src/inference/infer-image.js";
import { readInput } from "../../src/inference/read-input.js";
import { folderReading, modelsCanary } from "../../src/commands/models/canary.js";
import { activeBrain, channelFolder } from "../support/channel-models.js";
import { ADDON, commandsAre, needs, PYTHON, pythonHas } from "../support/needs.js";
import { reference, writeReachModel } from "../support/reach-models.js";
import { modelsOf } from "../support/real-engine.js";
import { VOLUMES } from "../support/reference-volumes.js";
import { objectErrors } from "../support/validators.js";

const skip = needs(ADDON) || commandsAre("dciodvfy") || pythonHas("highdicom");

interface Case {
  model: string;
  /** The model in whose region it looks. */
  first?: string;
  /** Folder of the reference, and the input in it. */
  folder: string;
  input: string;
  /** Stored masks, one for each segment. */
  masks: string[];
  /**
   * By the meaning of a finding: the stored logits and their column, or the stored masks and the
   * cm2 of a pixel.
   */
  scores?: Record<string, [string, number]>;
  areas?: Record<string, [string, number]>;
  /** Of a case: how many objects of other members there are. */
  others?: number;
}

const CASES: Case[] = [
  {
    model: "several",
    folder: "inputs",
    input: "series",
    masks: ["bright", "soft"],
    scores: { "Pleural effusion": ["scores", 0], Pneumothorax: ["scores", 1] },
    // Pixels of 1.5 mm.
    areas: { Bone: ["bright", 0.0225], "Soft tissue": ["soft", 0.0225] },
  },
  ...["before", "after"].map((average) => ({
    model: `folds-${average}`,
    folder: "ensemble",
    input: "../inputs/series",
    masks: [`${average}-bright`, `${average}-soft`],
    scores: {
      "Pleural effusion": [`${average}-scores`, 0] as [string, number],
      Pneumothorax: [`${average}-scores`, 1] as [string, number],
    },
    areas: {
      Bone: [`${average}-bright`, 0.0225] as [string, number],
      "Soft tissue": [`${average}-soft`, 0.0225] as [string, number],
    },
  })),
  {
    model: "looker",
    first: "finder",
    folder: "cascade",
    input: "../inputs/series",
    masks: ["looker-bright", "looker-soft"],
    scores: { "Pleural effusion": ["looker-scores", 0], Pneumothorax: ["looker-scores", 1] },
    areas: { Bone: ["looker-bright", 0.0225], "Soft tissue": ["looker-soft", 0.0225] },
  },
  {
    model: "looker-3d",
    first: "finder-3d",
    folder: "cascade",
    input: "../inputs/series",
    masks: ["deep-bright", "deep-soft"],
  },
  {
    model: "together",
    folder: "roles",
    input: "brain",
    masks: ["bright", "soft"],
    scores: { "Pleural effusion": ["scores", 0], Pneumothorax: ["scores", 1] },
    others: 11,
  },
  { model: "views", folder: "roles", input: "breast", masks: [], others: 3 },
  { model: "instances", folder: "prototypes", input: "image.dcm", masks: ["nodule", "mass"] },
];

/** What SR and SEG say of an ensemble. */
const FOLDS_HASHES = "4923612a17b7, 43563ab1d68b, 3c45574d3ff6";
const FOLDS_TEXT: Record<string, string> = {
  "folds-before": `Mean of 3 networks, before the activation; SHA-256 ${FOLDS_HASHES}`,
  "folds-after": `Mean of 3 networks, after the activation; SHA-256 ${FOLDS_HASHES}`,
};

/** SOP Instance UIDs of a case's members beside the first. */
const othersOf = (image: Image): (string | undefined)[] =>
  (image.case?.members.slice(1) ?? []).flatMap(({ series, source }) =>
    series === undefined
      ? [source.sopInstanceUid]
      : series.slices.map((slice) => slice.sopInstanceUid),
  );

/** What SR and SEG say of the roles of a case. */
const ROOT = "1.2.826.0.1.3680043.10.1.60";
const ROLES_TEXT: Record<string, string> = {
  together: `Looked at flair (series ${ROOT}.2), t1 (series ${ROOT}.3), t2 (series ${ROOT}.4) together`,
  brain: "Looked at flair (series 1.2.3.20), t1 (series 1.2.3.21), t2 (series 1.2.3.22) together",
  views: `Looked at rcc (image ${ROOT}.70.1), lcc (image ${ROOT}.70.2), rmlo (image ${ROOT}.70.3), lmlo (image ${ROOT}.70.4) together`,
};

t.test("objects against references", { skip }, async (t) => {
  const place = mkdtempSync(join(tmpdir(), "radserve-reach-"));
  const engine = createEngine({ provider: "cpu" });
  t.teardown(async () => {
    await engine.close();
    rmSync(place, { recursive: true });
  });
  const list = [];
  const study = channelFolder(join(place, "study"), "nnunet-brain");
  // A network of three channels, whose masks nnU-Net itself made
  const labels = decodeNpy(readFileSync(join(VOLUMES, "nnunet-brain", "labels.npy")));
  const brain = [1, 2].map((label) => {
    const path = join(place, `label-${label}`);
    writeFileSync(
      `${path}.npy`,
      encodeNpy({ ...labels, data: labels.data.map((one) => Number(one === label)) }),
    );
    return path;
  });
  const cases: Case[] = [
    ...CASES,
    { model: "brain", folder: "volumes", input: study, masks: brain, others: 26 },
  ];
  for (const { model, first, folder, input, masks, scores = {}, areas = {}, others = 0 } of cases) {
    const inputPath = resolve(reference(folder), input);
    const opened = await openInput(inputPath, undefined);
    const models = join(place, model, "models");
    const made =
      model === "brain" ? await activeBrain(models, study, engine) : writeReachModel(models, model);
    const image = await readInput(opened, undefined, await folderReading(made));
    if (first !== undefined)
      await modelsCanary(writeReachModel(models, first), image, { engine, providers: ["cpu"] });
    if (model !== "brain") await modelsCanary(made, image, { engine, providers: ["cpu"] });
    const set = await modelsOf(models, engine);
    const outputFolder = join(place, model, "out");
    mkdirSync(outputFolder);
    const roots = { input: undefined, output: undefined };
    const task = { requestId: "test", priority: "routine" as const, cancelId: 1, roots };
    const answer = await infer(
      { ...task, inputPath, outputFolder },
      { engine, models: set.entries },
    );
    await set.close();
    opened.close();
    const paths = answer.models.find(({ name }) => name === model)!.outputs.map(({ path }) => path);
    const finder = set.entries.find(({ name }) => name === first);
    for (const path of paths.filter((one) => one.endsWith(".dcm")))
      t.strictSame(objectErrors(path), [], basename(path));
    const of = (kind: string) => paths.find((path) => path.endsWith(`.${kind}.dcm`)) ?? null;
    const stored = (name: string) => resolve(reference(folder), `${name}.npy`);
    const storedIn = (all: Record<string, [string, number]>) =>
      Object.fromEntries(Object.entries(all).map(([name, [file, n]]) => [name, [stored(file), n]]));
    t.equal(othersOf(image).length, others, model);
    list.push({
      seg: of("seg"),
      sr: of("sr"),
      masks: masks.map(stored),
      others: othersOf(image),
      sources: image.series?.slices.map(({ sopInstanceUid }) => sopInstanceUid) ?? [
        image.source.sopInstanceUid,
      ],
      scores: storedIn(scores),
      areas: storedIn(areas),
      parameters:
        finder === undefined
          ? (FOLDS_TEXT[model] ?? ROLES_TEXT[model] ?? null)
          : `Looked at bright as found by ${finder.name} 1.0.0, with a margin of 2 mm; SHA-256 ${finder.sha256.slice(0, 12)}`,
    });
  }
  const file = join(place, "list.json");
  writeFileSync(file, JSON.stringify(list));
  const { stdout, stderr } = spawnSync(PYTHON, ["test/conformance/reach.py", file], {
    encoding: "utf8",
  });
  const objects = list.reduce(
    (sum, { seg, sr }) => sum + Number(seg !== null) + Number(sr !== null),
    0,
  );
  t.equal(objects, 2 * cases.length - 1, "all but the views have masks");
  t.equal(stdout, `${objects}\n`, stderr);
});
