/**
 * The file that the setting `gateway` names: who may send images, where they lie until they are
 * removed, and what becomes of them. It is read at the start; what is wrong with it is refused
 * there, by name.
 */
import { linkSync, realpathSync, rmSync, statSync, writeFileSync } from "node:fs";
import { randomUUID } from "node:crypto";
import path from "node:path";
import { z } from "zod";
import { errno } from "../../base/errno.js";
import { ConfigError, PassingFault } from "../../base/errors.js";
import { LOOPBACK, Networks } from "../../base/networks.js";
import {
  absolute,
  duration,
  network,
  readNamedFile,
  settingsOf,
  type Config,
} from "../../config.js";
import { sha256 } from "../../files/durable-files.js";
import { isInSpool } from "../../files/folder-mark.js";
import { stagingName } from "../../files/helper-names.js";
import { isInside, realPathToBe } from "../../files/roots.js";
import { readCertificates, refuseOutOfDate, type TlsNames } from "../../files/certificates.js";
import { isDicomKind } from "../../manifest/output-kinds.js";
import type { ModelEntry } from "../../models/entry.js";
import { destinationSchema, readCredentials } from "./deliver/destination-settings.js";
import { readWebhookFiles, webhookSchema } from "./deliver/webhook-settings.js";
import { aeTitle } from "./dimse/ae-title.js";
import { makesJobs, name, rule, takesAll, type JobRule, type Rule } from "./rule-settings.js";
import { SETTINGS } from "./setting.js";

/** Of what comes by STOW-RS; no peer of the settings has such a name. */
const STOW_PREFIX = "stow-";
/** Text of a subject that can be part of a folder's name as it is. */
const PLAIN_SUBJECT = /^[a-z0-9][a-z0-9_.-]{0,63}$/;
const HASHED_SUBJECT = /^=[0-9a-f]{32}$/;

/** The name of whoever sends by STOW-RS: of two subjects never the same. */
export const stowPeer = (subject: string): string =>
  STOW_PREFIX + (PLAIN_SUBJECT.test(subject) ? subject : `=${sha256(subject).slice(0, 32)}`);

const peer = z.strictObject({
  ae_title: aeTitle.describe("AE title that the peer calls with; it proves no identity"),
  networks: z
    .array(network)
    .min(1)
    .optional()
    .describe("Networks that the peer may call from; any if absent"),
  aborts: z
    .literal(true)
    .optional()
    .describe(
      "The peer ends every association without a release: that alone does not mark its series as interrupted",
    ),
  private_classes: z
    .literal(true)
    .optional()
    .describe("Objects of private SOP classes are accepted from it, and kept like others"),
});

const dicom = z.strictObject({
  port: z.int().min(0).max(65535).describe("TCP port; 0 takes a free one, and the log says which"),
  host: z
    .union([z.ipv4(), z.ipv6()])
    .default("127.0.0.1")
    .describe(
      "Address to listen on; beyond this machine only with tls.client_ca, or networks of every peer",
    ),
  ae_title: z
    .union([aeTitle, z.array(aeTitle).min(1).max(100)])
    .default("RADSERVE")
    .transform((titles) => (typeof titles === "string" ? [titles] : titles))
    .describe("AE title of this server, or several, which rules can tell apart (`called`)"),
  tls: z
    .strictObject({
      cert: absolute.describe("Certificate in PEM, then those between it and its CA"),
      key: absolute.describe("Its private key in PEM, not readable by everybody"),
      client_ca: absolute
        .optional()
        .describe("CA certificates in PEM; with it, every peer needs a certificate of one of them"),
    })
    .optional(),
  associations: z
    .int()
    .min(1)
    .max(1000)
    .default(16)
    .describe("How many may be open at a time; one more is rejected for now"),
});

const SPOOL_MEANING =
  "Folder inside an input root, for received images and for the queue of deliveries; all nodes " +
  "see it. Without one, nothing is received, and the queue is in the state directory";
