/** Bodies of requests: one schema each, for the types, the checks and the published contract. */
import { z } from "zod";
import { RadserveError } from "./errors.js";
import { jsonFaultAt } from "./json-fault.js";
import { modelName, outputKindSchema } from "./manifest.js";
import { found, keepable, problemsOf } from "./validation.js";

const LONGEST_TIMEOUT_MS = 3_600_000;
const MOST_ITEMS = 10_000;

/** Text that PostgreSQL and the file system can keep as it is. */
const text = (longest: number) =>
  z
    .string()
    .min(1)
    .max(longest)
    .refine((given) => keepable(given) === given, {
      message: "Expected text without NUL bytes and halves of surrogate pairs",
    });
const clientPath = text(4096);
const inputImagePath = clientPath.describe(
  "Absolute path, or one that path_map translates, of a file or of a folder that holds one series",
);
const outputFolderPath = clientPath.describe(
  "Absolute path, or one that path_map translates, of a folder; created inside its root where missing",
);

function unique(names: string[], context: z.RefinementCtx): void {
  if (new Set(names).size !== names.length)
    context.addIssue({ code: "custom", message: "Expected each entry once" });
}

const choice = {
  models: z
    .array(modelName)
    .min(1)
    .max(100)
    .superRefine(unique)
    .meta({ uniqueItems: true })
    .optional()
    .describe("Names of the models to run; without it, every active model that accepts the image"),
  outputs: z
    .array(outputKindSchema)
    .min(1)
    .max(5)
    .superRefine(unique)
    .meta({ uniqueItems: true })
    .optional()
    .describe("What to write; json always is. Without it, what each model's manifest says"),
};

export const singleRequestSchema = z.strictObject({
  input_image_path: inputImagePath,
  output_folder_path: outputFolderPath,
  ...choice,
  priority: z.enum(["routine", "stat"]).optional().describe("stat goes ahead; routine where absent"),
  timeout_ms: z
    .int()
    .min(1)
    .max(LONGEST_TIMEOUT_MS)
    .optional()
    .describe("The answer is deadline_exceeded where the work takes longer"),
});
export type SingleRequest = z.infer<typeof singleRequestSchema>;

export const bulkRequestSchema = z
  .strictObject({
    input_folder_path: clientPath.optional().describe("Walked recursively; DICOM is recognised by content"),
    output_folder_path: clientPath.optional(),
    items: z
      .array(z.strictObject({ input_image_path: inputImagePath, output_folder_path: outputFolderPath }))
      .min(1)
      .max(MOST_ITEMS)
      .optional()
      .describe("Instead of the two folders"),
    ...choice,
    idempotency_key: text(200).optional(),
  })
  .superRefine((body, context) => {
    const folders = body.input_folder_path !== undefined || body.output_folder_path !== undefined;
    const missing = (field: string, message: string) =>
      context.addIssue({ code: "custom", path: [field], message });
    if (body.items !== undefined) {
      if (folders) missing("items", "Expected either items or the two folders, not both");
      return;
    }
    if (body.input_folder_path === undefined)
      missing(
        "input_folder_path",
        folders ? "Expected a string" : "Expected input_folder_path and output_folder_path, or items",
      );
    else if (body.output_folder_path === undefined) missing("output_folder_path", "Expected a string");
  })
  // The same for the published schema, which has no words for the checks above.
  .meta({
    oneOf: [
      { required: ["items"], properties: { input_folder_path: false, output_folder_path: false } },
      { required: ["input_folder_path", "output_folder_path"], properties: { items: false } },
    ],
  });
export type BulkRequest = z.infer<typeof bulkRequestSchema>;

/** A body that fits its schema. Throws bad_request naming every field that does not, and what was expected there. */
export function parseBody<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const problems = problemsOf(schema, body, parsed.error);
  const sentences = problems
    .slice(0, 5)
    .map(({ field, message }) => `${field === "" ? "body" : field}: ${message}.`);
  const more = problems.length > 5 ? [`And ${problems.length - 5} more.`] : [];
  throw new RadserveError("bad_request", [...sentences, ...more].join(" "), {
    problems: problems.slice(0, 20),
  });
}

/** What is wrong with a body that is no JSON object, or holds a field that is not let in. */
function jsonFault(text: string): RadserveError {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    const { line, column } = jsonFaultAt(text);
    const message = `Expected a JSON object; found a fault at line ${line}, column ${column}.`;
    return new RadserveError("bad_request", message, { line, column });
  }
  const object = typeof value === "object" && value !== null;
  const kind = typeof value === "string" ? "a string" : object ? 'a field named "__proto__"' : found(value);
  return new RadserveError("bad_request", `Expected a JSON object; found ${kind}.`);
}

const PROTOTYPE =
  /"(?:_|\\u005f){2}(?:p|\\u0070)(?:r|\\u0072)(?:o|\\u006f)(?:t|\\u0074)(?:o|\\u006f)(?:_|\\u005f){2}"\s*:/i;

/**
 * The value of a body. Throws bad_request with the place of the fault, also where the bytes were no UTF-8: their decoder
 * left U+FFFD for each, and the names of two folders could become one.
 */
export function parseJsonBody(text: string): unknown {
  if (text.trim() === "") return {};
  if (text.includes("\ufffd"))
    throw new RadserveError(
      "bad_request",
      "Expected a body in UTF-8; found bytes that are none, or U+FFFD, which stands for such bytes. " +
        "Send UTF-8, and a U+FFFD that is meant as \\ufffd.",
    );
  if (PROTOTYPE.test(text)) throw jsonFault(text);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw jsonFault(text);
  }
  if (typeof value !== "object" || value === null) throw jsonFault(text);
  return value;
}
