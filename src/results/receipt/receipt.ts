/**
 * The receipt, NAME.json: what was read, how it was prepared, what each model said, and which files
 * hold it. It is written last and is the commit mark: only files that it lists count. One schema
 * serves the types, the check on reading one back, the published JSON Schema and the HTTP answer.
 */
import { z } from "zod";
import { errorCode } from "../../base/errors.js";
import { code } from "../../manifest/texts.js";
import { PRECISIONS, PROVIDERS } from "../../manifest/providers.js";
import { deliveredSchema } from "./delivery.js";
import { macSchema, seal } from "./seal.js";
import { PLAIN_NAME, uid } from "./uid.js";

export const RECEIPT_SCHEMA = "radserve.receipt/1";

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

const warning = z.object({ code: z.string(), message: z.string() });
const transform = z.looseObject({ step: z.string() });

const boxNumber = z
  .int()
  .min(1)
  .optional()
  .describe("For boxes in volumes: number among the boxes of its label, from the highest score");

const OVER_FRAMES_MEANING =
  "For a finding about all frames or slices: how their scores were combined; total: found in " +
  "any slice of a group, with the volume of all";
const BOX_MEANING =
  "Source pixels; edges, x to the right, y down; in a volume z too, along its slices: a box of " +
  "the first slice alone has 0 and 1";
const CORNERS_MEANING =
  "Of a turned box, whose box is then the one along the rows round its part within the image: " +
  "its corners, in source pixels as there, beginning with the upper left one of the box before " +
  "it is turned, and on to its upper right one. Those of a box that reaches beyond the image " +
  "lie outside";
const ANGLE_MEANING =
  "For a rotated box: angle of its width (first to second corner) clockwise from the rows, in " +
  "degrees above -90 up to 90, measured in the patient's proportions if pixels are not square";

const finding = z.object({
  label: z.string(),
  code: code.optional(),
  score: z.number().optional().describe("Absent where the model gives a class and no score"),
  threshold: z
    .number()
    .optional()
    .describe(
      "Threshold of the score; for a segmentation, of each pixel's probability, if it has one",
    ),
  present: z.boolean(),
  margin: z
    .number()
    .optional()
    .describe(
      "For labels that exclude each other, on the label with the highest score: the difference to the second highest",
    ),
  over_frames: z
    .enum(["maximum", "mean", "noisy_or", "total"])
    .optional()
    .describe(OVER_FRAMES_MEANING),
  frame: z
    .int()
    .min(1)
    .optional()
    .describe(
      "For multi-frame sources and series taken slice by slice, from 1; of a series, the place in source.slices",
    ),
  box: z
    .object({
      x0: z.number(),
      y0: z.number(),
      x1: z.number(),
      y1: z.number(),
      z0: z.number().optional(),
      z1: z.number().optional(),
    })
    .optional()
    .describe(BOX_MEANING),
  corners: z
    .array(z.object({ x: z.number(), y: z.number() }))
    .length(4)
    .optional()
    .describe(CORNERS_MEANING),
  angle: z.number().optional().describe(ANGLE_MEANING),
  number: boxNumber,
  frames: z
    .array(z.int().min(1))
    .optional()
    .describe(
      "For a box in a volume: the frames that it covers, in the order of z; for a series, the places in source.slices",
    ),
  patient_mm: z
    .object({
      centre: z
        .array(z.number())
        .length(3)
        .describe("To the left, to the back, to the head (PS3.3 C.7.6.2)"),
      size: z
        .array(z.number())
        .length(3)
        .describe("Along x, y and z of the box, which may be oblique"),
    })
    .optional()
    .describe("Where a box in a volume lies in the patient"),
  point: z
    .object({ x: z.number(), y: z.number() })
    .optional()
    .describe(
      "A place instead of a box; source pixels as there: the middle of the first pixel is 0.5",
    ),
  area: z.object({ pixels: z.int().min(0), cm2: z.number().min(0).optional() }).optional(),
  volume: z
    .object({ voxels: z.int().min(0), ml: z.number().min(0) })
    .optional()
    .describe("Instead of area where the model took a whole series; voxels of the source"),
});

