/** Files that somebody gives by hand, each of which is read when it is sent. */

/** A file with its path below what was given, with slashes. */
export interface GivenFile {
  path: string;
  bytes: number;
  /** @throws Fault where it cannot be unpacked */
  read: () => Promise<Blob>;
}

export interface Given {
  files: GivenFile[];
  /** What cannot be sent, with a sentence why. */
  refused: Refusal[];
}

export interface Refusal {
  path: string;
  why: string;
}
