/** Which headers are a traceparent of W3C Trace Context, section 3.2. */
import t from "tap";
import { traceparentOf } from "../../src/base/traceparent.js";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const PARENT = "b7ad6b7169203331";
const GIVEN = `00-${TRACE}-${PARENT}-01`;

t.test("the header traceparent", (t) => {
  t.equal(traceparentOf(GIVEN), GIVEN);
  t.equal(traceparentOf(`cc-${TRACE}-${PARENT}-01`), `cc-${TRACE}-${PARENT}-01`);
  t.equal(
    traceparentOf(`cc-${TRACE}-${PARENT}-01-what-comes`),
    `cc-${TRACE}-${PARENT}-01`,
    "a later version may go on, and none of that is kept",
  );
  for (const other of [
    "",
    `${GIVEN}-more`,
    `${GIVEN}, ${GIVEN}`,
    `cc-${TRACE}-${PARENT}-01.more`,
    `ff-${TRACE}-${PARENT}-01`,
    `00-${"0".repeat(32)}-${PARENT}-01`,
    `00-${TRACE}-${"0".repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${PARENT}-01`,
    `00-${TRACE}-${PARENT}`,
    ` ${GIVEN}`,
  ])
    t.equal(traceparentOf(other), undefined, other);
  t.end();
});
