/**
 * The thread of the gateway's reception: connections of peers, bodies of STOW-RS, the spool and
 * what becomes of it live here, so that none of it holds up the thread that serves HTTP.
 */
import path from "node:path";
import type { ReadableStream } from "node:stream/web";
import { workerData } from "node:worker_threads";
import { givingBack } from "../../../addon/idle.js";
import { durations } from "../../../base/durations.js";
import { groupsBy } from "../../../base/groups.js";
import { createLog, faultForLog } from "../../../base/log.js";
import { DirectLine } from "../../../base/remote.js";
import { answerOwner } from "../../../base/service-thread.js";
import { nodeId } from "../../../files/node-id.js";
import { RunningClock, runningClockOf } from "../../../files/running-clock.js";
import { isInside } from "../../../files/roots.js";
import { unlessEnded } from "../../../jobs/database-trouble.js";
import type { JobsAside } from "../../../jobs/messages.js";
import { pauseOf } from "../rule-settings.js";
import { GATEWAY_CALLER } from "../subject.js";
import { Arrivals, type UnmadeSeries } from "./arrivals.js";
import {
  count,
  type CameOfSeries,
  type ContextRefusal,
  type RefusedCaller,
} from "./dicom-listener.js";
import { DicomPort } from "./dicom-port.js";
import type {
  ReceivedFilter,
  ReceptionFigures,
  ReceptionThreadOptions,
  ReceptionOwner,
  ReceptionThread,
  StowRequest,
  ReceptionRecord,
  RefusedContext,
} from "./messages.js";
import { studyOf } from "./patients.js";
import { reaches, type Reach } from "./reach.js";
import type { Received, ReceivedChange, ReceivedChoice } from "./received.js";
import { Reception } from "./reception.js";
import { RuleBook } from "./rules.js";
import { isOddUid, seriesPath, Spool, type KeptObject, type SeriesPlace } from "./spool.js";
import { sha256 } from "../../../files/durable-files.js";
import { RefusedSenders } from "./refused-senders.js";
import { Refusals, sendersOf, type Senders } from "./senders.js";
import { storeParts, type StowAnswer } from "./stow.js";
import type { ReceptionTrouble } from "./trouble.js";

const { config, settings: first } = workerData as ReceptionThreadOptions;
let settings = first;
const log = createLog(config.log_level);
const methods: ReceptionThread = {
  store,
  complete: (study, reach) =>
    arrivals.complete(study, (one, rule) => reaches(reach, settings, one, rule)),
  list,
  senders,
  async show(study, reach) {
    const all = (await reached(reach, study)).map((place) => arrivals.details(place));
    return (await Promise.all(all)).flatMap((one) => one ?? []);
  },
  async remove(study, choice, reach) {
    const removed: ReceivedChange[] = [];
    for (const place of await ofOnePatient(reach, study, choice)) {
      const objects = await arrivals.remove(place);
      removed.push({ ...changedAt(place), objects });
    }
    return removed;
  },
  async replace(study, choice, reach) {
    const all: ReceivedChange[] = [];
    for (const place of await ofOnePatient(reach, study, choice)) {
      const { objects = 0 } = (await arrivals.seen(place)) ?? {};
      await spool.replaceable(place);
      all.push({ ...changedAt(place), objects });
    }
    return all;
  },
  beyondReach(peer, address) {
    refused("path_not_allowed", peer);
    refusedSenders.note({ why: "roots", peer, address });
  },
  reload(next) {
    settings = next;
    arrivals.reload(new RuleBook(next.rules), next.keep);
    listener?.reload(next.dicom, next.peers);
    refusedSenders.clear();
  },
  close() {
    arrivals.close();
    listener?.close();
  },
};
const owner = answerOwner<ReceptionOwner>(methods);
/** The database may hold up a look at what has become of a job, and nobody else meanwhile. */
const jobs = new DirectLine<JobsAside>(() => owner.call.lineToJobs());

const counts = {
  objects: { dicom: 0, stow: 0 },
  bytes: { dicom: 0, stow: 0 },
  refused: {} as Record<string, number>,
};
const began = new Date().toISOString();
const refusals = new Refusals();
const refusedSenders = new RefusedSenders(log);
function refused(reason: string, peer?: string): void {
  counts.refused[reason] = (counts.refused[reason] ?? 0) + 1;
  if (peer !== undefined) refusals.note(peer, reason);
}

/** By peer, class and reason; no stranger can make more of them than these. */
const contexts = new Map<string, RefusedContext>();
const callers = new Map<string, RefusedCaller & { count: number }>();
const MOST_NAMES = 200;

