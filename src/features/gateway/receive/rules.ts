/**
 * Which rules take a series. They are asked when it is quiet, over all of its objects, so that the
 * answer does not depend on the order in which they came, nor on a restart.
 */
import { closeSync } from "node:fs";
import { RE2JS } from "re2js";
import { errno } from "../../../base/errno.js";
import { counted } from "../../../base/table.js";
import { readStart } from "../../../files/descriptor.js";
import { openPlain } from "../../../files/disk.js";
import { sha256 } from "../../../files/durable-files.js";
import type { DataSetAttributes } from "../../../images/dicom/attributes.js";
import { tagOf, type Tag } from "../../../images/dicom/dictionary.js";
import { LAST_OF_HEAD, readHead, type DicomHead } from "../../../images/dicom/dicom-file.js";
import { pixelsOf } from "../../../images/dicom/image-classes.js";
import type { Attributes } from "../../../images/image.js";
import { RadserveError } from "../../../base/errors.js";
import { tagReasons } from "../../../models/acceptance.js";
import { isOfFrames, picked, stringsOf } from "../../../models/attribute-values.js";
import { privateOf, type Condition, type Rule } from "../rule-settings.js";

/** Sizes of beginnings of files that are read one after the other, until the last attribute. */
const HEAD_BYTES = [16 * 1024, 256 * 1024, 4 * 1024 * 1024, 32 * 1024 * 1024] as const;
const NUMBER_OF_FRAMES = 0x00280008;
const BEFORE_PIXELS = 0x7fdfffff;
const SEGMENTATION = /^1\.2\.840\.10008\.5\.1\.4\.1\.1\.66\.[47]$/;

/** Whether a rule's models may look at objects of the class; what else comes is only kept. */
export const mayBeImage = (sopClassUid: string): boolean =>
  pixelsOf(sopClassUid) !== "never" && !SEGMENTATION.test(sopClassUid);

/** What the rules ask of an object. */
export interface ObjectFacts {
  /** Empty where it cannot be read. */
  sopClassUid: string;
  isImage: boolean;
  frames: number;
  /** By the index of the rule: why it does not fulfil `when`; undefined where it does. */
  why: readonly (string | undefined)[];
  /** The series that rules require which it is one of: `rule/name`. */
  required: readonly string[];
}

/** An object that was read, and of which series it is. */
export interface ReadObject {
  facts: ObjectFacts;
  studyInstanceUid: string | undefined;
  seriesInstanceUid: string | undefined;
}

/** What the rules ask of a series. */
export interface SeriesFacts {
  /** Undefined where it is not known who sends it, and nothing is asked of that. */
  peer: string | undefined;
  /** AE titles that its senders called. */
  titles: readonly string[] | undefined;
  objects: readonly ObjectFacts[];
}

/** What a rule says to a series. */
export interface RuleVerdict {
  rule: Rule;
  /** Why it does not take it; empty where it does. */
  why: string[];
}

/**
 * Characters of an attribute's values that are matched with an expression: the longest text of a VR
 * with a limit (LT, PS3.5 section 6.2). An expression takes seconds over megabytes, and the thread
 * that receives waits for it.
 */
const MOST_MATCHED = 10_240;

/** How a value is told: in full to whoever has the file, and nowhere else. */
type Quote = (condition: Condition, values: readonly string[]) => string;

export class RuleBook {
  /** By which rules of before are told from these. */
  readonly version: string;
  readonly #last: Tag;
  readonly #expressions = new Map<string, RE2JS>();

  constructor(
    readonly rules: readonly Rule[],
    private readonly quote: Quote = () => "another value",
  ) {
    this.version = sha256(JSON.stringify(rules)).slice(0, 16);
    const tags = rules
      .flatMap(({ when = [], require_series = [] }) => [
        ...when,
        ...require_series.flatMap((one) => one.when),
      ])
      .map(tagBehind);
    const counts = rules.some(({ images, series }) => images !== undefined || series === "largest");
    this.#last = Math.max(LAST_OF_HEAD, ...(counts ? [NUMBER_OF_FRAMES] : []), ...tags);
  }

