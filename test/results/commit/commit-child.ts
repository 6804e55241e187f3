/**
 * A process that commits and kills itself: `node commit-child.js DIR NAME STEP CONTENTS
 * [at-once|deliver]`. It kills itself (SIGKILL) before the change of the disk numbered STEP, from
 * 0; with STEP -1 it lives and prints the number of steps.
 */
import { operateAtOnce } from "../../../src/files/disk.js";
import { withName } from "../../../src/results/commit/commit.js";
import { deliveryFor, sample } from "../../support/commits.js";

const [dir = "", name = "", last = "", contents = "", how = ""] = process.argv.slice(2);
if (how === "at-once") operateAtOnce();
const { files, receipt } = sample(name, "pixels", JSON.parse(contents) as Record<string, string>);
let steps = 0;
const onStep = () => {
  if (steps === Number(last)) process.kill(process.pid, "SIGKILL");
  steps += 1;
};
const delivery = how === "deliver" ? deliveryFor("new") : undefined;
await withName(dir, name, { onStep }, (held) => held.commit(files, receipt, undefined, delivery));
process.stdout.write(String(steps));
