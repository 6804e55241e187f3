/**
 * Computes the results of a receipt again, in memory, from its source and with the start that it
 * says: every hash, finding and caveat has to come out as it stands in the receipt. Nothing is
 * written.
 */
import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { Engine } from "../engine/engine.js";
import { asRadserveError, errors } from "../base/errors.js";
import { storedFrames } from "../images/dicom/case.js";
import type { Image } from "../images/image.js";
import { type InferContext, type InferTask } from "./task.js";
import { outputKindSchema, type OutputKind } from "../manifest/manifest.js";
import type { ModelEntry } from "../models/entry.js";
import { resolveThresholds } from "../models/read.js";
import { wanting } from "../models/wanted.js";
import type { Receipt, ReceiptModel } from "../results/receipt/receipt.js";
import { LABEL_MAP_SEGMENTATION } from "../results/dicom/segments.js";
import { ofReception } from "../results/receipt/reception.js";
import { RESULT_FORMS, type ResultForms } from "../results/forms.js";
import { sourceOf } from "../results/commit/compose.js";
import { check, checkFaults, type ReceiptCheck } from "../results/commit/verify.js";
import { makeResults, notAccepted } from "./make-results.js";
import { runModels } from "./run-models.js";
import { REGION_EMPTY } from "./views.js";
import { coloured, planOf, reasonsOf, withFirst } from "./plan.js";
import { Stopwatch } from "../base/stopwatch.js";
import { VERSION } from "../base/version.js";

export interface Replay {
  receipt: Receipt;
  image: Image;
  engine: Engine;
  models: readonly ModelEntry[];
  forms?: InferContext["forms"];
}

/** Compares the source with the receipt, and then the results of each model. */
export async function replay(request: Replay): Promise<ReceiptCheck[]> {
  const { receipt, image, models } = request;
  const source = await checkSource(receipt, image);
  const isSame = image.source.fileSha256 === receipt.source.file_sha256;
  const manifestOf = ({ sha256 }: ReceiptModel) =>
    models.find((one) => one.sha256 === sha256)?.manifest;
  const faults = checkFaults({ receipt, manifestOf, ...(isSame ? { image } : {}) });
  if (source.some(({ verdict }) => verdict !== "ok")) {
    const why = isSame ? "the source is read in another way here" : "the source is another";
    return [...source, ...receipt.models.map(({ name }) => notReplayed(name, why)), ...faults];
  }
  const checks: ReceiptCheck[] = [];
  const again: { before: ReceiptModel; entry: ModelEntry }[] = [];
  for (const before of receipt.models) {
    const entry = models.find(({ name }) => name === before.name);
    const obstacle = whyNotReplayed(receipt, before, entry, models);
    if (entry === undefined || obstacle !== undefined)
      checks.push(notReplayed(before.name, obstacle ?? ""));
    else if (before.status === "not_accepted" && !foundNothing(before))
      checks.push(checkRefusal(before, entry, image, models));
    else again.push({ before, entry: asItWas(entry, before) });
  }
  const computed = again.length === 0 ? [] : await computeAgain(request, again);
  return [...source, ...checks, ...computed, ...faults];
}

const notReplayed = (name: string, why: string) => check(name, "not_replayed", why);

async function checkSource(receipt: Receipt, image: Image): Promise<ReceiptCheck[]> {
  const { file_sha256, pixel_sha256 } = receipt.source;
  if (image.source.fileSha256 !== file_sha256)
    return [check("source", "differs", "another SHA-256 of the file")];
  const pixels = createHash("sha256");
  for await (const frame of storedFrames(image)) pixels.update(frame);
  const hash = pixels.digest("hex");
  if (hash !== pixel_sha256)
    return [check("source", "differs", "another SHA-256 of the decoded pixels")];
  const said = {
    source: asTold(sourceOf(receipt.source.name, image, hash), receipt.source),
    transforms: image.transforms,
    warnings: [...image.warnings, ...ofReception(receipt.warnings)],
  };
  const wrong = different(said, receipt, ["source", "transforms", "warnings"]);
  if (wrong !== undefined) return [check("source", "differs", `the receipt tells other ${wrong}`)];
  return [check("source", "ok", "the file and its decoded pixels are the receipt's")];
}