  /** The facts of an object's file; what cannot be read fulfils no condition. */
  async read(file: string): Promise<ObjectFacts> {
    return (await this.readWith(file)).facts;
  }

  async readWith(file: string): Promise<ReadObject> {
    const fd = await openPlain(file).catch((error: unknown) => {
      if (errno(error) === "EACCES" || errno(error) === "EPERM") return undefined;
      throw error;
    });
    const readOf = (head: DicomHead | undefined): ReadObject => ({
      facts: this.#factsOf(head),
      studyInstanceUid: head?.attributes.string("StudyInstanceUID"),
      seriesInstanceUid: head?.attributes.string("SeriesInstanceUID"),
    });
    if (fd === undefined) return readOf(undefined);
    try {
      return readOf(await headOf(fd, this.#last));
    } finally {
      closeSync(fd);
    }
  }

  #factsOf(head: DicomHead | undefined): ObjectFacts {
    const attributes = head?.attributes;
    const sopClassUid = attributes?.string("SOPClassUID") ?? head?.mediaStorageSopClass ?? "";
    return {
      sopClassUid,
      // Its job says what is wrong with it
      isImage: head === undefined || mayBeImage(sopClassUid),
      frames: Math.max(1, attributes?.number("NumberOfFrames") ?? 1),
      why: this.rules.map(({ when }) => this.#whyNot(when ?? [], attributes)),
      required: this.rules.flatMap((one) =>
        (one.require_series ?? []).flatMap(({ name, when }) =>
          this.#whyNot(when, attributes) === undefined ? [requiredName(one, name)] : [],
        ),
      ),
    };
  }

  #whyNot(when: readonly Condition[], attributes: DataSetAttributes | undefined) {
    if (attributes === undefined) return when.length === 0 ? undefined : "The file cannot be read.";
    for (const one of when) {
      const why = this.#whyFails(one, attributes);
      if (why !== undefined) return why;
    }
    return undefined;
  }

  #whyFails(one: Condition, attributes: DataSetAttributes): string | undefined {
    const seen = seenBy(one, attributes);
    const values = picked(stringsOf(seen, one.tag), one.index);
    const found = () => ` found ${this.quote(one, values)}.`;
    if (values.length > 0) {
      const { contains, matches } = one;
      const folded = values.map(fold);
      const isIn = (text: string) => folded.some((value) => value.includes(fold(text)));
      if (contains !== undefined && !contains.some(isIn))
        return `Expected ${one.tag} to contain ${contains.join(" or ")};${found()}`;
      const length = values.reduce((sum, value) => sum + value.length, 0);
      if (matches !== undefined && length > MOST_MATCHED)
        return `Expected ${one.tag} of at most ${MOST_MATCHED} characters, to match ${matches}; found ${length}.`;
      if (matches !== undefined && !values.some((value) => this.#expression(matches).test(value)))
        return `Expected ${one.tag} to match ${matches};${found()}`;
    }
    const { contains: _c, matches: _m, creator: _p, ...rule } = one;
    const [refusal] = tagReasons({ ...rule, reason: "" }, seen);
    if (refusal === undefined) return undefined;
    const message = refusal.message.replace(/^\.? ?/, "");
    return message.replace(/ found another value\.$/, found());
  }

  #expression(text: string): RE2JS {
    const known = this.#expressions.get(text);
    if (known !== undefined) return known;
    const made = RE2JS.compile(text, RE2JS.CASE_INSENSITIVE);
    this.#expressions.set(text, made);
    return made;
  }

  /** Each rule in its order. Behind one that takes the series they are asked after `continue`. */
  verdicts(series: SeriesFacts): (RuleVerdict & { asked: boolean })[] {
    let asked = true;
    return this.rules.map((rule, index) => {
      const why = this.#why(rule, index, series);
      const verdict = { rule, why, asked };
      if (why.length === 0 && rule.continue === undefined) asked = false;
      return verdict;
    });
  }

  /** The rules that take a series, in their order. */
  taking(series: SeriesFacts): Rule[] {
    return this.verdicts(series)
      .filter(({ asked, why }) => asked && why.length === 0)
      .map(({ rule }) => rule);
  }

  #why(rule: Rule, index: number, { peer, titles, objects }: SeriesFacts): string[] {
    const { from, called, images, discard } = rule;
    const why: string[] = [];
    if (peer !== undefined && from?.includes(peer) === false)
      why.push(`It is for ${from.join(", ")}; found ${peer}.`);
    if (titles !== undefined && called?.some((title) => titles.includes(title)) === false)
      why.push(
        `It is for what calls ${called.join(" or ")}; found ${titles.join(", ") || "none"}.`,
      );
    const count = imagesIn({ objects });
    if (count === 0 && discard === undefined)
      why.push("No object of the series has pixels for a model.");
    const { min = 0, max = Infinity } = images ?? {};
    if (count < min) why.push(`Expected at least ${counted(min, "image")}; found ${count}.`);
    if (count > max) why.push(`Expected at most ${counted(max, "image")}; found ${count}.`);
    const refusing = objects.flatMap((one) => one.why[index] ?? []);
    const [first] = refusing;
    const isRefused =
      rule.objects === "all" ? refusing.length > 0 : refusing.length === objects.length;
    if (first !== undefined && isRefused)
      why.push(
        refusing.length === 1
          ? first
          : `${first} (${refusing.length} of ${objects.length} objects)`,
      );
    return why;
  }
}

