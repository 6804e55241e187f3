/**
 * The schemas of the published contract, by their names: those that the server runs on. A part with
 * a name of its own is published once and referred to, so that generated clients have one type for
 * it.
 */
import { z } from "zod";
import {
  nodeSchema,
  failureSchema,
  bulkFolderRequestSchema,
  bulkItemsRequestSchema,
  itemSchema,
  jobSchema,
  reconciliationSchema,
  reportSchema,
  skipReasonSchema,
  waitingSchema,
} from "../jobs/schema.js";
import { pinsSchema } from "../jobs/pins.js";
import { modelIdentitySchema } from "../models/identity.js";
import { errorCode, errorObjectSchema } from "../base/errors.js";
import { acceptsSchema } from "../manifest/manifest.js";
import { code } from "../manifest/texts.js";
import { answerSchema } from "../results/receipt/receipt.js";
import { readySchema } from "./handlers.js";
import { type NamedSchemas } from "./services.js";
import { modelListSchema } from "./model-list.js";

const { details, ...errorFields } = errorObjectSchema.shape;
/** The body of every answer that is an error. */
export const ERROR = { Error: z.object({ ...errorFields, request_id: z.string(), details }) };

const modelResult = answerSchema.shape.models.element;
const { shape: ofModel } = modelResult;
const { shape: ofFinding } = ofModel.findings.element;
const listed = modelListSchema.shape;

/** Parts of bodies and of answers. */
const PARTS = {
  BulkFolderRequest: bulkFolderRequestSchema,
  BulkItemsRequest: bulkItemsRequestSchema,
  ...ERROR,
  BulkItem: bulkItemsRequestSchema.shape.items.element,
  ModelResult: modelResult,
  ModelError: ofModel.error.unwrap(),
  NotAccepted: ofModel.reasons.unwrap().element,
  Finding: ofModel.findings.element,
  Box: ofFinding.box.unwrap(),
  Point: ofFinding.point.unwrap(),
  Area: ofFinding.area.unwrap(),
  Volume: ofFinding.volume.unwrap(),
  Measurement: ofModel.measurements.element,
  OutputFile: ofModel.outputs.element,
  Warning: ofModel.warnings.element,
  Concept: code,
  ErrorCode: errorCode,
  Job: jobSchema,
  JobCounts: jobSchema.shape.counts,
  JobRequest: jobSchema.shape.request,
  PausedReason: jobSchema.shape.paused_reason.unwrap(),
  Waiting: waitingSchema,
  ServerNode: nodeSchema,
  Pins: pinsSchema,
  NodeModel: modelIdentitySchema,
  Item: itemSchema,
  ItemError: errorObjectSchema,
  ItemModel: itemSchema.shape.models.element,
  JobFailure: failureSchema,
  JobReport: reportSchema,
  SkipReason: skipReasonSchema,
  Difference: reconciliationSchema.shape.differences.element,
  ListedModel: listed.models.element,
  ListedGpu: listed.gpus.element,
  ModelProblem: listed.problems.element,
  ModelWork: listed.models.element.shape.work.unwrap(),
  Accepts: acceptsSchema,
  ReadyModel: readySchema.shape.models.element,
} satisfies Record<string, z.ZodType>;

export const reference = (name: string) => ({ $ref: `#/components/schemas/${name}` });

/** A bulk request is one of its two forms. */
const BULK_REQUEST = {
  description: "Two folders, or a list of items",
  oneOf: [reference("BulkFolderRequest"), reference("BulkItemsRequest")],
};

/**
 * A JSON Schema without the fields that Zod adds for itself, and without the pattern of a format,
 * which says the same again.
 */
function tidied(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(tidied);
  if (typeof value !== "object" || value === null) return value;
  const known = value as Record<string, unknown>;
  return Object.fromEntries(
    Object.entries(known)
      .filter(
        ([key]) => key !== "$schema" && key !== "$id" && !(key === "pattern" && "format" in known),
      )
      .map(([key, part]) => [key, tidied(part)]),
  );
}

/** A schema without parts of its own, such as that of a query. */
export function plainSchema(schema: z.ZodType): Record<string, unknown> {
  return tidied(z.toJSONSchema(schema, { io: "input", unrepresentable: "any" })) as Record<
    string,
    unknown
  >;
}

/**
 * components.schemas of the contract.
 * @param whole bodies and answers of routes
 */
export function contractSchemas(whole: NamedSchemas): Record<string, unknown> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries({ ...whole, ...PARTS })) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, {
    io: "input",
    unrepresentable: "any",
    uri: (id) => reference(id).$ref,
  });
  const made = Object.entries({ ...schemas, BulkRequest: BULK_REQUEST }).map(
    ([name, schema]) => [name, tidied(schema)] as const,
  );
  return Object.fromEntries(made.sort(([a], [b]) => (a < b ? -1 : 1)));
}
