/** What a bulk job keeps of an answer; findings and measurements are in the receipt. */
import path from "node:path";
import type { Answer, OutputFile } from "./receipt.js";

export interface Summary {
  status: "completed" | "partial";
  reused: boolean;
  /** The receipt's name in the output folder; the outputs' paths are such names too. */
  receipt: string;
  outputs: OutputFile[];
  /** Of the file; absent in what earlier versions stored. */
  warnings?: Answer["warnings"];
  models: { name: string; status: "succeeded" | "failed" | "not_accepted" }[];
}

export function summaryOf(answer: Answer): Summary {
  return {
    status: answer.status,
    reused: answer.reused,
    receipt: path.posix.basename(answer.receipt_path),
    outputs: answer.models.flatMap(({ outputs }) =>
      outputs.map((file) => ({ ...file, path: path.posix.basename(file.path) })),
    ),
    warnings: answer.warnings,
    models: answer.models.map(({ name, status }) => ({ name, status })),
  };
}
