/** Objects of a request as they come: what is on its way keeps its series open. */
import { EventEmitter, once } from "node:events";
import t from "tap";
import { createLog } from "../../../../src/base/log.js";
import { Spool } from "../../../../src/features/gateway/receive/spool.js";
import { storeParts } from "../../../../src/features/gateway/receive/stow.js";
import { receptionIn } from "../../../support/arriving.js";
import { object, STUDY } from "../../../support/gateway.js";
import { bodyOf, failures, STOW_BOUNDARY, type StowAnswer } from "../../../support/stow.js";
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

await t.test("an object of a class that is not for storage is missing of no series", async (t) => {
  const folder = t.testdir();
  const spool = new Spool(folder, { mostBytes: 1e7, minimumFreeBytes: 0, peerShare: 1 });
  const reception = receptionIn(folder, spool);
  const place = { peer: "viewer", study: STUDY, series: "1.2.3.4" };
  const transfer = reception.open(place.peer);
  // As Siemens scanners send it beside a series: CSA Non-Image Storage
  const other = object(3, {
    SOPClassUID: "1.3.12.2.1107.5.9.1",
    SOPInstanceUID: "1.2.88",
    SeriesInstanceUID: "1.2.3.9",
  });
  const refused: string[] = [];
  async function* pieces() {
    yield await Promise.resolve(bodyOf([object(1).file, object(2).file, other.file]));
  }
  const { status, body } = await storeParts(pieces(), STOW_BOUNDARY, {
    peer: place.peer,
    spool,
    transfer,
    coming: () => Promise.resolve(),
    kept: () => undefined,
    refused: (reason) => refused.push(reason),
    log: createLog("silent"),
  });
  await transfer.end(true);
  t.equal(status, 202);
  t.same(failures(body as StowAnswer), [["1.2.88", "122"]]);
  t.same(refused, ["unsupported_format"]);
  t.same([...(await reception.notesOf(place.peer, STUDY))], [], "the other series is whole");
});