const RULES_MEANING =
  "The first rule that matches takes a series, and with `continue` those after it, too; a series " +
  "that no rule takes is kept for `keep`. Without rules, nothing is received";

const schema = z
  .strictObject({
    $schema: z.string().optional(),
    spool: absolute.optional().describe(SPOOL_MEANING),
    keep: duration
      .default(7 * 86_400)
      .describe(
        'How long received objects stay once they are a job, or nothing becomes of them, for example "7d" (the default)',
      ),
    peer_share: z
      .number()
      .gt(0)
      .max(1)
      .default(0.75)
      .describe(
        "Part of the spool's disk that one sender may fill: of what it holds and what is free together, so that others always have room; 1 is no limit",
      ),
    dicom: dicom
      .optional()
      .describe("The port for C-STORE and C-ECHO; without it, images come by STOW-RS alone"),
    peers: z.record(name, peer).default({}).describe("Who may call the port for DICOM, by a name"),
    rules: z.array(rule).default([]).describe(RULES_MEANING),
    destinations: z
      .record(name, destinationSchema)
      .default({})
      .describe("Peers that results may be sent to, by name. No other peer is ever called"),
    deliver: z
      .array(name)
      .max(32)
      .default([])
      .describe("Default destinations of requests, jobs and rules that name none"),
    webhooks: z
      .record(name, webhookSchema)
      .default({})
      .describe("Who is told what became of results at destinations, by name"),
  })
  .superRefine(({ spool, peers, rules, dicom, destinations, deliver, webhooks }, context) => {
    const issue = (path: (string | number)[], message: string) =>
      context.addIssue({ code: "custom", path, message });
    const names = Object.keys(peers);
    const places = Object.keys(destinations);
    if (rules.length === 0 && (dicom !== undefined || places.length === 0))
      issue(["rules"], "Expected at least one rule, or destinations alone");
    if (rules.length > 0 && spool === undefined)
      issue(["spool"], "Expected a folder, because there are rules");
    for (const one of Object.keys(webhooks)) {
      if (places.length === 0)
        issue(["webhooks", one], "Expected destinations: it is told what became of results there");
      if (places.includes(one)) issue(["webhooks", one], "Expected a name that no destination has");
    }
    const lists = [
      { at: ["deliver"], list: deliver },
      ...rules.map((one, i) => ({ at: ["rules", i, "deliver"], list: one.deliver ?? [] })),
    ];
    for (const { at, list } of lists)
      list.forEach((one, n) => {
        if (!places.includes(one)) issue([...at, n], "Expected a name of destinations");
      });
    rules.forEach((one, i) => {
      for (const [n, to] of (one.deliver ?? []).entries()) {
        const { outputs, models } = destinations[to] ?? {};
        // JSON and PNG stay in their folder
        if (isApart(one.outputs?.filter(isDicomKind), outputs ?? one.outputs))
          issue(["rules", i, "deliver", n], "Expected a destination that takes some of outputs");
        if (isApart(one.models, models))
          issue(["rules", i, "deliver", n], "Expected a destination that takes some of models");
      }
    });
    const listeners = Object.entries(destinations).flatMap(([one, to]) =>
      to.type === "dicom" && to.listen !== undefined
        ? [{ at: ["destinations", one, "listen", "port"], whose: one, ...to.listen }]
        : [],
    );
    const ports = dicom === undefined ? [] : [{ whose: "dicom", ...dicom }];
    listeners.forEach((one, i) => {
      const other = [...ports, ...listeners.slice(0, i)].find((before) => isOnePort(before, one));
      if (other !== undefined) issue(one.at, `Expected another port than that of ${other.whose}`);
    });
    deliver.forEach((one, n) => {
      if (deliver.indexOf(one) < n) issue(["deliver", n], "Expected each destination once");
    });
    for (const [i, one] of names.entries()) {
      if (one.startsWith(STOW_PREFIX))
        issue(["peers", one], `Expected a name without ${STOW_PREFIX} before it`);
      const { ae_title: title, networks } = peers[one] ?? {};
      const named = names.slice(0, i).filter((before) => peers[before]?.ae_title === title);
      // Whoever calls is the first that fits
      const first = named.find((before) =>
        networks?.every((network) => peers[before]?.networks?.includes(network)),
      );
      if (first !== undefined)
        issue(["peers", one, "networks"], `Expected networks that ${first} of that title lacks`);
      const [other] = named;
      if (other !== undefined && (networks === undefined || peers[other]?.networks === undefined))
        issue(
          ["peers", one, "ae_title"],
          `Expected another title than that of ${other}, or networks of both`,
        );
    }
    rules.forEach(({ name: ruleName, from, called, images, discard }, i) => {
      if (rules.findIndex((one) => one.name === ruleName) < i)
        issue(["rules", i, "name"], "Expected a name that no rule before has");
      (called ?? []).forEach((one, n) => {
        if (dicom?.ae_title.includes(one) !== true)
          issue(["rules", i, "called", n], "Expected a title of dicom.ae_title");
      });
      if (called !== undefined && from?.every((one) => one.startsWith(STOW_PREFIX)) === true)
        issue(["rules", i, "called"], "Expected none: who sends by STOW-RS calls no AE title");
      // A rule for jobs leaves what has no images
      const leaves = (one: Rule) =>
        one.discard === undefined && discard === true && (images?.min ?? 0) === 0;
      const before = rules
        .slice(0, i)
        .find((one) => takesAll(one) && !leaves(one) && isWithin(from, one.from));
      if (before !== undefined)
        issue(
          ["rules", i],
          `Expected a rule that can take something; ${before.name} before it takes all that it is asked of. Put it before that one, or give that one \`continue\``,
        );
      (from ?? []).forEach((one, n) => {
        if (names.includes(one)) return;
        const subject = one.slice(STOW_PREFIX.length);
        if (!one.startsWith(STOW_PREFIX))
          issue(["rules", i, "from", n], `Expected a name of peers, or ${STOW_PREFIX}SUBJECT`);
        else if (!HASHED_SUBJECT.test(subject) && stowPeer(subject) !== one)
          issue(
            ["rules", i, "from", n],
            `Expected ${stowPeer(subject)} for that subject; found ${one}`,
          );
      });
    });
    if (dicom === undefined || new Networks(LOOPBACK).has(dicom.host)) return;
    const open = names.filter((one) => peers[one]?.networks === undefined);
    if (dicom.tls?.client_ca === undefined && open.length > 0)
      issue(
        ["dicom", "host"],
        `Expected 127.0.0.1, or tls.client_ca, or networks of every peer: an AE title does not prove who calls, and ${open.join(", ")} may call from anywhere`,
      );
  });

