/** From a request to the PACS and back: real server and files, and a PACS over HTTP. */
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import type { DeliveryInAnswer } from "../../../../src/results/receipt/receipt.js";
import { linesOf } from "../../../support/audit.js";
import { writeSlice } from "../../../support/bulk.js";
import { withDurations } from "../../../support/durations.js";
import {
  deliveringPlace,
  deliveryOf,
  listed,
  proven,
  statesOf,
} from "../../../support/deliveries.js";
import {
  issueToken,
  radserve,
  startServer,
  type Place,
  type TestServer,
} from "../../../support/server.js";
import { webPacs } from "../../../support/web-pacs.js";
import { until } from "../../../support/until.js";

async function started(t: Test, place: Place): Promise<TestServer> {
  const server = await startServer(place);
  t.teardown(async () => {
    await server.stop();
    place.remove();
  });
  return server;
}

async function infer(server: Pick<TestServer, "post" | "place">, more: object = {}) {
  const response = await server.post("/single_inference", {
    input_image_path: path.join(server.place.input, "image.dcm"),
    output_folder_path: server.place.output,
    outputs: ["sr", "seg"],
    ...more,
  });
  const body = (await response.json()) as {
    deliveries?: DeliveryInAnswer[];
    request_id: string;
  } & Record<string, unknown>;
  return { status: response.status, body };
}

async function conditions({ url }: TestServer): Promise<{ condition: string; where: string }[]> {
  const { conditions = [] } = (await (await fetch(`${url}/health/ready`)).json()) as {
    conditions?: { condition: string; where: string }[];
  };
  return conditions;
}

await t.test(
  "a request that waits answers when its objects are proven, and a repeat sends nothing",
  async (t) => {
    const pacs = await webPacs(t);
    const place = deliveringPlace({ pacs });
    const server = await started(t, place);
    const { status, body } = await infer(server, { deliver: "wait" });
    t.equal(status, 200);
    t.same(
      body.deliveries
        ?.map(({ path: file, ...one }) => [path.relative(place.output, file), one.state, one.how])
        .sort(),
      ["seg", "sr"].map((kind) => [`image.dcm.ct-tissue.${kind}.dcm`, "proven", "wado-rs"]),
    );
    t.equal(pacs.kept.size, 2);
    t.match(deliveryOf(place), { open: false, request_id: body.request_id, subject: "tester" });
    const again = await infer(server, { deliver: "wait" });
    t.match(again.body, { reused: true, deliveries: [{ state: "proven" }, { state: "proven" }] });
    t.equal(pacs.sent.length, 2);
    t.match(
      linesOf(place)
        .filter(({ kind }) => kind === "delivery")
        .map(({ outcome, destination, count }) => `${outcome} ${destination} ${count}`),
      ["asked pacs 2", "sent pacs 2", "proven pacs 2"],
    );
  },
);

await t.test(
  "a destination that is away delays its own alone, and has what waits when it is back",
  async (t) => {
    const [pacs, archive] = [await webPacs(t), await webPacs(t)];
    await archive.stop();
    const place = deliveringPlace({ pacs, archive });
    const server = await started(t, place);
    const { body } = await infer(server, { deliver: "queue", destinations: ["archive", "pacs"] });
    t.equal(body.deliveries?.length, 4);
    await until("the object is proven", () => proven(place));
    t.same(statesOf(deliveryOf(place), "archive"), ["waiting", "waiting"]);
    await until("there is a condition", async () => (await conditions(server)).length > 0);
    t.match(await conditions(server), [
      { condition: "destination_away", where: "destination archive" },
    ]);
    await server.logged(
      ({ destination, msg }) => destination === "archive" && msg === "results were not all stored",
    );
    t.match(await listed(server), [
      { receipt_path: path.join(place.output, "image.dcm.json"), replaced: false },
    ]);
    const metrics = async () => (await fetch(`${server.url}/metrics`)).text();
    const total = /radserve_deliveries_total\{destination="pacs",state="proven"\} 2/;
    await until("the total is in the metrics", async () => total.test(await metrics()));
    t.match(await metrics(), /radserve_deliveries\{destination="archive",state="waiting"\} 2/);
    await archive.start();
    await until("the object is proven at the archive", () => proven(place, undefined, "archive"));
    t.equal(archive.kept.size, 2);
    t.equal(pacs.sent.length, 2);
    await until("there is no condition", async () => (await conditions(server)).length === 0);
    await until("no delivery is listed", async () => (await listed(server)).length === 0);
    t.notMatch(JSON.stringify(server.log), /Nobody|1\.2\.3\.4/, "no word of the patient");
  },
);

