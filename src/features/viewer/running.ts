/** The viewer while it runs. */
import { resultForms } from "../../config.js";
import { conditionsFrom, type Condition } from "../../server/condition.js";
import { type Core } from "../../server/feature.js";
import { FeatureName, type Running } from "../../server/running-features.js";
import { badLists } from "./list/files.js";
import { ViewingService } from "./service.js";

/** The words of its conditions, each with what to do. */
const REMEDIES = {
  list_unreadable:
    "radserve doctor names the file in .radserve-results. Remove it, or let the server's user read it; then run radserve results index.",
} as const;

const of = conditionsFrom(REMEDIES);

export interface Viewer extends Running {
  service: ViewingService;
}
export const VIEWER = new FeatureName<Viewer>("viewer");

export function startViewer({ config, engine, places, log }: Core): Promise<Viewer> {
  const service = new ViewingService({ engine, forms: resultForms(config), places, log });
  let found: Condition[] = [];
  return Promise.resolve({
    service,
    conditions: () => found,
    look: async () => {
      found = await unreadableLists(config.output_roots);
    },
    leave: () => service.close(),
  });
}

/** Roots whose list of results has files that cannot be used; a root that is away has none. */
async function unreadableLists(roots: readonly string[]): Promise<Condition[]> {
  const all = await Promise.all(roots.map((root) => badLists(root).catch(() => [])));
  return all.flatMap(({ length }, i) => {
    if (length === 0) return [];
    const root = roots.length === 1 ? "output root" : `output root ${i + 1}`;
    return of(
      "list_unreadable",
      root,
      `Files of the list of results that cannot be used: ${length}.`,
    );
  });
}
