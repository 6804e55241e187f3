/**
 * A folder that nnU-Net v2 trains from (its documentation/dataset_format.md): a case for each
 * result, whose label map lies in the grid of its image.
 */
import { isDeepStrictEqual } from "node:util";
import { errors, type RadserveError } from "../../base/errors.js";
import type { SourceIndex } from "../../commands/source-index.js";
import { sameGrid } from "../../images/grids.js";
import type { Image } from "../../images/image.js";
import { labelMap, type MaskStack } from "../../results/nifti/masks.js";
import { masksOf } from "../../results/nifti/of-result.js";
import { imageVolume } from "../../results/nifti/volume.js";
import type { ReceiptModel } from "../../results/receipt/receipt.js";
import type { ExportFolder } from "./folder.js";
import {
  labelsIn,
  modelsWithMasks,
  withImageOf,
  type Exporter,
  type ResultToExport,
} from "./nifti.js";

/** What all cases of a dataset have in common. */
interface DatasetFacts {
  channel_names: Record<string, string>;
  labels: Record<string, number>;
}

interface Channel {
  name: string;
  image: Image;
}

const refused = (reason: string, message: string): RadserveError =>
  errors.bad_request(message, { reason });

export class NnunetDataset implements Exporter {
  #facts: DatasetFacts | undefined;
  #cases = 0;

  constructor(
    private readonly folder: ExportFolder,
    private readonly sources: SourceIndex,
    private readonly options: { model?: string },
  ) {}

  async add(result: ResultToExport): Promise<string[]> {
    const { receipt, name } = result;
    const [model, other] = modelsWithMasks(receipt, this.options.model);
    if (model === undefined || other !== undefined)
      throw refused(
        "several_models",
        `Expected masks of one model, because a case has one label map; found those of several. Choose one, for example --model ${model?.name}.`,
      );
    const stack = await masksOf(result, model.name);
    const remarks: string[] = [];
    await withImageOf(result, this.sources, async (image) => {
      const channels = channelsOf(image, model);
      const facts = {
        channel_names: Object.fromEntries(channels.map((one, i) => [String(i), one.name])),
        labels: uniqueLabels(stack),
      };
      this.#requireAlike(facts);
      const volumes = channels.map((one) => imageVolume(one.image));
      for (const { grid } of volumes)
        if (!sameGrid(grid, stack.grid))
          throw refused(
            "other_grid",
            "Expected image and masks in one grid, as nnU-Net needs them; found two. Have the masks written in the source's grid (segment_grid of the manifest), or resample what --nifti writes.",
          );
      await this.folder.writeVolume(`labelsTr/${name}.nii.gz`, labelMap(stack));
      for (const [i, volume] of volumes.entries()) {
        remarks.push(...volume.remarks);
        const file = `imagesTr/${name}_${String(i).padStart(4, "0")}.nii.gz`;
        await this.folder.writeVolume(file, volume);
      }
      this.#facts = facts;
    });
    this.#cases += 1;
    return remarks;
  }

  /** @throws RadserveError bad_request for a case that is not like those before */
  #requireAlike(facts: DatasetFacts): void {
    const before = this.#facts ?? facts;
    for (const field of ["labels", "channel_names"] as const)
      if (!isDeepStrictEqual(facts[field], before[field]))
        throw refused(
          `other_${field}`,
          `Expected the ${field === "labels" ? "labels" : "channels"} ${textOf(before[field])}, which the cases before have; found ${textOf(facts[field])}. Export them to a folder of their own.`,
        );
  }

  async finish(): Promise<void> {
    if (this.#cases === 0 || this.#facts === undefined) return;
    await this.folder.writeJson("dataset.json", {
      ...this.#facts,
      numTraining: this.#cases,
      file_ending: ".nii.gz",
    });
  }
}

const textOf = (named: Record<string, string | number>): string =>
  Object.entries(named)
    .map(([key, value]) => `${key} ${value}`)
    .join(", ");

/** nnU-Net knows by the name CT that values are HU; it takes any other name for another modality. */
function channelsOf(image: Image, { roles = [] }: ReceiptModel): Channel[] {
  const nameOf = ({ source: { modality = "image" } }: Image, role = modality) =>
    modality === "CT" ? modality : role;
  const members = image.case?.members;
  if (members === undefined || roles.length === 0) {
    const leading = members?.[0] ?? image;
    return [{ name: nameOf(leading), image: leading }];
  }
  return roles.map(({ role, series_instance_uid: series, sop_instance_uid: object }) => {
    const member = members.find(
      ({ source }) =>
        source.seriesInstanceUid === series &&
        (object === undefined || source.sopInstanceUid === object),
    );
    if (member === undefined)
      throw errors.result_changed("Expected the series that the receipt names as roles.");
    return { name: nameOf(member, role), image: member };
  });
}

/** @throws RadserveError bad_request for two segments of one label */
function uniqueLabels(stack: MaskStack): Record<string, number> {
  const labels = labelsIn(stack);
  if (Object.keys(labels).length === stack.segments.length + 1) return labels;
  throw refused(
    "equal_labels",
    "Expected a name of its own for each label (and none called background); found two that are equal. Use --nifti, whose masks have numbers.",
  );
}