const measurement = z.object({
  name: z.string(),
  code: code.optional(),
  derivation: code
    .optional()
    .describe(
      "For values of a segment's pixels: which statistic this is; code is then the quantity",
    ),
  label: z.string().optional(),
  frame: z.int().min(1).optional(),
  number: boxNumber,
  value: z.number(),
  unit: code.describe("UCUM"),
  lines: z
    .array(z.array(z.object({ x: z.number(), y: z.number() })).min(2))
    .optional()
    .describe(
      "For measurements of points: the measured lines, in source pixels as a finding's point",
    ),
});

const outputFile = z.object({
  path: z.string().describe("In the receipt a name beside it; in the HTTP answer the full path"),
  media_type: z.string(),
  sop_class_uid: uid.optional(),
  sop_instance_uid: uid.optional(),
  series_instance_uid: uid.optional(),
  bytes: z.int().min(0).optional(),
  sha256,
});
/** In a receipt; nothing that it lists lies elsewhere. */
const listedFile = outputFile.extend({
  path: z.string().regex(PLAIN_NAME).describe("Name of a file beside the receipt"),
});

const PRECISION_MEANING =
  "What it was computed in; absent of cpu, which computes in the types of the graph";

const modelResult = z.object({
  name: z.string(),
  version: z.string(),
  status: z.enum(["succeeded", "failed", "not_accepted"]),
  error: z
    .object({
      error: errorCode,
      message: z.string(),
      details: z.record(z.string(), z.unknown()).optional(),
    })
    .optional(),
  reasons: z
    .array(z.object({ code: z.string(), message: z.string() }))
    .optional()
    .describe("Why the model does not accept the image, one for each rule"),
  shadow: z.literal(true).optional().describe("Release shadow: recorded, not to be shown"),
  findings: z.array(finding),
  measurements: z.array(measurement),
  outputs: z.array(outputFile),
  provider: z.enum(PROVIDERS).optional(),
  precision: z.enum(PRECISIONS).optional().describe(PRECISION_MEANING),
  warnings: z.array(warning),
});

const OVERLAY_OPACITY_MEANING =
  "Opacity of masks in the picture and the Secondary Capture; absent where neither was drawn";
const RAW_SHA256_MEANING =
  "Over the raw output tensors; of an ensemble over their mean; of volumes that are blended " +
  "slice by slice over fingerprints of the slices; of boxes that windows found over those of " +
  "the tensors of each window";
const SEGMENTATION_GRID_MEANING =
  "Where the manifest says segment_grid model: the grid of the network, as far as it lies " +
  "within the source, and what was decided there. The SEG holds that; findings, measurements " +
  "and the picture are of the source's grid";

const receiptModel = modelResult.extend({
  outputs: z.array(listedFile),
  sha256: sha256.describe("Over the manifest and all files of the model"),
  site_thresholds: z.record(z.string(), z.number()),
  transforms: z.array(transform).describe("From stored values to the tensor, in order"),
  decoding: z
    .array(transform)
    .optional()
    .describe("For detections: the steps from the tensors to the boxes, in order"),
  raw_sha256: sha256.optional().describe(RAW_SHA256_MEANING),
  overlay_opacity: z.number().min(0).max(1).optional().describe(OVERLAY_OPACITY_MEANING),
  ensemble: z
    .object({
      average: z.enum(["before_activation", "after_activation"]),
      graphs: z.array(z.object({ path: z.string(), sha256 })),
    })
    .optional()
    .describe("The graphs whose mean the outputs are, and of what it was taken"),
  parts: z
    .array(
      z.object({
        name: z.string(),
        graphs: z.array(z.object({ path: z.string(), sha256 })),
        ran: z.boolean().describe("False for one without any of the wanted labels"),
      }),
    )
    .optional()
    .describe("Of a model of parts: its graphs, in the order in which their labels were laid"),
  labels: z
    .array(z.string())
    .optional()
    .describe("The labels that the request named, of those of the model; absent for all"),
  region: z
    .object({
      model: z.string(),
      version: z.string(),
      sha256,
      site_thresholds: z.record(z.string(), z.number()),
      label: z.string(),
      margin_mm: z.number(),
      when_empty: z.enum(["negative", "refuse", "whole"]),
    })
    .optional()
    .describe(
      "The region that the model looked at, and the model that found it, which has its own entry here",
    ),
  cascade: z
    .object({
      model: z.string(),
      version: z.string(),
      sha256,
      site_thresholds: z.record(z.string(), z.number()),
      labels: z.array(z.string()),
    })
    .optional()
    .describe(
      "The model whose labels were channels of this one, which has an entry of its own here",
    ),
  roles: z
    .array(
      z.object({
        role: z.string(),
        series_instance_uid: z.string().optional(),
        sop_instance_uid: z.string().optional(),
      }),
    )
    .optional()
    .describe("For a case: the role of each series or image for this model"),
  segmentation_grid: z
    .object({
      slices: z.int().min(1),
      rows: z.int().min(1),
      columns: z.int().min(1),
      image_position_patient: z
        .array(z.number())
        .length(3)
        .describe("Centre of the first voxel, mm"),
      image_orientation_patient: z.array(z.number()).length(6),
      pixel_spacing: z
        .array(z.number())
        .length(2)
        .describe("Between rows, then between columns, mm"),
      slice_spacing: z.number(),
      segments: z.array(
        z.object({
          number: z.int().min(1),
          label: z.string(),
          voxels: z.int().min(0).describe("Voxels of this grid"),
          ml: z.number().min(0),
        }),
      ),
    })
    .optional()
    .describe(SEGMENTATION_GRID_MEANING),
  predecessor: z
    .object({
      study_instance_uid: z.string(),
      series_instance_uid: z.string(),
      sop_class_uid: z.string(),
      sop_instance_uid: z.string(),
    })
    .optional()
    .describe(
      "The report by an earlier version or configuration of the model that lay here and was replaced",
    ),
});

