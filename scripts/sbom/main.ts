/**
 * `npm run pack -- sbom`: writes sbom.cdx.json (CycloneDX 1.5) and THIRD_PARTY_NOTICES.txt beside
 * package.json.
 */
import { writeFileSync } from "node:fs";
import path from "node:path";
import { root } from "./installed.js";
import { licenceFault } from "./licences.js";
import { makeNotices } from "./notices.js";
import { licenceOf, makeSbom, named } from "./sbom.js";

const sbom = makeSbom();
const all = named(sbom);
const faults = all.flatMap(({ name, component }) => licenceFault(name, licenceOf(component)) ?? []);
writeFileSync(path.join(root, "sbom.cdx.json"), `${JSON.stringify(sbom, null, 2)}\n`);
writeFileSync(path.join(root, "THIRD_PARTY_NOTICES.txt"), makeNotices(sbom));
console.log(`sbom.cdx.json, THIRD_PARTY_NOTICES.txt: ${all.length} components`);
for (const fault of faults) console.error(`${fault}: not in scripts/sbom/licences.ts`);
process.exitCode = faults.length === 0 ? 0 : 1;
