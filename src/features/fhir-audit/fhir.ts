/**
 * Lines of the audit as AuditEvents of FHIR R4, for a record repository (RESTful ATNA, ITI TF-2:
 * 3.20). What went well follows a profile of IHE's Basic Audit Log Patterns 1.1.3 (BALP), where it
 * has one for it:
 *
 * | What | Profile |
 * | --- | --- |
 * | an inference or an item whose image names its patient | PatientCreate: its results |
 * | the same of an image that names none, and a job that is submitted | Create |
 * | a job or its items that are looked at or compared with their folders, and the models | Read |
 * | the list of jobs | Query |
 * | cancel, retry, pause, resume, and a comparison that lets images run again | Update (patch) |
 * | purge | Delete |
 *
 * BALP leaves errors, refused tokens, starts and stops without a profile ("failures are recorded
 * differently"): an error has the form of its profile with another outcome and names none; a
 * refused token is DICOM's User Authentication, a delivery its Export, and what the server tells of
 * itself is Application Activity (PS3.15 A.5, PS3.16 CID 400 and 401).
 */
import { v5 as uuidV5 } from "uuid";
import { keepable } from "../../base/validation.js";
import type { AuditEntry } from "../../audit/entry.js";
import type { Interaction } from "../../audit/interaction.js";

const BALP = "https://profiles.ihe.net/ITI/BALP";

const DCM = "http://dicom.nema.org/resources/ontology/DCM";
const EVENT = "http://terminology.hl7.org/CodeSystem/audit-event-type";
const INTERACTION = "http://hl7.org/fhir/restful-interaction";
const ENTITY = "http://terminology.hl7.org/CodeSystem/audit-entity-type";
const ROLE = "http://terminology.hl7.org/CodeSystem/object-role";
const PARTICIPATION = "http://terminology.hl7.org/CodeSystem/v3-ParticipationType";
const SOURCE = "http://terminology.hl7.org/CodeSystem/security-source-type";

/** The namespace of the ids: an event that is exported twice has one id. */
const EVENTS = "5f8a4a51-3c56-5b1e-9d0f-4d1f8a5a7c11";

const coding = (system: string, code: string, display?: string) => ({ system, code, display });
const concept = (...words: Parameters<typeof coding>) => ({ coding: [coding(...words)] });
/** A keyed hash: whoever has the key of names can say whose it is. */
const hashed = (what: string, value: string) => ({ system: `urn:radserve:audit:${what}`, value });

/** The codes of a kind of line in FHIR. */
interface Pattern {
  profile: "PatientCreate" | "Create" | "Read" | "Query" | "Update" | "Delete" | undefined;
  interaction: "create" | "read" | "search" | "patch" | "delete";
  action: "C" | "R" | "U" | "D" | "E";
  client: ReturnType<typeof concept>;
  server: ReturnType<typeof concept>;
  user: ReturnType<typeof concept>;
}

const SENDS = concept(DCM, "110153", "Source Role ID");
const RECEIVES = concept(DCM, "110152", "Destination Role ID");
const AUTHOR = concept(PARTICIPATION, "AUT", "author (originator)");
const RECIPIENT = concept(PARTICIPATION, "IRCP", "information recipient");

const CREATE: Pattern = {
  profile: "Create",
  interaction: "create",
  action: "C",
  client: SENDS,
  server: RECEIVES,
  user: AUTHOR,
};
const READ: Pattern = {
  profile: "Read",
  interaction: "read",
  action: "R",
  client: RECEIVES,
  server: SENDS,
  user: RECIPIENT,
};
const QUERY: Pattern = {
  profile: "Query",
  interaction: "search",
  action: "E",
  client: SENDS,
  server: RECEIVES,
  user: RECIPIENT,
};
const UPDATE: Pattern = { ...CREATE, profile: "Update", interaction: "patch", action: "U" };
const DELETE: Pattern = {
  profile: "Delete",
  interaction: "delete",
  action: "D",
  client: concept(DCM, "110150", "Application"),
  server: concept(
    "http://terminology.hl7.org/CodeSystem/provenance-participant-type",
    "custodian",
    "Custodian",
  ),
  user: AUTHOR,
};

