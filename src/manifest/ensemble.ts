/**
 * Several graphs as one model, whose mean is taken: what follows from the manifest, and its rules.
 */
import { inputOf, isImageInput, type Ensemble, type Manifest } from "./manifest.js";
import { kindOf, kindsThat } from "./outputs/outputs.js";
import { isSegmentation } from "./outputs/segmentation.js";

type Files = Pick<Manifest, "files" | "ensemble" | "parts">;

/**
 * The graphs of a model, by the paths of its files; without an ensemble or parts the first file is
 * the one.
 */
export const graphsOf = ({ files, ensemble: several, parts }: Files): string[] =>
  several?.graphs ?? parts?.flatMap(({ graphs }) => graphs) ?? [files[0]?.path ?? ""];

/** An ensemble as receipts describe it: each graph with its hash. */
export function ensembleFacts({
  files,
  ensemble: several,
}: Files):
  { average: Ensemble["average"]; graphs: { path: string; sha256: string }[] } | undefined {
  if (several === undefined) return undefined;
  const { average, graphs } = several;
  const hashOf = (path: string) => files.find((file) => file.path === path)?.sha256 ?? "";
  return { average, graphs: graphs.map((path) => ({ path, sha256: hashOf(path) })) };
}

/**
 * The same in words, for objects. Hashes are given to their twelfth digit, as `models list` does.
 */
export function ensembleText(model: Files): string | undefined {
  const facts = ensembleFacts(model);
  if (facts === undefined) return undefined;
  const { average, graphs } = facts;
  const hashes = graphs.map(({ sha256 }) => sha256.slice(0, 12)).join(", ");
  return `Mean of ${graphs.length} networks, ${average.replace("_", " the ")}; SHA-256 ${hashes}`;
}

export function checkEnsemble(
  { files, inputs, outputs }: Pick<Manifest, "files" | "inputs" | "outputs">,
  { graphs, average }: Ensemble,
  issue: (path: (string | number)[], message: string) => void,
): void {
  const paths = files.map(({ path }) => path);
  graphs.forEach((graph, i) => {
    if (!paths.includes(graph))
      issue(
        ["graphs", i],
        `Expected a path of files, which pins it by its SHA-256; found "${graph}"`,
      );
    if (graphs.indexOf(graph) < i) issue(["graphs", i], `The graph "${graph}" is there twice`);
  });
  const hashes = files.filter(({ path }) => graphs.includes(path)).map(({ sha256 }) => sha256);
  if (new Set(hashes).size < hashes.length)
    issue(["graphs"], "Expected different graphs; two of these files have the same SHA-256");
  if (paths[0] !== graphs[0])
    issue(["graphs", 0], `Expected the first of files, "${paths[0] ?? ""}"`);
  outputs.forEach((output) => {
    const { hasMean, holdsLabels } = kindOf(output);
    if (!hasMean || holdsLabels?.(output))
      issue(
        [],
        `Expected outputs that have a mean (${kindsThat("hasMean")}; no label_map, no prototypes): numbers of labels and boxes have none`,
      );
  });
  if (average === "before_activation") return;
  const tensors = outputs.flatMap((output) => ("tensor" in output ? [output.tensor] : []));
  if (new Set(tensors).size < tensors.length)
    issue(
      ["average"],
      "after_activation needs a tensor of its own for each output: it is activated once",
    );
  outputs.forEach((output) => {
    const reason = kindOf(output).noMeanAfterActivation?.(output);
    if (reason !== undefined) issue(["average"], reason);
    if ("activated" in output && output.activated === "after")
      issue(["average"], 'Expected before_activation, because an output has activated "after"');
    const input = inputs[inputOf({ inputs }, output)];
    const back = input !== undefined && isImageInput(input) && input.resampling?.activation;
    const isActivated =
      isSegmentation(output) && ["sigmoid", "softmax"].includes(output.activation);
    if (back === "after" && isActivated)
      issue(["average"], 'Expected before_activation, because resampling.activation is "after"');
  });
}
