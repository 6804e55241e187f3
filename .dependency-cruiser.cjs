/** The direction of imports, checked by `npm run lint`: no cycles, and each layer imports only what lies below it. */
module.exports = {
  forbidden: [
    { name: "no-cycles", severity: "error", from: {}, to: { circular: true } },
    {
      name: "reading-knows-no-serving",
      severity: "error",
      from: { path: "^dist/src/(dicom|results|raster)/" },
      to: { path: "^dist/src/(server|main|auth|infer|supervisor)" },
    },
    {
      name: "only-engine-loads-the-addon",
      severity: "error",
      from: { path: "^dist/src/", pathNot: "^dist/src/engine" },
      to: { path: "addon\\.node$" },
    },
    {
      name: "product-imports-no-tests",
      severity: "error",
      from: { path: "^dist/src/" },
      to: { path: "^dist/(test|bench|scripts)/" },
    },
  ],
  options: { doNotFollow: { path: "node_modules" } },
};