await t.test(
  "what is refused is set aside with the reason, is not sent again, and is when somebody says so",
  async (t) => {
    const pacs = await webPacs(t);
    pacs.behave("refuse");
    const place = deliveringPlace({ pacs });
    const server = await started(t, place);
    const { body } = await infer(server, { deliver: "wait" });
    t.match(body.deliveries, [
      { state: "refused", reason: /0122/ },
      { state: "refused", reason: /0122/ },
    ]);
    await infer(server, { deliver: "wait" });
    t.equal(pacs.sent.length, 2, "a repeat of the request sends nothing");
    await until("there is a condition", async () => (await conditions(server)).length > 0);
    t.match(await conditions(server), [{ condition: "delivery_set_aside" }]);
    process.kill(server.servingPid(), "SIGKILL");
    await until(
      "one delivery is listed",
      async () => (await listed(server).catch(() => [])).length === 1,
    );
    pacs.behave("keep");
    const retried = await server.post("/deliveries/retry?destination=pacs", "");
    t.match(await retried.json(), { retried: 2 });
    await until(
      "the delivery is closed and proven",
      () => !deliveryOf(place).open && statesOf(deliveryOf(place))?.[0] === "proven",
    );
    t.match(
      linesOf(place).find(({ endpoint }) => endpoint === "POST /deliveries/retry"),
      { subject: "tester" },
    );
  },
);

for (const manner of ["lie", "spoil"] as const)
  await t.test(
    `a PACS that says SUCCESS and has ${manner === "lie" ? "nothing" : "other bytes"} is found out`,
    async (t) => {
      const pacs = await webPacs(t);
      pacs.behave(manner);
      const place = deliveringPlace({ pacs });
      const server = await started(t, place);
      const { body } = await infer(server, { deliver: "wait", outputs: ["seg"] });
      t.match(body.deliveries, [
        { state: "unproven", reason: manner === "lie" ? /^missing/ : /^differs/ },
      ]);
      t.equal(pacs.sent.length, 5, "not repeated without end");
      t.match(deliveryOf(place).destinations["pacs"], [{ tries: 5 }]);
    },
  );

await t.test("kill -9 between the result and sending, and between sending and proof", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  const server = await started(t, place);
  await infer(server);
  process.kill(server.servingPid(), "SIGKILL");
  const go = pacs.holdReading();
  await pacs.start();
  await until(
    "all objects are sent",
    () => statesOf(deliveryOf(place))?.every((state) => state === "sent") === true,
  );
  process.kill(server.servingPid(), "SIGKILL");
  go();
  await until("the objects are proven", () => proven(place));
  t.equal(pacs.sent.length, 2, "what was sent is not sent again");
});

/** Another text of equal length in an SR, and its hash in the receipt: no hash contradicts it. */
function forge({ output }: Place): void {
  const [sr, receipt] = ["image.dcm.ct-tissue.sr.dcm", "image.dcm.json"].map((name) =>
    path.join(output, name),
  ) as [string, string];
  const hashOf = () => createHash("sha256").update(readFileSync(sr)).digest("hex");
  const before = hashOf();
  const text = readFileSync(sr, "latin1");
  const forged = text.replaceAll("Soft tissue", "Carcinoma! ");
  if (forged === text) throw new Error("There is nothing to forge in the SR");
  writeFileSync(sr, forged, "latin1");
  const said = readFileSync(receipt, "utf8");
  if (!said.includes(before)) throw new Error("The receipt has no hash of the SR");
  writeFileSync(receipt, said.replaceAll(before, hashOf()));
}

