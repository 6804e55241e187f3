/** Whether what is to be delivered is of a receipt: nothing else is ever sent. */
import { sha256 } from "../../files/durable-files.js";
import type { Delivery } from "./delivery.js";
import { objectsOf, type Receipt } from "./receipt.js";

type WrittenObject = Omit<ReturnType<typeof objectsOf>[number], "model">;

const identityOf = (object: WrittenObject) =>
  JSON.stringify([
    object.path,
    object.sha256,
    object.sop_class_uid,
    object.sop_instance_uid,
    object.series_instance_uid,
  ]);

/** Tells a result with objects from every other of its NAME. Hex. */
export const hashOfObjects = (receipt: Receipt): string =>
  sha256(JSON.stringify(objectsOf(receipt).map(identityOf)));

export function isOfReceipt({ destinations }: Delivery, receipt: Receipt): boolean {
  const known = new Set(objectsOf(receipt).map(identityOf));
  return Object.values(destinations).every((objects) =>
    (objects ?? []).every((object) => known.has(identityOf(object))),
  );
}
