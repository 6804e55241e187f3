/** The steps in which the disk of a spool can fail while the first object of all is kept. */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { constants } from "node:os";
import path from "node:path";
import type { Test } from "tap";
import type { failingDisk } from "./failing-disk.js";
import { filesBelow, object } from "./gateway.js";

/** A call, and the paths that it fails on; PEER, STUDY and SERIES stand for those of the object. */
const STEPS = [
  ["mkdir", "*/spool/patients"],
  ["fsync", "*/spool"],
  ["mkdir", "*/patients/PEER"],
  ["fsync", "*/spool/patients"],
  ["open", "*/patients/PEER*"],
  ["write", "*/patients/PEER/*"],
  ["fsync", "*/patients/PEER/*"],
  ["link", "*/patients/PEER/*"],
  ["fsync", "*/patients/PEER"],
  ["mkdir", "*/spool/series"],
  ["mkdir", "*/series/PEER"],
  ["fsync", "*/spool/series"],
  ["mkdir", "*/series/PEER/STUDY"],
  ["fsync", "*/series/PEER"],
  ["mkdir", "*/STUDY/SERIES"],
  ["fsync", "*/series/PEER/STUDY"],
  ["open", "*/STUDY/SERIES*"],
  ["write", "*/STUDY/SERIES/*"],
  ["mkdir", "*/spool/reception"],
  ["mkdir", "*/reception/PEER"],
  ["fsync", "*/spool/reception"],
  ["mkdir", "*/reception/PEER/STUDY"],
  ["fsync", "*/reception/PEER"],
  ["open", "*/reception/PEER/STUDY/SERIES+coming*"],
  ["fsync", "*/reception/PEER/STUDY"],
  ["fsync", "*/STUDY/SERIES/*"],
  ["link", "*/STUDY/SERIES/*"],
  ["fsync", "*/STUDY/SERIES"],
] as const;
const FAULTS = {
  EIO: "share_unavailable",
  EROFS: "share_unavailable",
  ENOSPC: "disk_full",
} as const;

/** What is tried while the disk fails, and once it is back. */
export interface SpoolFault {
  /** What a test says of it. */
  what: string;
  /** The code that names the fault. */
  code: (typeof FAULTS)[keyof typeof FAULTS];
  one: ReturnType<typeof object>;
}

/**
 * Has the disk of a spool fail at each step while an object comes, and looks at what lies there
 * once it is kept after all.
 * @param peer whose objects they are, as its folder has it
 * @param refused sends an object while the disk fails
 * @param kept sends it once the disk is back, when it has to be kept
 * @returns the study of the last object
 */
export async function failAtEachStep(
  t: Test,
  { spool, peer, disk }: { spool: string; peer: string; disk: ReturnType<typeof failingDisk> },
  { refused, kept }: Record<"refused" | "kept", (fault: SpoolFault) => Promise<void>>,
): Promise<string> {
  const { fault, synced } = disk;
  let study = "";
  for (const [at, [call, paths]] of STEPS.entries())
    for (const [name, code] of Object.entries(FAULTS)) {
      const number = constants.errno[name as keyof typeof FAULTS];
      study = `1.2.5.${at}.${number}`;
      const series = `1.2.6.${at}.${number}`;
      const one = object(at, { StudyInstanceUID: study, SeriesInstanceUID: series });
      const what = `${name} from ${call} of ${paths}`;
      for (const folder of ["series", "patients", "reception"])
        rmSync(path.join(spool, folder), { recursive: true, force: true });
      writeFileSync(synced, "");
      const names = { PEER: peer, STUDY: study, SERIES: series };
      const pattern = paths.replace(/PEER|STUDY|SERIES/g, (of) => names[of as keyof typeof names]);
      writeFileSync(fault, `${number} ${call} ${pattern}`);
      await refused({ what, code, one });
      rmSync(fault);
      await kept({ what, code, one });
      const have = new Set(readFileSync(synced, "utf8").split("\n"));
      for (const folder of ["", "series", `series/${peer}`, `series/${peer}/${study}`])
        t.ok(have.has(path.join(spool, folder)), `${what}: ${folder} is on the disk`);
      const file = `series/${peer}/${study}/${series}/${one.sopInstanceUid}.dcm`;
      t.ok(readFileSync(path.join(spool, file)).equals(one.file), what);
      t.same(
        filesBelow(spool).filter((other) => /^(?:patients|series)\//.test(other)),
        [`patients/${peer}/${study}.json`, file],
        `${what}: nothing else is there`,
      );
    }
  return study;
}
