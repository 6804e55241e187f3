/**
 * Which jobs are made of what comes over associations: of whole series, whichever way they come,
 * and by rules whose answer depends neither on the order nor on a restart.
 */
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import type { AddressInfo } from "node:net";
import path from "node:path";
import t, { type Test } from "tap";
import { errors } from "../../../../src/base/errors.js";
import { createLog } from "../../../../src/base/log.js";
import { Arrivals } from "../../../../src/features/gateway/receive/arrivals.js";
import type { Submission } from "../../../../src/features/gateway/receive/received-jobs.js";
import { DicomListener } from "../../../../src/features/gateway/receive/dicom-listener.js";
import { RefusedSenders } from "../../../../src/features/gateway/receive/refused-senders.js";
import type { Reception } from "../../../../src/features/gateway/receive/reception.js";
import { RuleBook } from "../../../../src/features/gateway/receive/rules.js";
import { Spool } from "../../../../src/features/gateway/receive/spool.js";
import { rule as ruleSchema } from "../../../../src/features/gateway/rule-settings.js";
import { RunningClock } from "../../../../src/files/running-clock.js";
import { withName } from "../../../../src/results/commit/commit.js";
import { arrivingOf, receptionIn } from "../../../support/arriving.js";
import { sample } from "../../../support/commits.js";
import { CT, EXPLICIT, RLE } from "../../../support/dicom.js";
import { associate, instanceAt, object, STUDY } from "../../../support/gateway.js";
import { slice } from "../../../support/series.js";
import { until } from "../../../support/until.js";

const SR = "1.2.840.10008.5.1.4.1.1.88.33";
/** Seconds: short. What has to come together is held open meanwhile, on slow machines too. */
const QUIET = 0.3;
const CONTEXTS = [
  { abstractSyntax: CT, transferSyntaxes: [EXPLICIT] },
  { abstractSyntax: CT, transferSyntaxes: [RLE] },
  { abstractSyntax: SR, transferSyntaxes: [EXPLICIT] },
];

interface Options {
  /** As in the file; `pause` in seconds, of any length. */
  rules: ({ pause?: number } & Record<string, unknown>)[];
  /** Of another process before. */
  folder?: string;
  /** Seconds. */
  keep?: number;
  mostBytes?: number;
}

/** Removed after the last test: what a job is made of is written down after the job was made. */
const PLACES = t.testdir();
let opens = 0;

/** What comes to it goes on when the test opens it. */
class Gate {
  isReached = false;
  open: () => void = () => undefined;
  readonly #isOpen = new Promise<void>((resolve) => (this.open = resolve));

  async pass(): Promise<void> {
    this.isReached = true;
    await this.#isOpen;
  }
}

