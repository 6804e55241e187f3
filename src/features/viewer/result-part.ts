/** The viewer's part in the threads that make results: each gets its line in the list. */
import type { ResultPart } from "../../inference/result-hook.js";
import { receiptName } from "../../results/receipt/names.js";
import { ListWriter } from "./list/list.js";
import { sealWhose } from "./list/whose.js";

export interface ListOptions {
  /** Real paths of the output roots. */
  roots: readonly string[];
  /** The name of the files of this node. */
  node: string;
}

export function resultPart({ roots, node }: ListOptions): ResultPart {
  const list = new ListWriter(roots, node);
  return {
    async staged({ folder, name, receipt, input, attributes }) {
      const whose = await sealWhose(attributes, receipt);
      list.add(folder, receipt, { name: receiptName(name), input, whose });
    },
  };
}
