/** How often what belongs to a received object goes from one thread to another. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { crossingsOf } from "../../support/count-crossings.js";
import {
  gatewayPlace,
  filesBelow,
  object,
  QUIET,
  send,
  startGateway,
} from "../../support/gateway.js";
import { withDurations } from "../../support/durations.js";
import { issueToken, type Place } from "../../support/server.js";
import { webPacs } from "../../support/web-pacs.js";
import { until } from "../../support/until.js";

/**
 * From the sender to the proof at a destination, of one object alone. A call that waits crosses
 * twice.
 */
const WAY = [
  // Its line in the audit, before it is kept; and what came, after
  "call tell",
  "note tellAtLast",
  // The main thread writes the audit's lines of the job that the thread of the jobs keeps
  "call submit",
  "call submit",
  // Which worker thread has it is for the main thread to say
  "note run",
  "call run",
  "note ended",
  // Its line in the audit, before the result is decided
  "call willCommit",
  // Its lines in the audit: nothing leaves before the first
  "call asked",
  "note became",
  "note became",
];
const MOST = 17;

/** What each thread says of itself from time to time, and how lines between threads are laid. */
const BESIDE = new Set([
  "note figures",
  "call ping",
  "call lineToJobs",
  "note answerOn",
  "note useModels",
  "note useFacts",
  // Looks at the jobs of what was received before
  "call stateOf",
]);

const proven = ({ output }: Place): number =>
  filesBelow(output).filter(
    (name) =>
      name.endsWith(".delivery.json") &&
      /"state": ?"proven"/.test(readFileSync(path.join(output, name), "utf8")),
  ).length;

await t.test("an object crosses threads a few times, and the main thread only works", async (t) => {
  const pacs = await webPacs(t);
  const { place, results, file } = gatewayPlace(
    t,
    {},
    withDurations({ gatewayFigures: 50, deliveryLook: 200 }),
  );
  const rules = [{ name: "all", quiet: QUIET, output_folder: results, outputs: ["sr"] }];
  const destinations = { pacs: { type: "stow", url: pacs.url, timeout: "60s" } };
  const settings = JSON.parse(readFileSync(file, "utf8")) as object;
  writeFileSync(file, JSON.stringify({ ...settings, rules, destinations, deliver: ["pacs"] }));
  const crossings = crossingsOf(place);
  const gateway = await startGateway(t, place);
  const token = await issueToken(place, "--subject", "viewer");
  const senders: Record<string, (one: ReturnType<typeof object>) => Promise<unknown>> = {
    "C-STORE": (one) => send(gateway.port(), [one]),
    async "STOW-RS"({ file: bytes }) {
      const type = 'multipart/related; type="application/dicom"; boundary=next';
      const head = Buffer.from("--next\r\nContent-Type: application/dicom\r\n\r\n");
      const answer = await fetch(`${gateway.server.url}/dicomweb/studies`, {
        method: "POST",
        headers: { Authorization: token, "Content-Type": type },
        body: Buffer.concat([head, bytes, Buffer.from("\r\n--next--\r\n")]),
      });
      t.equal(answer.status, 200);
    },
  };
  for (const [at, [how, sent]] of Object.entries(senders).entries()) {
    crossings.forget();
    await sent(object(at + 1, { StudyInstanceUID: `1.2.3.${at}` }));
    await until("its result is proven", () => proven(place) > at);
    await until(
      "the audit has it",
      () => crossings.all().filter((one) => one === "note became").length === 2,
    );
    const way = crossings
      .all()
      .filter((one) => one !== "answer" && one !== "other" && !BESIDE.has(one));
    const over = how === "STOW-RS" ? ["call store"] : [];
    t.same([...way].sort(), [...WAY, ...over].sort(), how);
    const count = way.reduce((sum, one) => sum + (one.startsWith("call") ? 2 : 1), 0);
    t.equal(count - 2 * over.length, MOST);
  }
});
