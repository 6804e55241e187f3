/** What answers say of deliveries. */
import t from "tap";
import { deliveriesOf, type Delivery } from "../../../src/results/receipt/delivery.js";
import { deliveryInAnswer } from "../../../src/results/receipt/receipt.js";

await t.test("an answer has the warning with which a destination took an object", (t) => {
  const warning = "0xB007, the data set does not match its SOP class";
  const object = { path: "a.sr.dcm", sop_instance_uid: "1.2.3", state: "accepted", warning };
  const delivery = { destinations: { pacs: [object] } } as unknown as Delivery;
  const told = deliveriesOf(delivery, (name) => `/out/${name}`);
  const expected = { ...object, destination: "pacs", path: "/out/a.sr.dcm" };
  t.same(told, [expected]);
  t.same(deliveryInAnswer.parse(told[0]), expected);
  t.end();
});
