/** Images whose types say that their values are not those of one slice, as classic CT has them. */
import { existsSync, readFileSync } from "node:fs";
import t from "tap";
import { calculationTechniques } from "../../../src/images/dicom/derived-values.js";
import type { Image } from "../../../src/images/image.js";
import { readImage } from "../../../src/images/read-image.js";
import { accepts } from "../../../src/models/acceptance.js";
import { shipped } from "../../support/manifests.js";
import { attributesOf, CT_SLICE, dicomFile, type Attributes } from "../../support/dicom.js";
import { failure, warned } from "../../support/expect.js";
import { folderOf, multiFrame, readFolder, slice } from "../../support/series.js";

const CASES = "../shared/cases/2026-11-28/inputs";

const tissue = { manifest: shipped("ct-tissue") };
const read = (more: Attributes, bits: 8 | 16 = 16) => {
  const raw = { rows: 4, columns: 4, samples: 1, bitsAllocated: bits, bitsStored: bits };
  const data = new Uint8Array(bits * 2).fill(4);
  return readImage(
    dicomFile({
      attributes: attributesOf({ ...raw, data }, { ...CT_SLICE, RescaleType: "HU", ...more }),
      pixels: data,
    }),
  );
};
const units = (image: Image) => image.interpretation(0).units;
const refusals = (image: Image) => accepts(tissue, image).map(({ code }) => code);

t.test("types that ct-tissue does not take", async (t) => {
  const units = (
    "CT_SOM5 PROT|PATIENT PROTOCOL|DOSE_INFO|SCREEN SAVE|CTP_CBF|CBV|MTT|TMAX|RCBF|Z_EFFECTIVE|Z_EFF|ZEFF|" +
    "EFF_ATOMIC_NUM|ELECTRON_DENSITY|IODINE_NO_WATER|MAT_SPECIFIC|MAT_FRACTIONAL|MAT_MODIFIED|LOCALIZER|" +
    "CT_SOM5 TOP|SCOUT|PERFUSION|SUBTRACTION|FUSION|STD_DEVIATION|DIVISION|MULTIPLICATION|FFRCT|ECV|" +
    "EFFECTIVE_Z|ELEC_DENSITY|RHO_Z|IODMAP|LUNGMAP|DE_CALC_SUPPR|GOUT|" +
    "CT_SOM5 CASC|CASCORE|CALCIUM_SCORING|DYNEVA|CT_SOM7 OSTEO|LUNG_VESSELS|DE_LUNG_VESSELS|COLLAGEN|" +
    "TENDON|KIDNEY_STONES|HARDPLAQUES|BONE_MARROW|STDDEV|ADDITION|CTFFR|DIFF|SURESUBTRACTION|HISTOGRAM|TABLE|" +
    "SEGMENTATION|LABELMAP|MASK|PARAMETRIC MAP|JACOBIAN"
  ).split("|");
  const techniques: [string, string][] = [
    ["CT_SOM5 MIP", "MAX_IP"],
    ["MIP", "MAX_IP"],
    ["CSA MIP THICK", "MAX_IP"],
    ["MIPT", "MAX_IP"],
    ["CT_SOM7 MIPTHIN", "MAX_IP"],
    ["THINMIP", "MAX_IP"],
    ["MIP20MM", "MAX_IP"],
    ["MINIPT", "MIN_IP"],
    ["PANORAMIC", "CURVED_MPR"],
    ["MINIP", "MIN_IP"],
    ["MAXIMUM", "MAX_IP"],
    ["MINIMUM", "MIN_IP"],
    ["MIN_IP", "MIN_IP"],
    ["VRT", "VOLUME_RENDER"],
    ["VR", "VOLUME_RENDER"],
    ["VOLUME RENDERING", "VOLUME_RENDER"],
    ["SSD", "SURFACE_RENDER"],
    ["3DSSD", "SURFACE_RENDER"],
    ["CPR", "CURVED_MPR"],
    ["CURVED_MPR", "CURVED_MPR"],
  ];
  for (const type of units) {
    const image = await read({ ImageType: `DERIVED\\SECONDARY\\AXIAL\\${type}` });
    t.equal(image.interpretation(0).units, undefined, type);
    if (type !== "LOCALIZER") t.strictSame(warned(image), ["derived_values"], type);
    t.ok(refusals(image).includes("units_not_accepted"), type);
  }
  for (const [type, technique] of techniques) {
    const image = await read({ ImageType: `DERIVED\\SECONDARY\\AXIAL\\${type}` });
    t.strictSame(calculationTechniques(image.attributes!), [technique], type);
    t.strictSame(warned(image), ["derived_values"], type);
    t.strictSame(refusals(image), ["rule_volume_based_calculation_technique"], type);
  }
});

t.test("where else a file says it", async (t) => {
  const code = (value: string) => [
    { CodeValue: value, CodingSchemeDesignator: "DCM", CodeMeaning: "?" },
  ];
  const cases: [string, Attributes, string][] = [
    [
      "a code",
      { DerivationCodeSequence: code("113078") },
      "rule_volume_based_calculation_technique",
    ],
    ["a code of addition", { DerivationCodeSequence: code("113042") }, "units_not_accepted"],
    ["a code of subtraction", { DerivationCodeSequence: code("113062") }, "units_not_accepted"],
    [
      "a text",
      { DerivationDescription: "Thick MIP, 20 mm" },
      "rule_volume_based_calculation_technique",
    ],
    ["a text of a map", { DerivationDescription: "CBF map" }, "units_not_accepted"],
    [
      "the attribute of Enhanced CT",
      { VolumeBasedCalculationTechnique: "MAX_IP" },
      "rule_volume_based_calculation_technique",
    ],
    ["another unit", { RescaleType: "HU_MOD" }, "units_not_accepted"],
    [
      "no unit, but the class",
      { RescaleType: undefined, ImageType: "DERIVED\\SECONDARY\\CBF" },
      "units_not_accepted",
    ],
  ];
  for (const [name, more, expected] of cases)
    t.strictSame(refusals(await read(more)), [expected], name);
  const secondary = "DERIVED\\SECONDARY\\AXIAL";
  t.strictSame(refusals(await read({ ImageType: secondary }, 8)), ["units_not_accepted"], "8 bits");
  t.strictSame(refusals(await read({}, 8)), [], "8 bits of a scan");
});

