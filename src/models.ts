/** The models of a server: read from their folders, checked, loaded, and matched against images. */
export type { ModelEntry } from "./models/entry.js";
export { loadModels, type LoadModelsOptions, type ModelProblem, type ModelSet } from "./models/set.js";
