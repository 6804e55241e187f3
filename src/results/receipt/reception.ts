/**
 * A warning that is not of the image itself: how its series came through the gateway. No file of it
 * says that, so a receipt's word on it is believed where everything else is computed again.
 */
import type { Warning } from "../../images/image.js";

const RECEPTION_INTERRUPTED = "reception_interrupted";

export const interrupted = (what: string): Warning => {
  const message = `The reception of the series was interrupted: ${what}. Images of it may be missing. Compare their number with that of the source, and send the series again.`;
  return { code: "reception_interrupted", message };
};

/** Those of a receipt's warnings that say how the series came. */
export const ofReception = (warnings: readonly Warning[]): Warning[] =>
  warnings.filter(({ code }) => code === RECEPTION_INTERRUPTED);
