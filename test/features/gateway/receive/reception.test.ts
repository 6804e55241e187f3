/** Notes of how series come: what each of them outlasts. */
import t, { type Test } from "tap";
import { errors } from "../../../../src/base/errors.js";
import { Reception } from "../../../../src/features/gateway/receive/reception.js";
import { Spool } from "../../../../src/features/gateway/receive/spool.js";
import { receptionIn } from "../../../support/arriving.js";

const PLACE = { peer: "ct1", study: "1.2.3", series: "1.2.4" };

/** Of nodes that share a spool. */
function nodesIn(t: Test): [Reception, Reception] {
  const folder = t.testdir();
  const spool = new Spool(folder, { mostBytes: 1e6, minimumFreeBytes: 0, peerShare: 1 });
  return [receptionIn(folder, spool), receptionIn(folder, spool)];
}

const kindsOf = async (reception: Reception) =>
  ((await reception.notesOf(PLACE.peer, PLACE.study)).get(PLACE.series) ?? []).map(
    ({ kind }) => kind,
  );

await t.test("a series that comes again while it is forgotten keeps its notes", async (t) => {
  for (const which of [0, 1] as const) {
    const nodes = nodesIn(t);
    const transfer = nodes[which].open(PLACE.peer);
    transfer.begins();
    transfer.named(PLACE);
    await transfer.brings(PLACE);
    await nodes[0].forget(PLACE);
    t.same(await kindsOf(nodes[0]), ["coming"], which === 0 ? "here" : "at another node");
    transfer.kept(PLACE, true);
    await transfer.end(false);
    t.same(await kindsOf(nodes[0]), ["broken"]);
    await nodes[0].forget(PLACE);
    t.same(await kindsOf(nodes[0]), []);
  }
});

await t.test("what is lost beyond the notes of it makes no series whole", async (t) => {
  const folder = t.testdir();
  const spool = new Spool(folder, { mostBytes: 1e6, minimumFreeBytes: 0, peerShare: 1 });
  let interrupted = 0;
  const reception = new Reception({
    folder,
    within: (names, work) => spool.within(names, work),
    node: Promise.resolve("node"),
    interrupted: () => (interrupted += 1),
    closed: () => undefined,
    mostLost: 1,
  });
  /** An association that is released, of one object that is kept and one that is not. */
  const transferred = async (sopInstanceUid: string) => {
    const transfer = reception.open(PLACE.peer);
    transfer.begins();
    await transfer.brings(PLACE);
    transfer.kept(PLACE, true);
    transfer.begins();
    transfer.named(PLACE);
    await transfer.notKept(sopInstanceUid, errors.disk_full("No room."));
    await transfer.end(true);
  };
  await transferred("1.1");
  t.same(await kindsOf(reception), ["lost"]);
  t.equal(interrupted, 1);
  await transferred("1.2");
  t.same(await kindsOf(reception), ["broken", "lost"]);
  t.equal(interrupted, 3, "the loss, and the end");
  await reception.forget(PLACE);
  await reception.sweep(() => false);
  await transferred("1.3");
  t.same(await kindsOf(reception), ["lost"], "there is room for a note again");
});
