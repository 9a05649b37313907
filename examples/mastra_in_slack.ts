/**
 * Mastra: people in Slack answer tools that suspend, and decide about tool calls that need approval; the run survives a restart.
 *
 * Copy this file and clarify.ts into your project, and call `run` instead of `agent.generate`:
 *
 *     createTool({ id: "send_newsletter", requireApproval: true, … }) // accepted or rejected as it is
 *
 *     execute: async (mail, { agent }) => { // accepted, edited or rejected: `suspend` takes what `approve` takes
 *       const decided = agent?.resumeData as Decided<typeof mail> | undefined;
 *       if (!decided) return agent?.suspend({ action: "Send the newsletter", arguments: mail, editable: true });
 *       return decided.approved ? send(decided.arguments) : decided.reason;
 *     }
 *
 *     execute: async (asked, { agent }) => agent?.resumeData ?? agent?.suspend(asked) // a question: what `ask` takes
 *
 *     const text = await run(agent, "Send the newsletter.", "newsletter.json");
 *
 * Mastra keeps suspended runs in its storage: give your Mastra instance one that survives a restart, such as LibSQLStore.
 */

import { randomUUID } from "node:crypto";
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import type { Agent } from "@mastra/core/agent";
import { approve, ask, BadQuestion, NotAnswered, NotApproved } from "./clarify.ts";

// The fields that a model may set: not where the bot is, nor whom it asks for.
const ASKS = ["question", "context", "to", "choices", "multiple", "other", "kind", "schema", "default", "timeout"];

/** What a tool resumes with that suspended for approval. */
export type Decided<A extends object> = { approved: true; arguments: A } | { approved: false; reason: string };

type Output = Pick<Awaited<ReturnType<Agent["generate"]>>, "text" | "finishReason">;
type Suspended = Awaited<ReturnType<Agent["listSuspendedRuns"]>>["runs"][number]["toolCalls"][number];

/**
 * Runs an agent until it ends; resolves to its last words. The file `saved` keeps the id of the run.
 *
 * If the process is killed, the next one continues from there: the question stays open in Slack, and an answer given in the meantime
 * counts.
 */
export async function run(agent: Agent<any, any, any, any>, given: string, saved: string): Promise<string> {
  const state: { runId: string; rounds: number } = existsSync(saved)
    ? JSON.parse(readFileSync(saved, "utf8"))
    : { runId: randomUUID(), rounds: 0 };
  const { runId } = state;
  const save = (): void => {
    writeFileSync(`${saved}.new`, JSON.stringify(state));
    renameSync(`${saved}.new`, saved);
  };
  save();
  let call = await suspended(agent, runId);
  let output: Output | undefined = call === undefined ? await agent.generate(given, { runId }) : undefined;
  while ((call = await suspended(agent, runId)) !== undefined) {
    // Asked again with the same key, after a restart, it is the same question.
    const decided = await answer(call, { session: runId, key: `${runId}.${state.rounds}` });
    state.rounds += 1; // a call may run now. One Accept is for one run: if this process dies, people are asked again
    save();
    output = await resumed(agent, call, decided, runId);
  }
  if (output === undefined || output.finishReason === "suspended") {
    throw new Error("The suspended run is not in Mastra's storage. Give your Mastra instance a persistent one.");
  }
  rmSync(saved);
  return output.text;
}

/** Returns the call that a run waits for; several are decided one after the other. */
async function suspended(agent: Agent, runId: string): Promise<Suspended | undefined> {
  const { runs } = await agent.listSuspendedRuns();
  return runs.find((each) => each.runId === runId)?.toolCalls[0];
}

async function answer(call: Suspended, more: { session: string; key: string }): Promise<unknown> {
  const asked = (call.requiresApproval
    ? { action: `Call ${call.toolName}`, arguments: call.args }
    : call.suspendPayload) as { question?: string; action?: string; arguments?: object };
  if (asked.action === undefined) {
    const question = Object.fromEntries(Object.entries(asked).filter(([name]) => ASKS.includes(name)));
    try {
      return { answer: (await ask(String(asked.question ?? ""), { ...question, ...more })).inFull };
    } catch (error) {
      if (!(error instanceof BadQuestion || error instanceof NotAnswered)) throw error;
      return { answer: `No answer: ${error.message}` };
    }
  }
  try {
    const approval = await approve(asked.action, { ...asked, ...more });
    return { approved: true, arguments: approval.arguments };
  } catch (error) {
    return { approved: false, reason: whyNot(error) }; // the model reads it
  }
}

/** Returns why a call was not approved, from what `approve` threw; throws any other error. */
function whyNot(error: unknown): string {
  if (error instanceof NotApproved) return error.whyNot;
  if (error instanceof BadQuestion) return `No one was asked: ${error.message}`;
  throw error;
}

function resumed(agent: Agent, call: Suspended, decided: any, runId: string): Promise<Output> {
  const at = call.toolCallId === undefined ? { runId } : { runId, toolCallId: call.toolCallId };
  if (!call.requiresApproval) return agent.resumeGenerate(decided, at);
  return decided.approved
    ? agent.approveToolCallGenerate(at)
    : agent.declineToolCallGenerate({ ...at, reason: decided.reason });
}
