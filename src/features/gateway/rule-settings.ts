/** A rule of the gateway's file: which received series it takes, and what becomes of them. */
import { RE2JS } from "re2js";
import { z } from "zod";
import { absolute, duration } from "../../config.js";
import { multiplicityOf, tagOf } from "../../images/dicom/dictionary.js";
import { choice, priority } from "../../inference/request.js";
import { tagRule } from "../../manifest/manifest.js";
import { aeTitle } from "./dimse/ae-title.js";

const NAME = /^[a-z0-9][a-z0-9_-]{0,31}$/;
export const name = z
  .string()
  .regex(NAME, "Expected a name of a-z, 0-9, _ and -, at most 32 characters");
const KEYWORD = /^[A-Z][A-Za-z0-9]+$/;
const PRIVATE = /^([0-9a-fA-F]{3}[13579bdfBDF]),xx([0-9a-fA-F]{2})$/;
/** Values that a condition lists at most. */
const MOST_LISTED = 1000;

const texts = z.array(z.string().min(1)).min(1).max(MOST_LISTED);
/** RE2 takes time that grows with the text alone, whatever the expression is. */
const expression = z
  .string()
  .min(1)
  .max(1000)
  .superRefine((text, context) => {
    try {
      RE2JS.compile(text, RE2JS.CASE_INSENSITIVE);
    } catch (error) {
      const why = error instanceof Error ? error.message : "";
      context.addIssue({
        code: "custom",
        message: `Expected a regular expression of RE2, which has no look-ahead and no back-references (${why})`,
      });
    }
  });

const { tag: _tag, reason: _reason, ...valuesOf } = tagRule.shape;

/** A condition about one attribute of an object. */
const condition = z
  .strictObject({
    tag: z
      .string()
      .describe(
        'Keyword of an attribute, or group and element of a private one whose block is `creator`\'s, for example "0019,xx0c"',
      ),
    creator: z
      .string()
      .min(1)
      .max(64)
      .optional()
      .describe("Private Creator, for a private attribute"),
    ...valuesOf,
    contains: texts.optional().describe("One of these texts is part of a value, in any case"),
    matches: expression
      .optional()
      .describe("Regular expression (RE2) that a part of a value matches, in any case"),
  })
  .superRefine(({ tag, creator, min, max, in: listed, not_in: unlisted, ...rest }, context) => {
    const issue = (field: string, message: string) =>
      context.addIssue({ code: "custom", path: [field], message });
    const isPrivate = PRIVATE.test(tag);
    if (isPrivate && creator === undefined)
      issue("creator", "Expected the Private Creator of the attribute's block");
    if (!isPrivate && creator !== undefined)
      issue("tag", 'Expected a private attribute beside creator, for example "0019,xx0c"');
    if (!isPrivate && creator === undefined && (!KEYWORD.test(tag) || tagOf(tag) === undefined))
      issue("tag", "Expected the keyword of an attribute of DICOM, for example SeriesDescription");
    const group = isPrivate ? Number.parseInt(tag, 16) : (tagOf(tag) ?? 0) >>> 16;
    if (group >= 0x7fe0) issue("tag", "Expected an attribute that stands before the pixels");
    if (min !== undefined && max !== undefined && min > max)
      issue("min", `Expected at most ${max}, which is max: no value is within both`);
    if (listed?.every((one) => unlisted?.includes(one)) === true)
      issue("in", "Expected a value that is not in not_in as well: no value is left");
    const { contains, matches } = rest;
    if ([min, max, listed, unlisted, contains, matches].every((one) => one === undefined))
      issue("tag", "Expected in, not_in, contains, matches, min or max beside it");
  });
export type Condition = z.output<typeof condition>;

/** The creator's block is where the file has it. */
export function privateOf({ tag, creator }: Pick<Condition, "tag" | "creator">) {
  const [, group = "", element = ""] = PRIVATE.exec(tag) ?? [];
  return creator === undefined
    ? undefined
    : { creator, group: Number.parseInt(group, 16), element: Number.parseInt(element, 16) };
}

/** Whether no object can meet both: they ask for other values of one attribute. */
function exclude(one: Condition, other: Condition): boolean {
  const isOne = one.tag === other.tag && one.creator === other.creator && one.index === other.index;
  // An object without the attribute meets both
  if (!isOne || [one, other].every(({ if_absent }) => if_absent === "accept")) return false;
  const least = Math.max(one.min ?? -Infinity, other.min ?? -Infinity);
  if (least > Math.min(one.max ?? Infinity, other.max ?? Infinity)) return true;
  const isBarred = (a: Condition, b: Condition) =>
    a.in?.every((value) => b.not_in?.includes(value)) === true;
  if (isBarred(one, other) || isBarred(other, one)) return true;
  // Of several values one may be in each list
  const tag = privateOf(one) === undefined ? tagOf(one.tag) : undefined;
  const isSingle = one.index !== undefined || (tag !== undefined && multiplicityOf(tag) === "1");
  const isApart =
    one.in !== undefined && other.in?.some((value) => one.in?.includes(value)) === false;
  return isSingle && isApart;
}

const conditions = z
  .array(condition)
  .min(1)
  .max(100)
  .superRefine((all, context) => {
    all.forEach((one, i) => {
      const before = all.slice(0, i).findIndex((other) => exclude(one, other));
      if (before < 0) return;
      const message = `Expected a condition that an object can meet beside number ${before + 1}, which asks for other values of ${one.tag}`;
      context.addIssue({ code: "custom", path: [i], message });
    });
  });