/** Whether all senders of a rule are among those of another. */
const isWithin = (from: readonly string[] | undefined, all: readonly string[] | undefined) =>
  all === undefined || from?.every((one) => all.includes(one)) === true;

/** Whether nothing is in both of two lists; all is in one that is absent. */
const isApart = (some: readonly string[] | undefined, others: readonly string[] | undefined) =>
  some !== undefined && others !== undefined && !some.some((one) => others.includes(one));

/** What a rule asks for of a series: its results are named after that alone. */
const choiceOf = ({ models, outputs, labels }: JobRule) =>
  JSON.stringify([models, outputs, labels].map((list) => list && [...list].sort()));

/** Whether results of a rule take the place of those of one before it, of the same series. */
const replaces = (one: JobRule, before: JobRule): boolean =>
  before.continue !== undefined &&
  !isApart(one.from, before.from) &&
  choiceOf(one) !== choiceOf(before);

interface Listens {
  host: string;
  port: number;
}
/** Whether two cannot listen at the same time; port 0 is any that is free. */
const isOnePort = (a: Listens, b: Listens): boolean =>
  a.port !== 0 &&
  a.port === b.port &&
  (a.host === b.host || [a.host, b.host].some((host) => host === "0.0.0.0" || host === "::"));

export type GatewaySettings = z.output<typeof schema>;
/** Where no file of the gateway is named. */
export const NO_GATEWAY: GatewaySettings = {
  keep: 0,
  peer_share: 1,
  peers: {},
  rules: [],
  destinations: {},
  deliver: [],
  webhooks: {},
};
/** The settings of a gateway through which images come in. */
export type ReceivingSettings = GatewaySettings & { spool: string };

