/**
 * One image through Radserve, with Node.js alone:
 *
 *     RADSERVE_URL=http://HOST:8500 RADSERVE_TOKEN=... node infer.mjs IMAGE OUTPUT_FOLDER
 *
 * It waits and tries again where the server says so, and prints what each model found.
 */
import { env, argv, exit } from "node:process";
import { setTimeout as delay } from "node:timers/promises";

/** The answer of POST /single_inference. Throws an Error with the server's own code and message. */
async function infer(image, folder, tries = 5) {
  for (;;) {
    const answer = await fetch(`${env.RADSERVE_URL ?? "http://127.0.0.1:8500"}/single_inference`, {
      method: "POST",
      headers: { Authorization: env.RADSERVE_TOKEN ?? "", "Content-Type": "application/json" },
      body: JSON.stringify({ input_image_path: image, output_folder_path: folder }),
    });
    const body = await answer.json();
    if (answer.ok) return body;
    // Repeating a POST is always safe. Without Retry-After waiting does not help.
    const wait = answer.headers.get("Retry-After");
    tries -= 1;
    if (wait === null || tries === 0)
      throw new Error(`${body.error}: ${body.message} (${body.request_id})`);
    await delay(Number(wait) * 1000);
  }
}

try {
  const result = await infer(argv[2], argv[3]);
  for (const { name, status, findings } of result.models) {
    const present = findings.filter((finding) => finding.present).map(({ label }) => label);
    const found = present.join(", ") || "nothing found";
    console.log(status === "succeeded" ? `${name} ${status}: ${found}` : `${name} ${status}`);
  }
  console.log(result.receipt_path);
} catch (error) {
  console.error(error.message);
  exit(1);
}
