/**
 * The facts of a report, gathered image by image. They take the same room for ten images as for a
 * million: numbers go into distributions, and of failures and pictures only some are kept. Equal
 * images in equal order give equal facts.
 */
import { Distribution } from "../../base/distribution.js";
import type { ErrorObject } from "../../base/errors.js";
import { AREA, VOLUME } from "../../results/kinds/segmentation.js";
import { observedIn, scannerOf, workTime, type Observed } from "../../results/receipt/observed.js";
import type { Measurement, Receipt, ReceiptModel } from "../../results/receipt/receipt.js";
import type { Item } from "../../jobs/schema.js";

/** One image of the job, as its end was written down, with its receipt if that could be read. */
export interface ReportedImage extends Pick<
  Item,
  "index" | "input_image_path" | "state" | "reused" | "error" | "reason"
> {
  receipt?: Receipt;
  /** Where the receipt lies, as the client names it. */
  receiptPath?: string;
  /**
   * Why nothing is told of the receipt that lies there: it is not this installation's, or of
   * another run.
   */
  untold?: { code: string; message: string };
  /** It has results, and its receipt could not be read. */
  receiptLost: boolean;
}

export const codeOf = (error: Pick<ErrorObject, "error" | "message"> | undefined) =>
  error && { code: error.error, message: error.message };

/** What a model measured, without areas and volumes of labels: those are their extents. */
export function measuredBy({ measurements }: Pick<ReceiptModel, "measurements">): Measurement[] {
  const extents = [AREA.value, VOLUME.value];
  return measurements.filter(
    ({ label, code }) => label === undefined || !extents.includes(code?.value ?? ""),
  );
}

/** The name of a measurement, with the number of the box that it is of. */
export const measurementName = ({ name, number }: Pick<Measurement, "name" | "number">): string =>
  number === undefined ? name : `${name} ${number}`;

/** Examples that are named of each reason; the table has them all. */
const MOST_EXAMPLES = 5;
/** Pictures that are looked for of each label of a model, and of images with a failed model. */
const MOST_OF_LABEL = 4;
/** Rows of tables; a job of as many models, labels or scanners has more in the CSV file. */
const MOST_ROWS = 400;

export interface ReportReason {
  kind: "failed" | "untold" | "skipped" | "model" | "refused";
  /** The model that failed, or does not take the image. */
  model?: string;
  code: string;
  /** The message of the first image. */
  message: string;
  images: number;
  examples: string[];
}

/** A label of a model: of all images, and of those of one scanner. */
export interface LabelFacts {
  label: string;
  images: number;
  found: number;
  scores: Distribution;
  /** Extents on images where it was found, by unit. */
  extents: Map<string, Distribution>;
}

/** A measurement of a model: of all images, and of all frames and boxes of one. */
export interface MeasurementFacts {
  label: string | undefined;
  name: string;
  /** In UCUM. */
  unit: string;
  values: Distribution;
}

export interface ModelFacts {
  name: string;
  version: string;
  shadow: boolean;
  succeeded: number;
  failed: number;
  notAccepted: number;
  labels: Map<string, LabelFacts>;
  measurements: Map<string, MeasurementFacts>;
  scanners: Map<string, { images: number; labels: Map<string, LabelFacts> }>;
  /** Images with the warning, by its code. */
  warnings: Map<string, number>;
}

/** A picture that may be shown: its place, and why it was chosen. */
export interface PictureCandidate {
  index: number;
  input: string;
  /** Beside the receipt. */
  file: string;
  sha256: string;
  model: string;
  words: string;
  /** How strongly it speaks for being shown. */
  weight: number;
}

export class Tally {
  readonly reasons = new Map<string, ReportReason>();
  readonly models = new Map<string, ModelFacts>();
  readonly steps = new Map<string, Distribution>();
  readonly work = new Distribution();
  reused = 0;
  receiptsLost = 0;
  /** Tables have no room for some rows. */
  shortened = false;
  readonly #candidates = new Map<string, PictureCandidate[]>();

  add(image: ReportedImage): void {
    if (image.reused === true) this.reused += 1;
    if (image.receiptLost) this.receiptsLost += 1;
    this.#countReason("failed", codeOf(image.error), image);
    this.#countReason("skipped", image.reason, image);
    this.#countReason("untold", image.untold, image);
    if (image.receipt !== undefined) this.#addReceipt(image, image.receipt);
  }

  /** The pictures that speak most for being shown, of every label in turn. */
  candidates(most: number): PictureCandidate[] {
    const kinds = [...this.#candidates]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, found]) => found);
    const chosen = new Map<string, PictureCandidate>();
    for (let rank = 0; rank < MOST_OF_LABEL; rank++)
      for (const found of kinds) {
        const candidate = found[rank];
        if (candidate !== undefined && chosen.size < most && !chosen.has(keyOf(candidate)))
          chosen.set(keyOf(candidate), candidate);
      }
    return [...chosen.values()];
  }

  #addReceipt(image: ReportedImage, receipt: Receipt): void {
    if (image.reused !== true) {
      for (const [step, ms] of Object.entries(receipt.timings.milliseconds))
        distributionOf(this.steps, step).add(ms);
      this.work.add(workTime(receipt));
    }
    const scanner = scannerOf(receipt);
    for (const model of receipt.models) this.#addModel(image, model, scanner);
  }

