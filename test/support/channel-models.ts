/**
 * Studies for networks of several channels, and what says which series is which of their channels.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { withImageFile } from "../../src/commands/files.js";
import type { Engine } from "../../src/engine/engine.js";
import type { Manifest } from "../../src/manifest/manifest.js";
import { modelsImport } from "../../src/features/import/import.js";
import { folderReading, modelsCanary } from "../../src/commands/models/canary.js";
import { sct, TISSUE } from "./model-parts.js";
import { seriesFiles, VOLUMES, writeFolder } from "./reference-volumes.js";

export type ChannelsOf =
  "nnunet-brain" | "nnunet-prostate" | "nnunet-petct" | "channels-lowres" | "channels-fullres";

const described = (text: string, ...others: string[]) => ({
  rules: [
    {
      tag: "SeriesDescription",
      contains: [text],
      ...(others.length === 0 ? {} : { not_contains: others }),
    },
  ],
});

const CASCADE = { FLAIR: described("flair"), T2: described("t2", "flair") };

const ROLES: Readonly<Record<ChannelsOf, Record<string, object>>> = {
  "nnunet-brain": { FLAIR: described("flair"), T1: described("t1"), T2: described("t2", "flair") },
  "nnunet-prostate": { T2: described("t2"), ADC: described("adc") },
  "channels-lowres": CASCADE,
  "channels-fullres": CASCADE,
  "nnunet-petct": {
    CT: { rules: [{ tag: "Modality", in: ["CT"] }] },
    PET: { rules: [{ tag: "Modality", in: ["PT"] }], values: { kind: "suv_bw" } },
  },
};

const DESCRIPTIONS: Readonly<Record<ChannelsOf, string[]>> = {
  "nnunet-brain": ["Ax T2 FLAIR", "Ax T1 SE", "Ax T2 TSE"],
  "nnunet-prostate": ["T2 tra", "ep2d ADC"],
  "channels-lowres": ["Ax T2 FLAIR", "Ax T2 TSE"],
  "channels-fullres": ["Ax T2 FLAIR", "Ax T2 TSE"],
  "nnunet-petct": ["CT WB"],
};

/**
 * What SUV by body weight is computed from, so that it is stored * 2.5 * 70 * 1000 / 350e6
 * (reference.py).
 */
const PET = {
  RescaleSlope: "2.5",
  Units: "BQML",
  CorrectedImage: "ATTN\\DECY",
  DecayCorrection: "ADMIN",
  PatientWeight: "70",
  SeriesDescription: "PET WB",
  RadiopharmaceuticalInformationSequence: [{ RadionuclideTotalDose: "350000000" }],
};

/** The study of a network: all its series in one folder. */
export function channelFolder(folder: string, network: ChannelsOf): string {
  const modality = network === "nnunet-petct" ? "CT" : "MR";
  const series = DESCRIPTIONS[network].map((text, channel) =>
    seriesFiles(network, {
      modality,
      channel,
      number: 20 + channel,
      attributes: { SeriesDescription: text },
    }),
  );
  if (network === "nnunet-petct")
    series.push(
      seriesFiles(network, {
        modality: "PT",
        array: "other",
        spacing: "other-spacing",
        origin: "other-origin",
        number: 30,
        attributes: PET,
      }),
    );
  return writeFolder(folder, ...series);
}

/** The file of `models import --roles` for a network. */
export function rolesFile(folder: string, network: ChannelsOf): string {
  const path = join(folder, `${network}-roles.json`);
  writeFileSync(path, JSON.stringify(ROLES[network]));
  return path;
}

const CODES = [sct("79654002", "Edema"), sct("108369006", "Neoplasm")];

/**
 * Imports the brain network into a folder of models, and makes it final and active, with a canary.
 * Gives its folder.
 */
export async function activeBrain(models: string, study: string, engine: Engine): Promise<string> {
  const to = join(models, "brain");
  mkdirSync(models, { recursive: true });
  await modelsImport(join(VOLUMES, "nnunet-brain"), engine, {
    orientation: "SPL",
    mirror: "0,2",
    modality: "MR",
    roles: rolesFile(models, "nnunet-brain"),
    to,
  });
  const path = join(to, "model.json");
  const manifest = JSON.parse(readFileSync(path, "utf8")) as Manifest;
  const [output] = manifest.outputs;
  if (output?.kind !== "segmentation") throw new Error("The network segments");
  output.labels = output.labels.map((label, i) => ({
    ...label,
    code: CODES[i]!,
    category: TISSUE,
  }));
  const final = {
    stage: "final",
    release: "active",
    results: { outputs: ["json", "png", "sr", "seg"] },
  };
  writeFileSync(path, JSON.stringify({ ...manifest, ...final }));
  const caseOf = (await folderReading(to)).caseOf!;
  await withImageFile(study, (image) => modelsCanary(to, image, { engine, providers: ["cpu"] }), {
    caseOf,
  });
  return to;
}
