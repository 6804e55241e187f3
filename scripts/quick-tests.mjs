/**
 * What `npm run test:quick` runs beside types: a file of each layer, from a pixel to an answer and
 * to a job's end.
 */
export const QUICK = [
  "config.test.js",
  "addon/bytes.test.js",
  "manifest/manifest.test.js",
  "files/guarded-paths.test.js",
  "images/read-image.test.js",
  "images/dicom/attributes.test.js",
  "images/dicom/encapsulated.test.js",
  "images/dicom/interpretation.test.js",
  "images/dicom/native.test.js",
  "images/dicom/series.test.js",
  "engine/engine.test.js",
  "engine/geometry.test.js",
  "inference/infer-image.test.js",
  "inference/values.test.js",
  "models/transform-steps.test.js",
  "results/guards.test.js",
  "results/commit/commit.test.js",
  "results/dicom/elements.test.js",
  "results/dicom/objects.test.js",
  "results/findings/findings.test.js",
  "http/inference.test.js",
  "jobs/outcome.test.js",
  // What is generated: tables of the pages, the contract, and the schemas of the gateway and of
  // receipts (the model's: manifest)
  "scripts/pages.test.js",
  "features/gateway/settings.test.js",
  "results/receipt/receipt-schema.test.js",
];