/** A port for DICOM, the spool behind it, and the jobs that are made of what comes. */
async function opened(t: Test, { rules, folder: known, keep = 1000, mostBytes = 1e7 }: Options) {
  const folder = known ?? path.join(PLACES, `spool${(opens += 1)}`);
  mkdirSync(folder, { recursive: true });
  const spool = new Spool(folder, { mostBytes, minimumFreeBytes: 0, peerShare: 1 });
  const jobs: (Submission & { note: unknown; files: number })[] = [];
  /** Jobs that have no result. */
  const failed = new Set<string>();
  const gates = new Map<string, Gate>();
  /**
   * Holds the reading of an object's file for the rules, by its name; the question for the state of
   * a job, by its id; or the writing of notes of a study, by their folder in the spool.
   */
  const hold = (what: string): Gate => {
    const made = new Gate();
    gates.set(what, made);
    return made;
  };
  const reception = receptionIn(
    folder,
    {
      within: async (names, work) => {
        await gates.get(names.join("/"))?.pass();
        return spool.within(names, work);
      },
    },
    (place) => arrivals.interrupted(place),
    (place) => arrivals.closed(place),
  );
  const bookOf = (given: Options["rules"]) => {
    const made = new RuleBook(
      given.map((one, i) => {
        const { pause, ...others } = one;
        const folders = "discard" in one ? {} : { output_folder: "/out" };
        const parsed = ruleSchema.parse({ name: `rule${i}`, ...folders, ...others });
        return { ...parsed, quiet: QUIET, resend: 2 * QUIET, pause };
      }),
    );
    const read = made.read.bind(made);
    made.read = async (file) => {
      await gates.get(path.basename(file))?.pass();
      return read(file);
    };
    return made;
  };
  const book = bookOf(rules);
  const removed: number[] = [];
  const arrivals = new Arrivals({
    folder,
    spool,
    reception,
    rules: book,
    keep,
    clock: new RunningClock(path.join(PLACES, "clock")),
    log: createLog("silent"),
    submit: (submission) => {
      const input = String(submission.request["input_folder_path"]);
      const note = path.join(input, ".radserve-reception.json");
      jobs.push({
        ...submission,
        note: existsSync(note) ? JSON.parse(readFileSync(note, "utf8")) : undefined,
        files: readdirSync(input).filter((name) => name.endsWith(".dcm")).length,
      });
      return Promise.resolve(`job${jobs.length}`);
    },
    jobState: async (id) => {
      await gates.get(id)?.pass();
      return failed.has(id) ? "failed" : "ended";
    },
    removing: ({ objects }) => {
      removed.push(objects);
      return Promise.resolve();
    },
  });
  const listener = new DicomListener({
    mostData: 16_384,
    pduTimeout: 20_000,
    idleTimeout: 20_000,
    aeTitles: ["RADSERVE", "URGENT"],
    mostAssociations: 16,
    log: createLog("silent"),
    peers: [
      { name: "ct1", aeTitle: "CT ONE", networks: ["127.0.0.0/8"] },
      { name: "pacs", aeTitle: "PACS", networks: ["127.0.0.0/8"] },
    ],
    spool,
    reception,
    notesTitle: () => book.rules.some(({ called }) => called !== undefined),
    refused: () => undefined,
    contextRefused: () => undefined,
    callerRefused: () => undefined,
    senders: new RefusedSenders(createLog("silent")),
    ended: () => undefined,
    coming: () => Promise.resolve(),
    kept: (kept, peer) => void arrivals.arrived(peer, kept),
  });
  listener.server.listen(0, "127.0.0.1");
  await once(listener.server, "listening");
  await reception.begin();
  await arrivals.look();
  const close = () => {
    listener.close();
    arrivals.close();
  };
  t.teardown(close);
  const { port } = listener.server.address() as AddressInfo;
  const called = (calledAe = "RADSERVE", more: { callingAe?: string } = {}) =>
    associate(port, { contexts: CONTEXTS, calledAe, ...more });
  /**
   * Nothing of a peer is complete before this has ended, as if it were sending something more: the
   * process may stand still longer than QUIET between two objects.
   */
  const together = async <T>(work: () => Promise<T>, peer = "ct1"): Promise<T> => {
    const more = reception.open(peer);
    more.begins();
    try {
      return await work();
    } finally {
      await more.end(true);
    }
  };
  /** Objects over one association that is released. */
  const send = async (
    objects: readonly ReturnType<typeof object>[],
    title?: string,
    callingAe?: string,
  ) =>
    together(
      async () => {
        const caller = await called(title, callingAe === undefined ? {} : { callingAe });
        for (const one of objects) {
          const { status } = await caller.store(one);
          if (status !== 0) throw new Error(`The status is ${status}`);
        }
        await caller.release();
      },
      callingAe === undefined ? "ct1" : "pacs",
    );
  /** Objects over an association that breaks off, once that is known. */
  const sendPart = async (
    objects: readonly ReturnType<typeof object>[],
    over?: Awaited<ReturnType<typeof called>>,
  ) =>
    together(async () => {
      const caller = over ?? (await called());
      for (const one of objects) await caller.store(one);
      caller.abort();
      const place = { peer: "ct1", study: STUDY, series: "1.2.3.4" };
      await until(
        "it is known to have broken off",
        async () => (await reception.broken(place)).length > 0,
      );
    });
  const made = (count: number) =>
    until(`${count} jobs are made`, () => jobs.length >= count && arrivals.figures.waiting === 0);
  const unmade = (count: number) =>
    until(`${count} series are no jobs`, () => {
      const { unmade: all, waiting } = arrivals.figures;
      return waiting === 0 && all.length >= count && all.map(({ why }) => why);
    });
  const reload = (next: Options["rules"]) => arrivals.reload(bookOf(next), keep);
  const ways = { called, send, sendPart, together, reload };
  const parts = { folder, arrivals, reception, jobs, failed, removed, hold };
  return { ...parts, ...ways, made, unmade, close };
}

/** @returns moves the clock for waits on by so many hours; what waits by a timer waits as before */
function hoursPass(t: Test): (hours: number) => void {
  const { hrtime } = process;
  let passed = 0;
  const moved = (time?: [number, number]): [number, number] => {
    const [seconds, rest] = hrtime(time);
    return [seconds + passed * 3600, rest];
  };
  t.intercept(process, "hrtime", {
    value: Object.assign(moved, { bigint: () => hrtime.bigint() }),
  });
  return (hours) => {
    passed += hours;
  };
}

const inSeries = (series: string, z: number, more: Record<string, string> = {}) =>
  object(z, { SeriesInstanceUID: series, SOPInstanceUID: `${series}.${z}`, ...more });

/**
 * Two series of a study, of which the first is asked about first, and has the last object: once
 * that is quiet, both are.
 */
const interleaved = () => [inSeries("1.2.3.4", 1), inSeries("1.2.3.5", 1), inSeries("1.2.3.4", 2)];

