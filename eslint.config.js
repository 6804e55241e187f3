import js from "@eslint/js";
import tseslint from "typescript-eslint";

/** process.env is read in src/config.ts alone, so that every setting is validated and documented in one place. */
const environmentIsReadInConfigOnly = {
  "no-restricted-properties": [
    "error",
    { object: "process", property: "env", message: "Only src/config.ts reads the environment." },
  ],
};

export default tseslint.config(
  { ignores: ["dist", "build", "build-*", "node_modules", ".tap"] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": [
        "error",
        { allowNumber: true, allowBoolean: true },
      ],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "@typescript-eslint/consistent-type-imports": "error",
      eqeqeq: "error",
    },
  },
  { files: ["src/**/*.ts"], ignores: ["src/config.ts"], rules: environmentIsReadInConfigOnly },
  {
    files: ["test/**/*.ts", "bench/**/*.ts"],
    rules: {
      "@typescript-eslint/no-floating-promises": "off",
      "@typescript-eslint/no-non-null-assertion": "off",
    },
  },
  {
    files: ["**/*.js", "**/*.mjs", "**/*.cjs"],
    ...tseslint.configs.disableTypeChecked,
  },
  {
    files: ["**/*.js", "**/*.mjs", "**/*.cjs"],
    languageOptions: {
      globals: {
        console: "readonly",
        process: "readonly",
        URL: "readonly",
        fetch: "readonly",
        module: "writable",
      },
    },
  },
);
