/** What is wrong with the gateway's file is refused at the start, by name. */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { gatewaySchemaText, schemaPath } from "../../../scripts/build-gateway-schema.js";
import { ConfigError } from "../../../src/base/errors.js";
import { doctor } from "../../../src/features/gateway/doctor.js";
import type { Config } from "../../../src/config.js";
import { SPOOL_MARK } from "../../../src/files/folder-mark.js";
import { checkGateway, readGateway, stowPeer } from "../../../src/features/gateway/settings.js";
import { copyModel } from "../../support/manifests.js";

t.test("the published schema is the one in force", async (t) => {
  t.equal(
    readFileSync(schemaPath, "utf8"),
    await gatewaySchemaText(),
    "run dist/scripts/build-gateway-schema.js",
  );
});

/** A change of a file that is right, and what is said of it. */
const RULE = { name: "all", output_folder: "OUT/received" };
const RULE2 = { ...RULE, name: "other" };
const conditionOf = (more: object) => ({
  tag: "SeriesDescription",
  if_absent: "refuse",
  ...more,
});
const PACS = { type: "stow", url: "http://127.0.0.1/dicomweb" };
const COMMITS = {
  type: "dicom",
  host: "127.0.0.1",
  port: 104,
  called_ae: "PACS",
  prove: "commitment",
  listen: { port: 11113 },
};
const refusals: [string, object, RegExp][] = [
  [
    "longer than a timer runs",
    { destinations: { pacs: { type: "stow", url: "http://127.0.0.1/dicomweb", timeout: "30d" } } },
    /destinations\.pacs\.timeout: Expected at most 1d/,
  ],
  [
    "beyond this machine",
    { dicom: { port: 104, host: "0.0.0.0" } },
    /dicom\.host: Expected 127\.0\.0\.1, or tls\.client_ca, or networks of every peer: .* ct1 may call from anywhere/,
  ],
  ["beyond it over IPv6", { dicom: { port: 104, host: "::" } }, /dicom\.host/],
  [
    "TLS without client CA",
    { dicom: { port: 104, host: "0.0.0.0", tls: { cert: "/c", key: "/k" } } },
    /dicom\.host/,
  ],
  [
    "one of two without networks",
    {
      dicom: { port: 104, host: "10.0.0.1" },
      peers: { a: { ae_title: "A", networks: ["10.0.0.0/8"] }, b: { ae_title: "B" } },
    },
    /dicom\.host.* b may call/,
  ],
  [
    "two of one title",
    { peers: { a: { ae_title: "A" }, b: { ae_title: "A" } } },
    /peers\.b\.ae_title: Expected another title than that of a/,
  ],
  [
    "two of one title and network",
    {
      peers: {
        a: { ae_title: "A", networks: ["10.0.0.0/8", "10.1.0.1"] },
        b: { ae_title: "A", networks: ["10.0.0.0/8"] },
      },
    },
    /peers\.b\.networks: Expected networks that a of that title lacks/,
  ],
  [
    "two that are called back at one port",
    { destinations: { one: COMMITS, two: COMMITS } },
    /destinations\.two\.listen\.port: Expected another port than that of one/,
  ],
  [
    "a port for DICOM that is one to be called back at",
    { dicom: { port: 11113 }, destinations: { one: COMMITS } },
    /destinations\.one\.listen\.port: Expected another port than that of dicom/,
  ],
  [
    "a rule whose outputs no destination of it takes",
    {
      rules: [{ ...RULE, outputs: ["json", "seg"], deliver: ["one"] }],
      destinations: { one: { ...COMMITS, outputs: ["sr"] } },
    },
    /rules\[0\]\.deliver\[0\]: Expected a destination that takes some of outputs/,
  ],
  [
    "a rule that writes nothing that is sent",
    {
      rules: [{ ...RULE, outputs: ["json", "png"], deliver: ["one"] }],
      destinations: { one: COMMITS },
    },
    /rules\[0\]\.deliver\[0\]: Expected a destination that takes some of outputs/,
  ],
  [
    "a rule of other models than its destination",
    {
      rules: [{ ...RULE, models: ["ct-tissue"], deliver: ["one"] }],
      destinations: { one: { ...COMMITS, models: ["burned-in-text"] } },
    },
    /rules\[0\]\.deliver\[0\]: Expected a destination that takes some of models/,
  ],
  [
    "a long title",
    { peers: { a: { ae_title: "ABCDEFGHIJKLMNOPQ" } } },
    /peers\.a\.ae_title: Expected an AE title/,
  ],
  [
    "a name of STOW-RS",
    { peers: { "stow-x": { ae_title: "A" } } },
    /peers\.stow-x: Expected a name without stow-/,
  ],
  ["a port and no rule", { rules: [] }, /rules: Expected at least one rule/],
  ["no share", { peer_share: 0 }, /peer_share: Expected more than 0; found 0/],
  ["rules and no spool", { spool: undefined }, /spool: Expected a folder, because there are rules/],
  [
    "a usual destination that there is not",
    { deliver: ["pacs"] },
    /deliver\[0\]: Expected a name of destinations/,
  ],
  [
    "a rule's destination that there is not",
    { rules: [{ ...RULE, deliver: ["pacs"] }] },
    /rules\[0\]\.deliver\[0\]: Expected a name of destinations/,
  ],
  [
    "an unknown sender",
    { rules: [{ ...RULE, from: ["ct2"] }] },
    /rules\[0\]\.from\[0\]: Expected a name of peers/,
  ],
  [
    "a sender by STOW-RS whose peer has another name",
    { rules: [{ ...RULE, from: ["stow-PACS"] }] },
    /rules\[0\]\.from\[0\]: Expected stow-=[0-9a-f]{32} for that subject; found stow-PACS/,
  ],
  ["two rules of one name", { rules: [RULE, RULE] }, /rules\[1\]\.name/],
  [
    "a rule that the one before leaves nothing",
    { rules: [RULE, { ...RULE, name: "chest", from: ["ct1"] }] },
    /rules\[1\]: Expected a rule that can take something; all before it takes all/,
  ],
  [
    "a job of what has no images",
    { rules: [{ ...RULE, images: { max: 0 } }] },
    /rules\[0\]\.images\.max: Expected at least 1, or discard/,
  ],
  [
    "a title that who sends by STOW-RS would call",
    { rules: [{ ...RULE, from: ["stow-pacs"], called: ["RADSERVE"] }] },
    /rules\[0\]\.called: Expected none: who sends by STOW-RS calls no AE title/,
  ],
  ...[
    [
      { tag: "Modality", in: ["CT"] },
      { tag: "Modality", in: ["MR"] },
    ],
    [
      { tag: "ImageType", in: ["AXIAL"] },
      { tag: "ImageType", not_in: ["AXIAL", "MIP"] },
    ],
    [
      { tag: "SliceThickness", max: 1 },
      { tag: "SliceThickness", min: 2, if_absent: "accept" },
    ],
  ].map((when): [string, object, RegExp] => [
    `conditions that no object meets together: ${when[0]?.tag}`,
    { rules: [{ ...RULE, when: when.map((one) => ({ if_absent: "refuse", ...one })) }] },
    /rules\[0\]\.when\[1\]: Expected a condition that an object can meet beside number 1/,
  ]),
  [
    "a destination twice",
    {
      rules: [{ ...RULE, deliver: ["pacs", "pacs"] }],
      destinations: { pacs: { type: "stow", url: "http://127.0.0.1/dicomweb" } },
    },
    /rules\[0\]\.deliver\[1\]: Expected each destination once/,
  ],
  [
    "33 destinations",
    { rules: [{ ...RULE, deliver: Array.from({ length: 33 }, (_, i) => `pacs${i}`) }] },
    /rules\[0\]\.deliver: .*32/,
  ],
  [
    "a model that there is not",
    { rules: [{ ...RULE, models: ["none-such"] }] },
    /rules, all: expected names of models in .*; found none-such/,
  ],
  [
    "a label that no model has",
    { rules: [{ ...RULE, models: ["ct-tissue"], labels: ["fatt"] }] },
    /rules, all, labels: expected labels of the segmentations of ct-tissue; found "fatt"; the nearest is "fat"/,
  ],
  [
    "labels of what is discarded",
    { rules: [{ ...RULE, output_folder: undefined, discard: true, labels: ["fat"] }] },
    /rules\[0\]\.labels: Expected none beside discard/,
  ],
  [
    "a title that nobody may call",
    { rules: [{ ...RULE, called: ["OTHER"] }] },
    /rules\[0\]\.called\[0\]: Expected a title of dicom\.ae_title/,
  ],
  ...[
    ["an address with a query", { url: "https://ris/x?key=1" }, "url: Expected a URL without"],
    [
      "identifiers without TLS",
      { url: "http://ris/x", with: ["patient_id"] },
      "url: Expected https beside with",
    ],
    ["no secret", { secret_file: undefined }, "secret_file"],
    ["an event that there is not", { events: ["sent"] }, "events\\[0\\]"],
    ["names", { with: ["patient_name"] }, "with\\[0\\]"],
  ].map(([name, more, message]): [string, object, RegExp] => [
    `a webhook with ${name as string}`,
    {
      destinations: { pacs: PACS },
      webhooks: { ris: { url: "https://ris/x", secret_file: "/s", ...(more as object) } },
    },
    new RegExp(`webhooks\\.ris\\.${message as string}`),
  ]),
  [
    "a webhook and no destination",
    { webhooks: { ris: { url: "https://ris/x", secret_file: "/s" } } },
    /webhooks\.ris: Expected destinations/,
  ],
  [
    "a webhook with the name of a destination",
    { destinations: { ris: PACS }, webhooks: { ris: { url: "https://ris/x", secret_file: "/s" } } },
    /webhooks\.ris: Expected a name that no destination has/,
  ],
  ["no folder for results", { rules: [{ name: "all" }] }, /rules\[0\]\.output_folder: Expected a/],
  [
    "a folder for what is discarded",
    { rules: [{ ...RULE, discard: true }] },
    /rules\[0\]\.output_folder: Expected none beside discard/,
  ],
  [
    "series of a single series",
    { rules: [{ ...RULE, require_series: [{ name: "t1", when: [conditionOf({ in: ["T1"] })] }] }] },
    /rules\[0\]\.require_series: Expected group study/,
  ],
  [
    "more images than there may be",
    { rules: [{ ...RULE, images: { min: 3, max: 2 } }] },
    /rules\[0\]\.images\.min: Expected at most 2/,
  ],
  ...[
    ["no attribute", { tag: "SeriesDescripton", in: ["x"] }, /tag: Expected the keyword/],
    ["the pixels", { tag: "PixelData", in: ["x"] }, /tag: Expected an attribute .* before/],
    ["nothing that it asks", { tag: "Modality" }, /tag: Expected in, not_in, contains/],
    ["numbers that none is between", { tag: "KVP", min: 9, max: 1 }, /min: Expected at most 1/],
    ["a value in both", { tag: "Modality", in: ["CT"], not_in: ["CT"] }, /in: .*no value is left/],
    ["look-ahead", { tag: "Modality", matches: "(?=C)" }, /matches: Expected a regular expr/],
    ["a private one", { tag: "0019,xx0c", in: ["x"] }, /creator: Expected the Private Creator/],
    ["a creator", { tag: "Modality", creator: "A", in: ["x"] }, /tag: Expected a private attr/],
  ].map(([name, condition, message]): [string, object, RegExp] => [
    `a condition of ${name as string}`,
    { rules: [{ ...RULE, when: [{ if_absent: "refuse", ...(condition as object) }] }] },
    new RegExp(`rules\\[0\\]\\.when\\[0\\]\\.${(message as RegExp).source}`),
  ]),
  [
    "a name with capitals",
    { peers: { "CT 1": { ae_title: "CT1" } } },
    /peers\.CT 1: Expected a name of a-z/,
  ],
  ["an unknown field", { spol: "/x" }, /spol/],
  ...[
    ["other models", { models: ["a"] }],
    ["other outputs", { outputs: ["sr"] }],
    ["the folder by another name", { models: ["a"], output_folder: "OUT/../out/received/" }],
  ].map(([name, more]): [string, object, RegExp] => [
    `a second rule for a series in the first one's folder with ${name as string}`,
    {
      rules: [
        { ...RULE, from: ["ct1"], continue: true },
        { ...RULE2, ...(more as object) },
      ],
    },
    /rules, other: expected another output_folder than that of all, .* Give each a folder/,
  ]),
  [
    "results elsewhere",
    { rules: [{ ...RULE, output_folder: "/nowhere" }] },
    /rules, all: expected output_folder inside one of RADSERVE_OUTPUT_ROOTS/,
  ],
  [
    "a spool elsewhere",
    { spool: "OUT" },
    /spool: expected a folder inside one of RADSERVE_INPUT_ROOTS/,
  ],
  [
    "a spool through a link",
    { spool: "IN/link" },
    /spool: expected a folder inside one of RADSERVE_INPUT_ROOTS/,
  ],
  ["a spool in another", { spool: "IN/marked/spool" }, /outside the spool of another gateway/],
  ["no spool", { spool: "IN/none" }, /spool: expected a folder at .*; found none/],
  [
    "no hard links",
    { spool: "/proc/self" },
    /spool: expected a folder that this user may write to, on a file system with hard links/,
  ],
];