/** Images of a series, each frame of those that have many. */
export const imagesIn = ({ objects }: Pick<SeriesFacts, "objects">): number =>
  objects.reduce((sum, { isImage, frames }) => sum + (isImage ? frames : 0), 0);

const requiredName = (rule: Pick<Rule, "name">, series: string): string => `${rule.name}/${series}`;

/** Names of the series that a rule requires and that are not among these. */
export function missingSeries(rule: Rule, all: readonly Pick<SeriesFacts, "objects">[]): string[] {
  const there = new Set(all.flatMap(({ objects }) => objects.flatMap(({ required }) => required)));
  return (rule.require_series ?? [])
    .map(({ name }) => name)
    .filter((name) => !there.has(requiredName(rule, name)));
}

const fold = (text: string): string => text.toLowerCase();

/** What has to be read until a condition can be asked. */
function tagBehind(one: Condition): Tag {
  const hidden = privateOf(one);
  if (hidden !== undefined) return hidden.group * 0x10000 + 0xffff;
  return isOfFrames(one.tag) ? BEFORE_PIXELS : (tagOf(one.tag) ?? LAST_OF_HEAD);
}

/** The attributes as a condition sees them: a private one as if it had its tag for a keyword. */
function seenBy(one: Condition, attributes: DataSetAttributes): Attributes {
  const hidden = privateOf(one);
  if (hidden === undefined) return attributes;
  const values = attributes.privateValues(hidden);
  const numbers = values.map(Number);
  const all = { strings: values, numbers: numbers.every(Number.isFinite) ? numbers : [] };
  return {
    strings: () => all.strings,
    string: () => all.strings[0],
    comparable: () => all.strings.join("\\"),
    numbers: () => all.numbers,
    number: () => all.numbers[0],
    sequence: () => undefined,
    has: () => values.length > 0,
  };
}

async function headOf(fd: number, last: Tag): Promise<DicomHead | undefined> {
  for (const size of HEAD_BYTES) {
    const bytes = await readStart(fd, size);
    try {
      return readHead(bytes, bytes.length < size, last);
    } catch (error) {
      if (!(error instanceof RadserveError)) throw error;
      if (error.code !== "truncated_image" || bytes.length < size) return undefined;
    }
  }
  return undefined;
}
