/** What the agents of these tests have: a model that says what it is told to, and a newsletter to send. */

import { readFileSync } from "node:fs";
import { MockLanguageModelV4, convertArrayToReadableStream } from "ai/test";

export type Turn = string | [tool: string, input: object, id?: string][];

type Options = Parameters<MockLanguageModelV4["doGenerate"]>[0];
type Content = Awaited<ReturnType<MockLanguageModelV4["doGenerate"]>>["content"];

export const [saved = "", what = ""] = process.argv.slice(2);
const turns: Turn[] = JSON.parse(readFileSync("turns.json", "utf8"));
const results: Record<string, unknown> = {}; // what the model heard that its calls returned
const sent: [string, number][] = [];

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

/** Says the next turn, by how often the model spoke before. */
function says({ prompt }: Options): { content: Content; reason: { unified: "stop" | "tool-calls"; raw: undefined } } {
  const at = prompt.filter((message) => message.role === "assistant").length;
  for (const part of prompt.flatMap((message) => (message.role === "tool" ? message.content : []))) {
    if (part.type === "tool-approval-response") results[part.approvalId] = part.approved;
    if (part.type !== "tool-result") continue;
    results[part.toolCallId] = part.output.type === "execution-denied" ? part.output.reason : (part.output as any).value;
  }
  const turn = turns[at] ?? "";
  if (typeof turn === "string") {
    return { content: [{ type: "text", text: turn }], reason: { unified: "stop", raw: undefined } };
  }
  const content = turn.flatMap(([toolName, input, id], n): Content => {
    const call = { type: "tool-call", toolCallId: id ?? `${at}-${n}`, toolName, input: JSON.stringify(input) } as const;
    if (toolName !== "hosted") return [call];
    const request = { type: "tool-approval-request", approvalId: "approval", toolCallId: call.toolCallId } as const;
    return [{ ...call, providerExecuted: true, dynamic: true }, request]; // the provider would run it, if it is approved
  });
  return { content, reason: { unified: "tool-calls", raw: undefined } };
}

export const model = new MockLanguageModelV4({
  doGenerate: async (options) => {
    const { content, reason } = says(options);
    return { content, finishReason: reason, usage, warnings: [] };
  },
  doStream: async (options) => {
    const { content, reason } = says(options);
    const parts = content.flatMap((part): any[] => {
      if (part.type !== "text") return [part];
      return [{ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: part.text }, { type: "text-end", id: "t" }];
    });
    const all = [{ type: "stream-start", warnings: [] }, ...parts, { type: "finish", finishReason: reason, usage }];
    return { stream: convertArrayToReadableStream(all) };
  },
});

export function send({ subject, recipients }: { subject: string; recipients: number }): string {
  if (what === "die") {
    console.log("sends");
    process.exit(1);
  }
  sent.push([subject, recipients]);
  return `sent to ${recipients}`;
}

export function show(text: string): void {
  console.log(JSON.stringify({ text, sent: sent.sort(), results }));
  process.exit();
}