await t.test("a forged SR whose hash stands in the receipt is not delivered", async (t) => {
  const pacs = await webPacs(t);
  const place = deliveringPlace({ pacs });
  const server = await started(t, { ...place, remove: () => undefined });
  const isForged = () =>
    [...pacs.kept.values()].some((bytes) => Buffer.from(bytes).includes("Carcinoma!"));
  await t.test("when it is asked for again: it is computed again", async (t) => {
    t.equal((await infer(server, { deliver: "none" })).status, 200);
    forge(place);
    rmSync(path.join(place.output, ".image.dcm.delivery.json"), { force: true });
    const { body } = await infer(server, { deliver: "wait", destinations: ["pacs"] });
    t.match(body, { reused: false, deliveries: [{ state: "proven" }, { state: "proven" }] });
    t.equal(pacs.kept.size, 2);
    t.notOk(isForged());
  });
  await t.test("while it waits: it is a condition, and holds up no other", async (t) => {
    await pacs.stop();
    pacs.kept.clear();
    rmSync(path.join(place.output, "image.dcm.json"));
    for (const name of readdirSync(place.output).filter((one) => one.includes("image.dcm")))
      rmSync(path.join(place.output, name), { recursive: true });
    t.match((await infer(server, { deliver: "queue" })).body, { reused: false });
    await server.stop();
    forge(place);
    await pacs.start();
    const again = await started(t, place);
    await until("the condition is told", async () =>
      (await conditions(again)).some(({ condition }) => condition === "result_untrusted"),
    );
    t.equal(pacs.kept.size, 0);
    const { body } = await infer(again, { deliver: "wait" });
    t.match(body, { reused: false, deliveries: [{ state: "proven" }, { state: "proven" }] });
    t.equal(pacs.kept.size, 2);
    t.notOk(isForged());
    // Somebody has to look at the forged one
    t.match(await conditions(again), [{ condition: "result_untrusted" }]);
  });
});

await t.test("what waited under version 0.6 is delivered once it is adopted", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  const before = await started(t, { ...place, remove: () => undefined });
  await infer(before, { deliver: "queue" });
  await before.stop();
  // As 0.6 leaves it: no MAC, and no keys of results
  for (const name of ["image.dcm.json", ".image.dcm.delivery.json"]) {
    const file = path.join(place.output, name);
    const { mac, ...said } = JSON.parse(readFileSync(file, "utf8")) as { mac?: object };
    t.ok(mac, name);
    writeFileSync(file, `${JSON.stringify(said, null, 2)}\n`);
  }
  rmSync(path.join(place.environment["RADSERVE_STATE_DIR"]!, "keys", "results"), {
    recursive: true,
  });
  await pacs.start();
  const server = await started(t, place);
  await until("the condition is told", async () =>
    (await conditions(server)).some(({ condition }) => condition === "result_untrusted"),
  );
  t.equal(pacs.kept.size, 0);
  const adopted = await radserve(place, "adopt", "--without-replay");
  t.equal(adopted.status, 0, adopted.stderr);
  await until("both are proven", () => proven(place));
  t.equal(pacs.kept.size, 2);
  await until("the condition has ended", async () => (await conditions(server)).length === 0);
});

await t.test("what waits is delivered when the share of the results is back", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  const server = await started(t, place);
  await infer(server);
  const [away, bare] = ["away", "bare"].map((name) => path.join(place.directory, name)) as [
    string,
    string,
  ];
  // As a mount point without its mount
  renameSync(place.output, away);
  mkdirSync(place.output);
  process.kill(server.servingPid(), "SIGKILL");
  await server.logged(({ msg }) =>
    msg.startsWith("a result that is to be delivered cannot be looked at"),
  );
  renameSync(place.output, bare);
  renameSync(away, place.output);
  await pacs.start();
  await until("the object is proven", () => proven(place));
  t.equal(pacs.kept.size, 2);
});

await t.test("a newer result waits for the one that it has replaced, which is named", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  const server = await started(t, place);
  await infer(server, { outputs: ["seg"] });
  const first = deliveryOf(place).destinations["pacs"]?.[0]?.sop_instance_uid;
  await infer(server, { outputs: ["seg", "sr"] });
  const second = deliveryOf(place);
  t.match(second.replaces?.destinations["pacs"], [{ sop_instance_uid: first, state: "waiting" }]);
  t.match(
    (await listed(server)).map(({ replaced }) => replaced),
    [false, true],
  );
  // A queue that is lost is made again, with the one that was replaced
  process.kill(server.servingPid(), "SIGKILL");
  rmSync(path.join(place.environment["RADSERVE_STATE_DIR"]!, "deliveries"), { recursive: true });
  t.match(await radserve(place, "deliver", "scan"), {
    status: 0,
    stdout: /^2 undelivered results/,
  });
  await pacs.start();
  await until("the object is proven", () => proven(place));
  t.equal(pacs.sent[0], first);
  t.equal(pacs.kept.size, 3);
  await until(
    "the files of the delivery have gone",
    () => !readdirSync(place.output).some((name) => name.includes(".delivery.1")),
  );
});

