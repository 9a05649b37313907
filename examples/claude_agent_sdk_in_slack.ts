/**
 * Claude Agent SDK: people in Slack decide about tool calls that need permission, and answer Claude's questions.
 *
 * Copy this file and clarify.ts into your project:
 *
 *     for await (const message of query({ prompt, options: { canUseTool: inSlack() } })) …
 *
 * The SDK asks only about calls that neither a rule nor the permission mode allows. If the run is interrupted, its question is
 * withdrawn.
 */

import type { CanUseTool, PermissionResult } from "@anthropic-ai/claude-agent-sdk";
import type { AskUserQuestionInput } from "@anthropic-ai/claude-agent-sdk/sdk-tools.js";
import { approve, ask, NotApproved, type Options } from "./clarify.ts";

/** Returns what the SDK asks for permission. `more`: options of every question, such as `to` or `timeout`. */
export function inSlack(more: Options = {}): CanUseTool {
  return async (name, input, { signal, decisionReason, blockedPath }): Promise<PermissionResult> => {
    const options = { ...more, signal };
    if (name === "AskUserQuestion") return { behavior: "allow", updatedInput: await answers(input, options) };
    const context = [more.context, decisionReason, blockedPath].filter(Boolean).join("\n") || undefined;
    try {
      const approval = await approve(`Use ${name}`, { ...options, arguments: input, editable: true, context });
      return { behavior: "allow", updatedInput: approval.arguments };
    } catch (error) {
      if (!(error instanceof NotApproved)) throw error;
      return { behavior: "deny", message: error.whyNot }; // Claude reads it
    }
  };
}

/** Asks Claude's questions, one after the other; resolves to the input with the answers. */
async function answers(input: Record<string, unknown>, options: Options): Promise<Record<string, unknown>> {
  const { questions } = input as unknown as AskUserQuestionInput;
  const found: Record<string, string> = {};
  for (const { question, options: offered, multiSelect } of questions) {
    const choices = offered.map(({ label, description }) => ({ value: label, description }));
    const answer = await ask(question, { ...options, choices, multiple: multiSelect, other: true });
    found[question] = [answer.inFull].flat().join(", ");
  }
  return { ...input, answers: found };
}
