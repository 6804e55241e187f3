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
    cases: /^drawn\/series-twice/,
    path: /./,
    reason: "Copies of slices are left out, with the warning left_out_copy, and refuse nothing",
  },
  {
    cases: /^drawn\/odd-animal/,
    path: /./,
    reason: "An animal has no sides of a human: none is drawn, and the warning quadruped says so",
  },
  {
    cases: /./,
    path: /^files\..*\.(?:dcm|json)$|(?:^|\.)(?:sha256|sop_instance_uid|bytes)$/,
    reason:
      "Every object has ContributionDateTime, and TimezoneOffsetFromUTC only where its source has it (PS3.3 C.12.1.1.8)",
  },
  {
    cases: /^(?:drawn\/(?:jpeg2000|htj2k)-rgb8|shared\/htj2k201-rgb)/,
    path: /^answer\.(?:.*\.)?warnings(?:\.|$)/,
    reason: "PhotometricInterpretation RGB over a component transform is warned of (PS3.5 8.2.4)",
  },
  {
    cases:
      /^shared\/(?:ele-ect-multiframe-supplemental-palette|jls80-ct-fragmented-no-bot|rle-ct-bot-2frame|ele-seg-1bit)/,
    path: /^answer\.(?:.*\.)?warnings(?:\.|$)/,
    reason:
      "Palettes beside grey pixels (PS3.3 C.7.6.19), and items of functional groups beyond NumberOfFrames, are warned of",
  },
  {
    cases:
      /^(?:drawn\/odd-|shared\/(?:ebe-us-rgb-planar|ile-ot-palette8|jpeg57-mr-p14|jpeg70-us-rgb))/,
    path: /^answer\.models\.\d+\.warnings/,
    reason:
      "Dates and texts that a source has in no form of PS3.5 6.2 were left out without a word (value_left_out)",
  },
  {
    cases: /^drawn\/(?:enhanced|series-of-frames)/,
    path: /^answer\.(?:.*\.)?warnings(?:\.|$)/,
    reason:
      "A value beside the functional group that has another is told (functional_group_twice, PS3.3 C.7.6.16)",
  },
  {
    cases: /^shared\/jpeg50-us-ybr422/,
    path: /^answer\.(?:.*\.)?warnings(?:\.|$)/,
    reason: "Regions of ultrasound beyond the image are told (regions_ignored, PS3.3 C.8.5.5)",
  },
  {
    cases: /^shared\/(?:jpeg70-us-rgb|rle-us-palette)/,
    path: /^answer\.regions\./,
    reason: "Regions of ultrasound that have no scale are listed too (PS3.3 C.8.5.5)",
  },
  {
    cases: /./,
    path: /^answer\.(?:message|(?:.*\.)?reasons\.\d+\.message)$/,
    reason:
      "A refusal begins with the first model and its reason, and says that a value is not among those of a field",
  },
  {
    cases: /^damaged\//,
    path: /./,
    reason:
      "Elements that stand twice, and values that an attribute cannot have, refuse a file or are told (PS3.5 7.1, 6.2)",
  },
  {
    cases: /^bulk:/,
    path: /./,
    reason: "The job works on damaged files too, and the ids of boxes and jobs are random",
  },
];