await t.test("an object on its way keeps its series open, however slowly it comes", async (t) => {
  const { called, send, together, jobs, made } = await opened(t, { rules: [{ pause: 0 }] });
  const caller = await called();
  const series = { StudyInstanceUID: STUDY, SeriesInstanceUID: "1.2.3.4" };
  const gate: { open?: () => void; begins?: () => void } = {};
  const isOpen = new Promise<void>((resolve) => (gate.open = resolve));
  const hasBegun = new Promise<void>((resolve) => (gate.begins = resolve));
  const slow = arrivingOf(2, 2_000_000, { attributes: series });
  async function* pieces() {
    let sent = 0;
    for await (const piece of slow.dataSet) {
      if ((sent += piece.length) > 1_500_000) {
        gate.begins?.();
        await isOpen;
      }
      yield piece;
    }
  }
  const stored = await together(async () => {
    t.match(await caller.store(arrivingOf(1, 200, { attributes: series })), { status: 0 });
    const answer = caller.store({ ...slow, dataSet: pieces() });
    await hasBegun;
    return { answer };
  });
  // Another peer's series would be quiet as long; this one comes later, and has its job before
  await send([inSeries("1.2.9", 1, { StudyInstanceUID: "1.2.4" })]);
  await until("the later series is a job", () => jobs.length > 0);
  t.match(jobs, [{ study: "1.2.4" }]);
  gate.open?.();
  t.match(await stored.answer, { status: 0 });
  await caller.release();
  await made(2);
  t.match(jobs[1], { study: STUDY, files: 2, note: undefined });
});

await t.test("an association that is open keeps what it brought for its pause", async (t) => {
  const { called, send, jobs, made } = await opened(t, { rules: [{ pause: 3600 }] });
  const caller = await called();
  await caller.store(object(1));
  await send([inSeries("1.2.9", 1, { StudyInstanceUID: "1.2.4" })]);
  await until("the later series is a job", () => jobs.length > 0);
  t.match(jobs, [{ study: "1.2.4" }]);
  await caller.store(object(2));
  // As the later series is a job, the pause of the other one was looked at again
  await send([inSeries("1.2.9", 1, { StudyInstanceUID: "1.2.5" })]);
  await until("the next series is a job", () => jobs.length > 1);
  t.match(jobs[1], { study: "1.2.5" });
  await caller.release();
  await made(3);
  t.match(jobs[2], { study: STUDY, files: 2, note: undefined });
});

await t.test("a part of a series is marked, until the rest of it has come", async (t) => {
  const { sendPart, send, jobs, made } = await opened(t, { rules: [{}] });
  await sendPart([1, 2, 3].map((z) => object(z)));
  await made(1);
  const series = { "1.2.3.4": { objects: 0, associations: 1 } };
  t.match(jobs, [{ files: 3, note: { series } }]);
  await send([1, 2, 3, 4, 5, 6].map((z) => object(z)));
  await made(2);
  t.match(jobs[1], { files: 6, note: undefined });
  // Nothing of it is asked for again
  t.not(jobs[0]?.request["idempotency_key"], jobs[1]?.request["idempotency_key"]);
});

await t.test(
  "a series that waits no longer is a part while it comes, and then whole",
  async (t) => {
    const { called, jobs, made } = await opened(t, { rules: [{ pause: 36_000 }] });
    const passes = hoursPass(t);
    const caller = await called();
    t.match(await caller.store(object(1)), { status: 0 });
    passes(2);
    t.match(await caller.store(object(2)), { status: 0 });
    await until("it is a job", () => jobs.length > 0);
    t.strictSame(jobs[0]?.note, {
      series: { "1.2.3.4": { objects: 0, associations: 0, coming: true } },
    });
    t.match(await caller.store(object(3)), { status: 0 });
    await caller.release();
    await made(2);
    t.match(jobs[1], { files: 3, note: undefined });
    t.equal(jobs.length, 2, "nothing was made of it while it waited anew");
  },
);

await t.test("a rule for whole series waits for one that comes for hours", async (t) => {
  const { called, arrivals, jobs, unmade } = await opened(t, {
    rules: [{ pause: 36_000, require: "whole" }],
  });
  const passes = hoursPass(t);
  const caller = await called();
  t.match(await caller.store(object(1)), { status: 0 });
  passes(2);
  t.match(await caller.store(object(2)), { status: 0 });
  t.strictSame(await unmade(1), ["not_whole"]);
  await caller.release();
  const place = { peer: "ct1", study: STUDY, series: "1.2.3.4" };
  await until("it is of a job", async () => (await arrivals.seen(place))?.state === "job");
  t.match(jobs, [{ files: 2, note: undefined }]);
});

await t.test("what was sent again whole within the time is no part", async (t) => {
  const { sendPart, send, together, jobs, made } = await opened(t, { rules: [{}] });
  await together(async () => {
    await sendPart([object(1)]);
    await send([object(1), object(2)]);
  });
  await made(1);
  t.match(jobs, [{ files: 2, note: undefined }]);
});

await t.test("what breaks off while it is asked about is no whole series", async (t) => {
  const { called, sendPart, reception, hold, jobs, made } = await opened(t, {
    rules: [{ pause: 3600 }],
  });
  const reading = hold("1.2.3.4.2.dcm");
  const caller = await called();
  for (const one of interleaved()) t.match(await caller.store(one), { status: 0 });
  await until("the first series is asked about", () => reading.isReached);
  await sendPart([], caller);
  const second = { peer: "ct1", study: STUDY, series: "1.2.3.5" };
  await until("its end is noted", () => reception.openUntil(second, 0) === 0);
  reading.open();
  await made(2);
  t.same(
    jobs.map(({ note }) => note),
    ["1.2.3.4", "1.2.3.5"].map((one) => ({ series: { [one]: { objects: 0, associations: 1 } } })),
  );
});

