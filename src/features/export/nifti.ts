/** Each result as its image, and the masks of each model, in files of its own. */
import { errors } from "../../base/errors.js";
import { withImageFile } from "../../commands/files.js";
import type { SourceIndex } from "../../commands/source-index.js";
import { sameGrid } from "../../images/grids.js";
import { ANY_STACK, type Image } from "../../images/image.js";
import { labelMap, segmentVolume, type MaskStack } from "../../results/nifti/masks.js";
import { masksOf, segmentingModels } from "../../results/nifti/of-result.js";
import { imageVolume } from "../../results/nifti/volume.js";
import type { Receipt, ReceiptModel } from "../../results/receipt/receipt.js";
import type { Trust } from "../../results/receipt/seal.js";
import { requireImage } from "../../results/receipt/unchanged.js";
import { inFileName, type ExportFolder } from "./folder.js";

export interface ResultToExport {
  receipt: Receipt;
  trust: Trust;
  receiptPath: string;
  /** In which the receipt lies. */
  folder: string;
  /** The beginning of the names of its files. */
  name: string;
}

export interface Exporter {
  /** @returns remarks for people @throws RadserveError where the result cannot be written whole */
  add(result: ResultToExport): Promise<string[]>;
  /** Writes what tells of all results. */
  finish(): Promise<void>;
}

/** @throws RadserveError file_not_found where no model that is meant wrote masks */
export function modelsWithMasks(receipt: Receipt, wanted: string | undefined): ReceiptModel[] {
  const all = segmentingModels(receipt);
  const found = wanted === undefined ? all : all.filter(({ name }) => name === wanted);
  if (found.length > 0) return found;
  throw errors.file_not_found(
    `Expected a result with masks${wanted === undefined ? "" : ` of the model ${wanted}`}; ${all.length === 0 ? "it has no segmentation. Send the image again, with `seg` among the outputs" : `it has those of ${all.map(({ name }) => name).join(", ")}`}.`,
  );
}

/**
 * Works on the image of a result, which is the receipt's.
 * @throws RadserveError input_not_found, result_changed; what reading throws
 */
export async function withImageOf<T>(
  { receipt, folder }: ResultToExport,
  sources: SourceIndex,
  use: (image: Image) => Promise<T>,
): Promise<T> {
  const { source } = receipt;
  const at = await sources.find(receipt, folder);
  const { series_instance_uid: uid, case: members, group } = source;
  const choice = { uid, members, grouped: group !== undefined, tolerance: ANY_STACK };
  return withImageFile(
    at,
    async (image) => {
      await requireImage(image, source);
      return use(image);
    },
    choice,
  );
}

/** A label map has numbers alone: 0 is the background. */
export const labelsIn = ({ segments }: MaskStack): Record<string, number> =>
  Object.fromEntries([
    ["background", 0],
    ...segments.map(({ number, label }): [string, number] => [label, number]),
  ]);

export class NiftiFiles implements Exporter {
  constructor(
    private readonly folder: ExportFolder,
    private readonly sources: SourceIndex,
    private readonly options: { model?: string; image: boolean; separate?: boolean },
  ) {}

  async add(result: ResultToExport): Promise<string[]> {
    const { receipt, name } = result;
    const stacks: [string, MaskStack][] = [];
    for (const { name: model } of modelsWithMasks(receipt, this.options.model))
      stacks.push([model, await masksOf(result, model)]);
    const remarks: string[] = [];
    if (this.options.image)
      await withImageOf(result, this.sources, async (image) => {
        const members = image.case?.members ?? [image];
        for (const [at, member] of members.entries()) {
          const volume = imageVolume(member);
          remarks.push(...volume.remarks);
          const others = stacks.filter(([, { grid }]) => !sameGrid(grid, volume.grid));
          if (at === 0)
            for (const [model] of others)
              remarks.push(`The masks of ${model} lie in a grid of their own, not the image's.`);
          await this.folder.writeVolume(`${name}${at === 0 ? "" : `.${at + 1}`}.nii.gz`, volume);
        }
      });
    for (const [model, stack] of stacks) await this.#writeMasks(`${name}.${model}`, stack);
    return remarks;
  }

  finish = () => Promise.resolve();

  async #writeMasks(name: string, stack: MaskStack): Promise<void> {
    if (this.options.separate !== true) {
      await this.folder.writeVolume(`${name}.seg.nii.gz`, labelMap(stack));
      await this.folder.writeJson(`${name}.seg.json`, { labels: labelsIn(stack) });
      return;
    }
    for (const segment of stack.segments) {
      const file = `${name}.${segment.number}-${inFileName(segment.label)}.seg.nii.gz`;
      await this.folder.writeVolume(file, segmentVolume(stack, segment));
    }
  }
}