const OBJECTS_MEANING =
  "any (default): at least one object of the series fulfils all of `when`; all: each of them does";
const PAUSE_MEANING =
  "An association that is open and has brought the series keeps it waiting so long after its last " +
  "object; an object on its way always does. Twice `quiet` where absent";
const RESEND_MEANING =
  "After an association broke off, or objects of the series were not kept, it waits so long for " +
  "them to be sent again. Then its job is made with the warning reception_interrupted";
const REQUIRE_MEANING =
  "whole: no job is made of a series whose reception was interrupted, until it has come whole";
const SERIES_MEANING =
  "largest: of the series of a study that the rule matches, only the one with the most images becomes a job";
const CONTINUE_MEANING =
  "The rules after it are asked as well: each makes its job, in an output_folder of its own";
const DISCARD_MEANING =
  "What the rule matches is removed as soon as it is complete, and becomes no job; no other rule " +
  "may have matched it";

const imageCount = z.int().min(0).max(1_000_000);

/** What a rule that discards has none of. */
const OF_JOBS = [
  "models",
  "outputs",
  "labels",
  "output_folder",
  "deliver",
  "priority",
  "require",
  "require_series",
  "continue",
] as const;

export const rule = z
  .strictObject({
    name,
    from: z
      .array(z.string())
      .min(1)
      .optional()
      .describe("Names of peers, or stow-SUBJECT for tokens of STOW-RS; everybody if absent"),
    called: z
      .array(aeTitle)
      .min(1)
      .optional()
      .describe("AE titles of dicom.ae_title that the sender called; any if absent"),
    when: conditions
      .optional()
      .describe(
        "Conditions that its objects meet, as `objects` says: `in`, `not_in`, `min`, `max`, `contains` (a part of the text) or `matches` (a regular expression of RE2) of a `tag`; the last two ignore case",
      ),
    objects: z.enum(["any", "all"]).default("any").describe(OBJECTS_MEANING),
    images: z
      .strictObject({ min: imageCount.optional(), max: imageCount.optional() })
      .optional()
      .describe("How many images the series has; frames of multi-frame images count each"),
    series: z.enum(["all", "largest"]).default("all").describe(SERIES_MEANING),
    group: z
      .enum(["series", "study"])
      .default("series")
      .describe("A job for each series, or one for all series of a study that this rule matches"),
    quiet: duration
      .default(60)
      .describe(
        'A series or study is complete when nothing of it has come for so long, for example "60s"',
      ),
    pause: duration.optional().describe(PAUSE_MEANING),
    resend: duration.default(600).describe(`${RESEND_MEANING} (default 10m)`),
    require: z.literal("whole").optional().describe(REQUIRE_MEANING),
    require_series: z
      .array(z.strictObject({ name, when: conditions }))
      .min(1)
      .max(100)
      .optional()
      .describe(
        "Series that a study has to have, each by a name and by attributes of one of its objects; before, no job is made. Needs group study",
      ),
    ...choice,
    priority: priority.describe("stat: its jobs go before the gateway's other jobs"),
    output_folder: absolute
      .optional()
      .describe("Results lie in PEER/STUDY below it; required without `discard`"),
    deliver: z
      .array(name)
      .max(32)
      .optional()
      .describe("Names of destinations of its results; default: the file's own `deliver`"),
    continue: z.literal(true).optional().describe(CONTINUE_MEANING),
    discard: z.literal(true).optional().describe(DISCARD_MEANING),
  })
  .superRefine((one, context) => {
    const issue = (path: (string | number)[], message: string) =>
      context.addIssue({ code: "custom", path, message });
    const { images, group, require_series: required, discard, output_folder, deliver } = one;
    if (images?.min !== undefined && images.max !== undefined && images.min > images.max)
      issue(["images", "min"], `Expected at most ${images.max}, which is max: no count is within`);
    if (images?.max === 0 && discard === undefined)
      issue(["images", "max"], "Expected at least 1, or discard: no job is made without images");
    if (required !== undefined && group !== "study")
      issue(["require_series"], "Expected group study: a single series has no others");
    required?.forEach((series, i) => {
      if (required.findIndex((other) => other.name === series.name) < i)
        issue(["require_series", i, "name"], "Expected a name that no series before has");
    });
    deliver?.forEach((destination, i) => {
      if (deliver.indexOf(destination) < i) issue(["deliver", i], "Expected each destination once");
    });
    if (discard === undefined && output_folder === undefined)
      issue(["output_folder"], "Expected a folder for results, or discard");
    for (const field of OF_JOBS)
      if (discard !== undefined && one[field] !== undefined)
        issue([field], "Expected none beside discard: no job is made");
    if (discard !== undefined && (group === "study" || one.series === "largest"))
      issue(["discard"], "Expected group series and all of its series: each is removed by itself");
  });
export type Rule = z.output<typeof rule>;

/** Of a rule that does not say how long open associations keep a series. */
const QUIETS_OF_PAUSE = 2;

/** Milliseconds for which an open association keeps a series after its last object of it. */
export const pauseOf = ({ quiet, pause }: Pick<Rule, "quiet" | "pause">): number =>
  1000 * (pause ?? QUIETS_OF_PAUSE * quiet);

/** A rule that makes jobs. */
export type JobRule = Rule & { output_folder: string };
export const makesJobs = (one: Rule): one is JobRule => one.output_folder !== undefined;

/** Whether nothing that a rule may be asked of is left for those after it. */
export const takesAll = (one: Rule): boolean =>
  one.continue === undefined &&
  one.when === undefined &&
  one.called === undefined &&
  one.images === undefined;
