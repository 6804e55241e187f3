/** The segmentations of a result, for who makes volumes of them. */
import { errors } from "../../base/errors.js";
import { readImage } from "../../images/read-image.js";
import { SEGMENTATION } from "../dicom/objects/seg.js";
import { LABEL_MAP_SEGMENTATION } from "../dicom/segments.js";
import type { OutputFile, Receipt, ReceiptModel } from "../receipt/receipt.js";
import { withFileOf } from "../receipt/unchanged.js";
import { maskStack, type MaskStack } from "./masks.js";

const writtenBy = ({ outputs }: ReceiptModel): OutputFile | undefined =>
  outputs.find(({ sop_class_uid: uid }) => uid === SEGMENTATION || uid === LABEL_MAP_SEGMENTATION);

/** The models that wrote one. */
export const segmentingModels = ({ models }: Receipt): ReceiptModel[] =>
  models.filter((model) => writtenBy(model) !== undefined);

/** @throws RadserveError file_not_found for a model that wrote none */
export function segmentationOf({ models }: Receipt, name: string): OutputFile {
  const model = models.find((one) => one.name === name);
  const file = model && writtenBy(model);
  if (file !== undefined) return file;
  throw errors.file_not_found(
    "Expected a model of the receipt that wrote a segmentation; this one did not. Ask for `seg` among the outputs.",
  );
}

/**
 * @param result the folder in which the receipt lies
 * @throws RadserveError file_not_found, result_changed; what reading and `maskStack` throw
 */
export async function masksOf(
  result: { folder: string; receipt: Receipt },
  model: string,
): Promise<MaskStack> {
  const file = segmentationOf(result.receipt, model);
  return withFileOf(result, file, async (bytes) => maskStack(await readImage(bytes)));
}