await t.test(
  "requests that cannot be meant are refused, and tokens send where they may",
  async (t) => {
    const [pacs, archive] = [await webPacs(t), await webPacs(t)];
    const place = deliveringPlace({ pacs, archive }, { deliver: [] });
    const server = await started(t, place);
    for (const [more, field] of [
      [{ destinations: ["nowhere"] }, "destinations"],
      [{ deliver: "none", destinations: ["pacs"] }, "deliver"],
      [{ deliver: "wait" }, "destinations"],
    ] as const)
      t.match(await infer(server, more), {
        status: 404,
        body: { error: "destination_not_found", details: { field } },
      });
    const mistyped = await server.post("/deliveries/retry?destination=nowhere", "");
    t.match(await mistyped.json(), {
      error: "destination_not_found",
      details: { field: "destination" },
    });
    t.match(await infer(server), { status: 200, body: { deliveries: undefined } });
    const narrow = await issueToken(place, "--destination", "archive");
    const other = {
      ...server,
      post: (page: string, body: unknown) => server.post(page, body, { Authorization: narrow }),
    };
    t.match(await infer(other, { destinations: ["pacs"] }), {
      status: 403,
      body: { error: "path_not_allowed" },
    });
    const { body } = await infer(other, { destinations: ["archive"], deliver: "wait" });
    t.match(body, { reused: true, deliveries: [{ destination: "archive", state: "proven" }, {}] });
    t.equal(pacs.sent.length, 0);
  },
);

await t.test("a destination has the kinds and models that it takes", async (t) => {
  const pacs = await webPacs(t);
  const settings = (more: object) => ({ type: "stow", url: pacs.url, timeout: "60s", ...more });
  const place = deliveringPlace(
    { pacs },
    {
      destinations: { pacs: settings({ outputs: ["sr"] }), other: settings({ models: ["chest"] }) },
      deliver: ["pacs", "other"],
    },
  );
  const server = await started(t, place);
  const { body } = await infer(server, { deliver: "wait" });
  t.match(body.deliveries, [{ destination: "pacs", path: /\.sr\.dcm$/, state: "proven" }]);
  t.equal(body.deliveries?.length, 1);
});

await t.test(
  "what is urgent goes first, and where nothing can be kept there is no result",
  async (t) => {
    const pacs = await webPacs(t);
    await pacs.stop();
    const place = deliveringPlace({ pacs });
    // The next process looks at all that waits before it sends anything, for as long as this at
    // most
    const patient = { doorRetry: 50, doorRetryMost: 60_000, doorFigures: 50, deliveryLook: 200 };
    Object.assign(place.environment, withDurations(patient));
    writeSlice(path.join(place.input, "urgent.dcm"), 2);
    const server = await started(t, place);
    await infer(server, { outputs: ["sr"] });
    const urgent = path.join(place.input, "urgent.dcm");
    await infer(server, { input_image_path: urgent, outputs: ["sr"], priority: "stat" });
    process.kill(server.servingPid(), "SIGKILL");
    await pacs.start();
    await until("the object is proven", () => proven(place));
    t.equal(
      pacs.sent[0],
      deliveryOf(place, "urgent.dcm").destinations["pacs"]?.[0]?.sop_instance_uid,
    );
    // As a share that is away, for whoever may write everywhere
    const queue = path.join(place.environment["RADSERVE_STATE_DIR"]!, "deliveries");
    rmSync(queue, { recursive: true });
    writeFileSync(queue, "");
    const output = path.join(place.output, "other");
    const request = { output_folder_path: output };
    t.match(await infer(server, request), { status: 503, body: { error: "delivery_unavailable" } });
    t.same(readdirSync(output), []);
    t.match(await infer(server, { ...request, deliver: "none" }), { status: 200 });
  },
);

