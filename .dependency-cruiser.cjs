/**
 * The direction of imports, checked by `npm run lint` on the server and the page, with imports of
 * types: no cycle of any kind, and each floor of src/ imports only what lies below it.
 */

/** The folders of src/, the lowest first. A floor knows those before it, and none behind it. */
const FLOORS = [
  "types/",
  "base/",
  "addon/",
  "graph/",
  "manifest/",
  "files/",
  "audit/",
  "images/",
  "engine/",
  "models/",
  "results/[^/]+$",
  "results/receipt/",
  "results/kinds/",
  "results/findings/",
  "results/picture/",
  "results/dicom/",
  "results/nifti/",
  "results/commit/",
  "inference/",
  "config\\.ts$",
  "jobs/",
  "server/",
  "commands/",
  "features/",
  "features\\.ts$",
  "serving\\.ts$",
  "jobs-thread\\.ts$",
  "main\\.ts$",
];

const floors = FLOORS.map((floor, at) => ({
  name: `nothing-above-${floor.replace(/\\.ts\$|\W+/g, "")}`,
  severity: "error",
  from: { path: `^src/${floor}` },
  to: { path: FLOORS.slice(at + 1).map((above) => `^src/${above}`) },
}));

module.exports = {
  forbidden: [
    { name: "no-cycles", severity: "error", from: {}, to: { circular: true } },
    ...floors.slice(0, -1),
    {
      name: "every-file-lies-on-a-floor",
      severity: "error",
      from: { path: "^src/", pathNot: FLOORS.map((floor) => `^src/${floor}`) },
      to: {},
    },
    {
      name: "features-know-no-other-feature",
      severity: "error",
      from: { path: "^src/features/([^/]+)/" },
      to: { path: "^src/features/", pathNot: "^src/features/$1/" },
    },
    {
      name: "product-imports-no-tests",
      severity: "error",
      from: { path: "^src/" },
      to: { path: "^(test|bench|scripts)/" },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
  },
};
