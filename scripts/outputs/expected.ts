/**
 * Differences between the recordings of two versions that are meant. `compare` passes over them,
 * and fails on every other difference and on an entry that matches none, so that a reason cannot
 * outlive what it explains.
 *
 * The list holds what changed since the commit that the next release is compared with; it is
 * emptied when the version in package.json changes.
 */
export interface Expected {
  /** Matches ids of cases (cases.ts): input, models, outputs. */
  cases: RegExp;
  /**
   * Matches paths within a line of a recording (record.ts), as `status`, `answer.warnings.0.code`,
   * `files.a.dcm.sr.dcm`.
   */
  path: RegExp;
  /**
   * Why the new output is right: the attribute or field, and the standard's section or the issue's
   * condition.
   */
  reason: string;
}

export const EXPECTED: readonly Expected[] = [
  {
    cases: /^damaged\/mutant-.*-(?:34|62)|^bulk:/,
    path: /^answer\.(?:items\.items\.\d+\.error\.)?message$/,
    reason: "Messages are said in plainer words: a value is not a decimal number, for one",
  },
  {
    cases: /^bulk:/,
    path: /^answer\.job\.pinned_anew$/,
    reason: "A job says which of its models were pinned anew; here none was",
  },
  {
    cases: /^damaged\/mutant-deflated-68/,
    path: /^answer\./,
    reason:
      "Bytes behind the elements of a deflated data set, which end it too soon, say that it is damaged",
  },
  {
    cases: /^drawn\/series-twice/,
    path: /^(?:answer|status|files)/,
    reason:
      "Files of one SOPInstanceUID and different content are refused by name (duplicate_instance); equal ones are left out",
  },
  {
    cases: /^drawn\/odd-animal/,
    path: /^(?:answer|files)\./,
    reason: "An animal has no sides of a human: none is drawn, and the warning quadruped says so",
  },
  {
    cases: /^(?:drawn\/(?:jpeg2000|htj2k)-rgb8|shared\/htj2k201-rgb)/,
    path: /^answer\.(?:.*\.)?warnings\.\d+\.message$|^files\..*\.(?:json|sr\.dcm)$|\.(?:sha256|sop_instance_uid|bytes)$/,
    reason: "The warning of RGB over a component transform says what was undone (PS3.5 8.2.4)",
  },
  {
    cases: /^drawn\/jpeg-rgb8/,
    path: /^answer\.(?:.*\.)?warnings\.\d+\.message$|^files\..*\.(?:json|sr\.dcm)$|\.(?:sha256|sop_instance_uid|bytes)$/,
    reason: "Markers of JPEG that contradict the attribute: the values decide, as the warning says",
  },
  {
    cases: /^bulk:/,
    path: /^answer\.job\.warnings$/,
    reason: "Jobs have warnings; this one has none (nothing_analysed stands there)",
  },
  {
    cases: /^bulk:/,
    path: /^answer\.(?:job\.failures\.\d+|items\.items\.\d+\.reason)\.message$/,
    reason:
      "A series with slices that cannot be read says of the first by name why; before, of the first that was read",
  },
  {
    cases: /^bulk:/,
    path: /^files\.radserve-report-<job>\.(?:csv|html)$/,
    reason: "The report of the job holds that message",
  },
  {
    cases: /./,
    path: /^files\..*\.png$/,
    reason: "PNG is packed by the addon: the same pixels in other bytes",
  },
  {
    cases: /./,
    path: /^files\..*\.sr\.dcm$/,
    reason:
      "A report has one group for each label, absent labels together, volumes, and names whole objects and series as such (PS3.16 TID 1500)",
  },
  {
    cases: /./,
    path: /^files\..*\.sc\.dcm$/,
    reason:
      "Image Laterality where only the image names a side, and no Lossy Image Compression that the source does not say",
  },
  {
    cases: /odd-lossy-before/,
    path: /^files\..*\.seg\.dcm$/,
    reason: "A Lossy Image Compression Method that the source does not say is made up no more",
  },
  {
    cases: /./,
    path: /^files\..*\.json$|^answer\..*\boutputs\.\d+\.(?:sop_instance_uid|sha256|bytes)$/,
    reason: "Receipt and answer name these objects by UID, length and SHA-256",
  },
];
