/**
 * `radserve audit export`: AuditEvents of FHIR R4, held against the elements that IHE's Basic Audit
 * Log Patterns 1.1.3 require (the differentials of its profiles,
 * https://profiles.ihe.net/ITI/BALP/artifacts.html) and those that R4 itself requires
 * (http://hl7.org/fhir/R4/auditevent.html).
 */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { createSecretKey } from "node:crypto";
import t from "tap";
import { z } from "zod";
import { entrySchema, lineOf, NO_HEAD } from "../../../src/audit/entry.js";
import { SAMPLES } from "../../support/audit-lines.js";
import { ADDON, needs } from "../../support/needs.js";
import { makePlace, radserve } from "../../support/server.js";

const BALP = "https://profiles.ihe.net/ITI/BALP/StructureDefinition/IHE.BasicAudit.";
const DCM = "http://dicom.nema.org/resources/ontology/DCM";
const PARTICIPATION = "http://terminology.hl7.org/CodeSystem/v3-ParticipationType";
const CUSTODIAN = "http://terminology.hl7.org/CodeSystem/provenance-participant-type";
const ENTITY = "http://terminology.hl7.org/CodeSystem/audit-entity-type";
const ROLE = "http://terminology.hl7.org/CodeSystem/object-role";

/** Elements that a profile forbids. */
const none = z.undefined().optional();
const coding = z.looseObject({
  system: z.url(),
  code: z.string().min(1),
  display: z.string().optional(),
});
const coded = (system: string, ...codes: string[]) =>
  z.looseObject({ system: z.literal(system), code: z.enum(codes) });
const concept = (system: string, ...codes: string[]) =>
  z.looseObject({ coding: z.tuple([coded(system, ...codes)]) });
const reference = z.looseObject({ identifier: z.looseObject({ value: z.string().min(1) }) });
/** Network type 1: a machine's name; 2: an IP address. */
const network = z.strictObject({ address: z.string().min(1), type: z.enum(["1", "2"]) });

/**
 * R4: type, recorded, agent, agent.requestor, source and source.observer are 1..1 or 1..*; sev-1:
 * name or query.
 */
const r4 = z.looseObject({
  resourceType: z.literal("AuditEvent"),
  id: z.uuid(),
  type: z.looseObject({ system: z.string(), code: z.string() }),
  subtype: z.array(z.looseObject({ system: z.string(), code: z.string() })).optional(),
  action: z.enum(["C", "R", "U", "D", "E"]),
  recorded: z.iso.datetime(),
  outcome: z.enum(["0", "4", "8", "12"]),
  agent: z.array(z.looseObject({ requestor: z.boolean() })).min(1),
  source: z.looseObject({ observer: reference, type: z.array(coding).min(1) }),
  entity: z
    .array(
      z
        .looseObject({
          detail: z.array(z.strictObject({ type: z.string(), valueString: z.string() })).optional(),
        })
        .refine((entity) => entity["name"] === undefined || entity["query"] === undefined),
    )
    .optional(),
});

/** Slices of agent or entity: by their types, how many there must be, and what each must have. */
interface Slice {
  by: z.ZodType;
  is: z.ZodType;
  times: 1 | "0..1";
}
interface Profile {
  interaction: string;
  action: string;
  agents: Slice[];
  entities: Slice[];
}

const machine = { who: reference, network, media: none };
const agentOf = (type: z.ZodType, times: Slice["times"], more: z.ZodRawShape): Slice => ({
  by: z.looseObject({ type }),
  is: z.looseObject(more),
  times,
});
const userOf = (...codes: string[]) =>
  agentOf(concept(PARTICIPATION, ...codes), "0..1", {
    who: reference,
    requestor: z.literal(true),
    media: none,
    network: none,
  });
const client = (code: string) => agentOf(concept(DCM, code), 1, machine);

