/** What clarify.ts does beyond what cases.json says of both clients. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { stripTypeScriptTypes } from "node:module";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { createContext, runInContext } from "node:vm";

import { approve, ask, BadQuestion, Client, ClarifyError, Invalid, NotApproved, type StandardJsonSchema } from "../../clients/clarify.ts";
import { type Json, Script } from "./script.ts";

console.warn = () => {}; // that the bot cannot be reached

/** Runs `work` with the address of a bot that follows a script to its end. */
async function scripted<T>(steps: Json[], work: (url: string, script: Script) => Promise<T>): Promise<T> {
  const script = new Script(steps);
  try {
    return await work(await script.listen(), script);
  } finally {
    await script.close();
    assert.deepStrictEqual(script.ended(), []);
  }
}

const accepted = (args: Json): Json => ({ status: "answered", answer: { decision: "accept", arguments: args } });
const rejected = { status: "answered", answer: { decision: "reject", arguments: {} }, decided_by: "user:slack/T1/U1" };
const asked = (args: Json): Json => ({ asked: { kind: "approval", arguments: args } });

for (const [name, state] of Object.entries({
  "a rejection": rejected,
  silence: { status: "expired" },
  "a withdrawn question": { status: "withdrawn" },
  "a closed question": { status: "closed" },
  "another kind of answer": { status: "answered", answer: true },
})) {
  test(`${name} never gets past approve`, async () => {
    let isRun = false;
    await scripted([{ gets: "POST /questions", state }], async (url) => {
      await assert.rejects(async () => {
        if (await approve("Send it", { url })) isRun = true;
      }, NotApproved);
    });
    assert.equal(isRun, false);
  });
}

test("a rejection says who and why in one line", async () => {
  for (const [comment, message] of [
    ["not on a Friday", "Rejected by user:slack/T1/U1: not on a Friday"],
    [null, "Rejected by user:slack/T1/U1."],
  ]) {
    await scripted([{ gets: "POST /questions", state: { ...rejected, comment } }], async (url) => {
      await assert.rejects(approve("Send it", { url }), { name: "NotApproved", message, comment, decision: "reject" });
    });
  }
});

class Money {
  amount = 3;
}
for (const [value, why] of [
  [new Date(0), "`arguments.a.b[1]` is no JSON value (Date). Convert it first."],
  [new Map([[1, 2]]), "`arguments.a.b[1]` is no JSON value (Map). Convert it first."],
  [new Money(), "`arguments.a.b[1]` is no JSON value (Money). Convert it first."],
  [Number.NaN, "`arguments.a.b[1]` is no JSON value (NaN). Convert it first."],
  [-Infinity, "`arguments.a.b[1]` is no JSON value (-Infinity). Convert it first."],
  [() => 1, "`arguments.a.b[1]` is no JSON value (function). Convert it first."],
  [undefined, "`arguments.a.b[1]` is no JSON value (undefined). Convert it first."],
] as const) {
  test(`nobody is asked about arguments that JSON would change: ${typeof value} ${String(value)}`, async () => {
    const args = { a: { b: [1, value] } };
    await scripted([], (url) => assert.rejects(approve("Send it", { arguments: args, url }), { name: "TypeError", message: why }));
  });
}

test("integers of any size are sent, compared and returned digit by digit", async () => {
  const [id, edited, small] = [1187654321098765433n, -(10n ** 30n) - 1n, 5n];
  const args = { id, edited, small, like: String(id), float: 1.5e300, "n \\\"12345678901234567890": [`"${id}"`] };
  const bodies: string[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request.setEncoding("utf8")) body += piece;
    bodies.push(body);
    const shown = body.slice(body.indexOf('"arguments":') + 12, body.indexOf(',"key"'));
    const approved = shown.replace(String(edited), String(2n ** 64n)).replace('"small":5', '"small":6');
    const answer = `{"decision":"accept","arguments":${answers.shift() ?? approved}}`;
    response.end(`{"id":"CLR-1-001","kind":"approval","status":"answered","asked":{"arguments":${shown}},"answer":${answer}}`);
  });
  const answers: (string | undefined)[] = [];
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    const approval = await approve("Send it", { arguments: args, editable: true, url });
    assert.ok(bodies[0]?.includes(`"id":${id},"edited":${edited},"small":5,"like":"${id}","float":1.5e+300,`), bodies[0]);
    assert.deepStrictEqual(approval.arguments, { ...args, edited: 2n ** 64n, small: 6n });
    for (const other of ["1187654321098765432", "1187654321098765400", '"1187654321098765433"']) {
      answers.push(`{"id":${other}}`);
      const refused = { name: "Refused", code: "OTHER_ARGUMENTS" };
      await assert.rejects(approve("Send it", { arguments: { id }, url }), refused);
    }
  } finally {
    server.close();
  }
});

