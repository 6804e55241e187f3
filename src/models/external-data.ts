/**
 * External data of ONNX: a graph may keep constants in files beside its own, by paths relative to
 * its folder. What the runtime opens must be what the manifest pins, or other weights would run
 * under the same hash.
 */
import { realpath } from "node:fs/promises";
import { dirname, join, posix } from "node:path";
import type { EngineAddon } from "../engine/engine-addon.js";
import { loadAddon } from "../addon/load-addon.js";
import { errors, RadserveError } from "../base/errors.js";
import { beginningOfRegularSync } from "../files/regular-file.js";
import type { Manifest } from "../manifest/manifest.js";
import type { Problem } from "./explain.js";
import { fault, fileSha256, resolveModelFile } from "./files.js";

/** How networks are kept that are no ONNX, by the endings of their files: with what to do. */
const OTHERS: [ending: RegExp, of: string, remedy: string][] = [
  [/\.(?:pt|pth|ckpt|bin)$/, "PyTorch", "export it with torch.onnx.export"],
  [
    /\.torchscript$/,
    "TorchScript",
    "export the network that it was made of with torch.onnx.export",
  ],
  [/\.(?:h5|keras)$/, "Keras", "export it with tf2onnx"],
  [/\.pb$/, "TensorFlow", "export it with tf2onnx"],
  [/\.tflite$/, "TensorFlow Lite", "export it with tf2onnx (--tflite)"],
  [
    /\.safetensors$/,
    "safetensors, which holds weights without a network",
    "export the network with its weights (torch.onnx.export, or optimum-cli export onnx)",
  ],
  [/\.(?:engine|plan|trt)$/, "TensorRT", "take the ONNX model that it was made of"],
  [/\.(?:pkl|joblib)$/, "a Python object", "export it with skl2onnx or torch.onnx.export"],
];

/** The same by their first bytes, whatever a file is called; each character is a byte. */
const BEGINNINGS: [bytes: RegExp, of: string, remedy: string][] = [
  [
    /^version https:\/\/git-lfs/,
    "Git LFS, which stands for one that was not fetched",
    "fetch it with git lfs pull",
  ],
  [
    /^PK/,
    "PyTorch, or another ZIP archive",
    "export the network with torch.onnx.export, or unpack the archive",
  ],
  [/^\x89HDF/, "Keras", "export it with tf2onnx"],
  [/^[^]{4}TFL3/, "TensorFlow Lite", "export it with tf2onnx (--tflite)"],
  [
    /^[^]{4}ORTM/,
    "ONNX Runtime's own format",
    "take the ONNX model that it was made of, because only that names all that it opens",
  ],
];

function notOnnx(path: string): string {
  const known =
    OTHERS.find(([ending]) => ending.test(path.toLowerCase())) ??
    BEGINNINGS.find(([bytes]) => bytes.test(beginningOf(path)));
  return known === undefined
    ? "Expected an ONNX model that can be read to its end, found something else. Export the graph again."
    : `Expected an ONNX model, found a file of ${known[1]}: ${known[2]}.`;
}

/** The first bytes of a file, each as a character; none of one that cannot be read. */
function beginningOf(path: string): string {
  try {
    return beginningOfRegularSync(path, 32).toString("latin1");
  } catch {
    return "";
  }
}

/**
 * The files that a graph keeps constants in, sorted, as it names them.
 * @throws RadserveError bad_request if the file is no ONNX model
 */
export function externalData(graph: string): string[] {
  const found = (loadAddon() as Pick<EngineAddon, "externalData">).externalData(graph);
  if (found !== null) return found;
  throw errors.bad_request(notOnnx(graph));
}

/**
 * Whether a location stays in the graph's folder, whatever lies there. Other characters would be
 * another file's name.
 */
export function staysInside(location: string): boolean {
  const climbs = location.split("/").includes("..") || posix.isAbsolute(location);
  return location !== "" && !climbs && !/[\0\ufffd]/.test(location);
}

/** Every file that a graph, one of `files`, opens and the manifest does not pin. */
export async function unpinnedFiles(
  directory: string,
  graph: string,
  files: Manifest["files"],
): Promise<Problem[]> {
  const opened = await resolveModelFile(directory, graph);
  let locations: string[];
  try {
    locations = externalData(opened);
  } catch (thrown) {
    if (!(thrown instanceof RadserveError) || thrown.code !== "bad_request") throw thrown;
    return [{ path: graph, message: thrown.message.replace(/\.$/, "") }];
  }
  if (locations.length === 0) return [];
  const pinned = new Set(await Promise.all(files.map(({ path }) => realFile(directory, path))));
  const found = await Promise.all(
    locations.map((location) => locationProblems(graph, dirname(opened), location, pinned)),
  );
  return found.flat();
}

/** undefined for a file that is not there: another check says so. */
const realFile = (directory: string, path: string) =>
  resolveModelFile(directory, path)
    .then((file) => realpath(file))
    .catch(() => undefined);

async function locationProblems(
  graph: string,
  folder: string,
  location: string,
  pinned: ReadonlySet<string | undefined>,
): Promise<Problem[]> {
  if (!staysInside(location))
    return [
      {
        path: graph,
        message: `The graph keeps weights in "${location}". Expected a path below the graph's folder without "..": save the graph again with its external data beside it`,
      },
    ];
  const path = posix.join(posix.dirname(graph), location);
  try {
    const file = await realpath(join(folder, location));
    if (pinned.has(file)) return [];
    const sha256 = await fileSha256(file);
    return [
      {
        path,
        message: `The graph opens this file, and files does not name it. If it is the right one, add { "path": "${path}", "sha256": "${sha256}" } to files`,
      },
    ];
  } catch (error) {
    return [{ path, message: `The graph opens this file, which cannot be read: ${fault(error)}` }];
  }
}