function contextRefused(peer: string, sopClass: string, why: ContextRefusal): void {
  refused("context", peer);
  const key = `${peer} ${sopClass} ${why}`;
  const known = contexts.get(key);
  if (known === undefined && contexts.size >= MOST_NAMES) return;
  contexts.set(key, { peer, sop_class: sopClass, why, count: (known?.count ?? 0) + 1 });
}

function callerRefused(caller: RefusedCaller): void {
  const key = JSON.stringify(caller);
  const isNew = !callers.has(key) && callers.size >= MOST_NAMES;
  const one = isNew ? { ...caller, name: "others" } : caller;
  const at = JSON.stringify(one);
  callers.set(at, { ...one, count: (callers.get(at)?.count ?? 0) + 1 });
}

const spool = new Spool(settings.spool, {
  mostBytes: config.upload_limit,
  minimumFreeBytes: config.minimum_free_disk,
  peerShare: settings.peer_share,
});
const clock = new RunningClock(runningClockOf(config));
const reception = new Reception({
  folder: settings.spool,
  within: (names, work) => spool.within(names, work),
  node: nodeId(config.state_dir),
  interrupted: (place) => arrivals.interrupted(place),
  closed: (place) => arrivals.closed(place),
});
const arrivals = new Arrivals({
  folder: settings.spool,
  spool,
  reception,
  rules: new RuleBook(settings.rules),
  keep: settings.keep,
  clock,
  log,
  submit: (submission) => owner.call.submit(submission),
  jobState: (jobId) => unlessEnded(jobs.call.stateOf(GATEWAY_CALLER, jobId)),
  removing: ({ objects: count, ...of }) =>
    owner.call.tell({ kind: "removed", count, ...of, study: studyOf(of.study) }),
});
const listener =
  settings.dicom === undefined
    ? undefined
    : new DicomPort(settings.dicom, settings.peers, {
        spool,
        reception,
        notesTitle: () => settings.rules.some(({ called }) => called !== undefined),
        longestPause: () => Math.max(0, ...settings.rules.map(pauseOf)),
        log,
        refused,
        contextRefused,
        callerRefused,
        senders: refusedSenders,
        coming,
        kept: (object, peer) => arrived("dicom", object, peer),
        ended({ peer, address, series, ms }) {
          came(peer, series.values(), { address, ms });
          rested();
        },
      });
let told = "";
const rested = givingBack();
const MOST_ODD_UIDS = 10_000;

setInterval(tellFigures, durations.gatewayFigures).unref();
setInterval(countShares, durations.spoolLook).unref();
void arrivals.look();
countShares();
void listener?.open();

/** The series that somebody reaches, by their folders: of a study, or all. */
async function reached(
  { input }: Reach,
  study: string | undefined,
  { peer, series }: ReceivedChoice = {},
): Promise<SeriesPlace[]> {
  const all = await arrivals.places(study);
  return all.filter(
    (place) =>
      (peer === undefined || place.peer === peer) &&
      (series === undefined || place.series === series) &&
      isInside(
        path.join(settings.spool, ...seriesPath(place.peer, place.study, place.series)),
        input,
      ),
  );
}

/**
 * The series that somebody means to change. Two patients may have one StudyInstanceUID, and one
 * SeriesInstanceUID: what is done to the images of one is not done to those of the other, so that a
 * StudyInstanceUID alone means the patient who has its folder.
 */
async function ofOnePatient(
  reach: Reach,
  study: string,
  choice: ReceivedChoice,
): Promise<SeriesPlace[]> {
  return (await reached(reach, study, choice)).filter((place) => place.study === study);
}

const changedAt = ({ peer, study, series }: SeriesPlace) => ({
  peer,
  study,
  series_instance_uid: series,
});

async function list({ peer, state, limit }: ReceivedFilter, reach: Reach): Promise<Received[]> {
  const found: Received[] = [];
  for (const place of await reached(reach, undefined, { peer })) {
    if (found.length >= limit) break;
    const one = await arrivals.seen(place);
    if (one !== undefined && (state === undefined || one.state === state)) found.push(one);
  }
  return found;
}

/** @param reach senders whose folders it does not hold are left out */
async function senders({ input }: Reach): Promise<Senders> {
  const holds = await spool.shares.holds();
  const all = sendersOf(Object.keys(settings.peers), holds, refusals);
  return {
    since: began,
    associations: listener?.associations ?? 0,
    senders: all.filter(({ peer }) => isInside(path.join(settings.spool, "series", peer), input)),
    contexts: [...contexts.values()],
    callers: [...callers.values()],
  };
}