await t.test("what is lost while it is asked about is missed", async (t) => {
  const { send, reception, hold, jobs, made } = await opened(t, { rules: [{ pause: 0 }] });
  const reading = hold("1.2.3.4.2.dcm");
  const coming = reception.open("ct1");
  coming.begins();
  coming.named({ peer: "ct1", study: STUDY, series: "1.2.3.5" });
  await send(interleaved());
  await until("the first series is asked about", () => reading.isReached);
  await coming.notKept("1.2.3.5.2", errors.disk_full("No room."));
  await coming.end(true);
  reading.open();
  await made(2);
  t.same(
    jobs.map(({ note }) => note),
    [undefined, { series: { "1.2.3.5": { objects: 1, associations: 0 } } }],
  );
});

await t.test("what was lost is on its way until that is noted", async (t) => {
  const { send, reception, hold, jobs, made } = await opened(t, { rules: [{ pause: 0 }] });
  const coming = reception.open("ct1");
  coming.begins();
  coming.named({ peer: "ct1", study: STUDY, series: "1.2.3.4" });
  await send([object(1)]);
  const noting = hold(`reception/ct1/${STUDY}`);
  const noted = coming.notKept(instanceAt(2), errors.disk_full("No room."));
  await until("the note is being written", () => noting.isReached);
  // As the first of them is a job, the series was looked at again
  for (const [n, study] of ["1.2.4", "1.2.5"].entries()) {
    const later = inSeries(`1.2.9.${n}`, 1, { StudyInstanceUID: study });
    await send([later], undefined, "PACS");
    await until(`${n + 1} later series are jobs`, () => jobs.length > n);
  }
  t.same(
    jobs.map(({ study }) => study),
    ["1.2.4", "1.2.5"],
  );
  noting.open();
  await noted;
  await coming.end(true);
  await made(3);
  t.same(jobs[2]?.note, { series: { "1.2.3.4": { objects: 1, associations: 0 } } });
});

await t.test("an association that goes on after a job is looked after again", async (t) => {
  const { called, sendPart, jobs, made } = await opened(t, { rules: [{ pause: 0 }] });
  const caller = await called();
  await caller.store(object(1));
  await made(1);
  t.match(jobs, [{ files: 1, note: undefined }]);
  await sendPart([object(2)], caller);
  await made(2);
  t.match(jobs[1], { files: 2, note: { series: { "1.2.3.4": { associations: 1 } } } });
});

await t.test("objects that were refused are remembered by their series", async (t) => {
  const { called, send, together, jobs, made, folder } = await opened(t, {
    rules: [{}],
    mostBytes: 20_000,
  });
  const large = object(2, {
    ImageComments: "x".repeat(9_000),
    PatientComments: "y".repeat(9_000),
    AdditionalPatientHistory: "z".repeat(9_000),
  });
  await together(async () => {
    const caller = await called();
    t.match(await caller.store(object(1)), { status: 0 });
    t.match(await caller.store(large), { status: 0xa700 });
    t.match(await caller.store(object(1, { Manufacturer: "other" })), { status: 0x0111 });
    await caller.release();
  });
  await made(1);
  t.match(jobs, [{ files: 1, note: { series: { "1.2.3.4": { objects: 1, associations: 0 } } } }]);
  await send([object(2)]);
  await made(2);
  t.match(jobs[1], { files: 2, note: undefined });
  const notes = path.join(folder, "reception/ct1");
  await until("nothing of it is left", () => readdirSync(notes).length === 0);
});

await t.test("an association of a process that was killed has broken off", async (t) => {
  const before = await opened(t, { rules: [{ pause: 3600 }] });
  const caller = await before.called();
  await caller.store(object(1));
  // As kill -9 leaves it
  before.arrivals.close();
  const after = await opened(t, { rules: [{}], folder: before.folder });
  await after.made(1);
  t.match(after.jobs, [{ note: { series: { "1.2.3.4": { associations: 1 } } } }]);
  caller.abort();
});

await t.test(
  "an object comes while another association's end removes the empty folder",
  async (t) => {
    const folder = t.testdir();
    const spool = new Spool(folder, { mostBytes: 1e7, minimumFreeBytes: 0, peerShare: 1 });
    let removed = 0;
    const reception = receptionIn(folder, {
      within: (names, work) =>
        spool.within(names, (made) => {
          if ((removed += 1) <= 2) rmdirSync(made);
          return work(made);
        }),
    });
    const place = { peer: "ct1", study: STUDY, series: "1.2.3.4" };
    const transfer = reception.open(place.peer);
    transfer.begins();
    await transfer.brings(place);
    t.equal((await reception.notesOf(place.peer, STUDY)).get(place.series)?.length, 1);
    await transfer.end(true);
  },
);

