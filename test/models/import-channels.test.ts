/**
 * Networks of nnU-Net with several channels are imported with roles, and come to the probabilities
 * and labels of nnU-Net itself: test/reference/volumes/reference.py has made those once.
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import t, { type Test } from "tap";
import { withImageFile } from "../../src/commands/files.js";
import { createEngine } from "../../src/engine/engine.js";
import { imageInputs, type ImageInput, type Manifest } from "../../src/manifest/manifest.js";
import { modelsCheck } from "../../src/commands/models/check.js";
import { modelsTry } from "../../src/commands/models/try.js";
import { modelsImport, type ImportOptions } from "../../src/features/import/import.js";
import { folderReading, modelsCanary } from "../../src/commands/models/canary.js";
import { ADDON, needs } from "../support/needs.js";
import { channelFolder, rolesFile, type ChannelsOf } from "../support/channel-models.js";
import { VOLUMES } from "../support/reference-volumes.js";

/** Rounding over a network and its resampling, of numbers from 0 to 1. */
const ROUNDING = 2e-5;

/** Under other work each window waits for its turn. */
t.setTimeout(900_000);

type Change = (manifest: Manifest) => void;

interface Case {
  network: ChannelsOf;
  choices: ImportOptions;
  /** What has to show if it is left out: a comparison that passes without it shows nothing. */
  without: Record<string, Change>;
}

const input = (manifest: Manifest): ImageInput => imageInputs(manifest)[0]!;
const unmasked: Change = (manifest) => {
  for (const { normalisation } of input(manifest).roles!)
    if (normalisation?.kind === "z_score") delete normalisation.of;
};
const exchanged: Change = (manifest) => {
  const [first, second] = [manifest.roles![0]!, manifest.roles![1]!];
  [first.rules, second.rules] = [second.rules, first.rules];
};

const MR = { orientation: "SPL", mirror: "none", modality: "MR" };
const BRAIN = { ...MR, mirror: "0,2" };
const PETCT = { ...MR, modality: "CT,PT" };

const CASES: Case[] = [
  {
    network: "nnunet-brain",
    choices: BRAIN,
    without: {
      cropping: (manifest) => {
        unmasked(manifest);
        input(manifest).resampling!.crop = "none";
      },
      "the mask of the normalisation": unmasked,
      mirroring: (manifest) => delete manifest.tiling!.mirror,
      "the order of the channels": exchanged,
    },
  },
  {
    network: "nnunet-prostate",
    choices: MR,
    without: { "the order of the channels": exchanged },
  },
  { network: "channels-lowres", choices: MR, without: {} },
  {
    network: "channels-fullres",
    choices: { ...MR, previous: "channels-lowres" },
    without: {
      "the mask of the normalisation": unmasked,
      "the order of the axes": (manifest) => (input(manifest).orientation = "SPL"),
    },
  },
  {
    network: "nnunet-petct",
    choices: PETCT,
    without: {
      "standardised uptake values": (manifest) =>
        (input(manifest).roles![1]!.values = { kind: "modality" }),
      "clipped Hounsfield units": (manifest) => delete input(manifest).roles![0]!.clip,
    },
  },
];

