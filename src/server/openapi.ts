/**
 * The published contract (OpenAPI 3.1), built from the same schemas and tables that the server runs
 * on.
 */
import type { z } from "zod";
import { ERRORS, type ErrorCode } from "../base/errors.js";
import { merged } from "../base/merged.js";
import { VERSION } from "../base/version.js";
import { EXAMPLES } from "./contract-examples.js";
import { contractSchemas, ERROR, plainSchema, reference } from "./contract-schemas.js";
import type { NamedSchemas, Endpoint } from "./services.js";

const TAGS = {
  files:
    "Images in and results out, for clients without the shared folders; only where the server's settings allow it",
  inference: "One image, answered when its results are written",
  jobs: "Many images as one job, which survives restarts",
  models: "What the server can do",
  operations: "State of the server, for load balancers, monitoring and people",
  results:
    "Results with their images, for people who look at them; only where the server's settings allow it",
};

export interface DescribedRoute extends Omit<Endpoint, "handler"> {
  method: "GET" | "POST" | "PUT" | "DELETE";
  path: string;
  /** Name of the operation in generated clients. */
  id: string;
  tag: keyof typeof TAGS;
  /** Absent where it takes a token; "local": none is needed from this machine. */
  auth?: "open" | "local";
  summary: string;
  /** Set where the body is a file and no JSON: true, or its media type. */
  takesFile?: true | "multipart/related";
  /** Headers of the request that mean something, each with its meaning. */
  headers?: Readonly<Record<string, string>>;
  /** Each status of the answer, and when it is sent; 200 if absent. */
  statuses?: Readonly<Record<number, string>>;
  /** Its own errors, beside those of every endpoint with a token, a query or a body. */
  errors?: readonly ErrorCode[];
  /**
   * False where a good answer tells nothing of anybody and is asked for every few seconds: the
   * audit has no line of it.
   */
  audited?: false;
}

/** A body of JSON, with its example where there is one. */
function content(named: NamedSchemas): Record<string, unknown> {
  const [name = ""] = Object.keys(named);
  const examples = EXAMPLES[name];
  return {
    "application/json": {
      schema: reference(name),
      ...(examples === undefined ? {} : { examples }),
    },
  };
}

const FILE = "application/octet-stream";
const BYTES = { type: "string", format: "binary" };

function answerContent(answer: DescribedRoute["answer"]): Record<string, unknown> {
  if (typeof answer === "object") return content(answer);
  if (answer === "application/json") return { [answer]: { schema: { type: "object" } } };
  return { [answer]: { schema: answer === FILE ? BYTES : { type: "string" } } };
}