await t.test("what a full disk takes no note of is remembered over a kill", async (t) => {
  const folder = t.testdir();
  const spool = new Spool(folder, { mostBytes: 1e7, minimumFreeBytes: 0, peerShare: 1 });
  let isFull = false;
  const open = () =>
    receptionIn(folder, {
      within: (names, work) =>
        isFull ? Promise.reject(errors.disk_full("No room.")) : spool.within(names, work),
    });
  const place = { peer: "ct1", study: STUDY, series: "1.2.3.4" };
  const before = open();
  const transfer = before.open(place.peer);
  transfer.begins();
  await transfer.brings(place);
  transfer.kept(place, true);
  isFull = true;
  transfer.begins();
  transfer.named(place);
  await transfer.notKept(instanceAt(2), errors.disk_full("No room."));
  await transfer.end(true);
  const known = async (reception: Reception) => {
    const notes = (await reception.notesOf(place.peer, place.study)).get(place.series) ?? [];
    return reception.of(place, [`${instanceAt(1)}.dcm`], notes);
  };
  t.match(await known(before), { lost: 1 });
  isFull = false;
  const after = open();
  await after.begin();
  t.match(await known(after), { lost: 0, broken: 1 }, "the process that knew of it is gone");
  const again = after.open(place.peer);
  await again.brings(place);
  again.kept(place, true);
  await again.end(true);
  t.match(await known(after), { broken: 0 }, "sent again whole");
});

await t.test("notes that a share did not let go are swept, each in its time", async (t) => {
  const folder = t.testdir();
  const spool = new Spool(folder, { mostBytes: 1e7, minimumFreeBytes: 0, peerShare: 1 });
  let isFull = false;
  const reception = receptionIn(folder, {
    within: (names, work) =>
      isFull ? Promise.reject(errors.disk_full("No room.")) : spool.within(names, work),
  });
  const transfer = reception.open("ct1");
  for (const [series, fresh] of [
    ["1.2.3.4", false],
    ["1.2.3.5", true],
  ] as const) {
    const place = { peer: "ct1", study: STUDY, series };
    transfer.begins();
    await transfer.brings(place);
    transfer.kept(place, fresh);
  }
  const notes = path.join(folder, "reception");
  const kinds = () =>
    readdirSync(path.join(notes, "ct1", STUDY)).map((name) => name.slice(0, name.lastIndexOf("+")));
  renameSync(notes, `${notes}-away`);
  await transfer.end(false);
  renameSync(`${notes}-away`, notes);
  t.same(kinds(), ["1.2.3.4+coming", "1.2.3.5+coming"]);
  isFull = true;
  await reception.sweep(() => false);
  t.same(kinds(), ["1.2.3.5+coming"], "a process after this one sees that it broke off");
  isFull = false;
  await reception.sweep(() => false);
  t.same(kinds(), ["1.2.3.5+broken"]);
});

await t.test("a rule may require that a series has come whole", async (t) => {
  const { sendPart, send, jobs, made, unmade } = await opened(t, { rules: [{ require: "whole" }] });
  await sendPart([object(1)]);
  t.same(await unmade(1), ["not_whole"]);
  t.same(jobs, []);
  await send([object(1), object(2)]);
  await made(1);
  t.match(jobs, [{ files: 2, note: undefined }]);
});

await t.test("a held series that comes again is no job before all of it has come", async (t) => {
  const { sendPart, send, together, jobs, made, unmade } = await opened(t, {
    rules: [{ require: "whole" }],
  });
  const passes = hoursPass(t);
  await sendPart([object(1)]);
  await unmade(1);
  passes(2);
  await together(async () => {
    await send([object(1)]);
    // As the first of them is a job, the series was looked at again
    for (const [n, study] of ["1.2.4", "1.2.5"].entries()) {
      const later = inSeries(`1.2.9.${n}`, 1, { StudyInstanceUID: study });
      await send([later], undefined, "PACS");
      await until(`${n + 1} later series are jobs`, () => jobs.some((job) => job.study === study));
    }
    await send([object(2)]);
  });
  await made(3);
  t.match(
    jobs.filter(({ study }) => study === STUDY),
    [{ files: 2, note: undefined }],
  );
});

await t.test("a series that comes again after a long rest waits anew", async (t) => {
  const { send, together, hold, jobs, made } = await opened(t, { rules: [{}] });
  const passes = hoursPass(t);
  const reading = hold(`${instanceAt(1)}.dcm`);
  await send([object(1)]);
  await until("it is asked about", () => reading.isReached);
  passes(2);
  await together(async () => {
    await send([object(2)]);
    reading.open();
    await send([object(3)]);
  });
  await made(1);
  t.match(jobs, [{ files: 3, note: undefined }]);
});

await t.test(
  "rules that are read while a series is asked about judge it by themselves",
  async (t) => {
    const { sendPart, reload, hold, jobs, made, removed } = await opened(t, {
      rules: [{ require: "whole" }],
    });
    const reading = hold(`${instanceAt(1)}.dcm`);
    await sendPart([object(1)]);
    await until("it is asked about", () => reading.isReached);
    const when = [{ tag: "Modality", in: ["MR"], if_absent: "refuse" }];
    // Where the rule was that takes it stands one that would remove it
    reload([{ discard: true, when }, {}]);
    reading.open();
    await until("something becomes of it", () => jobs.length + removed.length > 0);
    t.same(removed, []);
    await made(1);
    t.match(jobs, [{ study: STUDY, files: 1 }]);
  },
);

