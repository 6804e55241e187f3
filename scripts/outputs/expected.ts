/**
 * Differences between the recordings of two versions that are meant. `compare` passes over them, and fails on every
 * other difference and on an entry that matches none, so that a reason cannot outlive what it explains.
 *
 * The list holds what changed since the commit that the next release is compared with; it is emptied when the version
 * in package.json changes.
 */
export interface Expected {
  /** Matches ids of cases (cases.ts): input, models, outputs. */
  cases: RegExp;
  /** Matches paths within a line of a recording (record.ts), as `status`, `answer.warnings.0.code`, `files.a.dcm.sr.dcm`. */
  path: RegExp;
  /** Why the new output is right: the attribute or field, and the standard's section or the condition. */
  reason: string;
}

export const EXPECTED: readonly Expected[] = [
  {
    cases: /./,
    path: /^files\..*\.(?:dcm|json)$|(?:^|\.)(?:sha256|sop_instance_uid)$/,
    reason:
      "Every object has ContributionDateTime, and TimezoneOffsetFromUTC only where its source has it (PS3.3 C.12.1.1.8)",
  },
  {
    cases: /^drawn\/(?:jpeg2000|htj2k)-rgb8/,
    path: /^answer\.(?:.*\.)?warnings(?:\.|$)/,
    reason: "PhotometricInterpretation RGB over a component transform is warned of (PS3.5 8.2.4)",
  },
];
