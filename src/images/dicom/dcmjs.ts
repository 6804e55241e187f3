/** dcmjs as dcmjs-codecs requires it: to import it would load its other build beside that one, 4 MB more in every thread. */
import { createRequire } from "node:module";
import type dcmjs from "dcmjs";

export const { data } = createRequire(import.meta.url)("dcmjs") as typeof dcmjs;
