/** Where the items of a job lie on this node, and what the client calls them. */
import { withoutEnd } from "../base/ends.js";
import path from "node:path";
import { translateIn, type PathMapping } from "../files/path-map.js";
import { caseName } from "../results/receipt/names.js";
import type { JobRequest } from "./jobs.js";

/** Separates a folder from its series; no path that a scan makes has it. */
const MARK = "//";
/** Stands for the folder as a case; no UID has letters. */
const CASE = "case";

/** @param folder relative to the folder of the job */
export const seriesPath = (folder: string, uid: string): string => `${folder}${MARK}${uid}`;
export const casePath = (folder: string): string => `${folder}${MARK}${CASE}`;

/** In SQL: the file or folder of an item of a scanned job, without the series or case in it. */
const WITHIN = `split_part(input, '${MARK}', 1)`;
/** In SQL: the folder that this lies in, relative to the job's; that of its results, too. */
export const FOLDER_OF_ITEM = `case when position('/' in ${WITHIN}) = 0 then '' else regexp_replace(${WITHIN}, '/[^/]*$', '') end`;

/**
 * The folder or file, and the part of it that is the item: a series by its SeriesInstanceUID, a
 * case, or all of it.
 */
function fromSeriesPath(item: string): {
  within: string;
  series: string | undefined;
  isCase: boolean;
} {
  const [within = "", part] = item.split(MARK);
  const isCase = part === CASE;
  return { within, series: isCase ? undefined : part, isCase };
}

export interface ItemPaths {
  /** The path on this node. */
  input: string;
  /** SeriesInstanceUID of an item that is one of several series in its folder. */
  series: string | undefined;
  /** The item is its folder as a case. */
  isCase: boolean;
  /** NAME of its results. */
  name: string;
  outputFolder: string;
  /**
   * The folder that must be there for any item of the job to be read: if it is not, the share is
   * away.
   */
  inputBase: string | undefined;
  /** The same for its results; it was made when the job was taken. */
  outputBase: string;
  /** The client's name of that folder. */
  clientOutputBase: string;
  /** The client's names. */
  clientInput: string;
  clientOutputFolder: string;
  /** A file in the output folder, in the client's names. */
  clientOutput(name: string): string;
}

interface ItemPathRow {
  input: string;
  /** Absent if `input` is relative to the job's folder. */
  output: string | null;
}

const bare = (folder: string) => withoutEnd(folder, "/") || "/";
const joined = (folder: string, rest: string) =>
  rest === "" || rest === "."
    ? bare(folder)
    : `${bare(folder) === "/" ? "" : bare(folder)}/${rest}`;

/**
 * @param item `input` and `output` as the client named them, or a path relative to the folder of
 * the job
 */
export function pathsOf(
  request: JobRequest,
  item: ItemPathRow,
  pathMap: readonly PathMapping[],
): ItemPaths {
  if (item.output !== null) {
    const input = translateIn(item.input, pathMap);
    const output = translateIn(item.output, pathMap);
    return {
      input: input.path,
      series: undefined,
      isCase: false,
      name: path.posix.basename(input.path),
      outputFolder: bare(output.path),
      inputBase: undefined,
      outputBase: bare(output.path),
      clientOutputBase: item.output,
      clientInput: item.input,
      clientOutputFolder: item.output,
      clientOutput: (name) => output.back(joined(output.path, name)),
    };
  }
  const from = translateIn(request.input_folder_path ?? "", pathMap);
  const to = translateIn(request.output_folder_path ?? "", pathMap);
  const { within, series, isCase } = fromSeriesPath(item.input);
  const outputFolder = joined(to.path, within === "" ? "" : path.posix.dirname(within));
  const input = joined(from.path, within);
  const base = path.posix.basename(input);
  return {
    input,
    series,
    isCase,
    name: isCase ? caseName(base) : series === undefined ? base : `${base}.${series}`,
    outputFolder,
    inputBase: bare(from.path),
    outputBase: bare(to.path),
    clientOutputBase: request.output_folder_path ?? "",
    clientInput: from.back(input),
    clientOutputFolder: to.back(outputFolder),
    clientOutput: (name) => to.back(joined(outputFolder, name)),
  };
}