await t.test("what comes first decides nothing, and a restart neither", async (t) => {
  const axial = { tag: "ImageType", index: 2, in: ["AXIAL"], if_absent: "refuse" };
  const slices = (series: string) => [
    inSeries(series, 1, { ImageType: "ORIGINAL\\PRIMARY\\LOCALIZER" }),
    ...[2, 3, 4].map((z) => inSeries(series, z)),
  ];
  for (const objects of ["any", "all"]) {
    const rules = [{ when: [axial], objects }];
    const one = await opened(t, { rules, folder: t.testdir() });
    await one.send(slices("1.2.3.7"));
    await one.send(slices("1.2.3.8").reverse());
    await until("both are decided", () => {
      const { unmade, waiting } = one.arrivals.figures;
      return waiting === 0 && one.jobs.length + unmade.length === 2;
    });
    t.equal(one.jobs.length, objects === "any" ? 2 : 0);
    one.close();
    const again = await opened(t, { rules, folder: one.folder });
    const undone = await again.unmade(objects === "any" ? 0 : 2);
    t.equal(undone.length, objects === "any" ? 0 : 2);
    t.same(again.jobs, []);
    again.close();
    // Other rules are asked anew
    const others = await opened(t, { rules: [{ when: [axial] }], folder: one.folder });
    if (objects === "all") await others.made(2);
    t.equal(others.jobs.length, objects === "any" ? 0 : 2);
  }
});

await t.test("rules by texts, late attributes, titles, counts and priority", async (t) => {
  const at = (tag: string, more: object) => ({ tag, if_absent: "refuse", ...more });
  const rules = [
    { name: "chest", when: [at("SeriesDescription", { contains: ["CHEST"] })], continue: true },
    { name: "rows", when: [at("Rows", { max: 4 }), at("Modality", { matches: "^c[tr]$" })] },
    { name: "never", when: [at("Rows", { min: 5 })] },
  ];
  const { send, jobs, made } = await opened(t, {
    rules: [
      { name: "urgent", called: ["URGENT"], priority: "stat" },
      { name: "many", images: { min: 3 } },
      ...rules,
    ],
  });
  const ruleOf = ({ request }: Submission) => [
    request["input_folder_path"]?.toString().split("/").at(-1),
    request["priority"],
  ];
  await send([inSeries("1.2.3.1", 1)], "URGENT");
  await send([1, 2, 3].map((z) => inSeries("1.2.3.2", z)));
  await send([inSeries("1.2.3.3", 1, { SeriesDescription: "Native Chest 1.0" })]);
  await send([inSeries("1.2.3.5", 1)]);
  await made(5);
  t.same(jobs.map(ruleOf).sort(), [
    ["1.2.3.1", "stat"],
    ["1.2.3.2", undefined],
    ["1.2.3.3", undefined],
    ["1.2.3.3", undefined],
    ["1.2.3.5", undefined],
  ]);
});

await t.test("a rule may be for the usual title alone", async (t) => {
  const { send, jobs, made, unmade } = await opened(t, { rules: [{ called: ["RADSERVE"] }] });
  await send([inSeries("1.2.3.1", 1)]);
  await send([inSeries("1.2.3.2", 1)], "URGENT");
  await made(1);
  t.same(await unmade(1), ["no_rule"]);
  t.match(jobs, [{ request: { input_folder_path: /1\.2\.3\.1$/ } }]);
});

await t.test("the largest series of a study, and studies that lack one", async (t) => {
  const of = (name: string) => ({
    name,
    when: [{ tag: "SeriesDescription", contains: [name], if_absent: "refuse" }],
  });
  const largest = await opened(t, { rules: [{ series: "largest" }] });
  await largest.together(async () => {
    await largest.send([inSeries("1.2.3.1", 1)]);
    await largest.send([1, 2].map((z) => inSeries("1.2.3.2", z)));
  });
  await largest.made(1);
  t.match(largest.jobs, [{ objects: 2, files: 2 }]);
  t.same(await largest.unmade(1), ["not_largest"]);
  await largest.send([2, 3, 4].map((z) => inSeries("1.2.3.1", z)));
  await largest.made(2);
  t.match(largest.jobs[1], { objects: 4 });
  largest.close();
  const study = await opened(t, {
    rules: [{ group: "study", require_series: [of("t1"), of("flair")] }],
    folder: path.join(t.testdir({ spool: {} }), "spool"),
  });
  await study.send([inSeries("1.2.3.1", 1, { SeriesDescription: "T1 axial" })]);
  t.same(await study.unmade(1), ["series_missing"]);
  await study.send([inSeries("1.2.3.2", 1, { SeriesDescription: "FLAIR" })]);
  await study.made(1);
  t.match(study.jobs, [{ objects: 2, files: 2 }]);
});