t.test("networks of several channels", { skip: needs(ADDON) }, async (t) => {
  const engine = createEngine({ provider: "cpu" });
  const options = { engine, providers: ["cpu"] as const };
  t.teardown(() => engine.close());
  const imported = async (t: Test, network: ChannelsOf, choices: ImportOptions) => {
    const to = join(t.testdirName, network);
    mkdirSync(t.testdirName, { recursive: true });
    const roles = rolesFile(t.testdirName, network);
    const { data } = await modelsImport(join(VOLUMES, network), engine, { ...choices, roles, to });
    return { to, manifest: (data as { manifest: Manifest }).manifest };
  };
  const against = async (folder: string, source: string, network: string, what: string) => {
    const { caseOf } = await folderReading(folder);
    const expect = join(VOLUMES, network, `${what}.npy`);
    const tried = await withImageFile(
      source,
      (image) => modelsTry(folder, image, { ...options, expect }),
      {
        caseOf: caseOf!,
      },
    );
    const { comparison } = tried.data as { comparison: { what: string; maxAbsolute: number } };
    t.equal(comparison.what, what);
    return { ...comparison, text: tried.text, exitCode: tried.exitCode };
  };

  for (const { network, choices, without } of CASES)
    await t.test(`${network} comes to what was stored`, async (t) => {
      const source = channelFolder(join(t.testdir(), "study"), network);
      if (choices.previous !== undefined) await imported(t, "channels-lowres", MR);
      const { to } = await imported(t, network, choices);
      const probabilities = await against(to, source, network, "probabilities");
      t.ok(probabilities.maxAbsolute < ROUNDING, probabilities.text);
      const labels = await against(to, source, network, "labels");
      t.equal(labels.exitCode, 0, labels.text);
      t.comment(probabilities.text, labels.text);
      for (const [step, change] of Object.entries(without)) {
        const other = join(t.testdirName, `without-${Object.keys(without).indexOf(step)}`);
        cpSync(to, other, { recursive: true });
        const manifest = JSON.parse(readFileSync(join(other, "model.json"), "utf8")) as Manifest;
        manifest.name = basename(other);
        change(manifest);
        writeFileSync(join(other, "model.json"), JSON.stringify(manifest));
        const { maxAbsolute, text } = await against(other, source, network, "probabilities");
        t.ok(maxAbsolute > 50 * ROUNDING, `without ${step} it shows: ${text}`);
      }
    });

  await t.test("a canary is made and held, and check knows the model", async (t) => {
    const source = channelFolder(join(t.testdir(), "study"), "nnunet-brain");
    const { to } = await imported(t, "nnunet-brain", BRAIN);
    const { caseOf } = await folderReading(to);
    const made = await withImageFile(source, (image) => modelsCanary(to, image, options), {
      caseOf: caseOf!,
    });
    t.match(made.text, /Entered in model\.json/);
    t.match((await modelsCheck(to, options)).text, /in order\n {2}It loads and its canary passes/);
  });

  await t.test("without --roles the rules are left open and named", async (t) => {
    const to = join(t.testdir(), "open");
    const { text, data } = await modelsImport(join(VOLUMES, "nnunet-petct"), engine, {
      ...PETCT,
      to,
    });
    t.match(data, {
      manifest: {
        roles: [
          { role: "ct", rules: null },
          { role: "pet", rules: null },
        ],
        inputs: [{ roles: [{ role: "ct" }, { role: "pet", values: null }] }],
      },
    });
    for (const line of [
      /roles\[0\]\.rules: By which attributes the series of "ct" is known/,
      /roles\[1\]\.rules: .*"pet"/,
      /inputs\[0\]\.roles\[1\]\.values: What the voxels of "pet" were in training: .*suv_bw/,
    ])
      t.match(text, line);
    const checked = await modelsCheck(to, options);
    t.equal(checked.exitCode, 1);
    t.match(checked.text, /roles\[0\]\.rules: .*is to be filled in/);
  });

  await t.test("a file of roles that does not fit the channels is refused by name", async (t) => {
    const folder = t.testdir();
    const refused = async (content: unknown) => {
      const roles = join(folder, "roles.json");
      writeFileSync(roles, JSON.stringify(content));
      return modelsImport(join(VOLUMES, "nnunet-brain"), engine, {
        ...BRAIN,
        roles,
        to: join(folder, "none"),
      }).catch((error: unknown) => String(error));
    };
    const rules = [{ tag: "SeriesDescription", contains: ["x"] }];
    t.match(
      await refused({ FLAIR: { rules }, T1: { rules } }),
      /--roles: Expected the channel "T2" too/,
    );
    const named = { FLAIR: { rules }, T1: { rules }, T2: { rules } };
    t.match(
      await refused({ ...named, T1ce: { rules } }),
      /--roles: No channel is called T1ce; channels are FLAIR, T1, T2/,
    );
    t.match(await refused({ ...named, T2: { rule: rules } }), /file of --roles is not as expected/);
    const one = modelsImport(join(VOLUMES, "nnunet-3d"), engine, {
      orientation: "SPL",
      mirror: "none",
      roles: join(folder, "roles.json"),
      to: join(folder, "none"),
    });
    await t.rejects(one, { message: /one channel, which is one series/ });
  });
});
