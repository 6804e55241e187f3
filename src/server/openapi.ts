/** The published contract (OpenAPI 3.1), built from the same schemas and tables that the server runs on. */
import { z } from "zod";
import {
  acceptedSchema,
  itemListSchema,
  jobDetailsSchema,
  jobListSchema,
  reconciliationSchema,
} from "../bulk/schema.js";
import { errorObjectSchema, ERRORS, type ErrorCode } from "../base/errors.js";
import { modelListSchema } from "./model-list.js";
import { bulkRequestSchema } from "../bulk/schema.js";
import { singleRequestSchema } from "../inference/request.js";
import { answerSchema } from "../results/receipt/receipt.js";
import { VERSION } from "../base/version.js";

const ANSWERS = {
  Answer: answerSchema,
  Accepted: acceptedSchema,
  JobDetails: jobDetailsSchema,
  JobList: jobListSchema,
  ItemList: itemListSchema,
  Reconciliation: reconciliationSchema,
  ModelList: modelListSchema,
};

export interface DescribedRoute {
  method: "GET" | "POST" | "DELETE";
  path: string;
  auth: "token" | "open" | "local";
  summary: string;
  body?: "SingleRequest" | "BulkRequest";
  /** Schema of the query. */
  query?: z.ZodObject;
  /** Schema of the answer where it is published. */
  answer?: keyof typeof ANSWERS;
  /** Status of the answer; 200 if absent. */
  status?: number;
  errors: readonly ErrorCode[];
}

function jsonSchema(schema: z.ZodType): Record<string, unknown> {
  const made: Record<string, unknown> = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  return Object.fromEntries(Object.entries(made).filter(([key]) => key !== "$schema"));
}

const { details, ...errorFields } = errorObjectSchema.shape;
const errorSchema = z.object({ ...errorFields, request_id: z.string(), details });

const reference = (name: string) => ({
  "application/json": { schema: { $ref: `#/components/schemas/${name}` } },
});

function responses(route: DescribedRoute): Record<string, unknown> {
  const byStatus = new Map<number, ErrorCode[]>();
  const codes: ErrorCode[] = [...route.errors, "internal"];
  if (route.auth !== "open") codes.push("unauthorized", "rate_limited", "revocations_unavailable");
  if (route.body !== undefined) codes.push("bad_request", "body_too_large");
  for (const code of codes) {
    const { status } = ERRORS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const entries = [...byStatus].map(([status, found]) => [
    String(status),
    {
      description: found.map((code) => `${code}: ${ERRORS[code].description}`).join(" "),
      content: reference("Error"),
    },
  ]);
  const good = {
    description: "Done",
    ...(route.answer === undefined ? {} : { content: reference(route.answer) }),
  };
  return { [String(route.status ?? 200)]: good, ...(Object.fromEntries(entries) as object) };
}

function pathParameter(name: string | undefined) {
  return { name, in: "path", required: true, schema: { type: "string" } };
}

function queryParameters(query: z.ZodObject | undefined) {
  if (query === undefined) return [];
  const { properties } = jsonSchema(query) as { properties: Record<string, object> };
  return Object.entries(properties).map(([name, schema]) => ({ name, in: "query", required: false, schema }));
}

function operation(route: DescribedRoute): Record<string, unknown> {
  const names = [...route.path.matchAll(/:(\w+)/g)].map((match) => match[1]);
  return {
    summary: route.summary,
    // From this machine the local pages need none.
    ...(route.auth === "open" ? {} : { security: [...(route.auth === "local" ? [{}] : []), { token: [] }] }),
    ...(names.length === 0 && route.query === undefined
      ? {}
      : { parameters: [...names.map(pathParameter), ...queryParameters(route.query)] }),
    ...(route.body === undefined ? {} : { requestBody: { required: true, content: reference(route.body) } }),
    responses: responses(route),
  };
}

/** The document for a table of routes. */
export function openApi(routes: readonly DescribedRoute[]): Record<string, unknown> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    const path = route.path.replaceAll(/:(\w+)/g, "{$1}");
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route) };
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Radserve",
      version: VERSION,
      description: "Medical image inference: a path to an image in, results beside a receipt out.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
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
      schemas: {
        SingleRequest: jsonSchema(singleRequestSchema),
        BulkRequest: jsonSchema(bulkRequestSchema),
        ...Object.fromEntries(Object.entries(ANSWERS).map(([name, schema]) => [name, jsonSchema(schema)])),
        Error: jsonSchema(errorSchema),
      },
    },
  };
}
