/**
 * A MONAI bundle's configs/inference.json (or .yaml) and configs/metadata.json as parts of a manifest, as far as they are
 * declarative: the steps of monai-steps.ts with all their arguments, numbers, and references (@name). Expressions ($...)
 * are not run; where one decides what goes in or comes out, it is a gap.
 */
import { z } from "zod";
import { BundleConfig } from "./bundle-config.js";
import { isOrientation, type Gaps, type ImportChoices, type Imported } from "./gaps.js";
import { parsedAs } from "./json.js";
import { PARTS, runStep, type Chain } from "./monai-steps.js";

const dataFormat = <T extends z.ZodRawShape>(more: T) =>
  z.record(z.string(), z.object({ num_channels: z.int(), ...more }));

const metadataSchema = z.object({
  version: z.string().optional(),
  name: z.string().optional(),
  description: z.string().optional(),
  authors: z.string().optional(),
  intended_use: z.string().optional(),
  network_data_format: z.object({
    inputs: dataFormat({ modality: z.string().optional() }),
    outputs: dataFormat({ channel_def: z.record(z.string(), z.string()).optional() }),
  }),
});

export interface MonaiFiles {
  /** The text of inference.json or inference.yaml, with its name. */
  inference: { file: string; text: string };
  metadata: unknown;
}

/** @throws RadserveError bad_request for files that are not those of a bundle */
export function importMonai(files: MonaiFiles, choices: ImportChoices, gaps: Gaps): Imported {
  const config = new BundleConfig(files.inference.file, files.inference.text);
  const metadata = parsedAs(metadataSchema, files.metadata, "metadata.json");
  const { inputs, outputs } = metadata.network_data_format;
  const [input, ...moreInputs] = Object.values(inputs);
  const [output, ...moreOutputs] = Object.values(outputs);
  if (moreInputs.length > 0 || input?.num_channels !== 1)
    gaps.refuse("metadata.json: inputs", "Expected one image of one channel; several are not offered");
  if (output === undefined || moreOutputs.length > 0)
    gaps.refuse("metadata.json: outputs", `Expected one, found ${Object.keys(outputs).join(", ") || "none"}`);
  for (const option of ["configuration", "mirror", "previous", "roles"] as const)
    if (choices[option] !== undefined) gaps.refuse(`--${option}`, "It is for networks of nnU-Net alone");
  const chain: Chain = {};
  for (const [path, known] of PARTS)
    if (path in config.root || (path !== "dataset" && path !== "evaluator"))
      runStep(config.root[path], known, { chain, config, path, gaps });
  const { spacing, clip, normalisation = { kind: "none" }, tiling } = chain;
  const modality = choices.modality ?? input?.modality;
  return {
    accepts: accepts(modality, gaps),
    input: {
      layout: "NCDHW",
      size: { kind: "source" },
      ...{
        fit: spacing === undefined ? "none" : "stretch",
        interpolation: spacing === undefined ? "linear" : "spline",
      },
      values: { kind: "modality" },
      monochrome1: "refuse",
      channels: "grayscale",
      colour_source: "refuse",
      ...(clip === undefined ? {} : { clip: clip.range }),
      normalisation,
      background: modality === "CT" ? -1024 : 0,
      ...(spacing === undefined
        ? {}
        : {
            resampling: {
              ...{ grid: "first_voxel", spacing_mm: spacing, order: 1, order_back: 1, keep_range: false },
              ...{
                clip: clip?.after === true ? "after" : "before",
                crop: "none",
                activation: chain.activation?.inverted === false ? "before" : "after",
              },
            },
          }),
      orientation: orientationOf(chain, choices.orientation, config.file, gaps),
    },
    output: outputOf(
      output?.num_channels ?? 0,
      output?.channel_def,
      chain,
      gaps,
      `${config.file}: postprocessing`,
    ),
    tiling,
    about: {
      version: /^[0-9A-Za-z.+-]{1,64}$/.test(metadata.version ?? "") ? (metadata.version ?? "1") : "1",
      manufacturer: (metadata.authors ?? "").slice(0, 64) || "not stated",
      description: metadata.description ?? metadata.name ?? "A MONAI bundle",
      intended_use: metadata.intended_use ?? "Not stated in metadata.json.",
    },
  };
}