/**
 * Receipts of before do not tell of the equipment: what is computed now is compared without it
 * then. What was not chosen followed from all models of then; now the receipt names the series. No
 * file says what was replaced.
 */
function asTold(source: Receipt["source"], told: Receipt["source"]): Receipt["source"] {
  const rest = { ...source };
  delete rest.not_chosen;
  if (told.not_chosen !== undefined) rest.not_chosen = told.not_chosen;
  if (told.replaced !== undefined) rest.replaced = told.replaced;
  if (told.manufacturer !== undefined || told.manufacturer_model_name !== undefined) return rest;
  delete rest.manufacturer;
  delete rest.manufacturer_model_name;
  return rest;
}

/** Why a model's part cannot be computed again, in words. */
function whyNotReplayed(
  receipt: Receipt,
  before: ReceiptModel,
  entry: ModelEntry | undefined,
  models: readonly ModelEntry[],
): string | undefined {
  if (before.status === "failed") return `it failed then (${before.error?.error ?? "no reason"})`;
  if (entry === undefined) return "no model of this name is installed here";
  if (entry.sha256 !== before.sha256)
    return `the model here is another: version ${entry.version}, SHA-256 ${entry.sha256.slice(0, 12)}`;
  if (receipt.radserve_version !== VERSION)
    return `Radserve ${receipt.radserve_version} made it, this is ${VERSION}`;
  if (before.status === "not_accepted" && !foundNothing(before)) return undefined;
  const looked = before.region?.model ?? before.cascade?.model;
  const finder =
    looked === undefined ? undefined : receipt.models.find(({ name }) => name === looked);
  if (looked !== undefined) {
    const known = models.find(({ name }) => name === looked);
    const why =
      finder === undefined
        ? "it is not in the receipt"
        : whyNotReplayed(receipt, finder, known, models);
    if (why !== undefined) return `of the model ${looked}, which looks first: ${why}`;
  }
  if (entry.nativeId === undefined) return entry.error?.message ?? "the model is not loaded";
  if (before.provider !== undefined && before.provider !== entry.provider)
    return `it ran on ${before.provider}, here the model runs on ${entry.provider ?? "nothing"}`;
  return undefined;
}

/** It was refused by what another model found, and not by the image. */
const foundNothing = ({ reasons }: ReceiptModel): boolean =>
  reasons?.some(({ code }) => code === REGION_EMPTY) === true;

function checkRefusal(
  before: ReceiptModel,
  entry: ModelEntry,
  image: Image,
  models: readonly ModelEntry[],
): ReceiptCheck {
  const { first, ...known } = withFirst(asItWas(entry, before), models);
  const looked = before.region ?? before.cascade;
  const pinned = first &&
    looked && { first: { ...first, site_thresholds: looked.site_thresholds } };
  const now = notAccepted({
    entry: { ...known, ...pinned },
    reasons: reasonsOf(known, image, models),
  });
  return isDeepStrictEqual(plain(now), plain(before))
    ? check(before.name, "ok", "does not accept the image, for the same reasons")
    : check(
        before.name,
        "differs",
        "it accepts the image, or refuses it for other reasons, or says more",
      );
}

/** The model with the site thresholds and the labels that the receipt says. */
function asItWas(entry: ModelEntry, before: ReceiptModel): ModelEntry {
  const site = { ...entry.site, thresholds: before.site_thresholds };
  const now = { ...entry, site, thresholds: resolveThresholds(entry.manifest, site) };
  return before.labels === undefined ? now : wanting(coloured(now), before.labels);
}

