import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { createTool } from "@mastra/core/tools";
import { LibSQLStore } from "@mastra/libsql";
import { z } from "zod";
import { type Decided, run } from "./mastra_in_slack.ts";
import { model, saved, send, show, what } from "./scripted.ts";

const mail = z.object({ subject: z.string(), recipients: z.number() });
const send_newsletter = createTool({
  id: "send_newsletter",
  description: "Sends the newsletter.",
  inputSchema: mail,
  execute: async (input, { agent }) => {
    const decided = agent?.resumeData as Decided<z.infer<typeof mail>> | undefined;
    if (!decided) return agent?.suspend({ action: "Call send_newsletter", arguments: input, editable: true });
    return decided.approved ? send(decided.arguments) : decided.reason;
  },
});
const send_now = createTool({
  id: "send_now",
  description: "Sends the newsletter as it is.",
  inputSchema: mail,
  requireApproval: true,
  execute: async (input) => send(input),
});
const ask_person = createTool({
  id: "ask_person",
  description: "Asks a person.",
  inputSchema: z.looseObject({ question: z.string(), choices: z.array(z.string()) }),
  execute: async (input, { agent }) => (agent?.resumeData as { answer: string } | undefined)?.answer ?? agent?.suspend(input),
});
const agent = new Agent({
  id: "mailer",
  name: "Mailer",
  instructions: "Send newsletters.",
  model: model as never, // its types are of another version of the AI SDK
  tools: { send_newsletter, send_now, ask_person },
});
const storage = new LibSQLStore({ id: "mailer", url: `file:${saved}.db` });
if (what !== "forget") new Mastra({ agents: { agent }, storage, logger: false });
show(await run(agent, "Send all.", saved));