/** Images come in. */
export const receives = (gateway: GatewaySettings | undefined): gateway is ReceivingSettings =>
  gateway?.spool !== undefined && gateway.rules.length > 0;

/** Connections without an association, beside the associations that may be. */
export const MORE_CONNECTIONS = 64;
/** The connection, the file that comes, its folder, and an object that lies there. */
const FOR_AN_ASSOCIATION = 4;

/** Descriptors that the port for DICOM may take. */
export const descriptorsOf = (gateway: GatewaySettings | undefined): number =>
  gateway?.dicom === undefined
    ? 0
    : MORE_CONNECTIONS + FOR_AN_ASSOCIATION * gateway.dicom.associations;

/** The schema of the file, as it is published. */
export function gatewayJsonSchema(): Record<string, unknown> {
  const { $schema, ...rest } = z.toJSONSchema(schema, { io: "input" });
  return {
    $schema,
    title: "Radserve gateway",
    description: "The file that RADSERVE_GATEWAY names.",
    ...rest,
  };
}

/** The settings that it is read with. */
type GatewayConfig = Pick<Config, "input_roots" | "output_roots"> &
  Partial<Pick<Config, "models_dir">> & { readonly gateway?: string | undefined };

export const GATEWAY_TLS: TlsNames = {
  tls_cert: "RADSERVE_GATEWAY: dicom.tls.cert",
  tls_key: "RADSERVE_GATEWAY: dicom.tls.key",
  tls_client_ca: "RADSERVE_GATEWAY: dicom.tls.client_ca",
};

/**
 * The gateway's file that the settings name, `spool` as a real path; undefined where they name
 * none.
 * @throws ConfigError
 */
export async function readGateway(config: GatewayConfig): Promise<GatewaySettings | undefined> {
  const { gateway: named } = settingsOf(SETTINGS, config);
  if (named === undefined) return undefined;
  const fail = (message: string): never => {
    throw new ConfigError(`RADSERVE_GATEWAY: ${message}`);
  };
  const gateway = readNamedFile("RADSERVE_GATEWAY", named, schema);
  await checkModels(gateway, config, fail);
  if (gateway.spool === undefined) return gateway;
  const spool = spoolAt(gateway.spool, fail);
  const [inputs, outputs] = [realRoots(config.input_roots), realRoots(config.output_roots)];
  const holdsResults = outputs.some((root) => isInside(root, [spool]));
  if (!isInside(spool, inputs) || isInside(spool, outputs) || holdsResults)
    fail(
      "spool: expected a folder inside one of RADSERVE_INPUT_ROOTS and outside RADSERVE_OUTPUT_ROOTS, that has none of them in it.",
    );
  if (await isInSpool(path.dirname(spool)))
    fail("spool: expected a folder outside the spool of another gateway; found one in it.");
  const before: { one: JobRule; folder: string }[] = [];
  for (const one of gateway.rules.filter(makesJobs)) {
    const real = await realPathToBe(one.output_folder);
    if (real === undefined || !isInside(real, outputs) || isInside(real, [spool]))
      return fail(
        `rules, ${one.name}: expected output_folder inside one of RADSERVE_OUTPUT_ROOTS, and not in the spool.`,
      );
    const other = before.find(({ one: first, folder }) => folder === real && replaces(one, first));
    if (other !== undefined)
      fail(
        `rules, ${one.name}: expected another output_folder than that of ${other.one.name}, which has continue: both may take one series, and the results of one would replace those of the other. Give each a folder of its own, or both the same models, outputs and labels.`,
      );
    before.push({ one, folder: real });
  }
  return { ...gateway, spool };
}

