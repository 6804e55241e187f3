/** The viewer in a server: its endpoints, and how it starts. */
import { at, READ_ERRORS, VIEW_ERRORS } from "../../server/route.js";
import type { ServingFeature } from "../../server/feature.js";
import {
  completePath,
  findResult,
  giveNifti,
  listPaths,
  listResults,
  searchResults,
  showFrame,
  showMarks,
  showPicture,
  showResult,
  showVerification,
} from "./endpoints.js";
import { listName } from "./list/list.js";
import { marksSchema } from "./messages.js";
import type { ListOptions } from "./result-part.js";
import { startViewer, VIEWER, type Viewer } from "./running.js";

const SOURCE_ERRORS = [
  ...VIEW_ERRORS,
  "input_not_found",
  "result_changed",
  ...READ_ERRORS,
] as const;
/** Of what was made of the image. */
const MADE_ERRORS = [...SOURCE_ERRORS, "result_untrusted"] as const;
/** An endpoint that reads results or images for people. */
const view = { tag: "results" } as const;

const READS_BOTH = ["input_roots", "output_roots"] as const;

const endpoints = [
  at("GET /results", "getResult", {
    // Where it was delivered is shown to whose delivery it is
    claims: ["subject", "output_roots"],
    ...view,
    summary: "The receipt of a result",
    errors: VIEW_ERRORS,
    ...showResult,
  }),
  at("GET /results/list", "listResults", {
    claims: ["output_roots"],
    ...view,
    summary: "Results in the output folders, the latest first",
    errors: VIEW_ERRORS,
    ...listResults,
  }),
  at("POST /results/search", "searchResults", {
    ...view,
    claims: ["output_roots"],
    interaction: "search",
    summary: "The same, asked for in a body: no patient and no path stands in an address",
    errors: VIEW_ERRORS,
    ...searchResults,
  }),
  at("POST /results/find", "findResult", {
    ...view,
    claims: ["output_roots"],
    interaction: "read",
    summary: "The opaque names of a result for addresses, and its paths",
    errors: VIEW_ERRORS,
    ...findResult,
  }),
  at("GET /results/picture", "getResultPicture", {
    claims: READS_BOTH,
    ...view,
    summary: "A frame of the analysed image, drawn with its window",
    errors: MADE_ERRORS,
    ...showPicture,
  }),
  at("GET /results/frame", "getResultFrame", {
    claims: READS_BOTH,
    ...view,
    summary: "The values of a frame of the analysed image, and what a viewer shows beside them",
    errors: SOURCE_ERRORS,
    ...showFrame,
  }),
  at("GET /results/marks", "getResultMarks", {
    claims: READS_BOTH,
    ...view,
    summary: "What a model marked on a frame, from the segmentation that it wrote",
    errors: MADE_ERRORS,
    ...showMarks,
  }),
  at("GET /results/nifti", "getResultNifti", {
    claims: READS_BOTH,
    ...view,
    summary: "The image of a result, or the masks of a model, as a compressed NIfTI-1 file",
    errors: MADE_ERRORS,
    ...giveNifti,
  }),
  at("GET /results/verification", "verifyResult", {
    claims: READS_BOTH,
    ...view,
    summary:
      "Verifies a result: files are compared with the receipt, and the models compute it again",
    errors: SOURCE_ERRORS,
    ...showVerification,
  }),
  at("GET /paths", "listPaths", {
    claims: READS_BOTH,
    ...view,
    tag: "files",
    summary: "Completes a path: files and folders that begin with the given text",
    errors: [...VIEW_ERRORS, "input_not_found"],
    ...listPaths,
  }),
  at("POST /paths", "completePath", {
    ...view,
    claims: READS_BOTH,
    interaction: "search",
    tag: "files",
    summary: "The same, asked for in a body",
    errors: [...VIEW_ERRORS, "input_not_found"],
    ...completePath,
  }),
];

export const serving: ServingFeature<Viewer> = {
  name: VIEWER,
  endpoints,
  schemas: { Segment: marksSchema.shape.segments.element },
  resultPart: ({ config, roots }) => ({
    module: new URL("./result-part.js", import.meta.url).href,
    options: { roots: roots.output, node: listName(config.state_dir) } satisfies ListOptions,
  }),
  start: startViewer,
};