await t.test("a result that has the name of its study keeps it", async (t) => {
  const output = path.join(PLACES, "results");
  const folder = path.join(output, "ct1", STUDY);
  mkdirSync(folder, { recursive: true });
  const { files, receipt } = sample(STUDY, "p", {});
  receipt.source.series_instance_uid = "1.2.3.4";
  await withName(folder, STUDY, {}, (held) => held.commit(files, receipt));
  const { send, jobs, made } = await opened(t, {
    rules: [{ group: "study", output_folder: output }],
  });
  await send([object(1), object(2)]);
  await made(1);
  await send([inSeries("1.2.3.5", 1), inSeries("1.2.3.5", 2)]);
  await made(2);
  await send([1, 2].map((z) => inSeries("1.2.3.6", z, { StudyInstanceUID: "1.2.4" })));
  await made(3);
  const study = { study: true, series: {} };
  t.strictSame(
    jobs.map(({ note }) => note),
    [undefined, study, study],
  );
});

await t.test("a series that begins while its study is asked about is of its job", async (t) => {
  const { send, hold, jobs, made } = await opened(t, { rules: [{ group: "study" }] });
  const reading = hold("1.2.3.1.1.dcm");
  await send([inSeries("1.2.3.1", 1)]);
  await until("the study is asked about", () => reading.isReached);
  await send([inSeries("1.2.3.2", 1)]);
  reading.open();
  await made(1);
  t.same(
    jobs.map(({ objects }) => objects),
    [2],
  );
});

await t.test("what has no images is kept, and discarded only where a rule says so", async (t) => {
  const report = (n: number) =>
    inSeries(`1.2.3.${n}`, n, { SOPClassUID: SR, Modality: "SR", ConceptNameCodeSequence: "" });
  const kept = await opened(t, { rules: [{}] });
  await kept.send([report(7), object(1)]);
  await kept.made(1);
  t.same(await kept.unmade(1), ["no_images"]);
  t.match(kept.arrivals.figures.unmade, [{ classes: { [SR]: 1 } }]);
  kept.close();
  const when = [{ tag: "Modality", in: ["SR"], if_absent: "refuse" }];
  const folder = path.join(t.testdir({ spool: {} }), "spool");
  const thrown = await opened(t, { rules: [{ discard: true, when }, {}], folder });
  await thrown.send([report(7), object(1)]);
  await thrown.made(1);
  t.same(thrown.removed, [1]);
  t.same(readdirSync(path.join(folder, "series/ct1", STUDY)), ["1.2.3.4"]);
  t.ok(existsSync(path.join(folder, "series/ct1", STUDY, "1.2.3.4", `${instanceAt(1)}.dcm`)));
});

await t.test("notes of a series of which nothing was kept go after its time", async (t) => {
  const { called, arrivals, folder } = await opened(t, { rules: [{}], keep: 0, mostBytes: 100 });
  const caller = await called();
  t.match(await caller.store(object(1)), { status: 0xa700 });
  await caller.release();
  const notes = path.join(folder, "reception/ct1");
  t.same(readdirSync(notes), [STUDY]);
  await until("the notes are gone", async () => {
    await arrivals.look();
    return readdirSync(notes).length === 0;
  });
});

await t.test("what nothing becomes of goes after its time", async (t) => {
  const rules = [{ when: [{ tag: "Modality", in: ["MR"], if_absent: "refuse" }] }];
  const { send, arrivals, removed, unmade } = await opened(t, { rules, keep: 0 });
  await send([object(1)]);
  t.same(await unmade(1), ["no_rule"]);
  await until("it is removed", async () => {
    await arrivals.look();
    return removed.length > 0;
  });
  t.same(removed, [1]);
});

await t.test("what becomes another job while old series are removed stays", async (t) => {
  const { send, arrivals, hold, removed, made, folder } = await opened(t, {
    rules: [{}],
    keep: 0,
  });
  await send(["1.2.3.4", "1.2.3.5"].map((series) => inSeries(series, 1)));
  await made(2);
  const asking = hold("job1");
  const look = arrivals.look();
  await until("the look asks about the first job", () => asking.isReached);
  await send([inSeries("1.2.3.5", 2)]);
  await made(3);
  asking.open();
  await look;
  t.same(removed, [1]);
  const left = path.join(folder, "series/ct1", STUDY);
  t.same(readdirSync(left), ["1.2.3.5"]);
  t.same(readdirSync(path.join(left, "1.2.3.5")), ["1.2.3.5.1.dcm", "1.2.3.5.2.dcm"]);
});

