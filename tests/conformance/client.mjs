// A client of released packages that knows tasks: asks for an approval and waits for its result as the server tells it to.
// Prints the task as it was at last, and its result.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

const [url] = process.argv.slice(2);
const info = { name: "ext-tasks", version: "1" };
const client = new Client(info, { versionNegotiation: { mode: "auto" } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));

let number = 1000;

// The SDK's own client refuses results that are tasks, so a host sends these requests.
async function rawDispatch(request, options) {
  const name = request.params.name ?? request.params.taskId;
  const response = await fetch(url, {
    method: "POST",
    headers: {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": request.method,
      "mcp-name": name,
    },
    body: JSON.stringify({ ...request, jsonrpc: "2.0", id: ++number }),
    signal: options?.signal,
  });
  const answer = await response.json();
  return "error" in answer ? { kind: "error", error: answer.error } : { kind: "result", result: answer.result };
}

const session = createTaskSessionFromClient(client, {
  endpointId: url,
  rawDispatch,
  v2RequestFraming: { protocolVersion: "2026-07-28", clientInfo: info, clientCapabilities: {} },
});
const execution = await session.callTool("ask_approval", { action: "Send the newsletter", risk: "high" });
const { outcome, lastTask } = await execution.settle();
console.log(JSON.stringify({ task: lastTask, result: resultFromTaskOutcome(outcome) }));
await session.close();
await client.close();
