/**
 * Which series or images of a folder have which role for a model, and why they are no case for it.
 */
import { errors, type RadserveError } from "../base/errors.js";
import { coverage, sameGrid, type VolumeGrid } from "../images/grids.js";
import type { Candidates } from "../images/dicom/case.js";
import { differingPersons } from "../images/dicom/identity.js";
import { seriesInvalid } from "../images/dicom/series-fault.js";
import { secondsOfDate, secondsOfTime } from "../images/dicom/value-forms.js";
import { volumeOf } from "../images/dicom/volume.js";
import type { Attributes, Candidate, Case, Image, Warning } from "../images/image.js";
import type { Manifest, Role } from "../manifest/manifest.js";
import { dataSets, picked, valuesByFrame, type Reason } from "./attribute-values.js";
import { preferred } from "./prefer.js";

/** A role of a model, and the series or image that has it. */
export interface Filled {
  role: string;
  image: Image;
}

type RoleRule = Role["rules"][number];

/** Candidates that another one was preferred to, and why. */
type Behind = Map<Candidate, { role: string } & Reason>;

/** Below this part of the first role's voxels the rest is said to be background. */
const WHOLE = 0.999;
/** Images that a refusal lists. */
const LISTED = 4;

const isSeries = ({ accepts }: Pick<Manifest, "accepts">): boolean =>
  accepts.dimensions === "series";

/**
 * The image of each role, in the manifest's order, or every reason why there is none.
 * @param candidates all of the folder: a role that two of them could have is nobody's
 */
export function fill(
  manifest: Manifest,
  candidates: readonly Candidate[],
): { roles: Filled[]; behind: Behind } | { reasons: Reason[] } {
  const { roles = [] } = manifest;
  const behind: Behind = new Map();
  const taken = candidates.filter(({ image }) => isTaken(manifest, image));
  const studies = studiesOf(taken);
  const what = isSeries(manifest) ? "series" : "image";
  const reasons: Reason[] = [];
  const filled: { role: string; found: Candidate }[] = [];
  for (const { role, rules, any_of: lists = [[]], study } of roles) {
    const obeying = taken.filter(
      ({ image }) =>
        isOfStudy(image, study, studies) &&
        lists.some((list) => [...rules, ...list].every((rule) => holds(rule, image))),
    );
    const sound = obeying.filter(({ fault }) => fault === undefined);
    const few = manifest.accepts.prefer === undefined || sound.length === 0;
    const chosen = preferred(manifest.accepts, few ? obeying : sound);
    for (const [candidate, reason] of chosen.behind) behind.set(candidate, { role, ...reason });
    const fitting = chosen.left;
    const [only, ...more] = fitting;
    if (only === undefined)
      reasons.push({
        code: "role_missing",
        message: `Expected one ${what} for the role "${role}", found none among ${taken.length} of the folder${undated(study, studies)}.`,
      });
    else if (more.length > 0)
      reasons.push({
        code: "role_several",
        message: `Expected one ${what} for the role "${role}", found ${fitting.length}: ${listed(fitting)}.`,
      });
    else filled.push({ role, found: only });
  }
  const shared = filled.find(
    ({ found }, i) => filled.findIndex((other) => other.found === found) < i,
  );
  if (shared !== undefined) {
    const names = filled
      .filter(({ found }) => found === shared.found)
      .map(({ role }) => `"${role}"`);
    reasons.push({
      code: "role_shared",
      message: `Expected a ${what} of its own for each role; the rules of ${names.join(" and ")} take the same.`,
    });
  }
  for (const { role, found } of filled)
    if (found.fault !== undefined) {
      const { code, message } = faultReason(found.fault);
      reasons.push({ code, message: `Role "${role}": ${message}` });
    }
  if (reasons.length > 0) return { reasons };
  const images = filled.map(({ role, found }) => ({ role, image: found.image }));
  const apart = togetherReasons(manifest, images);
  return apart.length > 0 ? { reasons: apart } : { roles: images, behind };
}

/**
 * The formats that a model takes at all: the rest of its `accepts` is asked of each role when it is
 * known.
 */
function isTaken({ accepts }: Manifest, { source }: Image): boolean {
  const among = (list: readonly string[] | undefined, value: string | undefined) =>
    list === undefined || (value !== undefined && list.includes(value));
  return (
    source.format === "dicom" &&
    among(accepts.modality, source.modality) &&
    among(accepts.sop_class, source.sopClassUid)
  );
}

/** Every file of an image has to obey the rule. */
function holds(rule: RoleRule, image: Image): boolean {
  const all = dataSets(image);
  return all.length > 0 && all.every((attributes) => obeys(rule, attributes));
}

/** Every frame has to. */
const obeys = (rule: RoleRule, attributes: Attributes): boolean =>
  valuesByFrame(attributes, rule.tag).every((found) => frameObeys(rule, found));

