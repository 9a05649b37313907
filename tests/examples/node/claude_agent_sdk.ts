import { query } from "@anthropic-ai/claude-agent-sdk";
import { inSlack } from "./claude_agent_sdk_in_slack.ts";

const abortController = new AbortController();
process.stdin.once("data", () => abortController.abort());
process.stdin.unref();
const options = { canUseTool: inSlack(), settingSources: [], abortController };
try {
  for await (const message of query({ prompt: "Send all.", options })) {
    if (message.type === "result" && message.subtype === "success") console.log(message.result);
  }
} catch (error) {
  if (!abortController.signal.aborted) throw error;
}
process.stdin.destroy();
