/**
 * Models that look at several series or views of one case: what follows from the manifest, and its
 * rules.
 */
import {
  imageInputs,
  isImageInput,
  isVolume,
  partsOf,
  type ImageInput,
  type Manifest,
  type ModelInput,
} from "./manifest.js";
import { kindOf } from "./outputs/outputs.js";

type Report = (path: (string | number)[], message: string) => void;

/** The role whose image results lie in; undefined for a model that looks at one image. */
export const leadingRole = ({ roles }: Pick<Manifest, "roles">): string | undefined =>
  roles?.[0]?.role;

/**
 * The part of a manifest that is about one role: its inputs, and with the first role those of
 * attributes.
 */
export function seenBy(manifest: Manifest, role: string): Manifest {
  const inputs = manifest.inputs.flatMap((input): ModelInput[] => {
    if (isImageInput(input)) return partsOf(input).filter((part) => roleOf(part) === role);
    return role === leadingRole(manifest) ? [input] : [];
  });
  return { ...manifest, inputs };
}

/** The role of a part of an input, as partsOf gives it; undefined for a model without roles. */
export const roleOf = ({ roles }: Pick<ImageInput, "roles">): string | undefined =>
  roles?.[0]?.role;

/** The parts of all image inputs, in the order in which the engine prepares them. */
export const partsOfModel = (manifest: Pick<Manifest, "inputs">): ImageInput[] =>
  imageInputs(manifest).flatMap(partsOf);

export function checkRoles(m: Manifest, issue: Report): void {
  const names = m.roles?.map(({ role }) => role) ?? [];
  m.inputs.forEach((input, i) => {
    if (isImageInput(input))
      checkInputRoles(m, input, (path, message) => issue(["inputs", i, ...path], message));
  });
  if (m.roles === undefined) return;
  names.forEach((name, i) => {
    if (names.indexOf(name) < i) issue(["roles", i, "role"], `The role "${name}" is there twice`);
    if (!partsOfModel(m).some((part) => roleOf(part) === name))
      issue(["roles", i, "role"], `Expected an input whose roles name "${name}"; found none`);
  });
  m.roles.forEach(({ rules, any_of = [], study }, i) => {
    [...rules, ...any_of.flat()].forEach((rule, r) => {
      if (Object.keys(rule).every((key) => key === "tag" || key === "index"))
        issue(["roles", i, "rules", r], "Expected in, not_in, contains, not_contains, min or max");
    });
    if ((study === undefined) !== (m.roles?.[0]?.study === undefined))
      issue(["roles", i, "study"], "Expected it in all roles or in none");
    if (study === "earlier" && i === 0)
      issue(["roles", i, "study"], 'Expected "latest": results lie in the study of the first role');
  });
  if (m.accepts.dimensions === "2d_frames")
    issue(
      ["accepts", "dimensions"],
      'Expected "series" or "2d" with roles: frames of several images do not belong together',
    );
  if (m.accepts.formats.some((format) => format !== "dicom"))
    issue(
      ["accepts", "formats"],
      'Expected ["dicom"] with roles: other files have no attributes to tell them by',
    );
  if (m.region !== undefined && m.accepts.dimensions !== "series")
    issue(
      ["region"],
      "Expected no roles, or volumes: a part of one view says nothing of the others",
    );
  m.outputs.forEach((output, o) => {
    if (!kindOf(output).placed) return;
    const named = "input" in output ? output.input : undefined;
    const on = imageInputs(m).find(({ tensor }) => named === undefined || tensor === named);
    if (on?.roles !== undefined && on.roles[0]?.role !== names[0])
      issue(
        ["outputs", o, "input"],
        `Expected an input that begins with the role "${names[0] ?? ""}", in whose image results lie; found "${on.roles[0]?.role ?? ""}"`,
      );
  });
}

function checkInputRoles(m: Manifest, input: ImageInput, issue: Report): void {
  const { roles } = input;
  if (m.roles === undefined) {
    if (roles !== undefined)
      issue(["roles"], "Only with roles of the model, which say by what they are known");
    return;
  }
  if (roles === undefined) {
    issue(
      ["roles"],
      `Expected which of the roles it holds: ${m.roles.map(({ role }) => role).join(", ")}`,
    );
    return;
  }
  roles.forEach(({ role }, r) => {
    if (!m.roles?.some((known) => known.role === role))
      issue(["roles", r, "role"], `No role is called "${role}"`);
    if (roles.findIndex((other) => other.role === role) < r)
      issue(["roles", r, "role"], `The role "${role}" is there twice`);
  });
  if (input.neighbours !== undefined) issue(["neighbours"], "Not offered with roles");
  if (input.resampling?.crop === "nonzero" && imageInputs(m).length > 1)
    issue(
      ["resampling", "crop"],
      'Expected "none" with roles in several inputs: each input would be cropped by itself',
    );
  if (!isVolume(input)) {
    if (roles.length > 1 && input.size.kind !== "fixed")
      issue(["size"], "Expected fixed sides for the channels of several images");
    return;
  }
  partsOf(input).forEach(({ values: { kind } }) => {
    if (kind === "stored" || kind === "voi")
      issue(
        ["values", "kind"],
        `Expected values that mean the same in every slice (modality, window, windows, real_world, suv_bw) with roles; found ${kind}`,
      );
  });
}
