/**
 * Whether each study that came is whole or marked: what was acknowledged lies in the spool, each
 * result of a part of a series says so, and a series that came whole has a result of all of it.
 */
import { readFileSync } from "node:fs";
import path from "node:path";
import { groupsBy } from "../../../src/base/groups.js";
import { openFile } from "../../../src/images/dicom/dicom-file.js";
import type { Received } from "../../../src/features/gateway/receive/received.js";
import { receiptSchema } from "../../../src/results/receipt/receipt.js";
import { filesBelow } from "../../support/gateway.js";
import type { MixedObject, MixedSeries } from "./mixed-studies.js";
import type { Sender } from "./senders.js";

const MARK = "reception_interrupted";

export interface Counted {
  counts: Record<string, number>;
  faults: string[];
}

class Tally implements Counted {
  readonly counts: Record<string, number> = {};
  readonly faults: string[] = [];

  count(what: string, times = 1): void {
    this.counts[what] = (this.counts[what] ?? 0) + times;
  }
}

/** What was acknowledged lies in the spool, once and as it came; nothing else does. */
export function verifySpool(folder: string, senders: readonly Sender[]): Counted {
  const tally = new Tally();
  const lies = new Map(
    filesBelow(path.join(folder, "series"))
      .filter((name) => name.endsWith(".dcm"))
      .map((name) => [name, path.join(folder, "series", name)]),
  );
  for (const { peer, begun, known } of senders)
    for (const study of begun)
      for (const series of study.series)
        for (const object of series.objects) {
          const name = path.join(peer, study.uid, series.uid, `${object.sopInstanceUid}.dcm`);
          const file = lies.get(name);
          lies.delete(name);
          const is = known.get(object.sopInstanceUid);
          if (file === undefined) {
            if (is === "kept") tally.faults.push(`${name}: acknowledged, and not in the spool`);
            continue;
          }
          tally.count("objects");
          if (is === undefined) tally.faults.push(`${name}: never sent`);
          if (!isOf(file, object)) tally.faults.push(`${name}: other bytes than were sent`);
        }
  tally.faults.push(...[...lies.keys()].map((name) => `${name}: nobody sent it there`));
  return tally;
}

function isOf(file: string, { dataSet }: MixedObject): boolean {
  const bytes = readFileSync(file);
  return bytes.length > dataSet.length && bytes.subarray(-dataSet.length).equals(dataSet);
}

/** What a result or a report is of. */
interface OfSeries {
  name: string;
  series: string;
  images: number;
  isMarked: boolean;
  /** Equal for reports that nobody could tell apart. */
  same?: string;
}

function resultsBelow(folder: string): OfSeries[] {
  return filesBelow(folder)
    .filter((name) => name.endsWith(".json") && !/(^|\/)\./.test(name))
    .map((name) => {
      const receipt = receiptSchema.parse(
        JSON.parse(readFileSync(path.join(folder, name), "utf8")),
      );
      const { series_instance_uid: series = "", slices } = receipt.source;
      const isMarked = receipt.warnings.some(({ code }) => code === MARK);
      return { name, series, images: slices?.length ?? 1, isMarked };
    });
}

/** The images that a report rests on: its evidence (PS3.3 C.17.2). */
function reportOf(uid: string, file: Buffer): OfSeries {
  const { attributes } = openFile(file);
  const evidence = (attributes.sequence("CurrentRequestedProcedureEvidenceSequence") ?? []).flatMap(
    (study) => study.sequence("ReferencedSeriesSequence") ?? [],
  );
  const series = evidence[0]?.string("SeriesInstanceUID") ?? "";
  const uids = evidence
    .flatMap((one) => one.sequence("ReferencedSOPSequence") ?? [])
    .map((one) => one.string("ReferencedSOPInstanceUID") ?? "");
  const [mark = ""] = /The reception of the series [^.]*/.exec(file.toString("latin1")) ?? [];
  const same = [mark, ...uids.sort()].join(" ");
  return { name: `report ${uid}`, series, images: uids.length, isMarked: mark !== "", same };
}

/**
 * @param results the folder of the results
 * @param reports each report that was ever sent, by its SOPInstanceUID
 * @param received what the server says of series that have no job
 */
export function verifyResults(
  senders: readonly Sender[],
  results: string,
  reports: ReadonlyMap<string, Buffer>,
  received: readonly Received[],
): Counted {
  const tally = new Tally();
  const planned = new Map<string, MixedSeries>();
  for (const { begun } of senders)
    for (const { series } of begun) for (const one of series) planned.set(one.uid, one);
  const found = resultsBelow(results);
  const sent = [...reports].map(([uid, file]) => reportOf(uid, file));
  for (const { name, series, images, isMarked } of [...found, ...sent]) {
    const whole = planned.get(series)?.objects.length;
    if (whole === undefined || images > whole) tally.faults.push(`${name}: of no such series`);
    else if (images < whole && !isMarked)
      tally.faults.push(`${name}: ${images} images of ${whole}, and says nothing`);
  }
  for (const some of groupsBy(sent, ({ same = "" }) => same).values())
    if (some.length > 1)
      tally.faults.push(`${some[0]?.series}: ${some.length} reports of the same images`);
  tally.count("reports sent", sent.length);
  tally.count("of them marked", sent.filter(({ isMarked }) => isMarked).length);
  for (const { peer, begun, known } of senders)
    for (const study of begun) {
      tally.count("studies");
      const fates = study.series.map((series) => {
        const kept = series.objects.filter((one) => known.get(one.sopInstanceUid) === "kept");
        const of = found.filter((one) => one.series === series.uid);
        const seen = received.find((one) => one.series_instance_uid === series.uid);
        const { fate, fault } = fateOf(series, kept.length, of, seen);
        if (fault !== undefined) tally.faults.push(`${peer} ${series.uid}: ${fault}`);
        tally.count(`series ${fate}`);
        return fate;
      });
      const isMarked = fates.some((fate) => ["marked", "held"].includes(fate));
      tally.count(isMarked ? "studies marked" : "studies whole");
    }
  return tally;
}

/** @param kept how many of its objects were acknowledged @param of its results */
function fateOf(
  series: MixedSeries,
  kept: number,
  of: readonly OfSeries[],
  seen: Received | undefined,
): { fate: string; fault?: string } {
  const whole = series.objects.length;
  if (!series.isCt) {
    if (kept === 0 && seen === undefined) return { fate: "nothing kept" };
    const isKept = seen?.state === "unused" && seen.objects === whole && of.length === 0;
    const fault = `of no rule, and ${JSON.stringify(seen)} with ${of.length} results`;
    return { fate: "kept unused", ...(isKept ? {} : { fault }) };
  }
  const best = Math.max(0, ...of.map(({ images }) => images));
  if (best === whole) {
    const isMarked = of.every((one) => one.images < whole || one.isMarked);
    return { fate: isMarked ? "whole and marked all the same" : "whole" };
  }
  if (seen === undefined)
    return kept === 0
      ? { fate: "nothing kept" }
      : { fate: "lost", fault: `${kept} objects kept, and not in the spool` };
  // No job is made where the rule requires a whole series
  if (best === 0 && seen.why === "not_whole") return { fate: "held" };
  if (best === 0) return { fate: "without a result", fault: `no result: ${JSON.stringify(seen)}` };
  if (best < seen.objects)
    return { fate: "short", fault: `${seen.objects} objects, and a result of ${best}` };
  return { fate: "marked" };
}