  #addModel(image: ReportedImage, model: ReceiptModel, scanner: string): void {
    const facts = this.#factsOf(model);
    if (facts === undefined) return;
    if (model.status === "not_accepted") {
      facts.notAccepted += 1;
      this.#countReason("refused", model.reasons?.[0], image, model.name);
      return;
    }
    if (model.status === "failed") {
      facts.failed += 1;
      this.#countReason("model", codeOf(model.error), image, model.name);
      return;
    }
    facts.succeeded += 1;
    for (const code of new Set(model.warnings.map((warning) => warning.code)))
      facts.warnings.set(code, (facts.warnings.get(code) ?? 0) + 1);
    const here = this.#scannerOf(facts, scanner);
    if (here !== undefined) here.images += 1;
    for (const observed of observedIn(model)) {
      this.#countLabel(facts.labels, observed);
      if (here !== undefined) this.#countLabel(here.labels, observed);
      if (observed.present) this.#proposeFinding(image, model, observed);
    }
    for (const measurement of measuredBy(model)) this.#addMeasurement(facts, measurement);
    if (image.state === "partial")
      this.#proposePicture("", image, model, "another model failed on this image", -image.index);
  }

  #addMeasurement({ measurements }: ModelFacts, measurement: Measurement): void {
    const { label, name, value, unit: given } = measurement;
    const unit = given.value;
    this.#entryOf(measurements, `${label ?? ""}\n${name}\n${unit}`, () => ({
      label,
      name,
      unit,
      values: new Distribution(),
    }))?.values.add(value);
  }

  #factsOf({ name, version, shadow }: ReceiptModel): ModelFacts | undefined {
    const key = `${name}\n${version}\n${shadow === true ? "shadow" : ""}`;
    return this.#entryOf(this.models, key, () => ({
      name,
      version,
      shadow: shadow === true,
      succeeded: 0,
      failed: 0,
      notAccepted: 0,
      labels: new Map(),
      measurements: new Map(),
      scanners: new Map(),
      warnings: new Map(),
    }));
  }

  #scannerOf({ scanners }: ModelFacts, scanner: string) {
    return this.#entryOf(scanners, scanner, () => ({
      images: 0,
      labels: new Map<string, LabelFacts>(),
    }));
  }

  /** The entry of a map; undefined if a new one has no room. */
  #entryOf<T>(map: Map<string, T>, key: string, make: () => T): T | undefined {
    const known = map.get(key);
    if (known !== undefined) return known;
    if (map.size >= MOST_ROWS) {
      this.shortened = true;
      return undefined;
    }
    const made = make();
    map.set(key, made);
    return made;
  }

  #countLabel(labels: Map<string, LabelFacts>, { label, present, score, extent }: Observed): void {
    const facts = this.#entryOf(labels, label, () => ({
      label,
      images: 0,
      found: 0,
      scores: new Distribution(),
      extents: new Map<string, Distribution>(),
    }));
    if (facts === undefined) return;
    facts.images += 1;
    if (present) facts.found += 1;
    if (score !== undefined) facts.scores.add(score);
    if (present && extent !== undefined)
      distributionOf(facts.extents, extent.unit).add(extent.value);
  }

  #countReason(
    kind: ReportReason["kind"],
    why: { code: string; message: string } | undefined,
    image: ReportedImage,
    model?: string,
  ): void {
    if (why === undefined) return;
    const { code, message } = why;
    const reason = this.#entryOf(this.reasons, `${kind}\n${model ?? ""}\n${code}`, () => ({
      kind,
      code,
      message,
      images: 0,
      examples: [],
      ...(model === undefined ? {} : { model }),
    }));
    if (reason === undefined) return;
    reason.images += 1;
    if (reason.examples.length < MOST_EXAMPLES) reason.examples.push(image.input_image_path);
  }

  #proposeFinding(
    image: ReportedImage,
    model: ReceiptModel,
    { label, score, extent }: Observed,
  ): void {
    const words = score === undefined ? label : `${label}, score ${score.toFixed(2)}`;
    this.#proposePicture(
      `${model.name}\n${label}`,
      image,
      model,
      words,
      score ?? extent?.value ?? 0,
    );
  }

  #proposePicture(
    kind: string,
    { index, input_image_path: input }: ReportedImage,
    model: ReceiptModel,
    words: string,
    weight: number,
  ) {
    const picture = model.outputs.find(({ media_type }) => media_type === "image/png");
    if (picture === undefined) return;
    const found = this.#entryOf(this.#candidates, kind, () => []);
    if (found === undefined) return;
    const { path: file, sha256 } = picture;
    found.push({ index, input, file, sha256, model: model.name, words, weight });
    found.sort((a, b) => b.weight - a.weight || a.index - b.index);
    found.length = Math.min(found.length, MOST_OF_LABEL);
  }
}

const keyOf = ({ index, file }: PictureCandidate) => `${index}\n${file}`;

function distributionOf(map: Map<string, Distribution>, key: string): Distribution {
  const known = map.get(key) ?? new Distribution();
  map.set(key, known);
  return known;
}
