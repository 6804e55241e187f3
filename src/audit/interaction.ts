/**
 * What a request did, in FHIR's words (restful-interaction), for the export of the audit. A
 * comparison reads, or with `retry` changes.
 */
export type Interaction = "create" | "read" | "search" | "patch" | "delete" | "compare";
