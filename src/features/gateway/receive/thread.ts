/**
 * The thread of the doors: connections of peers, bodies of STOW-RS, the spool and what becomes of
 * it live here, so that none of it holds up the thread that serves HTTP.
 */
import { setTimeout as delay } from "node:timers/promises";
import { workerData } from "node:worker_threads";
import { givingBack } from "../../../addon/idle.js";
import { durations } from "../../../base/durations.js";
import { createLog, faultForLog } from "../../../base/log.js";
import { answerOwner } from "../../../base/service-thread.js";
import { RunningClock, runningClockOf } from "../../../files/running-clock.js";
import { Arrivals, type JobState } from "./arrivals.js";
import { count, type CameOfSeries } from "./dicom-door.js";
import { DicomPort } from "./dicom-port.js";
import type {
  DoorFigures,
  DoorsThreadOptions,
  DoorTrouble,
  DoorsOwner,
  DoorsThread,
  Told,
  ToDoors,
} from "./messages.js";
import { reaches } from "./reach.js";
import { isOddUid, Spool, type Kept } from "./spool.js";
import { sha256 } from "../../../files/durable-files.js";
import { storeParts, type Stored } from "./stow.js";

const { config, settings } = workerData as DoorsThreadOptions;
const log = createLog(config.log_level);
const owner = answerOwner<DoorsOwner>({ ask: answer } satisfies DoorsThread);

const counts = {
  objects: { dicom: 0, stow: 0 },
  bytes: { dicom: 0, stow: 0 },
  refused: {} as Record<string, number>,
};
const refused = (reason: string) => (counts.refused[reason] = (counts.refused[reason] ?? 0) + 1);

const spool = new Spool(settings.spool, {
  mostBytes: config.upload_limit,
  minimumFreeBytes: config.minimum_free_disk,
});
const clock = new RunningClock(runningClockOf(config));
const arrivals = new Arrivals({
  folder: settings.spool,
  spool,
  rules: settings.rules,
  keep: settings.keep,
  clock,
  log,
  submit: async (submission) => (await owner.call.ask({ type: "submit", submission })) as string,
  jobState: async (jobId) => (await owner.call.ask({ type: "state", jobId })) as JobState,
  removing: async ({ objects: count, ...of }) => tell({ kind: "removed", count, ...of }),
});
const door =
  settings.dicom === undefined
    ? undefined
    : new DicomPort(settings.dicom, settings.peers, {
        spool,
        log,
        refused,
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

setInterval(tellFigures, durations.doorFigures).unref();
void arrivals.look();
void door?.open();

async function tell(told: Told): Promise<void> {
  await owner.call.ask({ type: "tell", told });
}

/** Says that objects of a study come; nobody is told that they are kept before that. */
function coming(peer: string, study: string, address: string | undefined): Promise<void> {
  return tell({ kind: "received", outcome: "asked", peer, study, address });
}

/**
 * Objects that came: of one request, or over one association. The objects are there, and that they
 * come stands in the audit; how many follows, however long that takes.
 */
function came(peer: string, all: Iterable<CameOfSeries>, more: Pick<Told, "address" | "ms">): void {
  for (const { studyInstanceUid: study, objects: count, bytes } of all)
    void tellAtLast({ kind: "received", peer, study, count, bytes, ...more });
}

async function tellAtLast(told: Told): Promise<void> {
  for (let tries = 0; ; tries++)
    try {
      await tell(told);
      return;
    } catch (error) {
      if (tries === 0)
        log.error(
          { peer: told.peer, fault: faultForLog(error) },
          "what came could not be written into the audit; it is tried again",
        );
      await delay(durations.auditRetry, undefined, { ref: false });
    }
}

function arrived(by: "dicom" | "stow", kept: Kept, peer: string): void {
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

function tellOddUids(peer: string, uids: Kept): void {
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
  const { waiting, withoutRule, faults } = arrivals.figures;
  const troubles: DoorTrouble[] = [
    ...(door?.troubles() ?? []),
    ...spool.conflicts.troubles(),
    ...[...new Set(faults)].map((code) => ({
      condition: "received_waiting" as const,
      where: `received images: ${code}`,
      message: `Received images wait, because no job can be made of them: ${code}.`,
    })),
  ];
  const associations = door?.associations ?? 0;
  const figures: DoorFigures = { ...counts, associations, waiting, withoutRule, troubles };
  const text = JSON.stringify(figures);
  if (text !== told) owner.note.ask({ type: "figures", figures });
  told = text;
  void spool.conflicts.forgetRemoved();
}

async function answer(call: ToDoors): Promise<unknown> {
  switch (call.type) {
    case "store":
      return store(call);
    case "complete":
      return arrivals.complete(call.study, (one, rule) => reaches(call.reach, settings, one, rule));
    case "close":
      arrivals.close();
      door?.close();
      return undefined;
  }
}

async function store({
  peer,
  address,
  boundary,
  body,
}: ToDoors & { type: "store" }): Promise<Stored> {
  const began = performance.now();
  const series = new Map<string, CameOfSeries>();
  const kept = (object: Kept) => {
    count(series, object);
    arrived("stow", object, peer);
  };
  const pieces = body.values();
  try {
    return await storeParts(pieces, boundary, {
      peer,
      spool,
      kept,
      refused,
      log,
      coming: (study) => coming(peer, study, address),
    });
  } finally {
    // Nobody wants the rest of a body that is refused
    await pieces.return?.().catch(() => undefined);
    rested();
    came(peer, series.values(), { address, ms: Math.round(performance.now() - began) });
  }
}