test("a response that breaks off within a text is read at once", async () => {
  const broken = `{"n": 1234567890123456, "text": "${"ab\\\\".repeat(40)}`;
  const server = createServer((_, response) => response.end(broken));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    const began = performance.now();
    await assert.rejects(ask("Who?", { timeout: 1, url }), ClarifyError);
    assert.ok(performance.now() - began < 20_000); // splitting it in all ways would take years
  } finally {
    server.close();
  }
});

test("an integer that JavaScript may have rounded is shown to nobody", async () => {
  const message = "`arguments.id` is an integer beyond ±(2^53−1), which may be rounded already. Use a BigInt or a string.";
  const rejected = { name: "BadQuestion", field: "arguments.id", message };
  for (const id of [2 ** 53, -(2 ** 60), 1187654321098765433]) {
    await scripted([], (url) => assert.rejects(approve("Send it", { arguments: { id }, url }), rejected));
  }
});

test("a question that is too large is refused at once", async () => {
  const body = { kind: "approval", action: "Send it", arguments: { text: "ü".repeat(600_000) } };
  const rejected = { name: "BadQuestion", status: 413, code: "TOO_LARGE", message: /^The question has 1200\d{3} bytes of JSON; at most 1048576/ };
  await scripted([], (url) => assert.rejects(approve(body.action, { arguments: body.arguments, url }), rejected));
});

test("what JSON carries is approved as it is", async () => {
  const args = { text: "ü\u2028", n: -1.5, none: undefined, list: [null, true], bare: Object.assign(Object.create(null), { x: 1 }) };
  const sent = { text: "ü\u2028", n: -1.5, list: [null, true], bare: { x: 1 } };
  const body = { kind: "approval", action: "Send it", arguments: sent };
  const approval = await scripted(
    [{ gets: "POST /questions", body, state: { ...accepted(sent), ...asked(sent) } }],
    (url) => approve("Send it", { arguments: args, url }),
  );
  assert.deepStrictEqual(approval.arguments, sent);
});

test("people approve the arguments of the call, whatever becomes of the object meanwhile", async () => {
  const args = { to: ["ann"], deep: { count: 1 } };
  const sent = structuredClone(args);
  const body = { kind: "approval", action: "Send it", arguments: sent };
  const steps = [
    { gets: "POST /questions", body, drops: true },
    { gets: "POST /questions", body, state: { ...accepted(sent), ...asked(sent) } },
  ];
  const approval = await scripted(steps, (url) => {
    const approving = approve("Send it", { arguments: args, url });
    args.to.push("everyone");
    args.deep.count = 1204;
    return approving;
  });
  assert.deepStrictEqual(approval.arguments, sent);
});

test("a question stays as it was asked, whatever becomes of its choices meanwhile", async () => {
  const choices = ["a"];
  const body = { question: "Which?", choices: ["a"] };
  const steps = [
    { gets: "POST /questions", body, drops: true },
    { gets: "POST /questions", body, state: { status: "answered", answer: "a" } },
  ];
  await scripted(steps, (url) => {
    const asking = ask("Which?", { choices, url });
    choices.push("b");
    return asking;
  });
});

test("a signal that was aborted asks nobody", async () => {
  const reason = new Error("too late");
  await scripted([], (url) => assert.rejects(ask("Which?", { url, signal: AbortSignal.abort(reason) }), reason));
});

test("aborting while the bot is away ends at once", async () => {
  const stop = new AbortController();
  const asking = ask("Which?", { url: "http://127.0.0.2:8", signal: stop.signal });
  const began = performance.now();
  setTimeout(() => stop.abort(), 300);
  await assert.rejects(asking, { name: "AbortError" });
  assert.ok(performance.now() - began < 3000); // withdrawing takes 4 s where the question may have been asked
});

test("options that do not exist are left to the bot to reject", async () => {
  const body = { question: "Which?", timout: 3 };
  const json = { error: "BAD_INPUT", message: "Unknown field.", field: "timout" };
  await scripted([{ gets: "POST /questions", body, status: 422, json }], (url) =>
    assert.rejects(ask("Which?", { url, timout: 3 } as object), { code: "BAD_INPUT", field: "timout" }),
  );
});

test("options without a value count as left out", async () => {
  const body = { question: "Which?" };
  const options = { key: undefined, agent: undefined, timeout: undefined, default: undefined, url: undefined, kind: undefined };
  const steps = [
    { gets: "POST /questions", body, drops: true },
    { gets: "POST /questions", body, state: { status: "answered", answer: "x" } }, // with the key of the first
  ];
  await scripted(steps, (url) => ask("Which?", { ...options, url }));
});

