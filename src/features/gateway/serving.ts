/** The gateway in a server: its endpoints, and how it starts. */
import { at } from "../../server/route.js";
import type { ServingFeature } from "../../server/feature.js";
import { dropDeliveries, listDeliveries, retryDeliveries } from "./deliver/endpoints.js";
import {
  complete,
  listReceived,
  listSenders,
  removeReceived,
  replaceReceived,
  showReceived,
  stow,
} from "./receive/endpoints.js";
import { GATEWAY, type Gateway } from "./gateway.js";
import { isOn } from "./setting.js";

const endpoints = [
  at("POST /dicomweb/studies", "storeInstances", {
    claims: ["input_roots", "output_roots", "destinations"],
    interaction: "create",
    tag: "files",
    summary:
      "Takes DICOM objects (STOW-RS); a series that is complete becomes a job by the rules of the gateway",
    takesFile: "multipart/related",
    statuses: {
      200: "The disk has all objects",
      202: "Some objects were stored; FailedSOPSequence lists the others with the reason",
      409: "No object was stored; FailedSOPSequence has the reasons",
    },
    errors: [
      "path_not_allowed",
      "not_found",
      "unsupported_format",
      "disk_full",
      "spool_share_full",
      "share_unavailable",
      "shutting_down",
    ],
    ...stow,
  }),
  at("POST /gateway/received/:study/complete", "completeStudy", {
    claims: ["admin", "input_roots", "output_roots", "destinations"],
    interaction: "create",
    tag: "files",
    summary:
      "Makes jobs of the received images of a study at once, without waiting until it is quiet",
    errors: [
      "path_not_allowed",
      "not_found",
      "model_not_found",
      "disk_full",
      "bulk_unavailable",
      "shutting_down",
    ],
    ...complete,
  }),
  at("GET /gateway/received", "listReceived", {
    claims: ["admin", "input_roots"],
    interaction: "search",
    tag: "files",
    summary: "Received series: what waits, what is of jobs, and what nothing becomes of",
    errors: ["path_not_allowed", "not_found", "shutting_down"],
    ...listReceived,
  }),
  at("GET /gateway/senders", "listSenders", {
    claims: ["admin", "input_roots"],
    interaction: "search",
    tag: "files",
    summary: "What lies in the spool by sender, when the last of it came, and what was refused",
    errors: ["path_not_allowed", "not_found", "shutting_down"],
    ...listSenders,
  }),
  at("GET /gateway/received/:study", "showReceived", {
    claims: ["admin", "input_roots"],
    tag: "files",
    summary: "The received series of a study, and why each rule takes them or not",
    errors: ["path_not_allowed", "not_found", "shutting_down"],
    ...showReceived,
  }),
  at("POST /gateway/received/:study/remove", "removeReceived", {
    claims: ["admin", "input_roots"],
    interaction: "delete",
    tag: "files",
    summary: "Removes received series; results of their jobs stay",
    errors: ["path_not_allowed", "not_found", "audit_failed", "shutting_down"],
    ...removeReceived,
  }),
  at("POST /gateway/received/:study/replace", "replaceReceived", {
    claims: ["admin", "input_roots"],
    tag: "files",
    summary:
      "Lets objects with other bytes take the place of those that lie there, for a day: a sender has corrected them",
    errors: ["path_not_allowed", "not_found", "shutting_down"],
    ...replaceReceived,
  }),
  at("GET /deliveries", "listDeliveries", {
    claims: ["subject", "output_roots"],
    interaction: "search",
    tag: "results",
    summary:
      "Results of this subject that are not delivered yet, or were set aside (all with the claim admin)",
    errors: ["not_found", "destination_not_found", "shutting_down"],
    ...listDeliveries,
  }),
  at("POST /deliveries/retry", "retryDeliveries", {
    claims: ["subject", "output_roots", "destinations"],
    tag: "results",
    summary: "Sends objects again that were set aside, or to another destination",
    errors: ["path_not_allowed", "not_found", "destination_not_found", "shutting_down"],
    ...retryDeliveries,
  }),
  at("POST /deliveries/drop", "dropDeliveries", {
    claims: ["subject", "output_roots", "destinations"],
    tag: "results",
    summary: "Gives up objects that were set aside: they are not sent any more",
    errors: [
      "bad_request",
      "path_not_allowed",
      "not_found",
      "destination_not_found",
      "shutting_down",
    ],
    ...dropDeliveries,
  }),
];

export const serving: ServingFeature<Gateway> = {
  name: GATEWAY,
  endpoints,
  start: async (core) =>
    isOn(core.config) ? (await import("./running.js")).startGateway(core) : undefined,
};
