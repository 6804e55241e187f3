/** The real engine, where the addon has been built. */
import { createRequire } from "node:module";
export const noEngine: false | string = "placeholder";
export function engine(): never {
  void createRequire;
  throw new Error();
}