const PATTERNS = { create: CREATE, read: READ, search: QUERY, patch: UPDATE, delete: DELETE };

/**
 * Interactions of FHIR by which endpoints are exported. A comparison reads, or with `retry`
 * changes.
 */
/**
 * @param endpoint method and pattern of an endpoint @returns undefined for what reads by GET and
 * else patches
 */
export type Interactions = (endpoint: string) => Interaction | undefined;

function patternOf(
  { kind, endpoint = "", query, patient }: AuditEntry,
  interactionOf: Interactions,
): Pattern {
  if (kind === "inference" || kind === "item")
    return patient === undefined ? CREATE : { ...CREATE, profile: "PatientCreate" };
  if (kind === "received" || kind === "submitted") return CREATE;
  if (kind === "removed") return DELETE;
  const interaction = interactionOf(endpoint) ?? (endpoint.startsWith("GET ") ? "read" : "patch");
  if (interaction !== "compare") return PATTERNS[interaction];
  return new URLSearchParams(query).get("retry") === "true" ? UPDATE : READ;
}

const GOOD = new Set([
  "done",
  "completed",
  "partial",
  "reused",
  "sent",
  "accepted",
  "proven",
  "told",
]);

function outcomeOf({ outcome = "done", kind, reason }: AuditEntry): {
  outcome: string;
  outcomeDesc?: string;
} {
  if (kind === "refused") return { outcome: "4", outcomeDesc: reason ?? "refused" };
  if (GOOD.has(outcome))
    return { outcome: "0", ...(outcome === "done" ? {} : { outcomeDesc: outcome }) };
  return {
    outcome: outcome === "internal" || outcome === "audit_failed" ? "8" : "4",
    outcomeDesc: outcome,
  };
}

/** FHIR's network types: 1, a machine's name; 2, an IP address. */
const named = (address: string) => ({ address, type: "1" });
const byIp = (address: string) => ({ address: address.replace(/^::ffff:/, ""), type: "2" });

const device = (host: string) => ({ identifier: { system: "urn:radserve:host", value: host } });

/**
 * Who asked from where, who answered, and for whom. Of an item the client is the node itself: it
 * goes on by itself, as does a job that gets other models.
 */
function agents(
  { host, address, subject, jti }: AuditEntry,
  { client, server, user }: Pattern,
): object[] {
  return [
    {
      type: client,
      who:
        address === undefined
          ? device(host)
          : { identifier: { system: "urn:radserve:client", value: byIp(address).address } },
      requestor: false,
      network: address === undefined ? named(host) : byIp(address),
    },
    { type: server, who: device(host), requestor: false, network: named(host) },
    ...asking({ subject, jti }, user),
  ];
}

/** Whoever asked for it. */
function asking({ subject, jti }: Pick<AuditEntry, "subject" | "jti">, type: object): object[] {
  if (subject === undefined) return [];
  const who = { identifier: { system: "urn:radserve:subject", value: keepable(subject) } };
  return [{ type, who, requestor: true, policy: policyOf(jti) }];
}

const policyOf = (jti: string | undefined) =>
  jti && [`urn:ietf:params:oauth:jti:${encodeURIComponent(keepable(jti))}`];