function frameObeys(rule: RoleRule, found: ReturnType<typeof valuesByFrame>[number]): boolean {
  const values = picked(found.strings, rule.index);
  const some = (list: readonly string[]) => values.some((value) => list.includes(value));
  const contains = (list: readonly string[]) =>
    values.some((value) => list.some((text) => value.toLowerCase().includes(text.toLowerCase())));
  if (rule.in !== undefined && !some(rule.in)) return false;
  if (rule.not_in !== undefined && some(rule.not_in)) return false;
  if (rule.contains !== undefined && !contains(rule.contains)) return false;
  if (rule.not_contains !== undefined && contains(rule.not_contains)) return false;
  if (rule.min === undefined && rule.max === undefined) return true;
  const { min = -Infinity, max = Infinity } = rule;
  const numbers = picked(found.numbers, rule.index);
  return numbers.length > 0 && numbers.every((number) => number >= min && number <= max);
}

/**
 * The studies of a folder, the latest first; undefined if one says no date, or two say the same.
 */
type Studies = readonly (string | undefined)[] | undefined;

function studiesOf(candidates: readonly Candidate[]): Studies {
  const times = new Map<string | undefined, number>();
  for (const { image } of candidates) {
    const day = secondsOfDate(image.attributes?.string("StudyDate"));
    const time = image.attributes?.string("StudyTime");
    times.set(
      image.source.studyInstanceUid,
      (day ?? NaN) + (time === undefined ? 0 : (secondsOfTime(time) ?? NaN)),
    );
  }
  if (times.size < 2) return [...times.keys()];
  const sorted = [...times].sort(([, a], [, b]) => b - a);
  const unclear =
    sorted.some(([, at]) => Number.isNaN(at)) || new Set(times.values()).size < times.size;
  return unclear ? undefined : sorted.map(([uid]) => uid);
}

function isOfStudy(image: Image, study: Role["study"], studies: Studies): boolean {
  if (study === undefined) return true;
  if (studies === undefined) return false;
  return (image.source.studyInstanceUid === studies[0]) === (study === "latest");
}

const undated = (study: Role["study"], studies: Studies): string =>
  study !== undefined && studies === undefined
    ? "; the studies do not say by StudyDate and StudyTime which is the latest"
    : "";

/** UIDs tell images from each other without a word about the patient. */
function listed(candidates: readonly Candidate[]): string {
  const uids = candidates.map(
    ({ image: { source } }) =>
      source.sopInstanceUid ?? source.seriesInstanceUid ?? "one without UID",
  );
  const shown = uids.slice(0, LISTED).join(", ");
  return uids.length > LISTED ? `${shown} and ${uids.length - LISTED} more` : shown;
}

/** Why images of the right roles do not belong together. */
function togetherReasons(manifest: Manifest, roles: readonly Filled[]): Reason[] {
  const reasons: Reason[] = [];
  const differ = (what: (image: Image) => unknown) =>
    new Set(roles.map(({ image }) => JSON.stringify(what(image) ?? null))).size > 1;
  const persons = differingPersons(setsOf(roles), []);
  // A name may change between studies; then the identifier vouches for the person
  const named = setsOf(roles).every((set) => set.string("PatientID") !== undefined);
  const differing = persons.filter((keyword) => keyword !== "PatientName" || !named);
  if (differing.length > 0)
    reasons.push({
      code: "case_several_patients",
      message: `Expected one patient in all roles, found different values of ${differing.join(", ")}.`,
    });
  if (manifest.roles?.[0]?.study === undefined && differ(({ source }) => source.studyInstanceUid))
    reasons.push({
      code: "case_several_studies",
      message:
        "Expected all roles of one study, found several: no role of this model is for a prior.",
    });
  if (isSeries(manifest)) reasons.push(...placeReasons(roles));
  return reasons;
}

const setsOf = (roles: readonly Filled[]): Attributes[] =>
  roles.flatMap(({ image }) => dataSets(image));

/** Warns that the images of a case do not name the patient in the same way. */
export function identityCaveats(roles: readonly Filled[]): Warning[] {
  const caveats: Warning[] = [];
  differingPersons(setsOf(roles), caveats);
  return caveats;
}

/** Volumes are brought together by their frame of reference alone. */
function placeReasons([leading, ...others]: readonly Filled[]): Reason[] {
  if (leading === undefined) return [];
  const frameOf = ({ attributes }: Image) => attributes?.string("FrameOfReferenceUID");
  const wanted = frameOf(leading.image);
  return others.flatMap(({ role, image }): Reason[] => {
    const found = frameOf(image);
    if (wanted === undefined || found !== wanted)
      return [
        {
          code: "case_frame_of_reference",
          message: `Expected the FrameOfReferenceUID of the role "${leading.role}" (${wanted ?? "none"}) in "${role}", found ${found ?? "none"}: only volumes of one frame of reference lie on one grid. Have them registered first.`,
        },
      ];
    if (coverage(gridOf(leading.image), gridOf(image)) > 0) return [];
    const message = `Expected the role "${role}" to lie where "${leading.role}" does; it lies beside it.`;
    return [{ code: "case_apart", message }];
  });
}

