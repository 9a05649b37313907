// Trigger.dev: a task waits up to a day for a person in Slack, without using compute while it waits.
//
// Copy this file into your project's folder of tasks, and allow the callback in clarify.toml:
//
//     [[producers]]
//     name = "trigger"
//     token_env = "TRIGGER_TOKEN"
//     callbacks = ["https://api.trigger.dev/*"]
//
// Set CLARIFY_URL to the bot's address and CLARIFY_TOKEN to the token of that table.
import { task, wait } from "@trigger.dev/sdk";

type State = { id: string; status: string; answer: { decision: string } | null; comment: string | null };

export const deploy = task({
  id: "deploy",
  run: async ({ version }: { version: string }, { ctx }: { ctx: { run: { id: string } } }) => {
    const token = await wait.createToken({ timeout: "25h" }); // a little longer than the question
    const { id } = await call("POST", "/questions", {
      action: `Deploy ${version} to production`,
      risk: "high",
      timeout: 24 * 3600,
      key: ctx.run.id, // a retried run does not ask again; its newest token is called
      callback_url: token.url,
    });
    await wait.forToken(token).unwrap();
    // Anyone who knows the token's URL can complete it, so read the decision from the bot.
    const { answer, status, comment } = await call("GET", `/questions/${id}`);
    if (answer?.decision !== "accept") return { deployed: false, why: comment ?? status };
    // Deploy here.
    return { deployed: true };
  },
});

async function call(method: string, path: string, body?: object): Promise<State> {
  const { CLARIFY_URL = "http://127.0.0.1:8787", CLARIFY_TOKEN: token } = process.env;
  const response = await fetch(CLARIFY_URL + path, {
    method,
    headers: { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) },
    ...(body && { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`clarify-bot: ${(await response.json()).message}`);
  return response.json();
}
