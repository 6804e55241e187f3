/** The published contract: its examples, and what programs that generate clients need of it. */
import t from "tap";
import { z } from "zod";
import { errorCode } from "../../src/base/errors.js";
import { servingFeatures } from "../../src/features.js";
import { singleRequestSchema } from "../../src/inference/request.js";
import {
  bulkFolderRequestSchema,
  bulkItemsRequestSchema,
  bulkRequestSchema,
} from "../../src/jobs/schema.js";
import { answerSchema } from "../../src/results/receipt/receipt.js";
import { EXAMPLES } from "../../src/server/contract-examples.js";
import { contractOf, routesOf } from "../../src/server/routes.js";

const features = await servingFeatures();
const PUBLISHED = contractOf(features, routesOf(features));

t.test("the examples of the contract are what the server takes and gives", (t) => {
  const values = (name: string) => Object.values(EXAMPLES[name] ?? {}).map(({ value }) => value);
  for (const value of values("SingleRequest"))
    t.doesNotThrow(() => singleRequestSchema.parse(value));
  for (const value of values("BulkRequest")) {
    t.doesNotThrow(() => bulkRequestSchema.parse(value));
    t.doesNotThrow(() => z.union([bulkFolderRequestSchema, bulkItemsRequestSchema]).parse(value));
  }
  for (const value of values("Answer")) t.doesNotThrow(() => answerSchema.parse(value));
  for (const value of values("Error"))
    t.doesNotThrow(() => errorCode.parse((value as { error: unknown }).error));
  t.end();
});

interface Published {
  paths: Record<string, Record<string, { operationId: string; tags: string[]; responses: object }>>;
}

t.test("every operation has a name of its own and a tag, and no schema is false", (t) => {
  const document = JSON.parse(PUBLISHED.plain.toString()) as Published;
  const operations = Object.values(document.paths).flatMap((page) => Object.values(page));
  const names = operations.map(({ operationId }) => operationId);
  t.equal(new Set(names).size, names.length);
  for (const { operationId, tags } of operations) {
    t.match(operationId, /^[a-z][A-Za-z]+$/);
    t.equal(tags.length, 1, operationId);
  }
  const forbidden = (value: unknown): boolean => {
    if (typeof value !== "object" || value === null) return false;
    const { properties = {} } = value as { properties?: object };
    return Object.values(properties).includes(false) || Object.values(value).some(forbidden);
  };
  t.notOk(forbidden(document));
  t.match(document.paths["/bulk_inference"]?.["post"]?.responses, { 200: Object, 202: Object });
  t.end();
});