const transaction: Slice = {
  by: z.looseObject({
    type: coded("https://profiles.ihe.net/ITI/BALP/CodeSystem/BasicAuditEntityType", "XrequestId"),
  }),
  is: z.looseObject({ what: reference }),
  times: "0..1",
};
const data: Slice = {
  by: z.looseObject({ type: coded(ENTITY, "2") }),
  is: z.looseObject({ what: reference, role: coded(ROLE, "3", "4", "20") }),
  times: 1,
};
const query: Slice = {
  by: data.by,
  is: z.looseObject({
    role: coded(ROLE, "24"),
    query: z.base64(),
    what: none,
    lifecycle: none,
    detail: none,
  }),
  times: 1,
};
const patient: Slice = {
  by: z.looseObject({ type: coded(ENTITY, "1") }),
  is: z.looseObject({
    role: coded(ROLE, "1"),
    what: reference.extend({ type: z.literal("Patient") }),
  }),
  times: 1,
};

/** Delete allows no more of its machines than this, and no details. */
const bare = {
  ...machine,
  role: none,
  altId: none,
  name: none,
  location: none,
  policy: none,
  purposeOfUse: none,
};

const CREATE: Profile = {
  interaction: "create",
  action: "C",
  agents: [client("110153"), client("110152"), userOf("AUT", "INF", "CST")],
  entities: [transaction, data],
};
const PROFILES: Record<string, Profile> = {
  Create: CREATE,
  PatientCreate: { ...CREATE, entities: [transaction, data, patient] },
  Update: { ...CREATE, interaction: "patch", action: "U" },
  Read: {
    interaction: "read",
    action: "R",
    agents: [client("110152"), client("110153"), userOf("IRCP")],
    entities: [transaction, data],
  },
  Query: {
    interaction: "search",
    action: "E",
    agents: [client("110153"), client("110152"), userOf("IRCP")],
    entities: [transaction, query],
  },
  Delete: {
    interaction: "delete",
    action: "D",
    agents: [
      agentOf(concept(DCM, "110150"), 1, bare),
      agentOf(concept(CUSTODIAN, "custodian"), 1, bare),
      userOf("AUT", "INF", "CST"),
    ],
    entities: [
      transaction,
      {
        ...data,
        is: z.looseObject({ what: reference, role: coded(ROLE, "4", "3", "20"), detail: none }),
      },
    ],
  },
};

/** What of a list is wrong by its slices. */
function wrongSlices(slices: readonly Slice[], list: readonly unknown[]): string[] {
  return slices.flatMap(({ by, is, times }, i) => {
    const found = list.filter((one) => by.safeParse(one).success);
    const many = times === 1 ? found.length === 1 : found.length <= 1;
    const bad = found.flatMap((one) => is.safeParse(one).error?.message ?? []);
    return [...(many ? [] : [`slice ${i}: ${found.length}`]), ...bad];
  });
}

/** Fields that are told by codes, or in the frame that every event has. */
const TOLD_BY_CODES = new Set(["kind", "outcome", "seq", "time", "host"]);
/** Fields of lines that are no events. */
const OF_FILES = ["day", "previous"];

/** Every value that an event has as text, without the words for what they are. */
function valuesIn(part: unknown): string[] {
  if (typeof part === "string") return [part, decodeURIComponent(part.split(":").at(-1) ?? "")];
  if (typeof part !== "object" || part === null) return [];
  return Object.entries(part).flatMap(([key, value]) => {
    if (
      ["type", "code", "system", "display", "id", "outcome"].includes(key) &&
      typeof value === "string"
    )
      return [];
    if (key === "query") return Buffer.from(String(value), "base64").toString().split("?");
    return valuesIn(value);
  });
}

/** The values of a line that its event has to have; a model is one value. */
function valuesOf(facts: object): [field: string, value: string][] {
  const fields = Object.entries(facts) as [string, string | number | boolean | object][];
  return fields.flatMap(([field, value]): [string, string][] => {
    if (TOLD_BY_CODES.has(field)) return [];
    if (field === "models")
      return Object.values(value).map((model: object) => [field, Object.values(model).join(" ")]);
    if (typeof value === "object") return valuesOf(value);
    return [[field, String(value).replace("::ffff:", "")]];
  });
}

t.test("the samples have every field that a line can have", (t) => {
  const fields = new Set(SAMPLES.flatMap(({ facts }) => Object.keys(facts)));
  const missing = Object.keys(entrySchema.shape).filter(
    (field) => !fields.has(field) && !TOLD_BY_CODES.has(field) && !OF_FILES.includes(field),
  );
  t.strictSame(missing, []);
  t.end();
});

