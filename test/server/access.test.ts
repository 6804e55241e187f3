import t from "tap";
import { RateLimit, RequestsInWork } from "../../src/server/access.js";

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

t.test("rate: ten seconds' worth at once, then as it refills", (t) => {
  const rate = new RateLimit(2);
  for (let i = 0; i < 20; i += 1) rate.take("a", 1000);
  t.throws(() => rate.take("a", 1000), { code: "rate_limited", details: { retry_after: 1 } });
  rate.take("b", 1000);
  rate.take("a", 1500);
  t.throws(() => rate.take("a", 1500), { code: "rate_limited" });
  const off = new RateLimit(0);
  for (let i = 0; i < 1000; i += 1) off.take("a", 0);
  t.end();
});
