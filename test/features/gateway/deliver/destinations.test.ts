/** Who may send where, what a destination takes, and destinations that the settings lose. */
import { readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { bulkOf, bulkPlace, writeSlice } from "../../../support/bulk.js";
import { withDurations } from "../../../support/durations.js";
import {
  conditions,
  deliveringPlace,
  deliveryOf,
  infer,
  proven,
  startDelivering,
  statesOf,
} from "../../../support/deliveries.js";
import { copyModel } from "../../../support/manifests.js";
import { issueToken, radserve, startServer } from "../../../support/server.js";
import { webPacs } from "../../../support/web-pacs.js";
import { until } from "../../../support/until.js";

await t.test(
  "requests that cannot be meant are refused, and tokens send where they may",
  async (t) => {
    const [pacs, archive] = [await webPacs(t), await webPacs(t)];
    const place = deliveringPlace({ pacs, archive }, { deliver: [] });
    const server = await startDelivering(t, place);
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
    const first = await infer(server);
    t.match(first, { status: 200, body: { deliveries: undefined } }, JSON.stringify(first));
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

await t.test("a list says that others wait that its token may not see", async (t) => {
  const pacs = await webPacs(t);
  await pacs.stop();
  const place = deliveringPlace({ pacs });
  place.environment["RADSERVE_FILES_BY_HTTP"] = "view";
  const server = await startDelivering(t, place);
  const { body } = await infer(server);
  const asWhom = async (subject: string) => ({
    ...place,
    environment: {
      ...place.environment,
      RADSERVE_URL: server.url,
      RADSERVE_TOKEN: await issueToken(place, "--subject", subject),
    },
  });
  const [own, other] = [await asWhom("tester"), await asWhom("somebody")];
  await until("its own has the result", async () =>
    /pacs +waiting/.test((await radserve(own, "deliver", "list")).stdout),
  );
  t.notMatch((await radserve(own, "deliver", "list")).stderr, /more/);
  t.match(
    await radserve(own, "deliver", "list", "--limit", "1"),
    { stdout: /pacs +waiting/, stderr: /^Shown: the newest 1 result; --limit shows more/ },
    "a list that may have been cut says so",
  );
  const { stdout, stderr } = await radserve(other, "deliver", "list");
  t.equal(stdout, "");
  t.match(stderr, /^1 result more waits or was set aside, of other subjects/);
  t.match(JSON.parse((await radserve(other, "deliver", "list", "--json")).stdout), {
    deliveries: { length: 0 },
    hidden: 1,
  });
  for (const command of ["retry", "drop"])
    t.match(await radserve(other, "deliver", command, "--destination", "pacs"), {
      status: 0,
      stdout: /^Nothing of yours is set aside there\./,
      stderr: /^1 result more waits or was set aside, of other subjects/,
    });
  // The result itself says where it goes, to those alone who see it in the list
  const shownTo = async (token: string) => {
    const query = new URLSearchParams({ path: String(body["receipt_path"]) });
    const headers = { Authorization: token };
    const answer = await fetch(`${server.url}/results?${query.toString()}`, { headers });
    return (await answer.json()) as { trust: unknown; deliveries?: unknown[] };
  };
  const [mine, theirs, admins] = await Promise.all([
    shownTo(own.environment.RADSERVE_TOKEN),
    shownTo(other.environment.RADSERVE_TOKEN),
    shownTo(await issueToken(place, "--admin")),
  ]);
  const waiting = { destination: "pacs", state: "waiting", path: /^image\.dcm\.[^/]+\.dcm$/ };
  t.match(mine, { trust: { trusted: true }, deliveries: [waiting, waiting] });
  t.strictSame(admins.deliveries, mine.deliveries);
  t.match(theirs, { trust: { trusted: true }, deliveries: undefined });
});

await t.test("an item of a job tells of the deliveries of its own result", async (t) => {
  const [pacs, archive] = [await webPacs(t), await webPacs(t)];
  const place = deliveringPlace({ pacs, archive }, {}, bulkPlace(t));
  const bulk = bulkOf(await startDelivering(t, place));
  const id = await bulk.submit({
    input_folder_path: place.input,
    output_folder_path: place.output,
    outputs: ["sr", "seg"],
    destinations: ["pacs"],
  });
  await bulk.ended(id);
  await until("the objects are proven", () => proven(place));
  const told = async () => {
    const [item] = await bulk.items(id);
    return [item?.replaced, item?.deliveries?.map((one) => `${one.destination} ${one.state}`)];
  };
  const own = ["pacs proven", "pacs proven"];
  t.same(await told(), [undefined, own]);
  const more = { destinations: ["archive"], deliver: "wait" };
  t.match((await infer(bulk.server, more)).body, { reused: true });
  t.same(await told(), [undefined, own], "where another request had it sent is not of this job");
  writeSlice(path.join(place.input, "image.dcm"), 1, { PatientID: "OTHER" });
  t.match((await infer(bulk.server, more)).body, { reused: false });
  t.same(await told(), [true, undefined], "the result of another request");
});

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
  copyModel(path.join(place.directory, "models"), "ct-tissue", "chest");
  const server = await startDelivering(t, place);
  const { body } = await infer(server, { models: ["ct-tissue"], deliver: "wait" });
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
    const patient = {
      gatewayRetry: 50,
      gatewayRetryMost: 60_000,
      gatewayFigures: 50,
      deliveryLook: 200,
    };
    Object.assign(place.environment, withDurations(patient));
    writeSlice(path.join(place.input, "urgent.dcm"), 2);
    const server = await startDelivering(t, place);
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
    await until("nothing is written there", () => readdirSync(queue).length === 0);
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
    const file = place.environment["RADSERVE_GATEWAY"]!;
    const gateway = JSON.parse(readFileSync(file, "utf8")) as {
      destinations: Record<string, unknown>;
    };
    const { pacs: left } = gateway.destinations;
    writeFileSync(file, JSON.stringify({ ...gateway, destinations: { pacs: left } }));
    const server = await startDelivering(t, place);
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
      body: { retried: 0, without_destination: 2, results: { length: 0 } },
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
    delete place.environment["RADSERVE_GATEWAY"];
    const server = await startDelivering(t, place);
    await until("what waits is told", async () => (await conditions(server)).length === 1);
    t.match(await conditions(server), [
      { condition: "delivery_set_aside", where: "destination pacs" },
    ]);
  },
);

await t.test("a result that cannot be retried holds up no other", async (t) => {
  const pacs = await webPacs(t);
  pacs.behave("refuse");
  const place = deliveringPlace({ pacs });
  const server = await startDelivering(t, place);
  const names = ["first.dcm", "damaged.dcm", "last.dcm"];
  for (const [i, name] of names.entries()) {
    const file = path.join(place.input, name);
    writeSlice(file, i);
    await infer(server, { input_image_path: file, outputs: ["sr"], deliver: "wait" });
  }
  truncateSync(path.join(place.output, ".damaged.dcm.delivery.json"), 100);
  Object.assign(place.environment, { RADSERVE_URL: server.url, RADSERVE_TOKEN: server.token });
  const retried = () => radserve(place, "deliver", "retry", "--destination", "pacs", "--json");
  const { status, stdout } = await retried();
  t.equal(status, 1);
  t.match(JSON.parse(stdout), {
    retried: 2,
    failed: [{ receipt_path: /damaged\.dcm\.json$/, error: "result_untrusted", message: /adopt/ }],
  });
  pacs.behave("keep");
  const others = () =>
    ["first.dcm", "last.dcm"].flatMap((name) => statesOf(deliveryOf(place, name)) ?? []);
  await until("the others are set aside again, or proven", () =>
    others().every((state) => state === "proven" || state === "refused"),
  );
  await retried();
  await until("the others are proven", () => others().every((state) => state === "proven"));
  t.match(await radserve(place, "deliver", "drop", "--destination", "pacs"), {
    status: 1,
    stderr: /damaged\.dcm\.json: .*delivery\.json/,
  });
});

await t.test("what was set aside at both is retried where it is moved to", async (t) => {
  const [pacs, archive] = [await webPacs(t), await webPacs(t)];
  for (const one of [pacs, archive]) one.behave("refuse");
  const place = deliveringPlace({ pacs, archive }, { deliver: ["pacs", "archive"] });
  const server = await startDelivering(t, place);
  await infer(server, { outputs: ["sr"], deliver: "wait" });
  for (const to of ["pacs", "archive"]) t.same(statesOf(deliveryOf(place), to), ["refused"]);
  archive.behave("keep");
  const moved = await server.post("/deliveries/retry?destination=pacs&to=archive&all=true", "");
  t.match(await moved.json(), { retried: 1, failed: { length: 0 } });
  t.notSame(statesOf(deliveryOf(place), "archive"), ["refused"]);
  await until("it is proven there", () => proven(place, undefined, "archive"));
  t.same(Object.keys(deliveryOf(place).destinations), ["archive"]);
});
