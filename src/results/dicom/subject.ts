/**
 * One model's results over one image, as far as every DICOM object needs them, and the UIDs that
 * follow from them.
 */
import { cached } from "../../base/cached.js";
import { ensembleText } from "../../manifest/ensemble.js";
import { partFacts, partsText, partsThatRun } from "../../manifest/model-parts.js";
import { cascadeText, regionText } from "../../manifest/region.js";
import { VERSION } from "../../base/version.js";
import type { Phase } from "../../images/dicom/shared-places.js";
import type { Attributes, Image } from "../../images/image.js";
import type { DicomKind } from "../../manifest/manifest.js";
import { isInModelGrid } from "../../manifest/outputs/segmentation.js";
import type { ModelEntry } from "../../models/entry.js";
import type { ReceiptModel } from "../receipt/receipt.js";
import { fingerprint, type SourceIds } from "./source.js";
import { derivedUid } from "./uid.js";

export interface Subject {
  image: Image;
  /** The image's own, known to be there. */
  attributes: Attributes;
  ids: SourceIds;
  /** Identifiers of the other members of a case, in their order; results refer to them too. */
  others: readonly SourceIds[];
  /**
   * The frames by phases, where some show the same place; in words, why they cannot be parted.
   * Absent for one phase of all frames.
   */
  phases?: readonly Phase[] | string | undefined;
  /** The series or image that the model took in each role of a case. */
  roles?: ReceiptModel["roles"];
  model: Pick<
    ModelEntry,
    | "name"
    | "version"
    | "sha256"
    | "manifest"
    | "site"
    | "thresholds"
    | "first"
    | "wanted"
    | "provider"
  >;
  /** When the analysis began: admission. */
  startedAt: Date;
  /** Offset from UTC of the machine on which it began: "+0100". */
  utcOffset: string;
}

/**
 * Everything beside input and model on which the result depends: the model that found the region,
 * and this hospital's thresholds; calibration is in the model's hash.
 */
function configuration({ image, model, roles }: Subject): Record<string, unknown> {
  const { site, first, wanted } = model;
  // A model that takes the whole series says the same of it, grouped or not
  const isGrouped =
    image.series?.grouped === true && model.manifest.accepts.dimensions !== "series";
  return {
    thresholds: site.thresholds,
    ...(first === undefined ? {} : { first }),
    ...(roles === undefined ? {} : { roles }),
    ...(wanted === undefined ? {} : { labels: wanted.labels }),
    ...(isGrouped ? { group: "series" } : {}),
  };
}

/**
 * What the bytes of a result depend on beside: another provider computes other last bits. What is
 * followed stays the same thing, whichever computes it.
 */
function computation(subject: Subject): unknown {
  const { provider } = subject.model;
  const isCpu = provider === undefined || provider === "cpu";
  return { ...configuration(subject), ...(isCpu ? {} : { provider }) };
}

/**
 * TID 4019 and PS3.3 table 10-19, Algorithm Parameters: what else went into the result; undefined
 * if nothing did.
 */
export function algorithmParameters({
  model,
  roles,
}: Pick<Subject, "model" | "roles">): string | undefined {
  const { manifest, first, wanted } = model;
  const parts = [
    ensembleText(manifest),
    partsText(partFacts(manifest, partsThatRun(manifest, wanted?.labels))),
    wanted === undefined ? undefined : `Asked for ${wanted.labels.join(", ")} alone`,
    regionText(manifest.region, first),
    cascadeText(manifest, first),
    rolesText(roles),
    manifest.outputs.some(isInModelGrid)
      ? "Segments lie in the grid of the network; volumes were measured in that of the source"
      : undefined,
  ].filter((part) => part !== undefined);
  return parts.length === 0 ? undefined : parts.join(". ");
}

/** "Looked at flair (series 1.2.3), t1 (series 1.2.4) together". */
function rolesText(roles: Subject["roles"]): string | undefined {
  if (roles === undefined) return undefined;
  const named = roles.map(({ role, series_instance_uid: series, sop_instance_uid: image }) =>
    image === undefined ? `${role} (series ${series ?? ""})` : `${role} (image ${image})`,
  );
  return `Looked at ${named.join(", ")} together`;
}

/** Names the model, not the machine: other weights are another device. */
export function deviceUid(model: Pick<Subject["model"], "sha256">): string {
  return deviceUidOf(model.sha256);
}

const deviceUidOf = cached((sha256: string) => derivedUid("device", [sha256]));

/**
 * The UID of the result series: one for each series of sources, model, configuration and kind of
 * object.
 */
export function seriesUid(subject: Subject, kind: DicomKind | "labelmap"): string {
  const { ids, model } = subject;
  const source = [ids.studyInstanceUid, ids.seriesInstanceUid];
  return derivedUid("series", [...source, model.sha256, computation(subject), VERSION, kind]);
}

/** Everything that makes one analysis different from another of the same kind. */
export function seedOf(subject: Subject): unknown[] {
  const { image, model, startedAt } = subject;
  const { source } = image;
  return [source.fileSha256, model.sha256, computation(subject), startedAt.toISOString(), VERSION];
}

/**
 * The UID of a thing that is followed from one object to the next: stable while source, model and
 * configuration are.
 */
export function trackingUid(subject: Subject, what: readonly unknown[]): string {
  const { image, model } = subject;
  return derivedUid("tracking", [
    fingerprint(image),
    model.sha256,
    configuration(subject),
    ...what,
  ]);
}