/** What a line says that no element of an event is for, whatever kind of line it is. */
function details(entry: AuditEntry): object[] {
  const { endpoint, query, job_id, item, destination, study, input, output, models = [] } = entry;
  const { checked, differences, requeued, kind, count, since, bytes, sha256, ms } = entry;
  const { reason, signed_in, command, token, kid, version, after_crash } = entry;
  const pairs: [string, { toString: () => string } | undefined][] = [
    ["endpoint", endpoint],
    ["query", query],
    ["job_id", job_id],
    ["item", item],
    ["destination", destination],
    ["study", study],
    ["input", input],
    ["output", output],
    ["command", command],
    ["jti", token?.jti],
    ["subject", token?.subject],
    ["admin", token?.admin],
    ["kid", kid],
    ["version", version],
    ["after_crash", after_crash],
    ...models.map((one): [string, string] => [
      "model",
      `${one.name} ${one.version} ${one.sha256} ${one.status}`,
    ]),
    ["checked", checked],
    ["differences", differences],
    ["requeued", requeued],
    [kind === "refused" || kind === "trouble" ? "count" : "objects", count],
    ["since", since],
    ["reason", reason],
    ["signed_in", signed_in],
    ["bytes", bytes],
    ["sha256", sha256],
    ["milliseconds", ms],
  ];
  return pairs.flatMap(([type, value]) => {
    const valueString = value?.toString() ?? "";
    return valueString === "" ? [] : [{ type, valueString }];
  });
}

/** An entity that is nothing but the details of a line. */
function told(entry: AuditEntry): object[] {
  const detail = details(entry);
  return detail.length === 0 ? [] : [{ name: entry.kind, detail }];
}

/** Kinds of lines that are of a study, and name nothing else. */
const OF_STUDY: ReadonlySet<AuditEntry["kind"]> = new Set(["delivery", "received", "removed"]);

function what({ job_id, output, input, study, ...entry }: AuditEntry): object {
  const { endpoint = "", request_id, seq } = entry;
  if (OF_STUDY.has(entry.kind) && study !== undefined)
    return { identifier: hashed("study", study) };
  if (output !== undefined || input !== undefined)
    return { identifier: hashed("path", output ?? input ?? "") };
  if (job_id !== undefined) return { identifier: { system: "urn:radserve:job", value: job_id } };
  return {
    identifier: { system: "urn:radserve:page", value: endpoint || request_id || String(seq) },
  };
}

function entities(entry: AuditEntry, profile: Pattern["profile"]): object[] {
  const { request_id, patient, query = "", endpoint = "", kind, job_id } = entry;
  const transaction = {
    what: { identifier: { value: request_id } },
    type: coding(`${BALP}/CodeSystem/BasicAuditEntityType`, "XrequestId"),
  };
  const object = coding(ENTITY, "2", "System Object");
  const route = endpoint.replace(/^\w+ /, "");
  const data =
    profile === "Query"
      ? {
          type: object,
          role: coding(ROLE, "24", "Query"),
          query: Buffer.from(query === "" ? route : `${route}?${query}`).toString("base64"),
        }
      : {
          what: what(entry),
          type: object,
          role:
            (kind === "page" || kind === "reconcile" || kind === "pinned") && job_id !== undefined
              ? coding(ROLE, "20", "Job")
              : coding(ROLE, "4", "Domain Resource"),
          ...(profile === "Delete" ? {} : { detail: details(entry) }),
        };
  return [
    ...(request_id === undefined ? [] : [transaction]),
    data,
    // What is listed or removed has no details in these profiles
    ...(profile === "Query" || profile === "Delete" ? told(entry) : []),
    ...(patient === undefined
      ? []
      : [
          {
            what: { type: "Patient", identifier: hashed("patient", patient) },
            type: coding(ENTITY, "1", "Person"),
            role: coding(ROLE, "1", "Patient"),
          },
        ]),
  ];
}

/** The fields that every event has. */
function common(entry: AuditEntry) {
  return {
    resourceType: "AuditEvent",
    id: uuidV5(`${entry.host} ${entry.seq} ${entry.time}`, EVENTS),
    recorded: entry.time,
    source: { observer: device(entry.host), type: [coding(SOURCE, "4", "Application Server")] },
  };
}