await t.test("the same series of a modality and of a PACS is one job", async (t) => {
  const { jobs, failed, send, made, arrivals } = await opened(t, { rules: [{}] });
  const series = (more: Record<string, string>, uid = "1.2.5") =>
    [1, 2, 3].map((z) => inSeries(uid, z, more));
  await send(series({ PatientID: "1" }));
  await made(1);
  // As a PACS sends what it has filed
  await send(series({ PatientID: "1", AccessionNumber: "7" }), undefined, "PACS");
  await until("the second is of the job of the first", async () => {
    const place = (await arrivals.places(STUDY)).find(({ peer }) => peer === "pacs");
    return place && (await arrivals.seen(place))?.jobs[0]?.job_id === "job1";
  });
  t.equal(jobs.length, 1);
  for (const [uid, theirs] of [
    ["1.2.6", { PatientID: "2" }],
    ["1.2.7", { PatientID: "1", SliceThickness: "8" }],
  ] as const) {
    const before = jobs.length;
    await send(series({ PatientID: "1" }, uid));
    await made(before + 1);
    await send(series(theirs, uid), undefined, "PACS");
    await made(before + 2);
  }
  await send(series({ PatientID: "1" }, "1.2.8"));
  await made(6);
  failed.add("job6");
  await send(series({ PatientID: "1" }, "1.2.8"), undefined, "PACS");
  await made(7);
  t.same(
    jobs.map(({ peer }) => peer),
    ["ct1", "ct1", "pacs", "ct1", "pacs", "ct1", "pacs"],
  );
});

await t.test("pixels that are coded otherwise are not decoded to be compared", async (t) => {
  const { jobs, send, made } = await opened(t, { rules: [{}] });
  // Two segments, the high bytes and the low bytes of 24 pixels of the value 1 (PS3.5 annex G)
  const frame = Buffer.alloc(68);
  [2, 64, 66].forEach((value, i) => frame.writeUInt32LE(value, 4 * i));
  frame.set([257 - 24, 0, 257 - 24, 1], 64);
  const coded = { transferSyntax: RLE, pixels: { fragments: [frame] } };
  const dataSet = [slice({ z: 1, preamble: false, meta: false, ...coded })];
  await send([object(1)]);
  await made(1);
  await send([{ ...object(1), transferSyntax: RLE, dataSet }], undefined, "PACS");
  await made(2);
  t.same(
    jobs.map(({ peer }) => peer),
    ["ct1", "pacs"],
  );
});

await t.test("what another peer has of a series is missing in what one has brought", async (t) => {
  const { send, jobs, made } = await opened(t, { rules: [{}] });
  const slices = (...places: number[]) => places.map((z) => object(z));
  await send(slices(1, 2));
  await made(1);
  await send(slices(2, 3), undefined, "PACS");
  await made(3);
  await send(slices(1, 2, 3));
  await made(4);
  await send(slices(4, 5), undefined, "PACS");
  await made(6);
  const part = { series: { "1.2.3.4": { objects: 0, associations: 0, beside: true } } };
  t.strictSame(
    jobs.map(({ peer, files, note }) => ({ peer, files, note })),
    [
      { peer: "ct1", files: 2, note: undefined },
      { peer: "pacs", files: 2, note: part },
      { peer: "ct1", files: 2, note: part },
      { peer: "ct1", files: 3, note: undefined },
      { peer: "pacs", files: 4, note: part },
      { peer: "ct1", files: 3, note: part },
    ],
  );
  // Two patients under one SeriesInstanceUID lack nothing of each other
  const before = jobs.length;
  const other = [1, 2].map((z) => inSeries("1.2.3.8", z, { PatientID: "1" }));
  await send(other);
  await made(before + 1);
  await send([inSeries("1.2.3.8", 3, { PatientID: "2" })], undefined, "PACS");
  await made(before + 2);
  t.match(jobs.slice(before), [{ note: undefined }, { note: undefined }]);
});

await t.test("a part of what takes the place of other objects is no whole series", async (t) => {
  const { folder, send, sendPart, jobs, made } = await opened(t, { rules: [{}] });
  await send([object(1), object(2)]);
  await made(1);
  const spool = new Spool(folder, { mostBytes: 1e7, minimumFreeBytes: 0, peerShare: 1 });
  await spool.replaceable({ peer: "ct1", study: STUDY, series: "1.2.3.4" });
  await sendPart([object(1, { Manufacturer: "other" })]);
  await made(2);
  t.match(jobs[1], { files: 2, note: { series: { "1.2.3.4": { associations: 1 } } } });
});

await t.test("what comes again while its time is over is not removed", async (t) => {
  const { folder, failed, send, arrivals, removed, made } = await opened(t, {
    rules: [{}],
    keep: 0,
  });
  await send([object(1)]);
  await made(1);
  const madeAt = Date.now();
  await until("its time is over", () => Date.now() > madeAt + 1);
  // Another node brings it after it was looked at, and before it would be removed
  const note = path.join(folder, "reception/ct1", STUDY, "1.2.3.4+coming+other.1");
  const asked = t.capture(failed, "has", () => {
    mkdirSync(path.dirname(note), { recursive: true });
    writeFileSync(note, "");
    return false;
  });
  await arrivals.look();
  t.equal(asked().length, 1);
  t.same(removed, []);
  t.same(readdirSync(path.join(folder, "series/ct1", STUDY, "1.2.3.4")).length, 1);
  asked.restore();
  rmSync(note);
  await until("it is removed", async () => {
    await arrivals.look();
    return removed.length > 0;
  });
});
