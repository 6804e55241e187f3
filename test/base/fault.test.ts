/** What is said of a fault that nobody foresaw: to the client, and to the log. */
import t from "tap";
import { asRadserveError } from "../../src/base/errors.js";
import { faultForLog } from "../../src/base/fault.js";

t.test(
  "an unexpected fault is answered without its words, and logged without what they quote",
  (t) => {
    const cause = new TypeError("'Doe^Jane' is no name");
    const thrown = new Error("no entry /srv/images/Doe^Jane/1.dcm", { cause });
    const { code, message, details } = asRadserveError(thrown);
    t.equal(code, "internal");
    t.notMatch(JSON.stringify({ message, details }), /Doe|srv|fault\.test/);
    const logged = faultForLog(thrown);
    t.match(logged, { message: "no entry ...", cause: { message: "'...' is no name" } });
    t.notMatch(JSON.stringify(logged), /Doe|srv/);
    t.end();
  },
);
