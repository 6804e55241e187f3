/** Which SOP classes are images (PS3.4 table B.5-1), by what follows their common beginning. */
const STORAGE = "1.2.840.10008.5.1.4.1.1.";
const OF_IMAGES =
  /^(?:1(?:\.[123](?:\.1)?)?|2(?:\.[12])?|3\.1|4(?:\.[134])?|6\.[12]|7(?:\.[1-4])?|12\.[12](?:\.1)?|13\.1\.[1-5]|14\.[12]|20|77\.1(?:\.\d+)+|128(?:\.1)?|130|481\.1)$/;
/** Retired classes, and the dose grid, which nobody sends through the gateway as an image. */
const OF_OTHER_IMAGES = /^(?:[356]|12\.3|481\.2)$/;
/**
 * What has no pixels: DICOMDIR; waveforms, presentation states, raw data, registrations, fiducials,
 * surfaces, mappings, reports, encapsulated documents, plans and structures; spectroscopy, which
 * has Rows and Columns all the same.
 */
const WITHOUT_PIXELS =
  /^(?:9\.|11\.|34\.|4\.2$|66(?:$|\.[12356]$)|67$|68\.|77\.1\.5\.3$|7[89]\.|80\.|88\.|90\.|104\.|131$|200\.|20[123]\.|481\.(?!1$|2$))/;
const DICOMDIR = "1.2.840.10008.1.3.10";

const within = (uid: string, pattern: RegExp): boolean =>
  uid.startsWith(STORAGE) && pattern.test(uid.slice(STORAGE.length));

export const isImageClass = (uid: string): boolean => within(uid, OF_IMAGES);

/** Whether objects of the class hold pixels, may hold them, or never do; private classes may. */
export function pixelsOf(uid: string): "always" | "perhaps" | "never" {
  if (uid === DICOMDIR || within(uid, WITHOUT_PIXELS)) return "never";
  return isImageClass(uid) || within(uid, OF_OTHER_IMAGES) ? "always" : "perhaps";
}