function ofRequest(entry: AuditEntry, interactionOf: Interactions): object {
  const pattern = patternOf(entry, interactionOf);
  const { outcome, outcomeDesc } = outcomeOf(entry);
  const { id, resourceType, ...rest } = common(entry);
  return {
    resourceType,
    id,
    ...(outcome === "0" && pattern.profile !== undefined
      ? { meta: { profile: [`${BALP}/StructureDefinition/IHE.BasicAudit.${pattern.profile}`] } }
      : {}),
    type: coding(EVENT, "rest", "RESTful Operation"),
    subtype: [coding(INTERACTION, pattern.interaction, pattern.interaction)],
    action: pattern.action,
    recorded: rest.recorded,
    outcome,
    outcomeDesc,
    agent: agents(entry, pattern),
    source: rest.source,
    entity: entities(entry, pattern.profile),
  };
}

/**
 * Objects of patients that go to a destination (PS3.15 A.5.3, Export): from this node, to the
 * destination, for whoever asked for the result.
 */
function ofDelivery(entry: AuditEntry): object {
  const { host, destination = "" } = entry;
  const receiver = { identifier: { system: "urn:radserve:destination", value: destination } };
  return {
    ...common(entry),
    type: coding(DCM, "110106", "Export"),
    subtype: [coding("urn:radserve:audit:kind", entry.kind)],
    action: "R",
    ...outcomeOf(entry),
    agent: [
      { type: SENDS, who: device(host), requestor: false, network: named(host) },
      { type: RECEIVES, who: receiver, requestor: false },
      ...asking(entry, AUTHOR),
    ],
    entity: entities(entry, undefined),
  };
}

function ofRefusal(entry: AuditEntry): object {
  const { address, subject, jti } = entry;
  return {
    ...common(entry),
    type: coding(DCM, "110114", "User Authentication"),
    subtype: [coding(DCM, "110122", "Login")],
    action: "E",
    ...outcomeOf(entry),
    agent: [
      {
        who: { identifier: { system: "urn:radserve:subject", value: subject ?? "unknown" } },
        requestor: true,
        policy: policyOf(jti),
        network: address === undefined ? undefined : byIp(address),
      },
    ],
    entity: told(entry),
  };
}

/** The agent of the server itself, and of commands on its machine. */
function ofSystem(entry: AuditEntry): object {
  const { kind } = entry;
  const subtype = {
    start: coding(DCM, "110120", "Application Start"),
    stop: coding(DCM, "110121", "Application Stop"),
    command: coding(DCM, "110137", "User security Attributes Changed"),
  }[kind as "start" | "stop" | "command"] as object | undefined;
  const entity = told(entry);
  return {
    ...common(entry),
    type:
      kind === "start" || kind === "stop"
        ? coding(DCM, "110100", "Application Activity")
        : coding(DCM, "110113", "Security Alert"),
    subtype: [subtype ?? coding("urn:radserve:audit:kind", kind)],
    action: "E",
    outcome: kind === "torn" || kind === "trouble" ? "8" : "0",
    agent: [
      { type: concept(DCM, "110150", "Application"), who: device(entry.host), requestor: false },
    ],
    ...(entity.length === 0 ? {} : { entity }),
  };
}

/** How lines of each kind are told; of the files alone nothing is. */
const FORMS: Readonly<
  Record<
    AuditEntry["kind"],
    ((entry: AuditEntry, interactionOf: Interactions) => object) | undefined
  >
> = {
  day: undefined,
  start: ofSystem,
  stop: ofSystem,
  models: ofSystem,
  command: ofSystem,
  torn: ofSystem,
  trouble: ofSystem,
  refused: ofRefusal,
  delivery: ofDelivery,
  inference: ofRequest,
  item: ofRequest,
  page: ofRequest,
  reconcile: ofRequest,
  received: ofRequest,
  submitted: ofRequest,
  removed: ofRequest,
  pinned: ofRequest,
};

/**
 * The AuditEvent of a line; undefined of lines that are about the files alone, or that another line
 * follows up.
 */
export function auditEvent(entry: AuditEntry, interactionOf: Interactions): object | undefined {
  // What came of something that was asked has a line of its own
  return entry.outcome === "asked" ? undefined : FORMS[entry.kind]?.(entry, interactionOf);
}