/** Modalities in the words of metadata.json, where they are others than DICOM's. */
const MODALITIES = new Map([["MRI", "MR"]]);

function accepts(modality: string | undefined, gaps: Gaps): Record<string, unknown> {
  const found = MODALITIES.get(modality ?? "") ?? modality;
  if (found === undefined || !/^[A-Z0-9_ ]{1,16}$/.test(found))
    gaps.refuse(
      "metadata.json: modality",
      `"${modality ?? "none"}" is no modality of DICOM: say it with --modality`,
    );
  return {
    formats: ["dicom"],
    modality: [found ?? "?"],
    dimensions: "series",
    ...(found === "CT" ? { units: ["HU"] } : {}),
  };
}

/** The axes that the network was trained with: Orientationd says it, or a person does. */
function orientationOf(
  { orientation: turned }: Chain,
  said: string | undefined,
  file: string,
  gaps: Gaps,
): string | undefined {
  if (turned !== undefined && said !== undefined && said !== turned)
    gaps.refuse("--orientation", `Orientationd turns images to ${turned}: expected no other, found ${said}`);
  const unread = gaps.have(/: preprocessing(\.Compose|\.\d+\.Orientationd|$)/);
  if (turned === undefined && !isOrientation(said) && !unread)
    gaps.refuse(
      `${file}: preprocessing`,
      "There is no Orientationd: images are taken as they lie in their files, and the bundle does not say how the training images lay. Say it with --orientation, for the network's three sides: mostly LPS, LAS or RAS, the codes of nibabel.aff2axcodes of a training image",
    );
  return turned ?? said;
}

function outputOf(
  channels: number,
  names: Record<string, string> | undefined,
  { activation, decided, inverted }: Chain,
  gaps: Gaps,
  place: string,
): Record<string, unknown> {
  const all = Array.from({ length: channels }, (_, channel) => names?.[channel]);
  const named = !all.includes(undefined) && Object.keys(names ?? {}).length === channels;
  if (!named)
    gaps.refuse(
      "metadata.json: channel_def",
      `Expected a name for each of ${channels} channels, found ${Object.keys(names ?? {}).length}`,
    );
  if (inverted !== true)
    gaps.note(place, "There is no Invertd: results go back to the source's grid all the same");
  const unread = gaps.have(/: postprocessing/);
  const labels = all.map((label = "?") => ({ label }));
  const common = { kind: "segmentation", postprocess: [], measurements: ["volume"] };
  if (activation?.kind === "sigmoid") {
    const threshold = typeof decided === "object" ? decided.threshold : undefined;
    if (threshold === undefined)
      gaps.refuse(
        place,
        "There is no AsDiscreted, so that nothing says from which probability on a label is present",
      );
    return { ...common, activation: "sigmoid", labels: labels.map(({ label }) => ({ label, threshold })) };
  }
  if (decided === undefined && activation === undefined && !unread)
    gaps.refuse(
      place,
      "There is neither Activationsd nor AsDiscreted, so that nothing says what the channels are",
    );
  else if (decided === undefined)
    gaps.note(place, "There is no AsDiscreted: the label with the highest probability counts");
  if (named && !/background|^bg$/i.test(all[0] ?? ""))
    gaps.refuse(
      "metadata.json: channel_def.0",
      `Expected "background": with softmax and argmax the first channel is none of the labels; found "${all[0] ?? ""}"`,
    );
  return { ...common, activation: activation?.kind ?? "argmax", labels: labels.slice(1) };
}