function responses(route: DescribedRoute): Record<string, unknown> {
  const byStatus = new Map<number, ErrorCode[]>();
  const codes: ErrorCode[] = [...(route.errors ?? []), "internal"];
  if (route.auth !== "open")
    codes.push(
      "unauthorized",
      "role_missing",
      "other_site",
      "rate_limited",
      "revocations_unavailable",
      "keys_missing",
      "sign_in_unavailable",
    );
  if (route.auth === undefined && route.audited !== false) codes.push("audit_failed");
  const hasBody = route.body !== undefined || route.takesFile !== undefined;
  if (hasBody || route.query !== undefined) codes.push("bad_request");
  if (hasBody) codes.push("body_too_large");
  for (const code of codes) {
    const { status } = ERRORS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const entries = [...byStatus].map(([status, found]) => [
    String(status),
    {
      description: found.map((code) => `${code}: ${ERRORS[code].description}`).join(" "),
      content: content(ERROR),
    },
  ]);
  if (
    route.query !== undefined &&
    Object.keys(route.query.shape).some((name) => name.endsWith("path"))
  )
    entries.push([
      "431",
      { description: "bad_request: The encoded paths are too long.", content: content(ERROR) },
    ]);
  const good = Object.entries(route.statuses ?? { 200: "Done" }).map(([status, description]) => [
    status,
    // 304 says that the client has it already (RFC 9110, 15.4.5)
    status === "304" ? { description } : { description, content: answerContent(route.answer) },
  ]);
  return Object.fromEntries([...good, ...entries]) as Record<string, unknown>;
}

/** The parts of paths that a client fills in: what each is, and its schema. */
const IN_PATH: readonly [name: string, description: string, format?: string][] = [
  ["id", "The job_id of a job of this subject", "uuid"],
  ["name", "Name of the file, as the page at / has it"],
  ["study", "StudyInstanceUID"],
];

function pathParameters(path: string) {
  return IN_PATH.filter(([name]) => path.includes(`:${name}`)).map(
    ([name, description, format]) => ({
      name,
      in: "path",
      required: true,
      description,
      schema: { type: "string", ...(format === undefined ? {} : { format }) },
    }),
  );
}

function queryParameters(query: z.ZodObject | undefined) {
  if (query === undefined) return [];
  const { properties, required = [] } = plainSchema(query) as {
    properties: Record<string, { description?: string; deprecated?: boolean }>;
    required?: string[];
  };
  return Object.entries(properties).map(([name, { description, deprecated, ...schema }]) => ({
    name,
    in: "query",
    required: required.includes(name),
    ...(deprecated === undefined ? {} : { deprecated }),
    ...(description === undefined ? {} : { description }),
    schema,
  }));
}

/** From this machine the local endpoints need no token. */
function security({ auth }: DescribedRoute) {
  if (auth === "open") return [];
  return [...(auth === "local" ? [{}] : []), { token: [] }];
}

function operation(route: DescribedRoute): Record<string, unknown> {
  const parameters = [
    ...pathParameters(route.path),
    ...queryParameters(route.query),
    ...Object.entries(route.headers ?? {}).map(([name, description]) => ({
      name,
      in: "header",
      required: false,
      description,
      schema: { type: "string" },
    })),
  ];
  return {
    operationId: route.id,
    tags: [route.tag],
    summary: route.summary,
    security: security(route),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(route.body === undefined
      ? {}
      : { requestBody: { required: true, content: content(route.body) } }),
    ...(route.takesFile === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            content: { [route.takesFile === true ? FILE : route.takesFile]: { schema: BYTES } },
          },
        }),
    responses: responses(route),
  };
}

const DESCRIPTION = `Medical image inference: a path to an image in, results beside a receipt out.

Images and results stay on folders that the server and its clients share: requests and answers hold paths, never pixels. Where
a server allows it, clients without the folders send images and fetch results by /files.
Every answer has the header X-Request-Id. Every error is of the schema Error, with a code of the closed list ErrorCode.`;

/** The address of a server in the contract; each hospital has its own. */
const SERVER = {
  url: "{scheme}://{host}:{port}",
  description: "A server in your own network",
  variables: {
    scheme: { default: "http", enum: ["http", "https"] },
    host: { default: "127.0.0.1" },
    port: { default: "8500" },
  },
};

/**
 * The document for a table of routes.
 * @param parts of their schemas that have names
 */
export function openApi(
  routes: readonly DescribedRoute[],
  parts: NamedSchemas = {},
): Record<string, unknown> {
  const paths: Record<string, Record<string, unknown>> = {};
  const named = routes.flatMap(({ body = {}, answer }) => [
    body,
    typeof answer === "object" ? answer : {},
  ]);
  for (const route of routes) {
    const path = route.path.replaceAll(/:(\w+)/g, "{$1}");
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route) };
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Radserve",
      version: VERSION,
      description: DESCRIPTION,
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [SERVER],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      securitySchemes: {
        token: {
          type: "apiKey",
          in: "header",
          name: "Authorization",
          description: "The JWT alone, without a Bearer prefix; made by `radserve token issue`",
        },
      },
      schemas: contractSchemas(merged([...named, parts])),
    },
  };
}