const slices = z.array(
  z.object({
    sop_instance_uid: z.string().optional(),
    file_sha256: sha256,
    frame: z.int().min(1).optional().describe("Frame in the file, from 1, if the file has several"),
    instance_number: z.int().optional().describe("InstanceNumber, for slices of a group"),
  }),
);

const FILE_SHA256_MEANING =
  "For a series: SHA-256 of the file_sha256 of its slices in order, in hexadecimal with a line " +
  "feed after each; for a case: the same over its members";
const PIXEL_SHA256_MEANING =
  "Over the stored values of all frames that were read, in order; of a case over those of its " +
  "members one after the other";
const SLICES_MEANING =
  "For a folder taken as one series: its slices, sorted along their normal, or by " +
  "InstanceNumber if they form no volume";
const CASE_MEANING =
  "For a folder taken as a case: the series or images that models looked at together. The " +
  "other fields of source describe the first, in which the results lie; bytes and file_sha256 " +
  "are of all";
const REPLACED_MEANING =
  "SOPInstanceUIDs of its series whose objects took the place of others in the gateway, because " +
  "those were damaged or somebody had them replaced: this result may be one of other pixels than " +
  "the one that lay here before";
const NOT_CHOSEN_MEANING =
  "For a folder of several series, if none was named: the other series, and why each model did " +
  "not take them. At most 50";
const UTC_OFFSET_MEANING =
  "UTC offset of the machine at the start; DICOM objects give the analysis's date and time " +
  "with it if the source has no time zone";

