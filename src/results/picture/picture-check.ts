/**
 * The last look at the picture before it is written: what was composed is compared with the masks,
 * by coordinates alone. A mask that was drawn flipped, shifted or from another slice is caught.
 */
import {
  checkPanel,
  type PanelFault,
  type PanelLayers,
  type Picture,
} from "../../addon/picture.js";
import { errors } from "../../base/errors.js";

/**
 * Each pixel that was changed has to lie within one pixel of the mask, and the mask within one
 * pixel of what was changed.
 * @param panels those that hold masks and no other marks
 * @throws RadserveError output_invalid
 */
export function checkPicture(picture: Picture, panels: readonly PanelLayers[]): void {
  for (const panel of panels) {
    const fault = checkPanel(picture, panel);
    if (fault !== undefined)
      throw errors.output_invalid(
        `The overlay failed its check before it was written: what is drawn ${FAULTS[fault]}. Nothing of this model was written; please report this fault.`,
        { output: "png" },
      );
  }
}

const FAULTS: Record<PanelFault, string> = {
  beside: "lies beside the mask",
  left_out: "leaves parts of the mask out",
};