async function computeAgain(
  { receipt, image, engine, forms = RESULT_FORMS }: Replay,
  again: readonly { before: ReceiptModel; entry: ModelEntry }[],
): Promise<ReceiptCheck[]> {
  const entries = again.map(({ entry }) => entry);
  const { request_id, started_at, utc_offset } = receipt.timings;
  const roots = { input: undefined, output: undefined };
  const task: InferTask = {
    requestId: request_id,
    inputPath: "",
    outputFolder: "",
    roots,
    startedAt: started_at,
    priority: "routine",
    cancelId: 1,
  };
  const { request, site } = kindsOf(receipt);
  try {
    const plan = planOf(entries, image, request, site);
    const context = {
      engine,
      models: entries,
      forms: formsOf(again, forms),
    };
    const watch = new Stopwatch(started_at, utc_offset);
    const analysis = {
      task,
      context,
      watch,
      name: receipt.source.name,
      image,
      reception: ofReception(receipt.warnings),
      replaced: receipt.source.replaced ?? [],
      plan,
      earlier: receipt,
    };
    const { models } = await makeResults(analysis, await runModels(analysis));
    return again.map(({ before }) => {
      const now = models.find(({ name }) => name === before.name);
      return now === undefined
        ? check(before.name, "differs", "gives nothing")
        : compared(before, now);
    });
  } catch (thrown) {
    const { message } = thrown instanceof RangeError ? thrown : asRadserveError(thrown);
    return again.map(({ before }) =>
      check(before.name, "differs", `cannot be computed: ${message}`),
    );
  }
}

/**
 * The forms in which the results of a receipt were written, whatever the settings say now. Receipts
 * of before do not tell the opacity of their pictures: that of the settings is taken then.
 */
function formsOf(
  again: readonly { before: ReceiptModel }[],
  { overlayOpacity: ofSettings }: ResultForms,
): ResultForms {
  const files = again.flatMap(({ before }) => before.outputs);
  const hasLabelMap = files.some(({ sop_class_uid: uid }) => uid === LABEL_MAP_SEGMENTATION);
  const [opacity = ofSettings] = again.flatMap(({ before }) => before.overlay_opacity ?? []);
  return { overlayOpacity: opacity, segmentationType: hasLabelMap ? "labelmap" : "binary" };
}

/**
 * The kinds that were asked for, and by whom.
 * @throws RadserveError output_invalid if the receipt names an unknown kind
 */
function kindsOf({ outputs_requested, outputs_from }: Receipt): {
  request: OutputKind[] | undefined;
  site: OutputKind[] | undefined;
} {
  if (outputs_from === "manifest" || outputs_from === undefined)
    return { request: undefined, site: undefined };
  const kinds = outputKindSchema.array().safeParse(outputs_requested);
  if (!kinds.success)
    throw errors.output_invalid("Expected kinds of outputs in the receipt's outputs_requested.");
  return outputs_from === "request"
    ? { request: kinds.data, site: undefined }
    : { request: undefined, site: kinds.data };
}

const FIELDS = [
  ...([
    "version",
    "status",
    "shadow",
    "raw_sha256",
    "findings",
    "measurements",
    "warnings",
  ] as const),
  ...(["transforms", "decoding", "ensemble", "parts", "labels", "region", "cascade"] as const),
  ...(["roles", "reasons", "segmentation_grid", "outputs", "predecessor", "provider"] as const),
  "overlay_opacity" as const,
];

function compared(before: ReceiptModel, now: ReceiptModel): ReceiptCheck {
  const files = now.outputs.filter(
    (file) =>
      !before.outputs.some(({ path, sha256 }) => path === file.path && sha256 === file.sha256),
  );
  const { name, overlay_opacity: opacity } = before;
  const told = opacity === undefined ? { ...now, overlay_opacity: undefined } : now;
  const wrong = different(told, before, FIELDS);
  if (wrong === undefined)
    return check(name, "ok", "computed again: all files and findings are equal");
  const which = files.length === 0 ? "" : ` (${files.map(({ path }) => path).join(", ")})`;
  return check(name, "differs", `computed again, there are other ${wrong}${which}`);
}

/** The names of the fields that differ, compared as JSON holds them. */
function different<T extends object>(
  now: object,
  before: T,
  fields: readonly (keyof T & string)[],
) {
  const [left, right] = [plain(now), plain(before)] as Record<string, unknown>[];
  const wrong = fields.filter((field) => !isDeepStrictEqual(left?.[field], right?.[field]));
  return wrong.length === 0 ? undefined : wrong.join(", ");
}

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value)) as unknown;
