import type { z } from "zod";

/** A schema with the meaning that its published form has. */
export const described = <S extends z.ZodType>(meaning: string, schema: S): S => schema.describe(meaning);
