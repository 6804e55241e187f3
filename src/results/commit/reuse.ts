/**
 * Receipts that lie in an output folder: whose image they are of, and whether what they list can be
 * used again.
 */
import { hashFile } from "../../files/durable-files.js";
import { filesOf, type Existing } from "../receipt/read-receipt.js";
import type { Receipt } from "../receipt/receipt.js";
import { SEGMENTATION } from "../dicom/objects/seg.js";
import {
  LABEL_MAP_SEGMENTATION,
  segmentationForm,
  type SegmentationForm,
} from "../dicom/segments.js";
import { RESULT_FORMS, type ResultForms } from "../forms.js";
import { canonicalJson } from "../../base/canonical-json.js";
import { errors, RadserveError } from "../../base/errors.js";
import { VERSION } from "../../base/version.js";
import type { Image, Warning } from "../../images/image.js";
import type { ModelEntry } from "../../models/entry.js";
import { receiptName } from "../receipt/names.js";
import { ofReception } from "../receipt/reception.js";
import { distrust, type Trust } from "../receipt/seal.js";

/**
 * The names of a source in DICOM. A series has no SOP Instance UID of its own; PNG and the like
 * have neither.
 */
interface Called {
  sop_instance_uid?: string | undefined;
  series_instance_uid?: string | undefined;
}

/**
 * Whether a receipt's source has these names: the same SOP Instance UID or, if neither has one, the
 * same series.
 */
function sameObject({ source }: Receipt, called: Called): boolean {
  return (
    source.sop_instance_uid === called.sop_instance_uid &&
    (source.sop_instance_uid !== undefined ||
      source.series_instance_uid === called.series_instance_uid)
  );
}

type Source = Pick<
  Receipt["source"],
  "pixel_sha256" | "file_sha256" | "slices" | "group" | "case" | "replaced"
> &
  Called;

/** The files of a source: of a series, its slices; of a case, those of its members. */
const filesOfSource = (source: Source) =>
  (source.case ?? [source]).flatMap(({ slices, ...file }) => slices ?? [file]);

/**
 * Whether a receipt is of this image: the same object or series, and the same pixels. The file may
 * differ: a PACS may add or correct attributes. A group that has got more slices since is the same,
 * and so is an image of which somebody had objects replaced, and nothing else is other.
 */
export function sameImage(receipt: Receipt, source: Source): boolean {
  if (!sameObject(receipt, source)) return false;
  const { pixel_sha256: pixels, group } = receipt.source;
  if (pixels === source.pixel_sha256) return true;
  const replaced = new Set(source.replaced);
  if (group !== source.group || (group === undefined && replaced.size === 0)) return false;
  const files = new Set(filesOfSource(source).map(({ file_sha256 }) => file_sha256));
  return filesOfSource(receipt.source).every(
    ({ file_sha256, sop_instance_uid: uid }) =>
      files.has(file_sha256) || (uid !== undefined && replaced.has(uid)),
  );
}

/** The part of what a request would write now that decides whether an earlier result will do. */
export interface ResultKey extends Called {
  file_sha256: string;
  group?: Receipt["source"]["group"];
  /** Every model that the request asks about, those that may not accept the image too. */
  models: readonly {
    name: string;
    sha256: string;
    site_thresholds: Readonly<Record<string, number>>;
    /** Those that the request names; undefined for all. */
    labels?: readonly string[] | undefined;
    /** What the model runs on here; undefined where it does not run. */
    provider?: ModelEntry["provider"];
    /** The form that a SEG of the model would have. */
    segmentation?: SegmentationForm;
  }[];
  outputs_requested: readonly string[];
  outputs_from?: Receipt["outputs_from"];
  radserve_version?: string;
  /** Opacity of masks in pictures that would be drawn. */
  overlay_opacity?: number;
  /** How the series came: it may have been sent again since, whole. */
  reception?: readonly string[];
}

/** What a request asks, as far as it does not follow from its plan. */
interface Asked {
  image: Image;
  reception: readonly Warning[];
  context: { forms?: ResultForms | undefined };
}

export function keyOf(
  { image, reception, context: { forms = RESULT_FORMS } }: Asked,
  plan: {
    models: readonly { entry: ModelEntry }[];
    outputs: string[];
    from: Receipt["outputs_from"];
  },
): ResultKey {
  const { source, series } = image;
  return {
    file_sha256: source.fileSha256,
    sop_instance_uid: source.sopInstanceUid,
    series_instance_uid: source.seriesInstanceUid,
    ...(series?.grouped === true ? { group: "series" } : {}),
    models: plan.models.map(({ entry }) => ({
      name: entry.name,
      sha256: entry.sha256,
      site_thresholds: entry.site.thresholds,
      labels: entry.wanted?.labels,
      provider: entry.provider,
      segmentation: segmentationForm({ image, model: entry }, forms.segmentationType),
    })),
    outputs_requested: plan.outputs,
    outputs_from: plan.from,
    radserve_version: VERSION,
    overlay_opacity: forms.overlayOpacity,
    reception: ofReception(reception).map(({ message }) => message),
  };
}

