import js from "@eslint/js";
import tseslint from "typescript-eslint";

/**
 * process.env is read in src/config.ts alone, so that every setting is validated and documented in
 * one place. src/server/serving-child.ts passes it on whole.
 */
const environmentIsReadInConfigOnly = {
  "no-restricted-properties": [
    "error",
    { object: "process", property: "env", message: "Only src/config.ts reads the environment." },
  ],
};

/**
 * Fields that are packed into a literal only to be spread out of it again hide how many there are.
 */
const nothingIsPacked = ["ObjectExpression", "ArrayExpression"].map((literal) => ({
  selector: `:matches(SpreadElement) > ${literal}`,
  message: "Write the members where they go, without a literal to spread.",
}));

/** A wait that counts by the time of day lasts for years after the clock was set back. */
const wallClock = {
  selector: "MemberExpression[object.name='Date'][property.name='now']",
  message:
    "Waits count by monotonic(). A file that needs the time of day is listed in eslint.config.js.",
};
const WIDTH = 100;
const NEEDS_TIME_OF_DAY = [
  "audit/folders",
  "audit/verify",
  "commands/job-text",
  "features/gateway/receive/arrivals",
  "files/certificates",
  ...["handlers", "history", "keys", "overview", "tokens"].map((name) => `server/${name}`),
].map((name) => `src/${name}.ts`);

export default tseslint.config(
  { ignores: ["dist", "build", "build-*", "node_modules", ".tap"] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      // A project service takes an eighth longer
      parserOptions: {
        project: ["tsconfig.json", "web/tsconfig.json"],
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      "@typescript-eslint/restrict-template-expressions": [
        "error",
        { allowNumber: true, allowBoolean: true },
      ],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "@typescript-eslint/consistent-type-imports": "error",
      eqeqeq: "error",
      // There is no enum here, and looking for one costs an eighth of the time.
      "@typescript-eslint/no-unsafe-enum-assignment": "off",
    },
  },
  {
    files: ["src/**/*.ts"],
    ignores: ["src/config.ts", "src/server/serving-child.ts"],
    rules: environmentIsReadInConfigOnly,
  },
  {
    rules: {
      "no-restricted-syntax": ["error", ...nothingIsPacked],
      // Prettier breaks code at this width, but neither comments nor what is quoted.
      "max-len": [
        "error",
        {
          code: WIDTH,
          ignoreStrings: true,
          ignoreTemplateLiterals: true,
          ignoreRegExpLiterals: true,
          ignoreUrls: true,
        },
      ],
    },
  },
  {
    files: ["src/**/*.ts"],
    ignores: NEEDS_TIME_OF_DAY,
    rules: { "no-restricted-syntax": ["error", ...nothingIsPacked, wallClock] },
  },
  {
    files: ["test/**/*.ts", "bench/**/*.ts"],
    rules: {
      "@typescript-eslint/no-floating-promises": "off",
      "@typescript-eslint/no-non-null-assertion": "off",
      // What stands in for an instance there is meant to, and tsc holds it to the members.
      "@typescript-eslint/no-unsafe-class-instance-assignment": "off",
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