test("a default that JSON would change is an error of the program", async () => {
  const message = "`default` is no JSON value (NaN). Convert it first.";
  await scripted([], (url) => assert.rejects(ask("How many?", { kind: "number", default: Number.NaN, url }), { message }));
});

test("a timeout that is no number is an error of the program", async () => {
  await assert.rejects(ask("Which?", { timeout: Number.NaN }), BadQuestion);
  await assert.rejects(ask("Which?", { timeout: "60" as unknown as number }), BadQuestion);
});

test("a client knows its bot, and its functions can be passed around", async () => {
  const step = { gets: "POST /questions", query: { producer: "bare" }, headers: { authorization: "Bearer t" } };
  await scripted([{ ...step, state: { status: "answered", answer: "x" } }], async (url) => {
    const { ask } = new Client({ url, token: "t", producer: "bare" });
    assert.equal((await ask("Which?")).value, "x");
  });
  await scripted([{ ...step, state: accepted({}) }], async (url) => {
    const { approve } = new Client({ url, token: "t", producer: "bare" });
    assert.equal((await approve("Send it")).decision, "accept");
  });
});

test("the environment says where the bot is, unless the program does", async () => {
  for (const [options, query, authorization] of [
    [{}, { producer: "p" }, "Bearer e"],
    [{ token: "", producer: "" }, {}, null],
  ] as const) {
    const step = { gets: "POST /questions", query, headers: { authorization }, state: { status: "answered", answer: "x" } };
    await scripted([step], async (url) => {
      Object.assign(process.env, { CLARIFY_URL: url, CLARIFY_TOKEN: "e", CLARIFY_PRODUCER: "p" });
      try {
        assert.equal((await ask("Which?", options)).value, "x");
      } finally {
        for (const name of ["CLARIFY_URL", "CLARIFY_TOKEN", "CLARIFY_PRODUCER"]) delete process.env[name];
      }
    });
  }
});

/** A schema as libraries write them: a form whose e-mail addresses have a pattern, too; it takes long names only. */
const Person: StandardJsonSchema<{ name?: string; mail?: string | null }, { name: string }> = {
  "~standard": {
    validate: async (value) => {
      const { name = "nobody" } = value as { name?: string };
      return name.length < 3 ? { issues: [{ message: "too short", path: ["name", { key: 0 }] }] } : { value: { name } };
    },
    jsonSchema: {
      input: ({ target }) => ({
        $schema: target,
        type: "object",
        properties: {
          name: { type: "string", pattern: "^a" },
          mail: { anyOf: [{ type: "string", format: "email", pattern: "@" }, { type: "null" }] },
          pattern: { type: "boolean" },
          format: { $ref: "#/$defs/day" },
        },
        $defs: { day: { type: "string", format: "date", pattern: "-" } },
      }),
    },
  },
};
const form = {
  $schema: "draft-2020-12",
  type: "object",
  properties: {
    name: { type: "string", pattern: "^a" },
    mail: { anyOf: [{ type: "string", format: "email", pattern: "@" }, { type: "null" }] },
    pattern: { type: "boolean" },
    format: { $ref: "#/$defs/day" },
  },
  $defs: { day: { type: "string", format: "date", pattern: "-" } },
};

test("a schema gives the form, and makes the value", async () => {
  const body = { question: "Who?", schema: form };
  const answer = await scripted(
    [{ gets: "POST /questions", body, state: { status: "answered", answer: {} } }],
    (url) => ask("Who?", { schema: Person, url }),
  );
  assert.deepStrictEqual(answer.value, { name: "nobody" });
});

test("an answer that does not pass the schema's checks is said, with the answer", async () => {
  const error = await scripted([{ gets: "POST /questions", state: { status: "answered", answer: { name: "x" } } }], (url) =>
    ask("Who?", { schema: Person, url }).then(() => assert.fail("it resolved"), (caught: unknown) => caught),
  );
  assert.ok(error instanceof Invalid && error instanceof ClarifyError);
  assert.equal(error.message, "The answer does not fit the schema: name.0: too short");
  assert.deepStrictEqual(error.state?.["answer"], { name: "x" });
});

test("a default goes through the schema, before anyone is asked", async () => {
  const body = { question: "Who?", schema: form, default: { mail: null } };
  const answer = await scripted([{ gets: "POST /questions", body, state: { status: "expired" } }], (url) =>
    ask("Who?", { schema: Person, default: { mail: null }, url }),
  );
  assert.deepStrictEqual([answer.value, answer.status], [{ name: "nobody" }, "expired"]);
  const message = "`default` does not fit the schema: name.0: too short";
  await scripted([], (url) =>
    assert.rejects(ask("Who?", { schema: Person, default: { name: "x" }, url }), { name: "Invalid", message, state: null }),
  );
});