/**
 * The same before anything is started, with the certificates.
 * @throws ConfigError
 */
export async function checkGateway(config: GatewayConfig): Promise<GatewaySettings | undefined> {
  const gateway = await readGateway(config);
  const { cert: tls_cert, key: tls_key, client_ca: tls_client_ca } = gateway?.dicom?.tls ?? {};
  const found = await readCertificates({ tls_cert, tls_key, tls_client_ca }, GATEWAY_TLS);
  if (found !== undefined) refuseOutOfDate(found);
  for (const [name, one] of Object.entries(gateway?.destinations ?? {}))
    await readCredentials(name, one);
  for (const [name, one] of Object.entries(gateway?.webhooks ?? {}))
    await readWebhookFiles(name, one);
  return gateway;
}

/** A rule or a destination for a model that there is not would wait for ever. */
async function checkModels(
  { rules, destinations }: GatewaySettings,
  { models_dir: dir }: GatewayConfig,
  fail: (message: string) => never,
): Promise<void> {
  if (dir === undefined) return;
  const { modelFolders } = await import("../../models/load.js");
  // Where the folder of models cannot be read, its own setting says so
  const folders = await modelFolders(dir).catch(() => undefined);
  if (folders === undefined) return;
  const there = folders.map((folder) => path.basename(folder));
  const named = [
    ...rules.map((one) => ({ at: `rules, ${one.name}`, models: one.models })),
    ...Object.entries(destinations).map(([one, { models }]) => ({
      at: `destinations, ${one}`,
      models,
    })),
  ];
  for (const { at, models = [] } of named) {
    const missing = models.filter((one) => !there.includes(one));
    if (missing.length > 0)
      fail(
        `${at}: expected names of models in ${dir}; found ${missing.join(", ")}, which is not there. Correct the name, or put the model there first.`,
      );
  }
  for (const rule of rules) await checkLabels(rule, folders, fail);
}

/**
 * A rule for a label that no model has would wait, too.
 * @param folders of all models
 */
async function checkLabels(
  { name, models, labels }: GatewaySettings["rules"][number],
  folders: readonly string[],
  fail: (message: string) => never,
): Promise<void> {
  if (labels === undefined) return;
  const [{ readManifest }, { unknownLabels }] = await Promise.all([
    import("../../models/read.js"),
    import("../../models/wanted.js"),
  ]);
  const asked = folders.filter((folder) => models?.includes(path.basename(folder)) !== false);
  const known: Pick<ModelEntry, "name" | "manifest">[] = [];
  for (const folder of asked) {
    const manifest = await readManifest(folder);
    // A model that cannot be read says so itself, and may have the label
    if (manifest === undefined) return;
    known.push({ name: path.basename(folder), manifest });
  }
  const wrong = unknownLabels(known, labels);
  if (wrong !== undefined) fail(`rules, ${name}, ${wrong.message}`);
}

/** Roots that are not there are refused before, by their own setting. */
const realRoots = (roots: readonly string[]) =>
  roots.flatMap((root) =>
    statSync(root, { throwIfNoEntry: false }) === undefined ? [] : realpathSync(root),
  );

/** The folder's real path, where files can have several names. */
function spoolAt(folder: string, fail: (message: string) => never): string {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw new PassingFault(
      `RADSERVE_GATEWAY: spool: expected a folder at ${folder}; found none. Create it or mount it.`,
    );
  const real = realpathSync(folder);
  const [first, second] = [stagingName(randomUUID()), stagingName(randomUUID())].map((one) =>
    path.join(real, one),
  ) as [string, string];
  try {
    writeFileSync(first, "");
    linkSync(first, second);
  } catch (error) {
    const unit =
      errno(error) === "EROFS" ? " A systemd unit has to name it in ReadWritePaths=." : "";
    fail(
      `spool: expected a folder that this user may write to, on a file system with hard links; it refuses (${errno(error)}).${unit}`,
    );
  } finally {
    for (const one of [first, second]) rmSync(one, { force: true });
  }
  return real;
}
