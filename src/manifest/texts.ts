/** Texts, names, codes and colours, as many parts of the manifest hold them. */
import { z } from "zod";

export const text = z.string().min(1).max(2000);

/** Model names become parts of file names and URLs. */
export const modelName = z
  .string()
  .regex(
    /^[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?$/,
    "Expected 1 to 63 of a-z, 0-9, _ and -, beginning and ending with a letter or digit",
  );

export const roleName = z
  .string()
  .regex(
    /^[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?$/,
    "Expected 1 to 32 of a-z, 0-9, _ and -, beginning and ending with a letter or digit",
  );

/** A coded concept (PS3.3 section 8): for example 55603005, SCT, Adipose tissue. */
export const code = z.strictObject({
  value: z.string().min(1).max(64),
  scheme: z
    .string()
    .min(1)
    .max(16)
    .describe("Coding Scheme Designator: SCT, DCM, UCUM, RADLEX, 99..."),
  meaning: z.string().min(1).max(64),
});
export type Code = z.infer<typeof code>;

/** Designator of the few concepts that no public scheme has. */
export const OWN_SCHEME = "99RADSERVE";

export const dcm = (value: string, meaning: string): Code => ({ value, scheme: "DCM", meaning });
export const sct = (value: string, meaning: string): Code => ({ value, scheme: "SCT", meaning });
export const own = (value: string, meaning: string): Code => ({
  value,
  scheme: OWN_SCHEME,
  meaning,
});

export const colour = z
  .tuple([z.int().min(0).max(255), z.int().min(0).max(255), z.int().min(0).max(255)])
  .describe("sRGB, 0 to 255");
