/** What webhooks are told of results: real server, PACS and receiver. */
import { execFileSync } from "node:child_process";
import { chmodSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import type { Durations } from "../../../../src/base/durations.js";
import { httpPeer } from "../../../support/http-peer.js";
import { linesOf } from "../../../support/audit.js";
import { ctPlace, writeSlice } from "../../../support/bulk.js";
import {
  conditions,
  deliveringPlace,
  deliveryOf,
  infer,
  listed,
  proven,
  startDelivering,
} from "../../../support/deliveries.js";
import { commandsAre } from "../../../support/needs.js";
import { HOUR_MS } from "../../../support/held.js";
import { radserve, shiftClock } from "../../../support/server.js";
import { until } from "../../../support/until.js";
import { webPacs } from "../../../support/web-pacs.js";
import { webReceiver } from "../../../support/web-receiver.js";

/** A place whose server delivers to a PACS and tells a webhook. */
async function tellingPlace(
  t: Test,
  more: object = {},
  {
    headers = {},
    lengths = {},
  }: { headers?: Record<string, string>; lengths?: Partial<Durations> } = {},
) {
  const [pacs, place] = [await webPacs(t), ctPlace({})];
  const ris = await webReceiver(t, place.directory, headers);
  const webhooks = { ris: { url: ris.url, secret_file: ris.secretFile, ...more } };
  deliveringPlace({ pacs }, { webhooks }, place, lengths);
  return { pacs, ris, place };
}

const told = (place: { output: string }) =>
  deliveryOf(place).events?.map(({ event, state }) => `${event} ${state}`);

await t.test("a proven result is told once, signed, with opaque ids alone", async (t) => {
  const { ris, place } = await tellingPlace(t);
  const server = await startDelivering(t, place);
  const { body } = await infer(server, { deliver: "wait" });
  await until("the file says that it was told", () => told(place)?.[0] === "proven told");
  const [message] = ris.received;
  t.match(message, { isSigned: true, type: "delivery.proven", id: /^msg_[\w-]+$/ });
  t.equal(message?.timestamp, deliveryOf(place).events?.[0]?.at);
  t.strictSame(
    { ...message?.data, node: "" },
    {
      node: "",
      destination: "pacs",
      delivery_id: deliveryOf(place).id,
      request_id: body.request_id,
      counts: { proven: 2 },
    },
    "and nothing else",
  );
  await infer(server, { deliver: "wait" });
  await until("the queue is empty", async () => (await listed(server)).length === 0);
  t.equal(ris.received.length, 1);
  // The last of them may come after that
  const lines = await until("the audit has two lines of it", () => {
    const found = linesOf(place).filter(({ destination }) => destination === "webhook ris");
    return found.length >= 2 && found;
  });
  t.same(
    lines.map(({ outcome, count }) => `${outcome} ${count}`),
    ["asked 2", "told 2"],
  );
  t.notMatch(JSON.stringify(server.log), /Nobody|1\.2\.3\.4/, "no word of the patient");
  const explained = await radserve(place, "explain", path.join(place.output, "image.dcm.json"));
  t.match(
    explained.stdout,
    /objects for pacs: proven\n {2}image\.dcm\.ct-tissue\.\w+\.dcm: proven since .*Z, by wado-rs/,
  );
  t.match(explained.stdout, /message to the webhook ris \(proven at pacs\): told/);
});

await t.test("what the settings add is told, and what is set aside", async (t) => {
  const { pacs, ris, place } = await tellingPlace(t, {
    with: ["receipt_path", "study_instance_uid", "objects", "accession_number", "patient_id"],
    events: ["set_aside"],
  });
  pacs.behave("refuse");
  const server = await startDelivering(t, place);
  await infer(server, { outputs: ["sr"], deliver: "wait" });
  await until("it is told", () => told(place)?.[0] === "set_aside told");
  const [object] = deliveryOf(place).destinations["pacs"] ?? [];
  const receipt_path = path.join(place.output, "image.dcm.json");
  const { source } = JSON.parse(readFileSync(receipt_path, "utf8")) as {
    source: { study_instance_uid: string };
  };
  t.match(ris.received, [
    {
      isSigned: true,
      type: "delivery.set_aside",
      data: {
        counts: { refused: 1 },
        receipt_path,
        study_instance_uid: source.study_instance_uid,
        objects: [{ sop_instance_uid: object?.sop_instance_uid, state: "refused" }],
        patient_id: /./,
      },
    },
  ]);
  t.notMatch(JSON.stringify(ris.received), /SOP class/, "the words of the PACS stay away");
  pacs.behave("keep");
  await server.post("/deliveries/retry?destination=pacs", "");
  await until("the object is proven", () => proven(place));
  await until("the queue is empty", async () => (await listed(server)).length === 0);
  t.same(told(place), ["set_aside told"], "proven is not among its events");
});

await t.test(
  "a webhook that is away holds up nothing, and has its message after kill -9 and its return",
  async (t) => {
    const { ris, place } = await tellingPlace(t);
    await ris.stop();
    const server = await startDelivering(t, place);
    const { body } = await infer(server, { deliver: "wait" });
    t.match(body.deliveries, [{ state: "proven" }, { state: "proven" }]);
    await until("there is a condition", async () => (await conditions(server)).length > 0);
    t.match(await conditions(server), [{ condition: "webhook_away", where: "webhook ris" }]);
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    t.match(metrics, /^radserve_webhook_messages\{webhook="ris",state="due"\} 1$/m);
    t.match(metrics, /^radserve_webhook_away\{webhook="ris"\} 1$/m);
    t.match(await listed(server), [{ events: [{ webhook: "ris", state: "due" }] }]);
    const [due] = deliveryOf(place).events ?? [];
    process.kill(server.servingPid(), "SIGKILL");
    await ris.start();
    await until("it is told", () => told(place)?.[0] === "proven told");
    t.match(ris.received, [{ id: due?.id, isSigned: true }]);
    await until("there is no condition", async () => (await conditions(server)).length === 0);
  },
);

await t.test("what is to be told of a result that is replaced is told all the same", async (t) => {
  const { ris, place } = await tellingPlace(t);
  await ris.stop();
  const server = await startDelivering(t, place);
  await infer(server, { deliver: "wait", outputs: ["sr"] });
  const first = deliveryOf(place).id;
  await infer(server, { deliver: "wait" });
  const second = deliveryOf(place).id;
  t.not(second, first, "it was replaced");
  t.equal(deliveryOf(place).replaces?.id, first);
  await ris.start();
  await until("the queue is empty", async () => (await listed(server)).length === 0);
  t.same(ris.received.map(({ data }) => data["delivery_id"]).sort(), [first, second].sort());
  t.notOk(readdirSync(place.output).some((name) => name.includes(".delivery.1")));
});

await t.test("kill -9 before the answer: the message comes again, with the same id", async (t) => {
  const { ris, place } = await tellingPlace(t);
  ris.behave("hang");
  const server = await startDelivering(t, place);
  await infer(server, { deliver: "wait" });
  await until("it has the message", () => ris.received.length > 0);
  process.kill(server.servingPid(), "SIGKILL");
  ris.behave(200);
  await until("it is told", () => told(place)?.[0] === "proven told");
  t.equal(new Set(ris.received.map(({ id }) => id)).size, 1);
  t.ok(ris.received.every(({ isSigned }) => isSigned));
});

await t.test("what is not taken is given up, told as a condition, and retried", async (t) => {
  const { ris, place } = await tellingPlace(t, { give_up_after: "1h" });
  const setAhead = shiftClock(place);
  ris.behave(400);
  const server = await startDelivering(t, place);
  await infer(server, { deliver: "wait" });
  await until("it was tried again", () => ris.received.length > 1);
  setAhead(HOUR_MS);
  await until("it is given up", () => told(place)?.[0] === "proven given_up");
  await until("there is a condition", async () => (await conditions(server)).length > 0);
  t.match(await conditions(server), [{ condition: "webhook_given_up", where: "webhook ris" }]);
  const tries = ris.received.length;
  t.ok(tries > 1, "it was tried again");
  const list = await radserve(
    {
      ...place,
      environment: { ...place.environment, RADSERVE_URL: server.url, RADSERVE_TOKEN: server.token },
    },
    "deliver",
    "list",
  );
  t.match(list.stdout, /webhook ris +given_up .*message: proven at pacs +HTTP 400/);
  ris.behave(200);
  const retried = await server.post("/deliveries/retry?all=true", "");
  t.match(await retried.json(), { retried: 0, messages: 1 });
  await until("it is told", () => told(place)?.[0] === "proven told");
  t.equal(ris.received.length, tries + 1);
  await until("there is no condition", async () => (await conditions(server)).length === 0);
});

await t.test("a message that is not taken holds up no other one", async (t) => {
  const { ris, place } = await tellingPlace(t);
  ris.behave(422);
  const server = await startDelivering(t, place);
  await infer(server, { deliver: "wait" });
  await until("it was refused", () => (deliveryOf(place).events?.[0]?.attempts ?? 0) > 0);
  t.match(await conditions(server), { length: 0 }, "the webhook is there");
  ris.behave(200);
  await until("it is told", () => told(place)?.[0] === "proven told");
});

await t.test("a message that a receiver fails with holds up no other one", async (t) => {
  const { ris, place } = await tellingPlace(t);
  const failing = () => ris.received[0]?.id;
  ris.behave(({ id }) => (id === failing() ? 500 : 204));
  const server = await startDelivering(t, place);
  await infer(server, { deliver: "wait" });
  const event = () => deliveryOf(place).events?.[0];
  await until("it has failed", () => (event()?.attempts ?? 0) > 0);
  await until("it may fail with all", async () => (await conditions(server)).length > 0);
  t.match(await conditions(server), [{ condition: "webhook_away", where: "webhook ris" }]);
  for (const [i, name] of ["second.dcm", "third.dcm"].entries()) {
    const file = path.join(place.input, name);
    writeSlice(file, i + 1);
    await infer(server, { input_image_path: file, deliver: "wait" });
    const others = () => deliveryOf(place, name).events?.map(({ state }) => state);
    await until("the other is told", () => others()?.[0] === "told");
  }
  t.match(event(), { id: failing(), state: "due", reason: "HTTP 500" });
  ris.behave(204);
  await until("it is told", () => told(place)?.[0] === "proven told");
});

await t.test("a receiver that fails with one message after the other is away", async (t) => {
  const { ris, place } = await tellingPlace(t);
  ris.behave(500);
  const names = ["second.dcm", "third.dcm", "fourth.dcm", "fifth.dcm"];
  for (const [i, name] of names.entries()) writeSlice(path.join(place.input, name), i + 1);
  const server = await startDelivering(t, place);
  await infer(server, { deliver: "wait" });
  for (const name of names)
    await infer(server, { input_image_path: path.join(place.input, name), deliver: "wait" });
  const event = (name?: string) => deliveryOf(place, name).events?.[0];
  const tried = () => [undefined, ...names].filter((name) => event(name)?.reason === "HTTP 500");
  await until("it has failed with three", () => tried().length >= 3);
  ris.behave(204);
  for (const name of names)
    await until("all are told in the end", () => event(name)?.state === "told");
});

await t.test("an address that is gone is away: no message goes there", async (t) => {
  const { ris, place } = await tellingPlace(t);
  ris.behave(410);
  const server = await startDelivering(t, place);
  await infer(server, { deliver: "wait" });
  await until("there is a condition", async () => (await conditions(server)).length > 0);
  t.match(await conditions(server), [{ condition: "webhook_away", where: "webhook ris" }]);
  ris.behave(200);
  await until("it is told", () => told(place)?.[0] === "proven told");
});

await t.test("a redirect is not followed", async (t) => {
  let called = 0;
  const other = await httpPeer(t, (_, response) => {
    called += 1;
    response.end();
  });
  const Location = `${other.url}/`;
  const { ris, place } = await tellingPlace(t, {}, { headers: { Location } });
  ris.behave(307);
  const server = await startDelivering(t, place);
  await infer(server, { deliver: "wait" });
  await until("it says why", () =>
    /redirects are not followed/.test(deliveryOf(place).events?.[0]?.reason ?? ""),
  );
  t.equal(called, 0);
});

await t.test(
  "receivers check a message as the documents show",
  { skip: commandsAre("python3") },
  async (t) => {
    const { ris, place } = await tellingPlace(t);
    t.teardown(() => place.remove());
    await radserve(place, "gateway", "echo", "ris");
    const page = readFileSync("docs/gateway.md", "utf8");
    const shown = (language: string) =>
      new RegExp(`\\n\`\`\`${language}\\n(.*?)\\n\`\`\`\\n`, "s").exec(
        page.slice(page.indexOf("## Tell a program")),
      )?.[1] ?? "";
    const { headers, body } = ris.received[0]!;
    const programs: [string, string[]][] = [
      [
        "python3",
        [
          "-c",
          `import base64, hmac, json, sys, time\n${shown("python")}\nsecret, headers, body = json.load(sys.stdin)\nprint(str(is_from_radserve(secret, headers, body.encode())).lower())`,
        ],
      ],
      [
        process.execPath,
        [
          "--input-type=module",
          "-e",
          `import { createHmac, timingSafeEqual } from "node:crypto";\nimport { readFileSync } from "node:fs";\n${shown("js")}\nconst [secret, headers, body] = JSON.parse(readFileSync(0, "utf8"));\nconsole.log(isFromRadserve(secret, headers, Buffer.from(body)));`,
        ],
      ],
    ];
    const old = {
      ...headers,
      "webhook-timestamp": String(Number(headers["webhook-timestamp"]) - 1),
    };
    for (const [program, parameters] of programs) {
      const says = (...message: unknown[]) =>
        execFileSync(program, parameters, {
          input: JSON.stringify([ris.secret, ...message]),
          encoding: "utf8",
        }).trim();
      t.equal(says(headers, body), "true", program);
      t.equal(says(headers, `${body} `), "false", "another body");
      t.equal(says(old, body), "false", "another time");
    }
  },
);

await t.test("gateway echo and doctor send a ping, and say what is wrong", async (t) => {
  const { ris, place } = await tellingPlace(t);
  t.teardown(() => place.remove());
  const echo = () => radserve(place, "gateway", "echo", "ris");
  t.match(await echo(), { status: 0, stdout: /webhook ris +ok +it takes a ping/ });
  t.match(ris.received, [{ isSigned: true, type: "ping", data: { node: /./ } }]);
  t.match((await radserve(place, "doctor")).stdout, /webhook ris: it takes a ping/);
  ris.behave(401);
  t.match(await echo(), { status: 1, stdout: /HTTP 401; it does not take the signature/ });
  chmodSync(ris.secretFile, 0o644);
  t.match(await echo(), {
    status: 1,
    stdout: /webhooks\.ris\.secret_file: expected a file that its owner alone/,
  });
});
