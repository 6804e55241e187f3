/**
 * How models do, week by week, gathered from receipts alone. One study counts once in a week:
 * images of a study are of one patient and one scan, and a test that takes them for independent
 * sees changes where there are none.
 */
import { observedIn, scannerOf, workTime } from "../../results/receipt/observed.js";
import type { Receipt, ReceiptModel } from "../../results/receipt/receipt.js";
import type { Trust } from "../../results/receipt/seal.js";

/** One study in one week under one model. */
interface StudyFacts {
  scores: Map<string, number>;
  found: Map<string, boolean>;
  refused: boolean;
  failed: boolean;
  caveat: boolean;
  ran: boolean;
  /** Milliseconds of work on one image. */
  work: number;
}

export interface Week {
  /** Its Monday, UTC. */
  monday: string;
  studies: Map<string, StudyFacts>;
}

/** One model and version on images of one scanner. */
export interface DriftLine {
  model: string;
  version: string;
  shadow: boolean;
  scanner: string;
  weeks: Map<string, Week>;
}

/** How often a model in shadow and an active one say the same of a label of one image. */
export interface Pair {
  shadow: string;
  active: string;
  label: string;
  both: number;
  neither: number;
  onlyShadow: number;
  onlyActive: number;
}

const DAY_MS = 86_400_000;

/** The Monday of the week in which the analysis began, UTC. */
export function mondayOf(startedAt: string): string {
  const day = Math.floor(Date.parse(startedAt) / DAY_MS);
  // 1970-01-01 was a Thursday
  return new Date((day - ((((day + 3) % 7) + 7) % 7)) * DAY_MS).toISOString().slice(0, 10);
}

export class Weeks {
  readonly lines = new Map<string, DriftLine>();
  readonly pairs = new Map<string, Pair>();
  receipts = 0;
  /** Receipts that are not trusted: nothing of them is counted. */
  untrusted = 0;

  get looked(): number {
    return this.receipts + this.untrusted;
  }

  add(receipt: Receipt, _path: string, { trusted }: Pick<Trust, "trusted">): void {
    if (!trusted) {
      this.untrusted += 1;
      return;
    }
    this.receipts += 1;
    const { source, timings } = receipt;
    const monday = mondayOf(timings.started_at);
    const study = source.study_instance_uid ?? source.file_sha256;
    const scanner = scannerOf(receipt);
    for (const model of receipt.models) {
      const facts = this.#factsOf(model, scanner, monday, study);
      note(facts, model, workTime(receipt));
    }
    this.#compare(receipt);
  }

  #factsOf(
    { name, version, shadow }: ReceiptModel,
    scanner: string,
    monday: string,
    study: string,
  ) {
    const key = [name, version, shadow === true ? "shadow" : "", scanner].join("\n");
    const line = entry(this.lines, key, () => ({
      model: name,
      version,
      shadow: shadow === true,
      scanner,
      weeks: new Map<string, Week>(),
    }));
    const week = entry(line.weeks, monday, () => ({
      monday,
      studies: new Map<string, StudyFacts>(),
    }));
    return entry(week.studies, study, () => ({
      scores: new Map(),
      found: new Map(),
      refused: false,
      failed: false,
      caveat: false,
      ran: false,
      work: 0,
    }));
  }

  #compare({ models }: Receipt): void {
    const ran = models.filter(({ status }) => status === "succeeded");
    for (const shadow of ran.filter((model) => model.shadow === true)) {
      const said = new Map(observedIn(shadow).map(({ label, present }) => [label, present]));
      for (const active of ran.filter((model) => model.shadow !== true))
        for (const { label, present } of observedIn(active)) {
          const other = said.get(label);
          if (other !== undefined) this.#pair(shadow, active, label).add(other, present);
        }
    }
  }

  #pair(shadow: ReceiptModel, active: ReceiptModel, label: string) {
    const names = [shadow, active].map(({ name, version }) => `${name} ${version}`);
    const [first = "", second = ""] = names;
    const pair = entry(this.pairs, [first, second, label].join("\n"), () => ({
      shadow: first,
      active: second,
      label,
      both: 0,
      neither: 0,
      onlyShadow: 0,
      onlyActive: 0,
    }));
    return {
      add(inShadow: boolean, inActive: boolean) {
        if (inShadow && inActive) pair.both += 1;
        else if (inShadow) pair.onlyShadow += 1;
        else if (inActive) pair.onlyActive += 1;
        else pair.neither += 1;
      },
    };
  }
}

function note(facts: StudyFacts, model: ReceiptModel, work: number): void {
  facts.refused ||= model.status === "not_accepted";
  facts.failed ||= model.status === "failed";
  if (model.status !== "succeeded") return;
  facts.ran = true;
  facts.work = Math.max(facts.work, work);
  facts.caveat ||= model.warnings.length > 0;
  for (const { label, present, score } of observedIn(model)) {
    facts.found.set(label, present || facts.found.get(label) === true);
    if (score !== undefined)
      facts.scores.set(label, Math.max(score, facts.scores.get(label) ?? score));
  }
}

function entry<T>(map: Map<string, T>, key: string, make: () => T): T {
  const known = map.get(key) ?? make();
  map.set(key, known);
  return known;
}
