import t from "tap";
import { isDead, self } from "../../src/files/lock-owner.js";

t.test("an owner is dead where its process or its thread is gone", async (t) => {
  const owner = await self(1_000);
  t.equal(await isDead(owner), false);
  t.equal(await isDead({ ...owner, thread: { id: 0x3fffff, started: "1" } }), true);
  t.equal(await isDead({ ...owner, pid: 0x3fffff }), true);
  t.equal(await isDead({ ...owner, started: "1" }), true, "another process has its number");
});