test("a schema that cannot give its JSON Schema needs one", async () => {
  const { validate } = Person["~standard"];
  const schema = { "~standard": { validate } };
  const json = { type: "object", properties: { mail: { format: "email", pattern: "@" } } };
  const body = { question: "Who?", schema: json };
  const answer = await scripted([{ gets: "POST /questions", body, state: { status: "answered", answer: { name: "ann" } } }], (url) =>
    ask("Who?", { schema, json, url }),
  );
  assert.deepStrictEqual(answer.value, { name: "ann" });
  const message = "This schema cannot give its JSON Schema: pass that as `json`.";
  await scripted([], (url) => assert.rejects(ask("Who?", { schema, url } as object), { name: "TypeError", message }));
});

/** Loads clarify.ts in a runtime of its own, which has only what it is given besides the language. */
function elsewhere(globals: Json): typeof import("../../clients/clarify.ts") {
  const text = readFileSync(new URL("../../clients/clarify.ts", import.meta.url), "utf8");
  const program = stripTypeScriptTypes(text).replace(/^export /gm, "");
  return runInContext(`${program}; ({ ask, approve, Expired, NotApproved })`, createContext(globals));
}

test("it needs nothing that only Node has", async () => {
  const globals = { AbortController, clearTimeout, console, crypto, fetch, performance, setTimeout, TextDecoder, TextEncoder, URL };
  const { ask, approve, NotApproved } = elsewhere(globals);
  await scripted([{ gets: "POST /questions", state: { status: "answered", answer: "x" } }], async (url) => {
    assert.equal((await ask("Which?", { url })).value, "x");
  });
  await scripted([{ gets: "POST /questions", state: rejected }], (url) =>
    assert.rejects(approve("Send it", { url, arguments: { to: ["ann"] } }), NotApproved),
  );
});

/** Loads clarify.ts with a clock that only pauses, and requests that a bot holds as long as it may, move on; null: HTTP 503. */
function simulated(respond: (seconds: number) => Json | null) {
  let seconds = 0;
  const waits: number[] = [];
  const pauses: number[] = [];
  const fetch = async (url: URL, { method }: { method: string }): Promise<Response> => {
    const state = respond(seconds);
    if (state === null) return new Response("", { status: 503 });
    if (method === "GET") {
      waits.push(Number(url.searchParams.get("wait")));
      seconds += (waits.at(-1) ?? 0) + 0.2;
    }
    const found = { id: "CLR-100001-001", status: "waiting", ...state };
    return new Response(JSON.stringify(found), { status: method === "POST" ? 201 : 200 });
  };
  const setTimeout = (work: () => void, milliseconds: number): number => {
    if (milliseconds >= 15_000) return 0; // patience: every response comes at once
    pauses.push(milliseconds / 1000);
    seconds += milliseconds / 1000;
    queueMicrotask(work);
    return 0;
  };
  const clock = { performance: { now: () => seconds * 1000 }, setTimeout, clearTimeout: () => {} };
  const client = elsewhere({ AbortController, console, crypto, fetch, TextDecoder, TextEncoder, URL, ...clock });
  return { ...client, clock: () => seconds, waits, pauses };
}

test("pauses grow to three seconds, and the last is shorter", async () => {
  const { ask, clock, pauses } = simulated(() => null);
  assert.equal((await ask("Which?", { timeout: 10, default: "x" })).status, "expired");
  assert.deepStrictEqual(pauses.map((each) => each.toFixed(1)), ["0.2", "0.4", "0.8", "1.6", "3.0", "3.0", "1.0"]);
  assert.ok(Math.abs(clock() - 10) < 0.1, String(clock()));
});

test("a question that the bot forgets to end is over five and a half minutes after its time", async () => {
  const { ask, clock, Expired, waits } = simulated(() => ({}));
  await assert.rejects(ask("Which?", { timeout: 600 }), (error) => error instanceof Expired && error.id === "CLR-100001-001");
  assert.ok(clock() > 930 && clock() < 932, String(clock()));
  assert.deepStrictEqual([...new Set(waits)].slice(0, 2), [55, 50]);
  assert.equal(waits.at(-1), 1);
});

test("a person who answers while the bot catches up is heard", async () => {
  const { ask, clock } = simulated((seconds) => (seconds > 800 ? { status: "answered", answer: "late" } : {}));
  assert.equal((await ask("Which?", { timeout: 600 })).value, "late");
  assert.ok(clock() < 804, String(clock()));
});
