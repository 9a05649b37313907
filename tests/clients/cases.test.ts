/** cases.json, run against clarify.ts, as test_cases.py runs it against clarify.py: `node --test tests/clients/cases.test.ts` */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import * as clarify from "../../clients/clarify.ts";
import { type Case, type Json, Script, table } from "./script.ts";

/** Returns what a case ends with, in the words of the table. */
async function outcome(each: Case, url: string, cancel: AbortSignal): Promise<Json> {
  const address = url.replace("://", `://${each.userinfo ?? ""}`) + (each.path ?? "");
  const given = { url: address, ...each.with, signal: cancel };
  const options = Object.fromEntries(Object.entries(given).map(([name, value]) => [camel(name), value]));
  try {
    const result = await (each.call === "ask" ? clarify.ask(each.says, options) : clarify.approve(each.says, options));
    return { ...result, ...(each.call === "approve" ? { approved: true } : {}) };
  } catch (error) {
    if (error === cancel.reason) return { raises: "cancelled" };
    if (error instanceof clarify.NotApproved) return { ...error, approved: false };
    if (error instanceof clarify.ClarifyError) return { ...error, raises: error.name, message: error.message };
    if (error instanceof TypeError) return { raises: "ValueError", message: error.message };
    throw error;
  }
}

function camel(name: string): string {
  return name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

for (const name of ["CLARIFY_URL", "CLARIFY_TOKEN", "CLARIFY_PRODUCER"]) delete process.env[name];
console.warn = () => {}; // that the bot cannot be reached

describe("clarify.ts", { concurrency: 8 }, () => {
  for (const each of table.cases) {
    test(each.name, async () => {
      const script = new Script(each.script ?? [], each.with?.["key"] === undefined);
      const here = await script.listen();
      const url = each.away ? here.replace("127.0.0.1", "127.0.0.2") : here; // no one listens there
      const found = await outcome(each, url, script.cancel.signal);
      await script.close();
      assert.deepStrictEqual(script.ended(), []);
      const { message_begins: begins, ...expected } = JSON.parse(JSON.stringify(each.ends).replaceAll("{url}", url));
      const names = Object.keys(expected);
      assert.deepStrictEqual(Object.fromEntries(names.map((name) => [name, found[camel(name)]])), expected);
      if (begins !== undefined) assert.ok(found["message"].startsWith(begins), found["message"]);
    });
  }
});
