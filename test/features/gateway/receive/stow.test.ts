/** Objects of a request as they come: what is on its way keeps its series open. */
import { EventEmitter, once } from "node:events";
import t from "tap";
import { createLog } from "../../../../src/base/log.js";
import { Spool } from "../../../../src/features/gateway/receive/spool.js";
import { storeParts } from "../../../../src/features/gateway/receive/stow.js";
import { receptionIn } from "../../../support/arriving.js";
import { object, STUDY } from "../../../support/gateway.js";
import { bodyOf, STOW_BOUNDARY } from "../../../support/stow.js";
import { until } from "../../../support/until.js";

await t.test("an object is on its way from its first bytes on", async (t) => {
  const folder = t.testdir();
  const spool = new Spool(folder, { mostBytes: 1e7, minimumFreeBytes: 0, peerShare: 1 });
  const reception = receptionIn(folder, spool);
  const place = { peer: "viewer", study: STUDY, series: "1.2.3.4" };
  const transfer = reception.open(place.peer);
  const emitter = new EventEmitter();
  const goesOn = once(emitter, "goes on");
  const body = bodyOf([object(1).file]);
  const begun = body.indexOf("DICM");
  let asked = 0;
  async function* pieces() {
    yield body.subarray(0, begun);
    asked += 1;
    await goesOn;
    yield body.subarray(begun);
  }
  const answer = storeParts(pieces(), STOW_BOUNDARY, {
    peer: place.peer,
    spool,
    transfer,
    coming: () => Promise.resolve(),
    kept: () => undefined,
    refused: (reason) => t.fail(reason),
    log: createLog("silent"),
  });
  await until("the rest is waited for", () => asked === 1);
  t.equal(reception.openUntil(place, 0), Infinity);
  emitter.emit("goes on");
  t.match(await answer, { status: 200 });
  t.not(reception.openUntil(place, 0), Infinity);
  await transfer.end(true);
});
