/**
 * Whose address counts behind proxies: the nearest one that is no trusted proxy, and never what a
 * client made up.
 */
import type { IncomingHttpHeaders } from "node:http";
import t from "tap";
import { plainAddress } from "../../src/base/networks.js";
import { ClientAddresses, limitedAs } from "../../src/server/client-address.js";

const addresses = new ClientAddresses(["10.0.0.0/8", "192.168.7.1", "fd00::/8"]);
const from = (remoteAddress: string | undefined, headers: IncomingHttpHeaders) =>
  addresses.of(remoteAddress, headers);
const xff = (list: string, peer = "10.0.0.1") => from(peer, { "x-forwarded-for": list });
const forwarded = (list: string, peer = "10.0.0.1") => from(peer, { forwarded: list });

t.test("who is no trusted proxy speaks for nobody", (t) => {
  t.equal(xff("1.2.3.4", "9.9.9.9"), "9.9.9.9");
  t.equal(forwarded("for=1.2.3.4", "192.168.7.2"), "192.168.7.2");
  t.equal(from("::ffff:9.9.9.9", { "x-forwarded-for": "1.2.3.4" }), "9.9.9.9");
  t.equal(from(undefined, { "x-forwarded-for": "1.2.3.4" }), undefined);
  const none = new ClientAddresses([]);
  t.equal(none.of("127.0.0.1", { "x-forwarded-for": "1.2.3.4" }), "127.0.0.1");
  t.end();
});

t.test("X-Forwarded-For: the rightmost that is not trusted", (t) => {
  t.equal(xff("1.2.3.4"), "1.2.3.4");
  t.equal(xff("1.2.3.4", "::ffff:10.0.0.1"), "1.2.3.4");
  t.equal(xff("6.6.6.6, 1.2.3.4"), "1.2.3.4", "what stands before it, a client may have written");
  t.equal(xff("6.6.6.6,1.2.3.4,10.0.0.9, 192.168.7.1"), "1.2.3.4");
  t.equal(xff("10.0.0.3, 10.0.0.9"), "10.0.0.3", "a client inside the trusted network");
  t.equal(xff("1.2.3.4:4711"), "1.2.3.4");
  t.equal(xff("[2001:db8::1]:4711"), "2001:db8::1");
  t.equal(xff("2001:db8::1, fd00::2"), "2001:db8::1");
  t.equal(xff("::ffff:1.2.3.4"), "1.2.3.4");
  t.end();
});

t.test("Forwarded (RFC 7239)", (t) => {
  t.equal(forwarded("for=1.2.3.4;proto=https;by=10.0.0.1"), "1.2.3.4");
  t.equal(forwarded('For="[2001:db8:cafe::17]:4711"'), "2001:db8:cafe::17");
  t.equal(forwarded('for=6.6.6.6, for="1.2.3.4:80" ; host="a,b;c\\""'), "1.2.3.4");
  t.equal(forwarded("for=1.2.3.4, for=10.0.0.9"), "1.2.3.4");
  t.end();
});

t.test("what cannot be read ends at the last hop that can", (t) => {
  for (const list of [
    "",
    ",",
    "unknown",
    "_hidden",
    "1.2.3.4,",
    "1.2.3",
    "999.1.1.1",
    "[1.2.3.4",
    "<script>",
  ])
    t.equal(xff(list), "10.0.0.1", `"${list}"`);
  t.equal(xff("1.2.3.4, unknown, 10.0.0.9"), "10.0.0.9");
  for (const list of [
    "for=unknown",
    "for=_secret",
    "for",
    "for=1.2.3.4, x",
    "for=[2001:db8::1]",
    'for="1.2.3.4',
    "for=1.2.3.4 for=5.6.7.8",
    "proto=https",
    "for=a;".repeat(2000),
  ])
    t.equal(forwarded(list), "10.0.0.1", `"${list.slice(0, 30)}"`);
  t.end();
});

t.test("both headers have to name the same client, because a proxy writes one of them", (t) => {
  const both = (one: string, other: string) =>
    from("10.0.0.1", { "x-forwarded-for": one, forwarded: other });
  t.equal(both("1.2.3.4", "for=1.2.3.4"), "1.2.3.4");
  t.equal(both("1.2.3.4", "for=6.6.6.6"), "10.0.0.1");
  t.end();
});

t.test("what counts as one address", (t) => {
  t.equal(plainAddress("fe80::1%eth0"), "fe80::1");
  t.equal(limitedAs("1.2.3.4"), "1.2.3.4");
  t.equal(limitedAs("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  t.equal(limitedAs("2001:0db8:0001:0002::9"), "2001:db8:1:2::/64");
  t.equal(limitedAs("2001:db8::9"), "2001:db8:0:0::/64");
  t.equal(limitedAs("::1"), "0:0:0:0::/64");
  t.equal(limitedAs("64:ff9b:1::192.0.2.1"), "64:ff9b:1:0::/64");
  t.equal(limitedAs("2001:db8:1:2:3::"), "2001:db8:1:2::/64");
  t.end();
});