export const receiptSchema = z.object({
  schema: z.literal(RECEIPT_SCHEMA),
  radserve_version: z.string(),
  status: z.enum(["completed", "partial"]),
  source: z.object({
    name: z.string(),
    format: z.enum(["dicom", "png", "jpeg", "tiff"]),
    bytes: z.int(),
    file_sha256: sha256.describe(FILE_SHA256_MEANING),
    pixel_sha256: sha256.describe(PIXEL_SHA256_MEANING),
    rows: z.int(),
    columns: z.int(),
    frames: z.int(),
    photometric_interpretation: z.string(),
    modality: z.string().optional(),
    manufacturer: z
      .string()
      .optional()
      .describe("Manufacturer of the equipment that made the image"),
    manufacturer_model_name: z.string().optional(),
    transfer_syntax_uid: z.string().optional(),
    sop_class_uid: z.string().optional(),
    sop_instance_uid: z.string().optional(),
    series_instance_uid: z.string().optional(),
    study_instance_uid: z.string().optional(),
    group: z
      .literal("series")
      .optional()
      .describe(
        "A series that was asked for as one item: models of single images looked at its slices one by one",
      ),
    slices: slices.optional().describe(SLICES_MEANING),
    case: z
      .array(
        z.object({
          bytes: z.int(),
          file_sha256: sha256,
          rows: z.int(),
          columns: z.int(),
          frames: z.int(),
          modality: z.string().optional(),
          sop_class_uid: z.string().optional(),
          sop_instance_uid: z.string().optional(),
          series_instance_uid: z.string().optional(),
          study_instance_uid: z.string().optional(),
          slices: slices.optional(),
        }),
      )
      .min(2)
      .optional()
      .describe(CASE_MEANING),
    replaced: z.array(z.string()).optional().describe(REPLACED_MEANING),
    not_chosen: z
      .array(
        z.object({
          modality: z.string().optional(),
          series_instance_uid: z.string().optional(),
          sop_instance_uid: z.string().optional(),
          frames: z.int(),
          why: z.array(
            z.object({
              model: z.string(),
              role: z.string().optional(),
              code: z.string(),
              message: z.string(),
            }),
          ),
        }),
      )
      .max(50)
      .optional()
      .describe(NOT_CHOSEN_MEANING),
  }),
  transforms: z.array(transform).describe("Applied by the reader, before any model"),
  warnings: z.array(warning),
  outputs_requested: z
    .array(z.string())
    .describe("Kinds of files asked for; default where each model's manifest decides"),
  outputs_from: z
    .enum(["request", "settings", "manifest"])
    .optional()
    .describe("Who asked for them"),
  models: z.array(receiptModel),
  timings: z
    .object({
      request_id: z.string(),
      traceparent: z
        .string()
        .optional()
        .describe("The header of the request, or of the job's, as W3C Trace Context has it"),
      started_at: z.string(),
      utc_offset: z
        .string()
        .regex(/^[+-]\d{4}$/)
        .optional()
        .describe(UTC_OFFSET_MEANING),
      finished_at: z.string(),
      milliseconds: z.record(z.string(), z.number()),
    })
    .describe("Comparisons leave it out"),
  mac: macSchema.optional(),
});

/** An object on its way, as answers tell of it. */
export const deliveryInAnswer = deliveredSchema
  .pick({ path: true, sop_instance_uid: true, state: true, how: true, reason: true, warning: true })
  .extend({ destination: z.string() });

const FINISHED_AT_MEANING =
  "`timings.finished_at` of the receipt, which lies there as long as it has this one: a newer " +
  "result that takes its place has another";

/** The 200 of POST /single_inference. */
export const answerSchema = z.object({
  request_id: z.string(),
  status: z.enum(["completed", "partial"]),
  input_image_path: z.string(),
  receipt_path: z.string(),
  reused: z.boolean().describe("A finished, valid result lay there and nothing was computed"),
  models: z.array(modelResult),
  warnings: z.array(warning).describe("What the reader had to assume or repair in the file"),
  deliveries: z
    .array(deliveryInAnswer)
    .optional()
    .describe("For a request that delivers: each object for each destination"),
  timings_ms: z.record(z.string(), z.number()),
  finished_at: z.string().describe(FINISHED_AT_MEANING),
});

export type Receipt = z.infer<typeof receiptSchema>;
export type ReceiptModel = Receipt["models"][number];
export type Finding = z.infer<typeof finding>;
export type Measurement = z.infer<typeof measurement>;
export type OutputFile = z.infer<typeof outputFile>;
export type DeliveryInAnswer = z.infer<typeof deliveryInAnswer>;
export type Answer = z.infer<typeof answerSchema>;

/** The text of a receipt as Radserve writes it. */
export const receiptText = (receipt: Receipt): string => `${JSON.stringify(receipt, null, 2)}\n`;

/** The text of NAME.json, with its MAC. */
export const signedText = (receipt: Receipt, name: string): Promise<string> =>
  seal("receipt", name, receiptText({ ...receipt, mac: undefined }));

/** The objects of a result that can be delivered: those of DICOM. */
export function objectsOf({ models }: Receipt) {
  return models.flatMap((model) =>
    model.outputs.flatMap(
      ({ path, sop_class_uid, sop_instance_uid, series_instance_uid, sha256 }) =>
        sop_class_uid === undefined ||
        sop_instance_uid === undefined ||
        series_instance_uid === undefined
          ? []
          : {
              path,
              model: model.name,
              sop_class_uid,
              sop_instance_uid,
              series_instance_uid,
              sha256,
            },
    ),
  );
}
