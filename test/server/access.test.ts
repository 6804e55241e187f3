import t from "tap";
import { RequestsInWork } from "../../src/server/access.js";

t.test("requests of one subject at a time, counted to the last", (t) => {
  const inWork = new RequestsInWork(2, "requests");
  const refused = () =>
    t.throws(() => inWork.enter("a"), {
      code: "rate_limited",
      message: /at most 2 requests of one subject at a time/,
    });
  const leave = inWork.enter("a");
  const leaveOther = inWork.enter("a");
  refused();
  inWork.enter("b")();
  leave();
  const leaveThird = inWork.enter("a");
  refused();
  leaveThird();
  leaveOther();
  inWork.enter("a");
  inWork.enter("a");
  refused();
  t.end();
});
