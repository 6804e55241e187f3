/** The statements say of written objects what real ones are. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { samples } from "../../scripts/demo/samples.js";
import { WRITTEN } from "../../scripts/documents.js";
import { OWN_SCHEME } from "../../src/manifest/texts.js";
import { openFile } from "../../src/images/dicom/dicom-file.js";
import { bulkPlace } from "../support/bulk.js";
import { IMPLEMENTATION_CLASS_UID } from "../../src/results/dicom/elements.js";
import { ADDON, needs } from "../support/needs.js";
import { pageText } from "../support/pages.js";
import { radserve } from "../support/server.js";

const MOST_META_BYTES = 1_024;
const { version } = JSON.parse(pageText("package.json")) as { version: string };

t.setTimeout(300_000);

t.test(
  "every written object has the class and the syntax of the page",
  { skip: needs(ADDON) },
  async (t) => {
    const place = bulkPlace(t);
    const input = path.join(place.input, "chest.dcm");
    writeFileSync(input, (await samples()).ct);
    const outputs = ["sr", "seg", "sc", "rtstruct"];
    const seen: string[] = [];
    for (const type of ["binary", "labelmap"]) {
      const output = path.join(place.output, type);
      place.environment["RADSERVE_SEGMENTATION_TYPE"] = type;
      const ran = await radserve(place, "infer", input, output, "--outputs", outputs.join(","));
      t.equal(ran.status, 0, ran.stderr);
      for (const kind of outputs) {
        const bytes = readFileSync(path.join(output, `chest.dcm.ct-tissue.${kind}.dcm`));
        for (const name of [IMPLEMENTATION_CLASS_UID, `RADSERVE_${version}`])
          t.ok(bytes.subarray(0, MOST_META_BYTES).includes(name), "the implementation's names");
        const file = openFile(bytes);
        const name = kind === "seg" && type === "labelmap" ? "seg, as label map" : kind;
        const row = WRITTEN.find(([of]) => of === name);
        t.same(
          [file.attributes.string("SOPClassUID"), file.transferSyntax.uid],
          row?.slice(1),
          `${name}, ${type}`,
        );
        seen.push(name);
        t.equal(
          file.attributes.string("VerificationFlag"),
          kind === "sr" ? "UNVERIFIED" : undefined,
        );
        t.equal(file.attributes.string("SpecificCharacterSet"), "ISO_IR 192");
        const [equipment] = file.attributes.sequence("ContributingEquipmentSequence") ?? [];
        const [purpose] = equipment?.sequence("PurposeOfReferenceCodeSequence") ?? [];
        t.equal(purpose?.string("CodeValue"), "109102");
      }
    }
    for (const [kind] of WRITTEN) t.ok(seen.includes(kind), `${kind} was looked at`);
    t.match(
      pageText("docs/standards.md"),
      OWN_SCHEME,
      "the page names the scheme of codes of our own",
    );
  },
);
