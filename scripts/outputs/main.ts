/**
 * Proves that two checkouts of Radserve write the same bytes.
 *
 *     npm run compare:outputs -- record CHECKOUT FILE [--work FOLDER]
 *     npm run compare:outputs -- compare FILE FILE
 *
 * `record` starts the built server of CHECKOUT (`npm ci && npm run build` there first) on the CPU,
 * with start times fixed from outside, and writes one line of JSON for each of some 1,100 cases:
 * the status, the answer, and SHA-256 of every file of the results. The receipt's `timings`,
 * request ids and times of jobs are left out, as the contract says. The checkout need not have this
 * script. Inputs, models and cases are drawn once into FOLDER (a temporary folder by default), so
 * that all recordings have the same ones; ../shared/dicom has to be there.
 *
 * `compare` prints how many cases are equal, each difference that expected.ts does not explain, and
 * how often each of its reasons was met. It ends with status 1 if there is another difference, or a
 * reason that was never met.
 */
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { compare } from "./compare.js";
import { EXPECTED } from "./expected.js";
import { record } from "./record.js";
import { OWN_CHECKOUT } from "./server.js";
import { workplace } from "./workplace.js";

const USAGE = "Usage: record CHECKOUT FILE [--work FOLDER] | compare FILE FILE";

async function main(): Promise<void> {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { work: { type: "string", default: join(tmpdir(), "radserve-outputs") } },
  });
  const [command, first, second] = positionals;
  if (first === undefined || second === undefined) throw new Error(USAGE);
  if (command === "record") {
    const place = await workplace(resolve(values.work), resolve(OWN_CHECKOUT, "../shared/dicom"));
    await record(first, place, second);
  } else if (command === "compare") {
    if (!compare(first, second, EXPECTED)) process.exitCode = 1;
  } else throw new Error(USAGE);
}

await main();
