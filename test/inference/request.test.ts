import t from "tap";
import { bulkRequestSchema } from "../../src/jobs/schema.js";
import { outputKindSchema } from "../../src/manifest/manifest.js";
import { singleRequestSchema } from "../../src/inference/request.js";
import { parseBody } from "../../src/base/json-body.js";
import { RadserveError } from "../../src/base/errors.js";
import type { z } from "zod";

const paths = { input_image_path: "/in/a.dcm", output_folder_path: "/out" };

function messageOf(schema: z.ZodType, body: unknown): string {
  try {
    parseBody(schema, body);
    return "";
  } catch (error) {
    t.ok(error instanceof RadserveError && error.code === "bad_request");
    return (error as RadserveError).message;
  }
}

t.test("all kinds of outputs may be asked for at once", (t) => {
  const outputs = outputKindSchema.options;
  t.strictSame(singleRequestSchema.parse({ ...paths, outputs }).outputs, outputs);
  t.match(
    messageOf(singleRequestSchema, { ...paths, outputs: [...outputs, "json"] }),
    /^outputs: /,
  );
  t.end();
});

t.test("single: what is wrong is said", (t) => {
  const cases: [object, string][] = [
    [
      {},
      "input_image_path: Expected a string; found nothing. output_folder_path: Expected a string; found nothing.",
    ],
    [{ ...paths, input_image_path: 7 }, "input_image_path: Expected a string; found 7."],
    [
      { ...paths, input_image_path: "" },
      "input_image_path: Expected at least 1 character; found an empty string.",
    ],
    [{ ...paths, model: "x" }, 'model: Unknown field; the nearest known field is "models".'],
    [{ ...paths, output: [] }, 'output: Unknown field; the nearest known field is "outputs".'],
    [{ ...paths, models: [] }, "models: Expected at least 1 entry; found a list of 0."],
    [{ ...paths, models: "ct-tissue" }, 'models: Expected a list; found "ct-tissue".'],
    [{ ...paths, models: ["a", "a"] }, "models: Expected each entry once; found a list of 2."],
    [{ ...paths, priority: "bulk" }, 'priority: Expected one of "routine", "stat"; found "bulk".'],
    [{ ...paths, timeout_ms: 0 }, "timeout_ms: Expected at least 1; found 0."],
    [{ ...paths, timeout_ms: 1.5 }, "timeout_ms: Expected a whole number; found 1.5."],
    [{ ...paths, timeout_ms: "5" }, 'timeout_ms: Expected a number; found "5".'],
    [
      { ...paths, outputs: ["pdf"] },
      'outputs[0]: Expected one of "json", "png", "sr", "seg", "rtstruct", "sc"; found "pdf".',
    ],
    [[], "body: Expected an object; found a list of 0."],
  ];
  for (const [body, message] of cases) t.equal(messageOf(singleRequestSchema, body), message);
  t.notMatch(
    messageOf(singleRequestSchema, { ...paths, priority: "DOE^JANE 1950" }),
    /DOE/,
    "long text is not repeated",
  );
  t.strictSame(parseBody(singleRequestSchema, { ...paths, models: ["a"], outputs: ["png"] }), {
    ...paths,
    models: ["a"],
    outputs: ["png"],
  });
  t.end();
});

t.test("bulk: folders or items", (t) => {
  const folders = { input_folder_path: "/in", output_folder_path: "/out" };
  t.equal(messageOf(bulkRequestSchema, folders), "");
  t.equal(messageOf(bulkRequestSchema, { items: [paths] }), "");
  t.match(
    messageOf(bulkRequestSchema, {}),
    /Expected input_folder_path and output_folder_path, or items/,
  );
  t.match(
    messageOf(bulkRequestSchema, { input_folder_path: "/in" }),
    /output_folder_path: Expected a string/,
  );
  t.match(
    messageOf(bulkRequestSchema, { ...folders, items: [paths] }),
    /either items or the two folders/,
  );
  t.match(messageOf(bulkRequestSchema, { items: [] }), /items: Expected at least 1 entry/);
  t.match(
    messageOf(bulkRequestSchema, { items: Array(10_001).fill(paths) }),
    /items: Expected at most 10000 entries/,
  );
  t.match(
    messageOf(bulkRequestSchema, { items: [paths, { ...paths, input_path: "x" }] }),
    /items\[1\]\.input_path: Unknown field; the nearest known field is "input_image_path"/,
  );
  t.end();
});
