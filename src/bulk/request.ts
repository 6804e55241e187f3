/** What a request for bulk work says. */
import { z } from "zod";
import { choice, clientPath, inputImagePath, keepableText, outputFolderPath } from "../inference/request.js";

const MOST_ITEMS = 10_000;

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
    idempotency_key: keepableText(200).optional(),
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
