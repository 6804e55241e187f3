/** The SBOM against the schema of CycloneDX, by its own validator in Python. */
import { spawnSync } from "node:child_process";
import t from "tap";
import { makeSbom } from "../../scripts/sbom/sbom.js";
import { PYTHON, pythonHas } from "../support/needs.js";

const VALIDATE = `
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_5).validate_str(sys.stdin.read()))
`;

t.test("the SBOM is CycloneDX 1.5", { skip: pythonHas("cyclonedx", "jsonschema") }, (t) => {
  const validate = (input: string) => {
    const { status, stdout, stderr } = spawnSync(PYTHON, ["-c", VALIDATE], {
      input,
      encoding: "utf8",
    });
    t.equal(status, 0, stderr);
    return stdout.trim();
  };
  const sbom = makeSbom();
  t.equal(validate(JSON.stringify(sbom)), "None");
  t.not(
    validate(JSON.stringify({ ...sbom, serialNumber: "1" })),
    "None",
    "the validator does look",
  );
  t.end();
});