/**
 * Whether a receipt found in `dir` is what the request would write again: the same file, models,
 * thresholds, outputs and forms of these, no model failed, and every file it lists lies there
 * unchanged.
 */
export async function reusable(dir: string, receipt: Receipt, key: ResultKey): Promise<boolean> {
  const { source } = receipt;
  if (source.file_sha256 !== key.file_sha256 || source.group !== key.group) return false;
  if (key.radserve_version !== undefined && receipt.radserve_version !== key.radserve_version)
    return false;
  const reception = ofReception(receipt.warnings).map(({ message }) => message);
  if (!sameNames(reception, key.reception ?? [])) return false;
  if (receipt.status !== "completed" || receipt.models.some((m) => m.status === "failed"))
    return false;
  if (!sameNames(receipt.outputs_requested, key.outputs_requested)) return false;
  if (receipt.outputs_from !== key.outputs_from) return false;
  if (!sameNames(receipt.models.map(identity), key.models.map(identity))) return false;
  if (!key.models.every((model) => ranAlike(receipt, model))) return false;
  if (!isInForm(receipt, key)) return false;
  for (const [file, hash] of filesOf(receipt)) {
    if (/[/\0]/.test(file) || (await hashFile(`${dir}/${file}`)) !== hash) return false;
  }
  return true;
}

function identity({ name, sha256, site_thresholds, labels }: ResultKey["models"][number]): string {
  return canonicalJson([name, sha256, site_thresholds, labels ?? null]);
}

/** Another provider gives other bits. A model that did not run says none. */
function ranAlike({ models }: Receipt, { name, provider }: ResultKey["models"][number]): boolean {
  const before = models.find((model) => model.name === name)?.provider;
  return before === undefined || provider === undefined || before === provider;
}

/**
 * Whether what was written has the forms that the site wants now. A model that wrote no SEG, or
 * drew no picture, says nothing of that; nor do receipts of before of the opacity.
 */
function isInForm({ models }: Receipt, { models: asked, overlay_opacity: opacity }: ResultKey) {
  return models.every(({ name, outputs, overlay_opacity: drawnWith = opacity }) => {
    const form = asked.find((model) => model.name === name)?.segmentation;
    const other = form === "labelmap" ? SEGMENTATION : LABEL_MAP_SEGMENTATION;
    const isOther = form !== undefined && outputs.some((file) => file.sop_class_uid === other);
    return !isOther && (opacity === undefined || drawnWith === opacity);
  });
}

function sameNames(left: readonly string[], right: readonly string[]): boolean {
  return canonicalJson([...new Set(left)].sort()) === canonicalJson([...new Set(right)].sort());
}

/**
 * The earlier result of this object or series under NAME, and whether it is what the request would
 * write again. One that is not trusted never is: what it says may be anybody's.
 * @param dir folder that the receipt was found in
 * @param keyOfRequest is asked for only where there is a receipt: it hashes the file
 * @throws RadserveError output_name_taken if something else lies there
 */
export async function earlierResult(
  dir: string,
  name: string,
  existing: Existing,
  keyOfRequest: () => ResultKey,
): Promise<{ receipt: Receipt; trust: Trust; reusable: boolean } | undefined> {
  if (existing.kind === "none") return undefined;
  if (existing.kind === "foreign") throw taken(name, "a file that is not a receipt of Radserve");
  const { receipt, trust } = existing;
  const key = keyOfRequest();
  if (trust.trusted && (await reusable(dir, receipt, key)))
    return { receipt, trust, reusable: true };
  if (!sameObject(receipt, key))
    throw taken(
      name,
      trust.trusted
        ? "the result of another image"
        : `a receipt of another image that is not trusted (${distrust(trust)})`,
    );
  return { receipt, trust, reusable: false };
}

/**
 * Refuses to replace an earlier result by one of other pixels, or by one in which a model failed
 * that succeeded before: the fault may pass, and what the model said about this image would be
 * gone.
 * @throws RadserveError output_name_taken, or the model's error; the earlier result stays
 */
export function refuseLoss(name: string, earlier: Receipt, now: Receipt): void {
  if (!sameImage(earlier, now.source)) throw taken(name, "the result of another image");
  const kept = new Set(earlier.models.filter((m) => m.status === "succeeded").map((m) => m.name));
  const lost = now.models.find((model) => model.status === "failed" && kept.has(model.name));
  if (lost?.error === undefined) return;
  const { error, message, details } = lost.error;
  throw new RadserveError(error, `${message} The earlier result of this image is kept.`, details);
}

function taken(name: string, found: string): RadserveError {
  return errors.output_name_taken(
    `Expected the output folder to hold nothing under this name, or an earlier result of this image; found ${found}. Choose another output folder, or move what lies there.`,
    { name: receiptName(name) },
  );
}
