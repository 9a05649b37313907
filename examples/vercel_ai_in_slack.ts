/**
 * Vercel AI SDK: people in Slack decide about tool calls that need approval; the run survives a restart.
 *
 * Copy this file and clarify.ts into your project, and call `run` instead of `agent.generate`:
 *
 *     const agent = new ToolLoopAgent({
 *       model,
 *       tools: {
 *         sendNewsletter, // tool({ inputSchema, execute })
 *         askPerson, // tool({ inputSchema }): without `execute` it is a question, asked with what `ask` takes
 *       },
 *       toolApproval: { sendNewsletter: "user-approval" },
 *     });
 *     const text = await run(agent, "Send the newsletter.", "newsletter.json");
 *
 * A person's edit replaces the input of the model's call. With `experimental_toolApprovalSecret`, edited calls therefore fail.
 */

import { randomUUID } from "node:crypto";
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import type { Agent, AssistantContent, ModelMessage, ToolContent } from "ai";
import { approve, ask, BadQuestion, NotAnswered, NotApproved } from "./clarify.ts";

// The fields that a model may set: not where the bot is, nor whom it asks for.
const ASKS = ["question", "context", "to", "choices", "multiple", "other", "kind", "schema", "default", "timeout"];

type Call = Extract<Exclude<AssistantContent, string>[number], { type: "tool-call" }>;
type Request = Extract<Exclude<AssistantContent, string>[number], { type: "tool-approval-request" }>;
type Generates = Pick<Agent<never, any, any, any>, "generate">;

interface Saved {
  session: string;
  messages: ModelMessage[];
  rounds: number;
}

/**
 * Runs an agent until it ends; resolves to its last words. The file `saved` keeps the conversation.
 *
 * If the process is killed, the next one continues from there: the question stays open in Slack, and an answer given in the meantime
 * counts.
 */
export async function run(agent: Generates, given: string, saved: string): Promise<string> {
  let state: Saved = existsSync(saved)
    ? JSON.parse(readFileSync(saved, "utf8"))
    : { session: randomUUID(), messages: [{ role: "user", content: given }], rounds: 0 };
  const save = (): void => {
    writeFileSync(`${saved}.new`, JSON.stringify(state));
    renameSync(`${saved}.new`, saved);
  };
  for (;;) {
    let { messages } = state;
    if (waiting(messages).length > 0) {
      messages = await answered(messages, `${state.session}.${state.rounds}`, state.session);
      state.rounds += 1; // a call may run now. One Accept is for one run: if this process dies, people are asked again
      save();
    }
    const { responseMessages, text } = await agent.generate({ messages });
    state = { ...state, messages: [...messages, ...responseMessages] };
    save();
    if (waiting(state.messages).length === 0) {
      rmSync(saved);
      return text;
    }
  }
}

/** Returns the calls that wait for a person, with the request if it is for approval. */
function waiting(messages: ModelMessage[]): { call: Call; request: Request | undefined }[] {
  const last = messages.slice(messages.findLastIndex((message) => message.role === "assistant"));
  const parts = last.flatMap((message) => (typeof message.content === "string" ? [] : [...message.content]));
  const done = new Set(parts.flatMap((part) => (part.type === "tool-result" ? [part.toolCallId] : [])));
  const decided = new Set(parts.flatMap((part) => (part.type === "tool-approval-response" ? [part.approvalId] : [])));
  const requests = new Map(parts.flatMap((part) => (part.type === "tool-approval-request" ? [[part.toolCallId, part]] : [])));
  return parts.flatMap((part) => {
    if (part.type !== "tool-call" || done.has(part.toolCallId)) return [];
    const request = requests.get(part.toolCallId);
    const waits = request === undefined ? !part.providerExecuted : !decided.has(request.approvalId);
    return waits ? [{ call: part, request }] : [];
  });
}

/** Returns why a call was not approved, from what `approve` threw; throws any other error. */
function whyNot(error: unknown): string {
  if (error instanceof NotApproved) return error.whyNot;
  if (error instanceof BadQuestion) return `No one was asked: ${error.message}`;
  throw error;
}

/** Asks about all calls that wait, at once; resolves to the messages with the answers. */
async function answered(messages: ModelMessage[], key: string, session: string): Promise<ModelMessage[]> {
  const content: ToolContent = [];
  const edited = new Map<string, unknown>();
  const others = new AbortController(); // if one question fails, the others are withdrawn
  const answer = async ({ call, request }: { call: Call; request: Request | undefined }, n: number): Promise<void> => {
    // Asked again with the same key, after a restart, it is the same question.
    const more = { session, key: `${key}.${n}`, signal: others.signal };
    const input = call.input as Record<string, unknown>;
    const about = { toolCallId: call.toolCallId, toolName: call.toolName };
    if (request === undefined) {
      const asked = Object.fromEntries(Object.entries(input).filter(([name]) => ASKS.includes(name)));
      try {
        const { inFull } = await ask(String(input["question"] ?? ""), { ...asked, ...more });
        content.push({ type: "tool-result", ...about, output: { type: "json", value: inFull } });
      } catch (error) {
        if (!(error instanceof BadQuestion || error instanceof NotAnswered)) throw error;
        content.push({ type: "tool-result", ...about, output: { type: "error-text", value: `No answer: ${error.message}` } });
      }
      return;
    }
    const providerExecuted = call.providerExecuted ?? false;
    const response = { type: "tool-approval-response", approvalId: request.approvalId, providerExecuted } as const;
    const editable = !providerExecuted; // what the model's provider runs itself cannot be edited
    try {
      const approval = await approve(`Call ${call.toolName}`, { arguments: input, editable, ...more });
      edited.set(call.toolCallId, approval.arguments);
      content.push({ ...response, approved: true });
    } catch (error) {
      content.push({ ...response, approved: false, reason: whyNot(error) }); // the model reads it
    }
  };
  try {
    await Promise.all(waiting(messages).map(answer));
  } catch (error) {
    others.abort(error);
    throw error;
  }
  const last = messages.findLast((message) => message.role === "assistant");
  const asAccepted = messages.map((message) => {
    if (message !== last || message.role !== "assistant" || typeof message.content === "string") return message;
    const parts = message.content.map((part) =>
      part.type === "tool-call" && edited.has(part.toolCallId) ? { ...part, input: edited.get(part.toolCallId) } : part,
    );
    return { ...message, content: parts };
  });
  return [...asAccepted, { role: "tool", content }];
}