await t.test(
  "what waits for a destination that the settings lost is set aside, moved or dropped",
  async (t) => {
    const [pacs, tmp, other] = [await webPacs(t), await webPacs(t), await webPacs(t)];
    await tmp.stop();
    await other.stop();
    const place = deliveringPlace({ pacs, tmp, other });
    const first = await startServer({ ...place, remove: () => undefined });
    t.match((await infer(first, { destinations: ["tmp", "other"] })).status, 200);
    await until("both objects wait", () => statesOf(deliveryOf(place), "tmp")?.length === 2);
    await first.stop();
    // The settings name neither any more
    const file = place.environment["RADSERVE_DOORS"]!;
    const doors = JSON.parse(readFileSync(file, "utf8")) as {
      destinations: Record<string, unknown>;
    };
    const { pacs: left } = doors.destinations;
    writeFileSync(file, JSON.stringify({ ...doors, destinations: { pacs: left } }));
    const server = await started(t, place);
    for (const name of ["tmp", "other"])
      await server.logged(
        ({ destination, msg }) => destination === name && msg.includes("do not name (any more)"),
      );
    await until(
      "both destinations are told of",
      async () => (await conditions(server)).length === 2,
    );
    t.same(
      (await conditions(server)).map(({ condition, where }) => `${condition} ${where}`).sort(),
      ["delivery_set_aside destination other", "delivery_set_aside destination tmp"],
    );
    t.match(deliveryOf(place).destinations["tmp"], [
      { state: "refused", reason: /no destination of this name/ },
      { state: "refused" },
    ]);
    t.match(await radserve(place, "doctor"), { stdout: /tmp/ });
    t.equal(pacs.sent.length, 0);
    const asked = async (page: string) => {
      const answer = await server.post(page, "");
      return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
    };
    t.match(await asked("/deliveries/retry?destination=none"), { status: 404 });
    t.match(await asked("/deliveries/retry?destination=tmp&to=none&all=true"), { status: 404 });
    t.match(await asked("/deliveries/retry?destination=tmp"), {
      body: { retried: 0, without_destination: 2, results: [] },
    });
    t.match(await asked("/deliveries/retry?destination=tmp&to=pacs"), {
      status: 400,
      body: { error: "bad_request", message: /id, or all=true/ },
    });
    for (const page of ["retry", "drop"])
      t.match(await asked(`/deliveries/${page}?id=NOSUCHID`), {
        status: 404,
        body: { error: "not_found", message: /NOSUCHID/ },
      });
    Object.assign(place.environment, { RADSERVE_URL: server.url, RADSERVE_TOKEN: server.token });
    t.match(await radserve(place, "deliver", "drop", "NOSUCHID"), {
      status: 1,
      stderr: /NOSUCHID/,
    });
    t.match(await radserve(place, "deliver", "retry", "--to", "pacs"), {
      status: 2,
      stderr: /--all/,
    });
    t.match(
      await radserve(place, "deliver", "retry", "--to", "pacs", "--destination", "pacs", "--all"),
      {
        status: 0,
        stdout: /^Nothing is set aside there/,
      },
    );
    t.match(await asked("/deliveries/retry?destination=tmp&to=pacs&all=true"), {
      body: { retried: 2, waiting: 0, results: [{ destination: "tmp", objects: 2 }] },
    });
    t.match(await asked("/deliveries/drop"), { status: 400 });
    t.match(await asked("/deliveries/drop?destination=other"), { body: { dropped: 2 } });
    await until("what was moved is proven", () => proven(place));
    t.equal(pacs.kept.size, 2);
    t.same(Object.keys(deliveryOf(place).destinations), ["pacs"]);
    await until(
      "nothing is set aside any more",
      async () => (await conditions(server)).length === 0,
    );
  },
);

await t.test(
  "what waits is told where the settings name no destination at all any more",
  async (t) => {
    const pacs = await webPacs(t);
    await pacs.stop();
    const place = deliveringPlace({ pacs });
    const first = await startServer({ ...place, remove: () => undefined });
    await infer(first, { deliver: "queue" });
    await first.stop();
    delete place.environment["RADSERVE_DOORS"];
    const server = await started(t, place);
    await until("what waits is told", async () => (await conditions(server)).length === 1);
    t.match(await conditions(server), [
      { condition: "delivery_set_aside", where: "destination pacs" },
    ]);
  },
);
