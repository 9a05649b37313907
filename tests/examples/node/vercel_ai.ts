import { tool, ToolLoopAgent } from "ai";
import { z } from "zod";
import { model, saved, send, show } from "./scripted.ts";
import { run } from "./vercel_ai_in_slack.ts";

const send_newsletter = tool({
  inputSchema: z.object({ subject: z.string(), recipients: z.number() }),
  execute: send,
});
const ask_person = tool({
  inputSchema: z.looseObject({ question: z.string(), choices: z.array(z.string()) }),
  outputSchema: z.string(),
});
const tools = { send_newsletter, ask_person };
const agent = new ToolLoopAgent({ model, tools, toolApproval: { send_newsletter: "user-approval" } });
show(await run(agent, "Send all.", saved));
