/** Faults of a disk or of its share are named, whoever met them. */
import t from "tap";
import { systemError } from "../../src/base/errno.js";
import { asRadserveError, DISK_FAULTS } from "../../src/base/errors.js";
import { constants } from "node:os";
import { explainedFault } from "../../src/files/durable-files.js";
import { statusOf } from "../../src/features/gateway/receive/taken.js";

const numbers: Readonly<Record<string, number>> = constants.errno;
const fault = (name: string, call: string) => systemError(numbers[name] ?? 0, call);

t.test("none of them is internal, and each names the disk", (t) => {
  for (const call of ["fsync", "write", "rename", "linkat", "open"]) {
    for (const name of ["EIO", "ESTALE", "ENXIO", "ENODEV"]) {
      t.match(asRadserveError(fault(name, call)), {
        code: "share_unavailable",
        status: 503,
        details: { errno: name },
      });
      const explained = asRadserveError(explainedFault(fault(name, call), "output"));
      t.match(explained, { code: "share_unavailable", details: { errno: name, side: "output" } });
      t.match(explained.message, /output folder's disk or share fails/);
      t.equal(statusOf(explained), 0xa700, "a peer sends it again");
    }
    for (const [name, code] of [
      ["EROFS", "path_not_allowed"],
      ["EMLINK", "disk_full"],
      ["EDQUOT", "disk_full"],
    ] as const)
      t.match(explainedFault(fault(name, call), "output"), { code });
  }
  t.ok(DISK_FAULTS.has("ETIMEDOUT"));
  t.equal(asRadserveError(fault("ECONNRESET", "read")).code, "internal", "that is a connection's");
  t.end();
});
