/**
 * The cases of a recording: which input, which models, which outputs; and requests that are
 * refused.
 */
import type { ModelNames } from "./models.js";

/** One line of a recording is made for each. */
export interface Case {
  id: string;
  command: "single" | "inspect" | "bulk";
  /** Below the folder of inputs; an absolute path stays as it is. */
  input: string;
  models?: string[];
  outputs?: string[];
  /** Further fields of the request. */
  more?: Record<string, unknown>;
  /** The request is sent twice, and the second answer is recorded. */
  again?: boolean;
}

export interface Input {
  path: string;
  kind: "image" | "series" | "damaged";
  /** Decoding it takes long, or there are many frames. */
  isHeavy: boolean;
}

const ALL = ["json", "png", "sr", "seg", "sc"];
const SETS = [ALL, ["json"], ["png", "sr"], ["seg", "sc"]] as const;
/**
 * Every image is taken by so many models alone, each with another set of outputs; all models take
 * it together first.
 */
const MODELS_OF_EACH = 3;
/**
 * All models with all their outputs write some 35 files: every so many images are enough of that.
 */
const WITH_ALL = 8;

function* imageCases(
  { path, isHeavy }: Input,
  at: number,
  models: readonly string[],
): Generator<Case> {
  yield { id: `${path}: json`, command: "single", input: path, outputs: ["json"] };
  if (!isHeavy && at % WITH_ALL === 0)
    yield { id: `${path}: as manifests say`, command: "single", input: path };
  const count = isHeavy ? 1 : MODELS_OF_EACH;
  for (let i = 0; i < count; i++) {
    const model = models[(at * MODELS_OF_EACH + i) % models.length] ?? "";
    const outputs = [...(SETS[(at + i) % SETS.length] ?? ALL)];
    const id = `${path}: ${model}, ${outputs.join("+")}`;
    yield { id, command: "single", input: path, models: [model], outputs };
  }
}

function* seriesCases({ path }: Input, models: readonly string[]): Generator<Case> {
  for (const model of models)
    yield {
      id: `${path}: ${model}`,
      command: "single",
      input: path,
      models: [model],
      outputs: ALL,
    };
}

function* refusedCases(image: string): Generator<Case> {
  const refused = (title: string, more: Record<string, unknown>): Case => ({
    id: `refused: ${title}`,
    command: "single",
    input: image,
    more,
  });
  yield refused("an unknown field", { model: "ct-tissue" });
  yield refused("an unknown model", { models: ["ct-tisue"] });
  yield refused("no models", { models: [] });
  yield refused("an unknown kind of outputs", { outputs: ["json", "pdf"] });
  yield refused("a wrong priority", { priority: "urgent" });
  yield refused("a wrong limit", { timeout_ms: -1 });
  yield refused("a relative input", { input_image_path: "image.dcm" });
  yield refused("an input outside the roots", { input_image_path: "/etc/hostname" });
  yield refused("an output outside the roots", { output_folder_path: "/etc" });
  yield refused("no output", { output_folder_path: undefined });
  yield refused("an input that is not there", { input_image_path: "/nowhere/image.dcm" });
}

export function casesOf(
  inputs: readonly Input[],
  models: ModelNames,
  bulk: readonly string[],
): Case[] {
  const cases: Case[] = [];
  inputs.forEach((input, at) => {
    const { path, kind } = input;
    if (kind === "image") cases.push(...imageCases(input, at, models.flat));
    else if (kind === "series") cases.push(...seriesCases(input, [...models.deep, "ct-tissue"]));
    else cases.push({ id: path, command: "single", input: path, outputs: ["json"] });
    if (at % 20 === 0)
      cases.push({
        id: `${path}: again`,
        command: "single",
        input: path,
        outputs: ALL,
        again: true,
      });
    if (path.startsWith("shared/"))
      cases.push({ id: `${path}: inspect`, command: "inspect", input: path });
  });
  const first = inputs.find(({ kind }) => kind === "image");
  cases.push(...refusedCases(first?.path ?? ""));
  for (const folder of bulk)
    cases.push({ id: `${folder}: bulk`, command: "bulk", input: folder, outputs: ALL });
  return cases;
}
