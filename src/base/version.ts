/** Radserve's version, from package.json. */
import { createRequire } from "node:module";

const { version } = createRequire(import.meta.url)("../../../package.json") as { version: string };

export const VERSION = version;