t.test("types that stay Hounsfield units", async (t) => {
  const silent = [
    "ORIGINAL\\PRIMARY\\AXIAL\\CT_SOM5 SPI",
    "ORIGINAL\\PRIMARY\\AXIAL\\CT_SOM7 SPI DUAL STD",
    "DERIVED\\SECONDARY\\MPR\\CT_SOM5 MPR",
    "DERIVED\\PRIMARY\\AXIAL\\CSAPARALLEL",
    "ORIGINAL\\PRIMARY\\AXIAL\\HELIX",
    "ORIGINAL\\PRIMARY\\AXIAL\\PERFUSION",
    "ORIGINAL\\PRIMARY\\AXIAL\\VOLUME",
    "DERIVED\\SECONDARY\\AXIAL",
    "DERIVED\\SECONDARY\\REFORMATTED",
    "DERIVED\\SECONDARY\\MPR\\CSA MPR\\\\CSAPARALLEL",
    "DERIVED\\PRIMARY\\AXIAL\\JP2K LOSSY 6 1",
    "ORIGINAL\\PRIMARY\\AXIAL\\SOMETHING NEW",
    "ORIGINAL\\PRIMARY",
  ];
  for (const ImageType of silent) {
    const image = await read({ ImageType });
    t.strictSame([units(image), warned(image), refusals(image)], ["HU", [], []], ImageType);
  }
  const energies = ["VMI", "MONOENERGETIC", "MONOE_40KEV", "VNC", "MAT_REMOVED", "GSI MONO"];
  const means = ["AIP", "AVERAGE", "AVE_IP", "MEAN_IP", "MEAN", "CT_SOM5 AIP"];
  const unknown = ["BMD", "CAD", "CSA 3D EDITOR", "BONE_SUB", "RESULT", "KEY IMAGE", "GSI", "CBP"];
  const warnedOf = [...energies, ...means, ...unknown, "OTHER"];
  for (const type of warnedOf) {
    const image = await read({ ImageType: `DERIVED\\SECONDARY\\AXIAL\\${type}` });
    t.strictSame(
      [units(image), warned(image), refusals(image)],
      ["HU", ["derived_values"], []],
      type,
    );
  }
  const scored = await read({ ImageType: "ORIGINAL\\PRIMARY\\AXIAL\\CASC" });
  t.strictSame([units(scored), warned(scored)], ["HU", ["derived_values"]], "a scan for scoring");
  const mean = [{ CodeValue: "113049", CodingSchemeDesignator: "DCM", CodeMeaning: "?" }];
  t.strictSame(warned(await read({ DerivationCodeSequence: mean })), ["derived_values"]);
  for (const text of [
    "Explicit VR",
    "maximum",
    "division of the IOD",
    "filtered back projection",
    "JPEG lossy, colour kept",
  ])
    t.strictSame(warned(await read({ DerivationDescription: text })), [], text);
});

t.test("one of many", async (t) => {
  const typed = (more: Attributes) => ({ CTImageFrameTypeSequence: [more] });
  const frames = (...own: Attributes[]) =>
    readImage(
      multiFrame(
        own.map((_, i) => 2 * i),
        {
          PerFrameFunctionalGroupsSequence: own.map((item, i) => ({
            PlanePositionSequence: [{ ImagePositionPatient: `0\\0\\${2 * i}` }],
            ...item,
          })),
        },
      ),
    );
  const map = await frames({}, typed({ FrameType: "DERIVED\\PRIMARY\\PERFUSION\\RCBF" }), {});
  t.strictSame(
    [0, 1, 2].map((frame) => map.interpretation(frame).units),
    ["HU", undefined, "HU"],
  );
  t.ok(refusals(map).includes("units_not_accepted"));
  const projected = await frames({}, typed({ VolumeBasedCalculationTechnique: "MAX_IP" }), {});
  t.strictSame(refusals(projected), ["rule_volume_based_calculation_technique"]);
  const slices = (more: Attributes) =>
    [0, 2, 4].map((z) => slice({ z, ...(z === 2 ? { attributes: more } : {}) }));
  t.match(
    await failure(readFolder(t, folderOf(t, slices({ ImageType: "DERIVED\\SECONDARY\\CBF" })))),
    { details: { reason: "mixed_units" } },
  );
  const mixed = await readFolder(t, folderOf(t, slices({ ImageType: "DERIVED\\SECONDARY\\MIP" })));
  t.ok(refusals(mixed).includes("rule_volume_based_calculation_technique"));
});

t.test("the cases", { skip: existsSync(CASES) ? false : `${CASES} is not there` }, async (t) => {
  for (const name of ["cbf", "siemens_mip"]) {
    const image = await readImage(readFileSync(`${CASES}/ct-derived-as-hounsfield/${name}.dcm`));
    t.equal(refusals(image).length, 1, name);
    t.strictSame(warned(image), ["derived_values"], name);
  }
});