/** Says that objects of a study come; nobody is told that they are kept before that. */
function coming(peer: string, study: string, address: string | undefined): Promise<void> {
  return owner.call.tell({ kind: "received", outcome: "asked", peer, study, address });
}

/**
 * Objects that came: of one request, or over one association. The objects are there, and that they
 * come stands in the audit; how many follows, however long that takes.
 */
function came(
  peer: string,
  all: Iterable<CameOfSeries>,
  more: Pick<ReceptionRecord, "address" | "ms">,
): void {
  for (const { studyInstanceUid: study, objects: count, bytes } of all)
    owner.note.tellAtLast({ kind: "received", peer, study, count, bytes, ...more });
}

function arrived(by: "dicom" | "stow", kept: KeptObject, peer: string): void {
  tellOddUids(peer, kept);
  counts.objects[by] += 1;
  counts.bytes[by] += kept.bytes;
  arrivals.arrived(peer, kept).catch((error: unknown) => {
    // It is found when the spool is looked through
    log.error(
      { peer, fault: faultForLog(error) },
      "what came of a received object could not be noted",
    );
  });
}

/** UIDs that were told; each is told once, as long as there are not very many. */
const oddUids = new Set<string>();

function tellOddUids(peer: string, uids: KeptObject): void {
  for (const attribute of ["studyInstanceUid", "seriesInstanceUid", "sopInstanceUid"] as const) {
    if (!isOddUid(uids[attribute])) continue;
    const uid = sha256(uids[attribute]).slice(0, 16);
    if (oddUids.has(uid)) continue;
    if (oddUids.size >= MOST_ODD_UIDS) oddUids.clear();
    oddUids.add(uid);
    log.warn(
      { peer, attribute, uid },
      "a UID was accepted of which a component begins with 0 or is empty (PS3.5 section 9.1)",
    );
  }
}

function tellFigures(): void {
  const { waiting, unmade, faults } = arrivals.figures;
  const troubles: ReceptionTrouble[] = [
    ...(listener?.troubles() ?? []),
    ...spool.conflicts.troubles(),
    ...spool.shares.troubles(),
    ...refusedSenders.troubles(),
    ...[...new Set(faults)].map((code) => ({
      condition: "received_waiting" as const,
      where: `received images: ${code}`,
      message: `Received images wait, because no job can be made of them: ${code}.`,
    })),
  ];
  const associations = listener?.associations ?? 0;
  const figures: ReceptionFigures = {
    ...counts,
    associations,
    waiting,
    unmade: Object.fromEntries(
      [...groupsBy(unmade, ({ why }) => why)].map(([why, all]) => [why, all.length]),
    ),
    classes: classesOf(unmade),
    contexts: [...contexts.values()],
    callers: [...callers.values()],
    troubles,
  };
  const text = JSON.stringify(figures);
  if (text !== told) owner.note.figures(figures);
  told = text;
  void spool.conflicts.look();
  void spool.shares.forgetRefused();
}

/** Numbers of objects that no job is made of, by SOP class. */
function classesOf(unmade: readonly UnmadeSeries[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { classes } of unmade)
    for (const [uid, count] of Object.entries(classes)) counts[uid] = (counts[uid] ?? 0) + count;
  return counts;
}

function countShares(): void {
  spool.shares
    .look()
    .catch((error: unknown) =>
      log.warn(
        { fault: faultForLog(error) },
        "what each peer holds of the spool could not be counted; it is tried again",
      ),
    );
}

async function store(
  { peer, address, boundary }: StowRequest,
  body: ReadableStream<Uint8Array>,
): Promise<StowAnswer> {
  const start = performance.now();
  refusedSenders.mended("roots", peer);
  const series = new Map<string, CameOfSeries>();
  const kept = (object: KeptObject) => {
    count(series, peer, object);
    arrived("stow", object, peer);
  };
  const pieces = body.values();
  const transfer = reception.open(peer);
  let isWhole = false;
  try {
    const answer = await storeParts(pieces, boundary, {
      peer,
      spool,
      transfer,
      kept,
      refused: (reason) => refused(reason, peer),
      log,
      coming: (study) => coming(peer, study, address),
    });
    isWhole = true;
    return answer;
  } finally {
    await transfer
      .end(isWhole)
      .catch((error: unknown) =>
        log.error({ peer, fault: faultForLog(error) }, "how a request ended could not be noted"),
      );
    // Nobody wants the rest of a body that is refused
    await pieces.return?.().catch(() => undefined);
    rested();
    came(peer, series.values(), { address, ms: Math.round(performance.now() - start) });
  }
}