/** @throws RadserveError series_invalid if the image is no volume */
export function gridOf(image: Image): VolumeGrid {
  const { frames, geometry } = volumeOf(image);
  const { rows, columns } = image.format;
  return { geometry, slices: frames.length, rows, columns };
}

/** Whether a role's voxels are not those of the first, and are taken to that one's grid. */
export const isRegridded = (
  manifest: Pick<Manifest, "accepts">,
  leading: Image,
  image: Image,
): boolean => isSeries(manifest) && !sameGrid(gridOf(leading), gridOf(image));

/** Warns that a series does not reach as far as the one whose grid it is taken to. */
export function coverageCaveats(
  manifest: Manifest,
  [leading, ...others]: readonly Filled[],
): Warning[] {
  if (leading === undefined || !isSeries(manifest)) return [];
  return others.flatMap(({ role, image }) => {
    const part = coverage(gridOf(leading.image), gridOf(image));
    if (part >= WHOLE) return [];
    const message = `The role "${role}" covers ${Math.floor(part * 100)} % of the voxels of "${leading.role}"; the model was given background for the rest.`;
    return [{ code: "role_partly_outside", message }];
  });
}

/**
 * The members of the case that a folder is for the models with roles that take it; undefined if
 * none does.
 * @throws RadserveError series_invalid if models take different ones: nobody said which is meant
 */
export function chooseCase(
  models: readonly { name: string; manifest: Manifest }[],
  found: Candidates,
  takes: (manifest: Manifest, roles: readonly Filled[]) => boolean,
): Case | undefined {
  const cases = new Map<string, { name: string; members: Image[] } & Omit<Case, "members">>();
  for (const { name, manifest } of models) {
    if (manifest.roles === undefined) continue;
    const candidates = isSeries(manifest) ? found.series() : found.images();
    const filled = fill(manifest, candidates);
    if ("reasons" in filled || !takes(manifest, filled.roles)) continue;
    const members = membersOf(filled.roles);
    const key = JSON.stringify(members.map(({ source }) => source.fileSha256));
    const notChosen = candidates.flatMap((one) =>
      members.includes(one.image)
        ? []
        : [{ image: one.image, why: [{ model: name, ...whyNot(one, filled.behind) }] }],
    );
    if (!cases.has(key)) cases.set(key, { name, members, candidates, notChosen });
  }
  const [first, ...others] = cases.values();
  if (others.length > 0)
    throw seriesInvalid(
      "several_cases",
      `Expected models that take the same series of the folder, found several that do not: ${[...cases.values()].map(({ name }) => name).join(", ")}. Name one of them in models.`,
      { models: [...cases.values()].map(({ name }) => name) },
    );
  const [leading, ...rest] = first?.members ?? [];
  if (first === undefined || leading === undefined) return undefined;
  return { members: [leading, ...rest], candidates: first.candidates, notChosen: first.notChosen };
}

const whyNot = (one: Candidate, behind: Behind): Reason & { role?: string } =>
  behind.get(one) ?? (one.fault === undefined ? NO_ROLE : faultReason(one.fault));
const NO_ROLE = { code: "no_role", message: "The rules of no role take it." };

/** Why the files of a series are no volume, as a refusal. */
export const faultReason = ({ code, details, message }: RadserveError): Reason => ({
  // A slice that cannot be read has the code of what is wrong with it
  code: `series_${code === "series_invalid" ? String(details?.["reason"]) : code}`,
  message,
});

/**
 * The images of all roles, the leading one first and the others by their UIDs: roles of models may
 * differ in order.
 */
export function membersOf(roles: readonly Filled[]): Image[] {
  const [leading, ...others] = roles.map(({ image }) => image);
  const named = ({ source }: Image) =>
    `${source.seriesInstanceUid ?? ""} ${source.sopInstanceUid ?? ""}`;
  const sorted = others.sort((a, b) => (named(a) < named(b) ? -1 : 1));
  return leading === undefined ? [] : [leading, ...sorted];
}

/** The roles of a case as receipts and objects name them. */
export function roleFacts(
  roles: readonly Filled[],
): { role: string; series_instance_uid?: string; sop_instance_uid?: string }[] {
  return roles.map(({ role, image: { source } }) => ({
    role,
    ...(source.seriesInstanceUid === undefined
      ? {}
      : { series_instance_uid: source.seriesInstanceUid }),
    ...(source.sopInstanceUid === undefined ? {} : { sop_instance_uid: source.sopInstanceUid }),
  }));
}

/**
 * The roles of an image for a model that takes it.
 * @throws RadserveError no_model_accepts if it has none
 */
export function rolesIn(manifest: Manifest, image: Image): Filled[] {
  if (manifest.roles === undefined) return [];
  const filled = fill(manifest, image.case?.candidates ?? [{ image }]);
  if ("roles" in filled) return filled.roles;
  throw errors.no_model_accepts(filled.reasons.map(({ message }) => message).join(" "));
}