t.test("every kind of line as an AuditEvent", { skip: needs(ADDON) }, async (t) => {
  const place = makePlace();
  t.teardown(() => place.remove());
  const folder = path.join(place.directory, "days");
  mkdirSync(folder);
  const key = createSecretKey(Buffer.alloc(32));
  let head = NO_HEAD;
  const text = [
    { kind: "day", previous: NO_HEAD } as const,
    ...SAMPLES.map(({ facts }) => facts),
  ].map((facts, i) => {
    const time = `2026-01-01T00:00:${String(i).padStart(2, "0")}.000Z`;
    const made = lineOf(key, head, { ...facts, time, host: "box", seq: head.seq + 1 });
    head = made.head;
    return made.text;
  });
  writeFileSync(path.join(folder, "2026-01-01.jsonl"), text.join(""));
  const run = (...options: string[]) =>
    radserve(place, "audit", "export", "--folder", folder, ...options);
  const { status, stdout, stderr } = await run();
  t.equal(status, 0, stderr);
  const events = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as z.infer<typeof r4> & { meta?: { profile: string[] } });
  const expected = SAMPLES.filter(({ profile }) => profile !== null);
  t.equal(events.length, expected.length, "what was asked for and not done yet is no event");
  t.equal(new Set(events.map(({ id }) => id)).size, events.length);
  for (const [i, event] of events.entries()) {
    const { facts, profile: name } = expected[i]!;
    const what = `${facts.kind} ${facts.endpoint ?? ""} ${facts.outcome ?? ""}`;
    const profile = PROFILES[name ?? ""];
    const { error } = r4.safeParse(event);
    t.equal(error, undefined, `${what}: R4`);
    const told = new Set(valuesIn(event));
    t.strictSame(
      valuesOf(facts).filter(([, value]) => !told.has(value)),
      [],
      `${what}: nothing of the line is lost`,
    );
    t.strictSame(event.meta?.profile, name === undefined ? undefined : [`${BALP}${name}`], what);
    if (profile === undefined) continue;
    t.match(event, {
      type: { system: "http://terminology.hl7.org/CodeSystem/audit-event-type", code: "rest" },
      subtype: [{ system: "http://hl7.org/fhir/restful-interaction", code: profile.interaction }],
      action: profile.action,
      outcome: "0",
    });
    t.strictSame(wrongSlices(profile.agents, event.agent), [], `${what}: agents`);
    t.strictSame(wrongSlices(profile.entities, event.entity ?? []), [], `${what}: entities`);
  }
  const failure = events.find((event) => event["outcomeDesc"] === "disk_full");
  t.match(failure, { outcome: "4", entity: [{}, {}, { what: { type: "Patient" } }] });
  const exports = events.filter(({ type }) => type.code === "110106");
  t.strictSame(
    exports.map(({ outcome }) => outcome),
    ["0", "4", "0"],
    "what a destination refuses is no success, and what a webhook was told is one",
  );
  const identified = (value: string) => ({ identifier: { value } });
  for (const kind of ["received", "removed"]) {
    const event = events[expected.findIndex(({ facts }) => facts.kind === kind)];
    t.match(event?.entity, [{ what: identified("2".repeat(32)) }], kind);
  }
  t.match(exports[1], {
    outcomeDesc: "refused",
    agent: [
      { type: { coding: [{ code: "110153" }] }, who: identified("box") },
      { type: { coding: [{ code: "110152" }] }, who: identified("archive") },
      { who: identified("pacs"), requestor: true },
    ],
    entity: [
      { what: identified("r-3") },
      {
        what: identified("2".repeat(32)),
        detail: [
          { valueString: "archive" },
          { type: "study" },
          { type: "objects", valueString: "2" },
        ],
      },
      { what: { type: "Patient" } },
    ],
  });
  t.strictSame(
    Buffer.from(
      String(
        events.find((e) => e.action === "E" && e.entity?.[1]?.["query"])?.entity?.[1]?.["query"],
      ),
      "base64",
    ).toString(),
    "/bulk_inference?state=failed&limit=5",
  );
  t.match(await run("--to", "2025-12-31"), { status: 0, stdout: "" });
  t.match(await run("--from", "2026-01-02"), { status: 0, stdout: "" });
  writeFileSync(path.join(folder, "2026-01-02.jsonl"), "no line\n");
  t.match(await run(), { status: 1, stderr: /Left out: 1 line not of the audit\./ });
});
