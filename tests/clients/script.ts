/** A bot that follows a script: what cases.test.ts and client.test.ts let clarify.ts talk to. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export type Json = Record<string, any>;
export type Case = {
  name: string;
  call: "ask" | "approve";
  says: string;
  with?: Json;
  path?: string;
  userinfo?: string;
  away?: true;
  script?: Json[];
  ends: Json;
};

export const table: { state: Json; cases: Case[] } = JSON.parse(readFileSync(new URL("cases.json", import.meta.url), "utf8"));
const TOLERANCE = 0.02; // seconds: clocks differ

/** A server that expects the requests of a script, one after the other. */
export class Script {
  readonly problems: string[] = [];
  readonly cancel = new AbortController();
  readonly #rest: Json[];
  readonly #isKeyMade: boolean;
  readonly #keys = new Set<unknown>();
  readonly #server: Server;
  readonly #began = performance.now();
  #at = this.#began;
  #isFirst = true;
  #kind = "text";

  constructor(steps: Json[], isKeyMade = true) {
    this.#rest = [...steps];
    this.#isKeyMade = isKeyMade;
    this.#server = createServer((request, response) => void this.#handle(request, response));
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  ended(): string[] {
    return [...this.problems, ...this.#rest.filter((step) => !step["always"]).map((step) => `never came: ${step["gets"]}`)];
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const waited = (performance.now() - this.#at) / 1000;
    this.#at = performance.now();
    const step = this.#rest[0]?.["always"] ? this.#rest[0] : this.#rest.shift();
    if (step === undefined) {
      this.problems.push(`unexpected: ${request.method} ${request.url}`);
      response.writeHead(400).end(JSON.stringify({ error: "OVER", message: "The script is over." }));
      return;
    }
    let text = "";
    for await (const piece of request.setEncoding("utf8")) text += piece;
    const body: Json | null = text === "" ? null : JSON.parse(text);
    if (body !== null) this.#kind = body["kind"] ?? ("choices" in body ? "choice" : "schema" in body ? "form" : "text");
    this.#check(step, request, body, waited);
    setTimeout(() => this.#respond(step, request, response), (step["holds"] ?? 0) * 1000);
  }

  #check(step: Json, request: IncomingMessage, body: Json | null, waited: number): void {
    if (body !== null && this.#isKeyMade) {
      this.#keys.add(body["key"]);
      if (!/^ts-[0-9a-f-]{24,}$/.test(body["key"]) || this.#keys.size > 1) this.problems.push(`keys: ${[...this.#keys]}`);
      delete body["key"];
    }
    const timeout = step["body"]?.["timeout"];
    const lost = this.#isFirst ? 0 : 1; // seconds of the question's time, meanwhile
    if (body !== null && Math.abs(body["timeout"] - timeout) <= lost) body["timeout"] = timeout;
    this.#isFirst = false;
    const { pathname, searchParams } = new URL(request.url ?? "", "http://x");
    const names = Object.keys(step["headers"] ?? {});
    const found: Json = {
      gets: `${request.method} ${pathname}`,
      query: Object.fromEntries(searchParams),
      body,
      headers: Object.fromEntries(names.map((name) => [name, request.headers[name] ?? null])),
    };
    for (const part of Object.keys(found).filter((each) => each in step)) {
      try {
        assert.deepStrictEqual(found[part], step[part]);
      } catch (error) {
        this.problems.push(String(error));
      }
    }
    const isEarly = waited < (step["not_before"] ?? 0) - TOLERANCE;
    if (isEarly || waited > (step["within"] ?? Infinity)) this.problems.push(`${step["gets"]} came after ${waited} s`);
    const passed = (this.#at - this.#began) / 1000;
    if (passed < (step["after"] ?? 0) - TOLERANCE) this.problems.push(`${step["gets"]} came ${passed} s after the beginning`);
  }

  #respond(step: Json, request: IncomingMessage, response: ServerResponse): void {
    if (step["drops"]) request.socket.destroy();
    if (step["cancels"]) setTimeout(() => this.cancel.abort(), step["drops"] ? 100 : 0); // while it pauses
    if (step["drops"] || step["cancels"] || step["silent"]) return;
    const content = "state" in step ? { ...table.state, kind: this.#kind, ...step["state"] } : step["json"];
    const data = Buffer.from((step["text"] ?? JSON.stringify(content)) + " ".repeat(step["spaces"] ?? 0));
    const headers = Object.entries<string>(step["response_headers"] ?? {});
    for (const [name, value] of headers) response.setHeader(name, value.replace("{url}", `http://${request.headers.host}`));
    if (!step["chunked"]) response.setHeader("Content-Length", data.length + (step["breaks_off"] ? 1 : 0));
    response.writeHead(step["status"] ?? 200);
    for (let at = 0; step["chunked"] && at < data.length; at += 1) response.write(data.subarray(at, at + 1));
    if (step["breaks_off"]) response.write(data, () => request.socket.destroy());
    else response.end(step["chunked"] ? undefined : data);
  }
}
