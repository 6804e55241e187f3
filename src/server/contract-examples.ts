/** Examples in the published contract. A test holds them to the schemas that they are of. */
import type { z } from "zod";
import type {
  acceptedSchema,
  bulkFolderRequestSchema,
  bulkItemsRequestSchema,
} from "../jobs/schema.js";
import type { singleRequestSchema } from "../inference/request.js";
import type { Answer } from "../results/receipt/receipt.js";

const SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const JOB = "6d9d3f7e-4c0d-4b7a-9f53-0a2f6f0f2a11";

const single: z.input<typeof singleRequestSchema> = {
  input_image_path: "/srv/images/ct/slice-0042.dcm",
  output_folder_path: "/srv/results/ct",
  models: ["ct-tissue"],
  priority: "stat",
};

const answer: Answer = {
  request_id: "5b0e2f6c-2f5e-4b1d-8f7e-1f0a9c2d3e4f",
  status: "completed",
  input_image_path: "/srv/images/ct/slice-0042.dcm",
  receipt_path: "/srv/results/ct/slice-0042.dcm.json",
  reused: false,
  models: [
    {
      name: "ct-tissue",
      version: "1.0.0",
      status: "succeeded",
      findings: [{ label: "bone", present: true, area: { pixels: 5480, cm2: 13.7 } }],
      measurements: [
        {
          name: "bone area",
          value: 13.7,
          unit: { value: "cm2", scheme: "UCUM", meaning: "square centimeter" },
        },
      ],
      outputs: [
        {
          path: "/srv/results/ct/slice-0042.dcm.ct-tissue.seg.dcm",
          media_type: "application/dicom",
          sop_class_uid: "1.2.840.10008.5.1.4.1.1.66.4",
          sha256: SHA256,
        },
      ],
      provider: "cpu",
      warnings: [],
    },
  ],
  warnings: [],
  timings_ms: { total: 184 },
  finished_at: "2026-11-23T09:30:00.184Z",
};

const folders: z.input<typeof bulkFolderRequestSchema> = {
  input_folder_path: "/srv/images/ct",
  output_folder_path: "/srv/results/ct",
  idempotency_key: "ct-2026-11-23",
};

const items: z.input<typeof bulkItemsRequestSchema> = {
  items: [
    { input_image_path: "/srv/images/ct/slice-0042.dcm", output_folder_path: "/srv/results/ct" },
    { input_image_path: "/srv/images/us/frame-1.dcm", output_folder_path: "/srv/results/us" },
  ],
  outputs: ["json", "sr"],
};

const accepted: z.infer<typeof acceptedSchema> = {
  job_id: JOB,
  state: "scanning",
  total: null,
  status_url: `/bulk_inference/${JOB}`,
};

const error = {
  error: "input_not_found",
  message: "Expected a file or a folder at input_image_path; nothing is there.",
  request_id: "5b0e2f6c-2f5e-4b1d-8f7e-1f0a9c2d3e4f",
};

/** By the name of the schema, then by a name of their own. */
export const EXAMPLES: Readonly<
  Record<string, Record<string, { summary: string; value: unknown }>>
> = {
  SingleRequest: {
    one_model: { summary: "One model on one image, ahead of others", value: single },
  },
  BulkRequest: {
    folders: { summary: "A folder and all below it", value: folders },
    items: { summary: "A list of images", value: items },
  },
  Answer: { segmentation: { summary: "A model that segments", value: answer } },
  Accepted: { folder: { summary: "A folder, which is scanned now", value: accepted } },
  Error: { not_found: { summary: "A path that leads nowhere", value: error } },
};
