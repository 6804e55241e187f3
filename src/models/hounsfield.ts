/**
 * Finds values that cannot be Hounsfield units. A file can say that its values are HU while they
 * are not, and a model would measure a body that does not exist. So a frame is refused for every
 * model that takes HU
 *
 * - if its JPEG 2000 codestream, or the bits above BitsStored, hold signed values while
 *   PixelRepresentation is 0;
 * - if a value, Pixel Padding left out, lies outside -32,768 to 32,767: the extended scales of
 *   scanners end before. The least value that the format can hold is left out too: it often fills
 *   what lies outside the scanned circle.
 *
 * And there is a caveat if no value is below 0 although some are above 900, as where
 * RescaleIntercept was lost: bodies with dense bone or metal have fat or air beside it, but a
 * cut-out of bone alone would be such a one.
 */
import { errors, type RadserveError } from "../base/errors.js";
import type { Image, Warning } from "../images/image.js";
import { extremesOfWords, modalityValue, someValue, storedRange } from "../images/stored-values.js";
import { imageInputs, type Manifest } from "../manifest/manifest.js";

const LEAST_HU = -32_768;
const MOST_HU = 32_767;
/**
 * Soft tissue, fat, lung and air lie below; without their RescaleIntercept of -1024, soft tissue
 * and fat lie above.
 */
const DENSE_HU = 900;

/** Whether the model is given a frame's Hounsfield units. */
export function takesHounsfield(manifest: Manifest, image: Image, frame: number): boolean {
  const given = imageInputs(manifest).some(({ values }) =>
    ["modality", "window", "windows"].includes(values.kind),
  );
  return (
    image.interpretation(frame).units === "HU" &&
    (given || manifest.accepts.units?.includes("HU") === true)
  );
}

/**
 * Looks at the values of a frame that is said to hold HU.
 * @param data its stored values
 * @returns caveats
 * @throws RadserveError decode_suspect if they cannot be HU
 */
export function checkHounsfield(image: Image, frame: number, data: Uint8Array): Warning[] {
  const { format, warnings } = image;
  if (!format.signed && warnings.some(({ code }) => code === "sign_mismatch"))
    throw suspect(
      "PixelRepresentation is 0 (unsigned) but the stored values are signed, so air and fat would count as bone",
      { reason: "sign_mismatch" },
    );
  const { modality, padding, ownBits } = image.interpretation(frame);
  const ends = storedRange({ ...format, ...ownBits });
  const hu = (stored: number) => modalityValue(modality, stored);
  const isPossible = (value: number) => value >= LEAST_HU && value <= MOST_HU;
  // Between two values that are possible all are, unless a table says otherwise
  const spans = (found: readonly number[] | undefined) =>
    modality.kind !== "lut" && found?.every((stored) => isPossible(hu(stored))) === true;
  let impossible: number | undefined;
  if (!spans(ends) && !spans(extremesOfWords(data, format)))
    someValue(data, format, padding, (stored) => {
      if (isPossible(hu(stored)) || (stored === ends[0] && ends[0] < 0)) return false;
      impossible = hu(stored);
      return true;
    });
  if (impossible !== undefined)
    throw suspect(
      `a value is ${Number(impossible.toPrecision(6))}, outside ${LEAST_HU} to ${MOST_HU}`,
      {
        reason: "impossible_hounsfield",
        value: impossible,
      },
    );
  return looksUnlike(image, frame, data) ? [UNLIKE] : [];
}

const UNLIKE: Warning = {
  code: "unlikely_hounsfield",
  message: `No value of the image is below 0 HU although some are above ${DENSE_HU}: its RescaleIntercept may be wrong or lost. Compare with the source.`,
};

function looksUnlike(image: Image, frame: number, data: Uint8Array): boolean {
  const { format } = image;
  const { modality, padding } = image.interpretation(frame);
  const some = (fits: (hu: number) => boolean) =>
    someValue(data, format, padding, (stored) => fits(modalityValue(modality, stored)));
  return !some((hu) => hu < 0) && some((hu) => hu > DENSE_HU);
}

function suspect(why: string, details: Record<string, unknown>): RadserveError {
  return errors.decode_suspect(
    `Expected Hounsfield units, but ${why}. Correct the attributes at the source; nothing was computed from this frame.`,
    details,
  );
}
