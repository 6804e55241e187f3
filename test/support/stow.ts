/** Requests of STOW-RS, and what is said in their answers. */
export const STOW_BOUNDARY = "next";
export const STOW_TYPE = `multipart/related; type="application/dicom"; boundary=${STOW_BOUNDARY}`;

/** A body of these files. */
export const bodyOf = (files: readonly Buffer[], type = "application/dicom") =>
  Buffer.concat([
    ...files.map((file) =>
      Buffer.concat([
        Buffer.from(`--${STOW_BOUNDARY}\r\nContent-Type: ${type}\r\n\r\n`),
        file,
        Buffer.from("\r\n"),
      ]),
    ),
    Buffer.from(`--${STOW_BOUNDARY}--\r\n`),
  ]);

interface Item {
  "00081155"?: { Value: string[] };
  "00081197"?: { Value: number[] };
}
export type StowAnswer = Record<string, { Value?: Item[] }>;

/** SOPInstanceUID and Failure Reason (hex) of each object that was refused. */
export const failures = (answer: StowAnswer, tag = "00081198") =>
  (answer[tag]?.Value ?? []).map((item) => [
    item["00081155"]?.Value[0],
    item["00081197"]?.Value[0]?.toString(16),
  ]);
/** SOPInstanceUIDs of those that are kept. */
export const stored = (answer: StowAnswer) =>
  (answer["00081199"]?.Value ?? []).map((item) => item["00081155"]?.Value[0]);
