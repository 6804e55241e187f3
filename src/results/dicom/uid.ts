/**
 * UIDs that follow from what they name: the same input, model and configuration give the same UIDs
 * on every node.
 */
import { createHash } from "node:crypto";
import { canonicalJson } from "../../base/canonical-json.js";

/**
 * A UID under 2.25 (PS3.5 section B.2): the decimal form of a UUID of version 8 (RFC 9562), whose
 * free bits are the first of a SHA-256 over what it is derived from.
 * @param kind what is named; UIDs of different kinds never meet
 * @param parts anything that JSON can say
 */
export function derivedUid(kind: string, parts: readonly unknown[]): string {
  const text = canonicalJson(["radserve", kind, ...parts]);
  const uuid = createHash("sha256").update(text).digest().subarray(0, 16);
  uuid.writeUInt8((uuid.readUInt8(6) & 0x0f) | 0x80, 6);
  uuid.writeUInt8((uuid.readUInt8(8) & 0x3f) | 0x80, 8);
  return `2.25.${BigInt(`0x${uuid.toString("hex")}`)}`;
}