t.test("each mistake has its message", async (t) => {
  const directory = t.testdir({
    in: { spool: {}, marked: { spool: {}, [SPOOL_MARK]: "" } },
    out: {},
  });
  const [input, output, file] = ["in", "out", "gateway.json"].map((name) =>
    path.join(directory, name),
  ) as [string, string, string];
  symlinkSync(output, path.join(input, "link"));
  const right = {
    spool: "IN/spool",
    dicom: { port: 104 },
    peers: { ct1: { ae_title: "CT ONE" } },
    rules: [RULE],
  };
  const models_dir = path.join(directory, "models");
  mkdirSync(path.join(models_dir, "a"), { recursive: true });
  copyModel(models_dir, "ct-tissue", "ct-tissue");
  const config = { gateway: file, input_roots: [input], output_roots: [output], models_dir };
  const read = (value: object) => {
    writeFileSync(
      file,
      JSON.stringify(value).replaceAll('"IN', `"${input}`).replaceAll('"OUT', `"${output}`),
    );
    return readGateway(config);
  };
  t.match(await read(right), {
    keep: 604_800,
    dicom: { host: "127.0.0.1", ae_title: ["RADSERVE"], associations: 16 },
    rules: [{ quiet: 60, group: "series", resend: 600, objects: "any", series: "all" }],
  });
  const allowed = [
    {
      dicom: { port: 104, host: "0.0.0.0" },
      peers: { a: { ae_title: "A", networks: ["10.0.0.0/8"] } },
    },
    { dicom: { port: 104, host: "0.0.0.0", tls: { cert: "/c", key: "/k", client_ca: "/ca" } } },
    { dicom: undefined, rules: [{ ...RULE, from: ["stow-viewer"], quiet: "5m", models: ["a"] }] },
    { rules: [{ ...RULE, from: [stowPeer("PACS")] }] },
    // A model that cannot be read may have it
    { rules: [{ ...RULE, models: ["a"], labels: ["liver"] }] },
    {
      rules: [
        { ...RULE, continue: true },
        { ...RULE, name: "chest" },
      ],
    },
    // The results of one would replace those of the other, if they came of one series
    {
      rules: [
        { ...RULE, continue: true },
        { ...RULE2, models: ["a"], output_folder: "OUT/other" },
      ],
    },
    {
      rules: [
        { ...RULE, from: ["ct1"], continue: true },
        { ...RULE2, from: ["stow-viewer"], models: ["a"] },
      ],
    },
    { rules: [{ ...RULE, when: [conditionOf({ matches: "^chest|thorax$" })] }, RULE2] },
    { rules: [{ name: "junk", when: [conditionOf({ contains: ["dose"] })], discard: true }, RULE] },
    // What has no images is no job's
    { rules: [RULE, { name: "rest", discard: true }] },
    // Of several values each may be one
    {
      rules: [
        {
          ...RULE,
          when: ["ORIGINAL", "AXIAL"].map((value) => ({
            tag: "ImageType",
            in: [value],
            if_absent: "refuse",
          })),
        },
      ],
    },
    { dicom: { port: 104, ae_title: ["A", "B"] }, rules: [{ ...RULE, called: ["B"] }] },
    {
      rules: [
        { ...RULE, when: [{ tag: "0019,xx0C", creator: "X 1", if_absent: "accept", min: 1 }] },
      ],
    },
  ];
  for (const change of allowed) t.ok(await read({ ...right, ...change }), JSON.stringify(change));
  const [, shown = ""] =
    /^```json webhooks\n(.*?)^```/ms.exec(readFileSync("docs/gateway.md", "utf8")) ?? [];
  t.match(
    await read(JSON.parse(shown) as object),
    { webhooks: { ris: { give_up_after: 86_400, timeout: 10, with: ["accession_number"] } } },
    "the example of docs/gateway.md",
  );
  for (const [name, change, message] of refusals) {
    const error: unknown = await read({ ...right, ...change }).catch((thrown: unknown) => thrown);
    t.ok(error instanceof ConfigError, name);
    t.match((error as Error).message, message, name);
    t.match((error as Error).message, /^RADSERVE_GATEWAY: /, name);
  }
  const tls = { cert: "/none", key: "/none", client_ca: "/none" };
  await t.rejects(
    read({ ...right, dicom: { port: 104, tls } }).then(() => checkGateway(config)),
    { message: /RADSERVE_GATEWAY: dicom\.tls\.cert: expected a file in PEM/ },
  );
  const inSpool = path.join(input, "spool", "results");
  mkdirSync(inSpool);
  await t.rejects(
    readGateway({ ...config, output_roots: [output, inSpool] }),
    { message: /spool: expected a folder .* that has none of them in it/ },
    "clients would write results into the spool",
  );
  t.match(await doctor({ ...config } as unknown as Config), [{ name: "gateway", ok: false }]);
  await read(right);
  t.match(await doctor({ ...config } as unknown as Config), [
    { name: "gateway", ok: true, found: /can be written; rules: all$/ },
  ]);
  mkdirSync(path.join(directory, "folder"));
  await t.rejects(readGateway({ ...config, gateway: path.join(directory, "folder") }), {
    message: /RADSERVE_GATEWAY: expected a file/,
  });
  await t.rejects(readGateway({ ...config, gateway: path.join(directory, "none") }), {
    message: /expected a file .*ENOENT/,
  });
  writeFileSync(file, "{");
  await t.rejects(readGateway(config), { message: /expected JSON; found a fault at line 1/ });
  t.equal(await readGateway({ ...config, gateway: undefined }), undefined);
});
