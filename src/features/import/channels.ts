/**
 * The channels of a network as roles: each image channel is a series of its own. By which
 * attributes a series is known, and what values a channel of positron emission had, no file of the
 * network says: a file of the person who imports it does, or it is left open in the manifest.
 */
import { z } from "zod";
import { ownValue } from "../../base/own-value.js";
import { roleSchema, valuesSchema } from "../../manifest/manifest.js";
import { plainName } from "../../models/draft.js";
import { parsedAs } from "./json.js";
import type { Gaps } from "./gaps.js";

const rolesFile = z.record(
  z.string(),
  roleSchema.omit({ role: true }).extend({ values: valuesSchema.optional() }),
);

/** A channel: its name, and how it is prepared. */
export interface Channel {
  name: string;
  /** `clip`, `normalisation` and `background` of the manifest. */
  prepared: Record<string, unknown>;
}

/** `roles` of a manifest and of its input; what is open is null. */
export interface ChannelRoles {
  roles: Record<string, unknown>[];
  ofInput: Record<string, unknown>[];
}

/**
 * @param given the content of the file of roles: by a channel's name its rules, and what is said
 * beside them
 * @param modalities of DICOM that the network takes
 * @throws RadserveError bad_request for a file that is none of roles
 */
export function rolesOf(
  channels: readonly Channel[],
  given: unknown,
  modalities: readonly string[],
  gaps: Gaps,
): ChannelRoles {
  const file = given === undefined ? undefined : parsedAs(rolesFile, given, "The file of --roles");
  const names = channels.map(({ name }) => name);
  const unknown = Object.keys(file ?? {}).filter((name) => !names.includes(name));
  if (unknown.length > 0)
    gaps.refuse(
      "--roles",
      `No channel is called ${unknown.join(", ")}; channels are ${names.join(", ")}`,
    );
  const roles: ChannelRoles["roles"] = [];
  const ofInput: ChannelRoles["ofInput"] = [];
  channels.forEach(({ name, prepared }, place) => {
    const role = roleName(
      name,
      names.indexOf(name) !== names.lastIndexOf(name) ? place : undefined,
    );
    const said = file?.[name];
    if (file !== undefined && said === undefined)
      gaps.refuse("--roles", `Expected the channel "${name}" too: the network was trained with it`);
    // SUV or Bq/ml: the network's own files do not say it
    const open = modalities.includes("PT") && name !== "CT" ? { values: null } : {};
    const values = said?.values === undefined ? open : { values: said.values };
    const study = said?.study === undefined ? {} : { study: said.study };
    roles.push({ role, rules: said?.rules ?? null, ...study });
    ofInput.push({ role, ...values, ...prepared });
  });
  return { roles, ofInput };
}

/** A channel's name in the letters of a role. */
function roleName(channel: string, place: number | undefined): string {
  const name = plainName(channel, "-", 28) || "channel";
  return place === undefined ? name : `${name}-${place}`;
}

type Fields = Record<string, unknown>;

/** Fields of roles and labels that are still open, by their paths. */
export function openRoles(manifest: Fields): { path: string; message: string }[] {
  const open: { path: string; message: string }[] = [];
  ((manifest["roles"] ?? []) as Fields[]).forEach(({ role, rules }, i) => {
    if (rules === null)
      open.push({
        path: `roles[${i}].rules`,
        message: `By which attributes the series of "${String(role)}" is known, for example [{ "tag": "SeriesDescription", "contains": ["${String(role)}"] }]`,
      });
  });
  const ask = (path: string, what: string) =>
    open.push({
      path,
      message: `What the voxels${what} were in training: { "kind": "suv_bw" }, or { "kind": "modality" } for those of the file, mostly Bq/ml`,
    });
  ((manifest["inputs"] ?? []) as { roles?: Fields[]; values?: unknown }[]).forEach((input, i) => {
    if (input.values === null) ask(`inputs[${i}].values`, "");
    (input.roles ?? []).forEach(({ role, values }, r) => {
      if (values === null) ask(`inputs[${i}].roles[${r}].values`, ` of "${String(role)}"`);
    });
  });
  const outputs = (manifest["outputs"] ?? []) as { labels?: Fields[] }[];
  outputs.forEach(({ labels = [] }, o) => {
    labels.forEach(({ label, threshold }, l) => {
      if (label === null)
        open.push({
          path: `outputs[${o}].labels[${l}].label`,
          message: "What it is; the network's files have no name for it",
        });
      if (threshold === null)
        open.push({
          path: `outputs[${o}].labels[${l}].threshold`,
          message: `From which score on "${String(label)}" is present; the network's files do not say it`,
        });
    });
  });
  return open;
}

/** The values that stand for open fields while the rest of the manifest is checked. */
const STAND_INS: Readonly<Record<string, (place: number) => unknown>> = {
  rules: () => [{ tag: "SeriesNumber", min: 0 }],
  values: () => ({ kind: "modality" }),
  label: (place) => `label ${place}`,
  threshold: () => 0.5,
};

/** The manifest as it may be when its roles are filled in. */
export function asIfFilledIn(manifest: Fields): Fields {
  let place = 0;
  const text = JSON.stringify(manifest, (key, value: unknown) =>
    value === null ? (ownValue(STAND_INS, key)?.(place++) ?? null) : value,
  );
  return JSON.parse(text) as Fields;
}
