/**
 * Asks people in Slack through clarify-bot and waits for their answers.
 *
 *     import { approve, ask } from "./clarify.ts";
 *     const answer = await ask("Which retirement age should I plan for?", { choices: ["65", "67"], timeout: 300 });
 *     console.log(answer.value, answer.decidedBy);
 *
 *     const mail = { list: "customers", subject: "June" };
 *     const approval = await approve("Send the newsletter", { risk: "high", arguments: mail });
 *     await send(approval.arguments); // only if a person approved it
 *
 * One file without dependencies: copy it into any project. Node 22.18 or newer, Deno and Bun run it as it is. Bundled for
 * other runtimes, it needs only what all of them have: `fetch`, `AbortController`, timers and the like.
 *
 * `approve` resolves only if the action was approved. If it was rejected, or if no one decided, it throws `NotApproved`.
 * clarify.py returns a falsy result instead, but in JavaScript every object is truthy: `if (await approve(…))` would run
 * what a person rejected. As it is, neither this line nor one that ignores the result runs anything unapproved.
 *
 * Set `CLARIFY_URL` to the bot's address (default: http://127.0.0.1:8787) and `CLARIFY_TOKEN` to the token of your
 * `[[producers]]` table. If several producers have no token, set `CLARIFY_PRODUCER` to the name of yours. Questions survive
 * restarts of the bot. Aborting `signal` withdraws the question.
 *
 * All that is exported here is stable.
 */
const DEFAULT_URL = "http://127.0.0.1:8787";
const LONGEST_WAIT = 55; // seconds that one request may wait for an answer
const TIMEOUT = 3600; // seconds: the bot's own, if you give none
const PATIENCE = 15; // seconds for a response, beyond what the bot was told to wait
const FIRST_PAUSE = 0.2; // seconds until the first retry
const LONGEST_PAUSE = 3; // seconds between two retries
const LATE = 330; // no question expires before its thread was read, which may take the bot 5 minutes
const FAREWELL = 4; // seconds to withdraw a question
const MOST = 16 * 1024 * 1024; // bytes of one response
const LARGEST = 1024 * 1024; // bytes of one request: the bot hangs up at more, which looks as if it were away
const REDACTED = "[redacted]"; // what the bot shows in place of what its `redact` hides

// --- How questions end.

/** How a question ended. */
export interface Outcome<S = "answered" | "expired" | "withdrawn" | "closed"> {
  /** The question's id, such as CLR-100001-001; null if the bot was never reached. */
  readonly id: string | null;
  readonly status: S;
  /** The answer as people read it. */
  readonly label: string | null;
  /** What the person wrote instead of, or besides, a choice. */
  readonly other: string | null;
  /** Why the question was rejected or closed. */
  readonly comment: string | null;
  /** Who decided, such as user:slack/T1/U1: an id, not a display name. */
  readonly decidedBy: string | null;
  /** When the person decided, as RFC 3339. */
  readonly decidedAt: string | null;
  /** Who approved the action. */
  readonly approvedBy: readonly string[];
  /** The signed receipt of the decision, a JWT; null if the bot made none. */
  readonly receipt: string | null;
  /** The link to the question's card in Slack. */
  readonly link: string | null;
  /** Everything the bot returned about the question. */
  readonly state: State;
}

/** A question's state as the bot returns it. */
export type State = Readonly<Record<string, unknown>>;

/** A person's answer; if the status is `expired`, your `default`. It is truthy even for a No: test its `value`. */
export interface Answer<T> extends Outcome<"answered" | "expired"> {
  /** A boolean for yes_no, a number, a string, a choice's value (a list with `multiple`), or the form's content. */
  readonly value: T;
  /**
   * The whole answer, to hand on to an agent: `value`; if the person wrote `other`, the choices and their own words in one
   * text.
   */
  readonly inFull: T | string;
}

/** A person's approval of an action. If it was not approved, there is none: see `NotApproved`. */
export interface Approval<A extends object = Record<string, unknown>> extends Outcome<"answered"> {
  readonly decision: "accept";
  /** The approved arguments, with the approver's edits. Parts that the bot's `redact` hid are as you sent them. */
  readonly arguments: A;
}

/** Base class of this module's errors. */
export class ClarifyError extends Error { override name = "ClarifyError"; }

/**
 * The bot rejected the question, or its response is about another question or other arguments. `code`: stable, for
 * programs; `field`: the field that is wrong, if it is one.
 */
export class Refused extends ClarifyError {
  override name = "Refused";
  readonly status: number;
  readonly code: string;
  readonly field: string | null;

  constructor(status: number, code: string, message: string, field: string | null = null) {
    super(message);
    [this.status, this.code, this.field] = [status, code, field];
  }
}

/**
 * The question, not the setup, is wrong: a field, its size, or a value that cannot be shown. Tell the agent that wrote it, and
 * let the others go on.
 */
export class BadQuestion extends Refused { override name = "BadQuestion"; }

/** The action was not approved: a person rejected it (see `decision`), or no one decided. The message says which. */
export class NotApproved extends ClarifyError {
  override name = "NotApproved";
  readonly decision: "reject" | null;
  /** Why, to hand on to an agent: the person's reason, or who rejected it, or how the question ended. */
  readonly whyNot: string;

  constructor(state: State) {
    const { decidedBy, comment } = outcome(state);
    const isRejected = decisionIn(state) === "reject";
    super(isRejected ? `Rejected by ${decidedBy}${comment ? `: ${comment}` : "."}` : unanswered(state).message);
    this.decision = isRejected ? "reject" : null;
    this.whyNot = comment || this.message;
    Object.assign(this, outcome(state));
  }
}
export interface NotApproved extends Outcome {}

/** The question ended without an answer. */
export class NotAnswered extends ClarifyError {
  override name = "NotAnswered";

  constructor(message: string, state: State) {
    super(message);
    Object.assign(this, outcome(state));
  }
}
export interface NotAnswered extends Outcome<"expired" | "withdrawn" | "closed"> {}

/** No one answered in time. */
export class Expired extends NotAnswered { override name = "Expired"; }

/** The question's time ran out while the bot could not be reached. */
export class Unreachable extends Expired { override name = "Unreachable"; }

/** A person closed the question without an answer; see `comment` and `decidedBy`. */
export class Closed extends NotAnswered { override name = "Closed"; }

/** The question was withdrawn. */
export class Withdrawn extends NotAnswered { override name = "Withdrawn"; }

/** The answer, or your `default`, does not pass your schema's checks. They may be stricter than its JSON Schema. */
export class Invalid extends ClarifyError {
  override name = "Invalid";
  readonly issues: readonly Issue[];
  readonly state: State | null;

  constructor(issues: readonly Issue[], state: State | null) {
    const what = state === null ? "`default`" : "The answer";
    super(`${what} does not fit the schema: ${issues.map(issueText).join("; ")}`);
    [this.issues, this.state] = [issues, state];
  }
}

// --- What can be asked.

export interface Connection {
  /** The bot's address; default: CLARIFY_URL. */
  url?: string | undefined;
  /** The token of your `[[producers]]` table; default: CLARIFY_TOKEN. */
  token?: string | undefined;
  /** The name of that table, if several have no token; default: CLARIFY_PRODUCER. */
  producer?: string | undefined;
}

/** Options of every question. */
export interface Options extends Connection {
  /** Aborting it withdraws the question; the call then throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Seconds until the question expires; default: 3600. */
  timeout?: number | undefined;
  /** Your name; default: the producer's name. */
  agent?: string | undefined;
  /** Questions with the same session share a Slack thread. */
  session?: string | undefined;
  /** Background the person needs. */
  context?: string | undefined;
  /** The only person who may answer, by email address or Slack ID. */
  to?: string | undefined;
  /** The person you work for, likewise; someone else may have to approve. */
  requestedBy?: string | undefined;
  /** Page the person on call if no one answers; default: true. */
  escalate?: boolean | undefined;
  /** Repeating a request with the same key returns the same question, even from another process. */
  key?: string | undefined;
  /** Where the bot posts the outcome, too. */
  callbackUrl?: string | undefined;
  /** The issue, and the topic, that the question belongs to. */
  issue?: number | undefined;
  topic?: string | undefined;
}

/** Options of `approve`. */
export interface ApproveOptions<A extends object, E extends boolean> extends Options {
  /** The exact arguments of the action: an object of JSON values. Integers beyond ±(2^53−1) must be BigInts, and come back so. */
  arguments?: A | undefined;
  /** Their JSON Schema, or a schema that has one: people get menus for its choices, and what they edit must fit it. */
  argumentsSchema?: JsonSchema | StandardJsonSchema | undefined;
  /** People can edit the arguments before they approve; use the approval's `arguments`. */
  editable?: E | undefined;
  /** Default: medium. */
  risk?: "low" | "medium" | "high" | undefined;
  /** The action cannot be undone. */
  irreversible?: boolean | undefined;
  /** What happens as a result. */
  consequence?: string | undefined;
  /** How many different people must approve (1 to 5). */
  approvals?: number | undefined;
  /** Anything else the approver should know. */
  question?: string | undefined;
}

/** A choice: its value, or an object with more about it. */
export type Choice = string | { value: string; label?: string | undefined; description?: string | undefined };

/** A JSON Schema; libraries type theirs in many ways. */
export type JsonSchema = { readonly [keyword: string]: unknown } | object;

export interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** A schema of a library that implements Standard Schema (https://standardschema.dev). */
export interface StandardSchema<I = unknown, O = I> {
  readonly "~standard": {
    readonly types?: { readonly input: I; readonly output: O } | undefined;
    readonly validate: (value: unknown) => Validated<O> | Promise<Validated<O>>;
  };
}
type Validated<O> = { readonly value: O; readonly issues?: undefined } | { readonly issues: readonly Issue[] };

/** A schema of a library that implements Standard JSON Schema, too, such as zod from 4.2 on. */
export interface StandardJsonSchema<I = unknown, O = I> extends StandardSchema<I, O> {
  readonly "~standard": StandardSchema<I, O>["~standard"] & {
    readonly jsonSchema: { readonly input: (options: { target: "draft-2020-12" }) => Record<string, unknown> };
  };
}

type InputOf<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["input"];
type OutputOf<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["output"];
type ValueOf<C extends Choice> = C extends { value: infer V } ? V : C;
type Chosen<V, M extends boolean, O extends boolean> = M extends true ? V[] : O extends true ? V | null : V;
type Single = { string: string; number: number; integer: number; boolean: boolean; array: unknown[] };
type Kinds = { yes_no: boolean; number: number; text: string };
/** What people can make of an argument: a text stays a text, a list a list, but of anything. */
type Edited<T> =
  T extends string ? string : T extends number ? number : T extends bigint ? number | bigint : T extends boolean ? boolean : T extends undefined ? T
  : T extends readonly unknown[] ? unknown[] : T extends object ? Record<string, unknown> : unknown;

interface Asks {
  /**
   * Asks a person to fill in a form, and waits for the answer. `value` is what the schema makes of it.
   *
   * @throws {Expired | Closed | Withdrawn} The question ended without an answer.
   * @throws {Refused} The bot rejected the question: a field or the token is wrong.
   * @throws {Invalid} The answer does not pass the schema's checks.
   */
  <S extends StandardJsonSchema>(
    question: string,
    options: Options & Form<InputOf<S>> & { schema: S; json?: JsonSchema | undefined },
  ): Promise<Answer<OutputOf<S>>>;
  /** The same for a schema that cannot give its JSON Schema, with that as `json`. */
  <S extends StandardSchema>(
    question: string,
    options: Options & Form<InputOf<S>> & { schema: S; json: JsonSchema },
  ): Promise<Answer<OutputOf<S>>>;
  /** The same for the plain JSON Schema of a single value. */
  <const T extends keyof Single>(
    question: string,
    options: Options & Form<Single[T]> & { schema: JsonSchema & { readonly type: T; readonly "~standard"?: undefined } },
  ): Promise<Answer<Single[T]>>;
  /** The same for a plain JSON Schema. */
  (
    question: string,
    options: Options & Form<object> & { schema: JsonSchema & { readonly "~standard"?: undefined } },
  ): Promise<Answer<Record<string, unknown>>>;
  /** Asks a person to pick a choice; with `multiple`, several; with `other`, or to write their own answer. */
  <const C extends Choice, M extends boolean = false, O extends boolean = false>(
    question: string,
    options: Options & {
      choices: readonly C[];
      multiple?: M | undefined;
      other?: O | undefined;
      kind?: "choice" | undefined;
      default?: NoInfer<M extends true ? readonly ValueOf<C>[] : ValueOf<C>> | undefined;
    },
  ): Promise<Answer<Chosen<ValueOf<C>, M, O>>>;
  /** Asks a person for a text, a number, or a Yes or No. The answer is truthy even for a No: test its `value`. */
  <K extends keyof Kinds = "text">(
    question: string,
    options?: Options & { kind?: K | undefined; default?: NoInfer<Kinds[K]> | undefined },
  ): Promise<Answer<Kinds[K]>>;
}
type Form<D> = { kind?: "form" | undefined; default?: D | undefined };
type Question = Options & { schema?: JsonSchema | StandardSchema; json?: JsonSchema | undefined; default?: unknown };

interface Approves {
  /**
   * Asks for approval of an action and waits for the decision. Resolves only if it was approved.
   *
   * @throws {NotApproved} A person rejected it, or no one decided.
   * @throws {Refused} The bot rejected the question: a field or the token is wrong.
   */
  <A extends object = Record<string, never>, E extends boolean = false>(
    action: string,
    options?: ApproveOptions<A, E>,
  ): Promise<Approval<E extends true ? { [N in keyof A]: Edited<A[N]> } : A>>;
}

// --- Asking.

/** Asks with the connection given once. */
export class Client {
  readonly #bot: Bot;

  /** @throws {TypeError} The URL is not an HTTP address, or the token is malformed. */
  constructor(connection: Connection = {}) {
    this.#bot = new Bot(connection);
  }

  readonly ask: Asks = async (question: string, options: Question = {}): Promise<Answer<any>> => {
    const { schema, json, default: given, ...more } = options;
    const standard = schema && "~standard" in schema ? (schema as StandardSchema)["~standard"] : undefined;
    const checked = async (value: unknown, state: State | null): Promise<unknown> => {
      const found = (await standard?.validate(value)) ?? { value };
      if (found.issues !== undefined) throw new Invalid(found.issues, state);
      return found.value;
    };
    const isAssumed = given !== undefined && given !== null;
    const assumed = isAssumed ? exact(given, "default") : undefined;
    const usual = isAssumed ? await checked(assumed, null) : null; // before anyone is asked
    const form = standard === undefined ? schema : (json ?? jsonOf(standard));
    const state = await this.#ended({ question, ...more, schema: form, default: assumed }, options.signal);
    const { status, ...rest } = outcome(state);
    if (status === "expired" && isAssumed) return { ...rest, status, value: usual, inFull: usual };
    if (status !== "answered") throw unanswered(state);
    const value = await checked(state["answer"], state);
    const inFull = rest.other === null ? value : [value ?? [], rest.other].flat().join(", ");
    return { ...rest, status, value, inFull };
  };

  readonly approve: Approves = async (
    action: string,
    options: ApproveOptions<object, boolean> = {},
  ): Promise<Approval<any>> => {
    const sent = options.arguments === undefined ? undefined : exact(options.arguments, "arguments");
    const { argumentsSchema: given, ...more } = options;
    const schema = given && "~standard" in given ? jsonOf((given as StandardJsonSchema)["~standard"]) : given;
    const fields = { ...more, kind: "approval", action, arguments: sent, arguments_schema: schema };
    const state = await this.#ended(fields, options.signal);
    if (decisionIn(state) !== "accept") throw new NotApproved(state);
    const { arguments: approved } = state["answer"] as Fields;
    const asked = isObject(state["asked"]) ? state["asked"]["arguments"] : {};
    const restored = unredacted(approved ?? {}, asked ?? {}, sent ?? {}) as Fields;
    return { ...outcome(state), status: "answered", decision: "accept", arguments: restored };
  };

  async #ended(fields: Fields, signal: AbortSignal | undefined): Promise<State> {
    signal?.throwIfAborted();
    const asking = new Asking(this.#bot, fields);
    try {
      return await asking.ended(signal);
    } catch (error) {
      if (signal?.aborted) await asking.withdraw();
      throw error;
    }
  }
}

export const ask: Asks = async (question: string, options?: Options): Promise<Answer<any>> =>
  new Client(options).ask(question, options);

export const approve: Approves = async (action, options) => new Client(options).approve(action, options);

type Fields = Record<string, unknown>;
type Call = { method: string; path: string; body?: string; patience: number };
type Reply = { status: number; retryAfter: number | null; json: unknown };
/** There was no response. `isUnsent`: the connection failed before any part of the request was sent. */
type Failure = { status: null; why: string; isUnsent: boolean };

/** One question, from asking to its outcome. */
class Asking {
  readonly #bot: Bot;
  readonly #fields: Fields;
  readonly #timeout: number | undefined;
  readonly #ends: number;
  #id: string | null = null;
  #mayBeAsked = false;

  constructor(bot: Bot, fields: Fields) {
    const { url: _, token: __, producer: ___, signal: ____, timeout, requestedBy, callbackUrl, ...rest } = fields;
    if (timeout !== undefined && timeout !== null && !Number.isFinite(timeout)) {
      throw new BadQuestion(422, "BAD_INPUT", "`timeout` must be a number of seconds.", "timeout");
    }
    const key = rest["key"] ?? `ts-${crypto.randomUUID()}`;
    const named = { ...rest, key, requested_by: requestedBy, callback_url: callbackUrl };
    const given = Object.entries(named).filter(([, value]) => value !== undefined && value !== null);
    this.#bot = bot;
    this.#fields = parsed(written(Object.fromEntries(given)) as string) as Fields; // whatever the caller changes meanwhile
    this.#timeout = (timeout as number | null) ?? undefined;
    this.#ends = now() + (this.#timeout ?? TIMEOUT);
  }

  /**
   * Asks, and returns the question's last state.
   *
   * @throws {Refused} The bot rejected the question. If the signal is aborted: its reason.
   */
  async ended(signal?: AbortSignal): Promise<State> {
    let pause = FIRST_PAUSE;
    let state: State = {};
    let isWarned = false;
    for (;;) {
      const began = now();
      const known = this.#mayBeAsked;
      this.#mayBeAsked = true;
      const reply = await this.#bot.reply(this.#id === null ? this.#ask() : this.#look(), signal);
      if (reply.status === null && reply.isUnsent) this.#mayBeAsked = known;
      if (reply.status !== null && !isPassing(reply)) {
        state = this.#told(reply);
        if (state["status"] !== "waiting") return state;
        if (this.#left < -LATE) return { ...state, status: "expired" };
        if (now() - began > 1 || reply.status === 201) {
          pause = FIRST_PAUSE;
          continue; // it waited as it should
        }
      } else if (this.#left <= 0) {
        return { ...state, status: "expired", comment: this.#why(reply) };
      } else if (reply.status === null && !isWarned) {
        isWarned = true;
        console.warn(`${this.#why(reply)} Retrying until the question expires.`);
      }
      const wished = reply.status === null ? null : reply.retryAfter;
      await sleep(Math.max(0.05, Math.min(wished || pause, this.#left)), signal);
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }

  /** Withdraws the question, if it may have been asked, within a few seconds. */
  async withdraw(): Promise<void> {
    const ends = now() + FAREWELL;
    for (let patience = FAREWELL; this.#mayBeAsked && patience > 0; patience = ends - now()) {
      // Asked again it is the same question, so that its id is known, whatever became of the first time.
      const call = this.#id === null ? this.#ask() : { method: "DELETE", path: `/questions/${this.#id}` };
      const reply = await this.#bot.reply({ ...call, patience });
      if (reply.status === null || isPassing(reply)) {
        await sleep(FIRST_PAUSE);
      } else {
        const id = isObject(reply.json) ? text(reply.json["id"]) : null;
        if (this.#id !== null || id === null) return;
        this.#id = id;
      }
    }
  }

  get #left(): number {
    return this.#ends - now();
  }

  #ask(): Call {
    const timeout = this.#timeout && Math.min(this.#timeout, Math.max(1, Math.ceil(this.#left)));
    const body = written({ ...this.#fields, timeout }) as string;
    const size = new TextEncoder().encode(body).length;
    const tooLarge = `The question has ${size} bytes of JSON; at most ${LARGEST} are allowed.`;
    if (size > LARGEST) throw new BadQuestion(413, "TOO_LARGE", tooLarge);
    return { method: "POST", path: "/questions", body, patience: PATIENCE };
  }

  #look(): Call {
    const wait = Math.min(LONGEST_WAIT, Math.max(1, Math.trunc(this.#left) + 2));
    return { method: "GET", path: `/questions/${this.#id}?wait=${wait}`, patience: wait + PATIENCE };
  }

  #told(reply: Reply): State {
    if (reply.status >= 400) throw refusal(reply);
    const state = reply.json;
    const id = isObject(state) ? state["id"] : null;
    if (!isObject(state) || typeof id !== "string" || id !== (this.#id ?? id) || !("status" in state)) {
      const message = `The server at ${this.#bot.url} is not clarify-bot. Check CLARIFY_URL.`;
      throw new Refused(reply.status, "NO_BOT", message);
    }
    checkState(state, this.#fields);
    this.#id = id;
    return state;
  }

  #why(reply: Reply | Failure): string {
    const why = reply.status === null ? reply.why.replace(/\.?$/, ".") : refusal(reply).message;
    return `clarify-bot at ${this.#bot.url} cannot be reached: ${why}`;
  }
}

// --- HTTP.

/** The bot, over HTTP. */
class Bot {
  readonly url: string;
  readonly #headers: Record<string, string>;
  readonly #producer: string | undefined;

  constructor({ url, token, producer }: Connection) {
    this.url = address(url || environment("CLARIFY_URL") || DEFAULT_URL);
    const bearer = token ?? environment("CLARIFY_TOKEN");
    if (bearer && !/^[ -~]+$/.test(bearer)) {
      throw new TypeError("CLARIFY_TOKEN: the token must contain only printable ASCII characters.");
    }
    this.#headers = { Accept: "application/json", ...(bearer ? { Authorization: `Bearer ${bearer}` } : {}) };
    this.#producer = producer ?? environment("CLARIFY_PRODUCER");
  }

  /** Sends a request, and returns what came of it. Throws the signal's reason if it is aborted, and nothing else. */
  async reply({ method, path, body, patience }: Call, signal?: AbortSignal): Promise<Reply | Failure> {
    const target = new URL(this.url + path);
    if (this.#producer) target.searchParams.set("producer", this.#producer);
    const stop = new AbortController();
    const onAbort = (): void => stop.abort();
    const onLate = (): void => stop.abort(new Error(`no response within ${Math.round(patience)} s`));
    const late = setTimeout(onLate, patience * 1000);
    signal?.addEventListener("abort", onAbort);
    try {
      signal?.throwIfAborted();
      const request: RequestInit & { cache: "no-store" } = {
        method,
        headers: { ...this.#headers, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
        body: body ?? null,
        redirect: "manual", // the token goes nowhere else
        cache: "no-store", // some frameworks keep what GET returned
        signal: stop.signal,
      };
      const response = await fetch(target, request);
      const after = response.headers.get("retry-after") ?? "";
      const retryAfter = /^\d+$/.test(after) ? Number(after) : null;
      return { status: response.status, retryAfter, json: await jsonIn(response) };
    } catch (error) {
      signal?.throwIfAborted();
      return failure(error);
    } finally {
      clearTimeout(late);
      signal?.removeEventListener("abort", onAbort);
    }
  }
}

/** Returns whether a retry may succeed. */
function isPassing(reply: Reply): boolean {
  return reply.status === 408 || reply.status === 425 || reply.status === 429 || reply.status >= 500;
}

function refusal({ status, json }: Reply): Refused {
  if (!isObject(json) || typeof json["message"] !== "string") {
    return new Refused(status, `HTTP_${status}`, `The server answered with HTTP ${status}.`);
  }
  const isQuestion = [400, 413, 422].includes(status); // what the question is to blame for
  return new (isQuestion ? BadQuestion : Refused)(status, String(json["error"]), json["message"], text(json["field"]));
}

function failure(error: unknown): Failure {
  const cause = (error as { cause?: unknown }).cause ?? error; // Node and Deno say only there what failed
  const { code = "", message = "" } = cause as { code?: string; message?: string };
  const isUnsent = /ECONNREFUSED|ENOTFOUND|EAI_AGAIN|CONNECT_TIMEOUT|\(Connect\)/.test(`${code} ${message}`);
  return { status: null, why: message || code || String(cause), isUnsent };
}

/** Returns a response's JSON; undefined if it is not JSON. Throws if it is too large, or not complete. */
async function jsonIn(response: Response): Promise<unknown> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let found = "";
  let size = 0;
  for (let piece = await reader?.read(); piece?.value !== undefined; piece = await reader?.read()) {
    size += piece.value.byteLength;
    if (size > MOST) {
      await reader?.cancel();
      throw new Error("the response is too large");
    }
    found += decoder.decode(piece.value, { stream: true });
  }
  try {
    return parsed(found + decoder.decode());
  } catch {
    return undefined;
  }
}

function address(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed === null || !/^https?:$/.test(parsed.protocol) || parsed.search || parsed.hash) {
    const shown = url.slice(url.lastIndexOf("@") + 1); // no password
    throw new TypeError(`CLARIFY_URL: '${shown}' is not an HTTP address. Use one such as ${DEFAULT_URL}.`);
  }
  return parsed.origin + parsed.pathname.replace(/\/+$/, "");
}

function environment(name: string): string | undefined {
  return (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env?.[name];
}

/** Returns seconds of a clock that no one sets. */
function now(): number {
  return performance.now() / 1000;
}

function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onEnd = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onEnd);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(onEnd, Math.min(seconds * 1000, 2 ** 31 - 1)); // the longest there is
    signal?.addEventListener("abort", onEnd);
    if (signal?.aborted) onEnd();
  });
}

// --- States, schemas, arguments.

function isObject(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function text(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function outcome(state: State): Outcome {
  const approvers = state["approved_by"];
  return {
    id: text(state["id"]),
    status: state["status"] as Outcome["status"],
    label: text(state["label"]),
    other: text(state["other"]),
    comment: text(state["comment"]),
    decidedBy: text(state["decided_by"]),
    decidedAt: text(state["decided_at"]),
    approvedBy: Array.isArray(approvers) ? approvers.map(String) : [],
    receipt: text(state["receipt"]),
    link: text(state["link"]),
    state,
  };
}

/** Returns the decision on an action; null if no one decided. */
function decisionIn(state: State): unknown {
  return state["status"] === "answered" && isObject(state["answer"]) ? state["answer"]["decision"] : null;
}

/**
 * Checks that a state is of the question with these fields, and that what was approved was shown and is what was sent.
 *
 * @throws {Refused} It is of another question, or other arguments were approved; unless people edited the ones sent.
 */
function checkState(state: State, fields: Fields): void {
  if ("kind" in state && state["kind"] !== kindOf(fields)) {
    throw new Refused(200, "OTHER_QUESTION", "The bot's response is about another question than this one.");
  }
  if (decisionIn(state) !== "accept") return;
  const { asked, answer } = state;
  const sent = fields["arguments"] ?? {};
  const shown = isObject(asked) ? (asked["arguments"] ?? {}) : {};
  const approved = (answer as Fields)["arguments"] ?? {};
  const isEqual = (one: unknown, other: unknown): boolean => one === other;
  const isAsShown = fields["editable"] || matches(approved, shown, isEqual);
  if (!isAsShown || !matches(shown, sent, mayBe)) {
    throw new Refused(200, "OTHER_ARGUMENTS", "Other arguments were approved than these.", "arguments");
  }
}

/** Returns a question's kind, as the bot derives it. */
function kindOf(fields: Fields): unknown {
  const derived = { choices: "choice", schema: "form", action: "approval" };
  return fields["kind"] ?? Object.entries(derived).find(([name]) => name in fields)?.[1] ?? "text";
}

function unanswered(state: State): NotAnswered {
  const { id, status, comment } = outcome(state);
  if (status === "expired" && id === null) {
    return new Unreachable(comment ?? "The bot could not be reached, so no one was asked.", state);
  }
  if (status === "expired") return new Expired(comment ?? "No one answered in time.", state);
  if (status === "withdrawn") return new Withdrawn(comment ?? "The question was withdrawn.", state);
  return new Closed(comment ?? "The question was closed without an answer.", state);
}

function issueText({ path, message }: Issue): string {
  const names = path?.map((each) => String(typeof each === "object" ? each.key : each)) ?? [];
  return names.length === 0 ? message : `${names.join(".")}: ${message}`;
}

function jsonOf(standard: StandardSchema["~standard"]): JsonSchema {
  if (!("jsonSchema" in standard)) {
    throw new TypeError("This schema cannot give its JSON Schema: pass that as `json`.");
  }
  return (standard as StandardJsonSchema["~standard"]).jsonSchema.input({ target: "draft-2020-12" });
}

type Same = (shown: unknown, sent: unknown) => boolean;

/** Returns whether two JSON values are the same. `same`: compares names, and values that hold no others. */
function matches(shown: unknown, sent: unknown, same: Same): boolean {
  if (Array.isArray(shown) && Array.isArray(sent)) {
    return shown.length === sent.length && shown.every((each, place) => matches(each, sent[place], same));
  }
  if (!isObject(shown) || !isObject(sent)) return same(shown, sent);
  const names = [...ownNames(shown, sent)];
  const isSame = ([name, own]: [string, string | undefined]): boolean =>
    own !== undefined && same(name, own) && matches(shown[name], sent[own], same);
  return names.length === Object.keys(sent).length && names.every(isSame);
}

/** Returns whether `shown` is `sent`, in which the bot's `redact` may have hidden parts. */
function mayBe(shown: unknown, sent: unknown): boolean {
  const isText = ["string", "number", "bigint"].includes(typeof sent);
  if (typeof shown !== "string" || !isText || !shown.includes(REDACTED)) return shown === sent;
  const [first = "", ...middle] = shown.split(REDACTED);
  const last = middle.pop() ?? "";
  const text = String(sent);
  let end = first.length;
  for (const part of middle) {
    const at = text.indexOf(part, end);
    if (at < 0) return false;
    end = at + part.length;
  }
  return text.startsWith(first) && text.endsWith(last) && end + last.length <= text.length;
}

/** Returns the name in `sent` of each one that was shown. A name may be redacted; all are in their order. */
function ownNames(asked: Fields, sent: Fields): Map<string, string | undefined> {
  const hidden = Object.keys(sent).filter((name) => !Object.hasOwn(asked, name));
  return new Map(Object.keys(asked).map((name) => [name, Object.hasOwn(sent, name) ? name : hidden.shift()]));
}

/** Returns a value as JSON, like JSON.stringify, but with BigInts. */
function written(value: unknown): string | undefined {
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map((each) => written(each) ?? "null").join(",")}]`;
  if (!isObject(value) || typeof value["toJSON"] === "function") return JSON.stringify(value);
  const fields = Object.entries(value).map(([name, each]) => [JSON.stringify(name), written(each)]);
  return `{${fields.filter(([, each]) => each !== undefined).map((each) => each.join(":")).join(",")}}`;
}

/** Reads JSON. Integers beyond ±(2^53−1), which a number may round, become BigInts. Linear, also where a text breaks off. */
function parsed(json: string): unknown {
  if (!/\d{16}/.test(json)) return JSON.parse(json);
  const mark = crypto.randomUUID(); // no text begins with it
  const marked = json.replace(/"(?:(?=([^"\\]+|\\.))\1)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g, (token) => {
    return /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${mark}${token}"` : token;
  });
  const isMarked = (value: unknown): value is string => typeof value === "string" && value.startsWith(mark);
  return JSON.parse(marked, (_, value) => (isMarked(value) ? BigInt(value.slice(mark.length)) : value));
}

/** Returns a copy of a JSON value. Throws TypeError if JSON would change it: people would approve something else. */
function exact(value: unknown, path: string): unknown {
  if (Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value as number) < 1e21) {
    const message = `\`${path}\` is an integer beyond ±(2^53−1), which may be rounded already. Use a BigInt or a string.`;
    throw new BadQuestion(422, "BAD_INPUT", message, path);
  }
  if (value === null || ["string", "boolean", "bigint"].includes(typeof value) || Number.isFinite(value)) return value;
  if (Array.isArray(value)) return Array.from(value, (each, place) => exact(each, `${path}[${place}]`));
  if (!isObject(value) || Object.getPrototypeOf(Object.getPrototypeOf(value) ?? Object.prototype) !== null) {
    const what = isObject(value) ? value.constructor.name : typeof value === "number" ? value : typeof value;
    throw new TypeError(`\`${path}\` is no JSON value (${what}). Convert it first.`);
  }
  const given = Object.entries(value).filter(([, each]) => each !== undefined);
  return Object.fromEntries(given.map(([name, each]) => [name, exact(each, `${path}.${name}`)]));
}

/**
 * Returns `answered` with every unchanged part restored from `sent`, because the bot's `redact` may have hidden it in
 * `asked`. Parts that people changed stay as they are, even if they contain `[redacted]`.
 */
function unredacted(answered: unknown, asked: unknown, sent: unknown): unknown {
  if (isObject(answered) && isObject(asked) && isObject(sent)) {
    const names = ownNames(asked, sent);
    const restored = Object.entries(answered).map(([name, value]) => {
      const ours = names.get(name);
      return ours === undefined ? [name, value] : [ours, unredacted(value, asked[name], sent[ours])];
    });
    return Object.fromEntries(restored);
  }
  if (Array.isArray(answered) && Array.isArray(asked) && Array.isArray(sent)) {
    const known = Math.min(asked.length, sent.length);
    return answered.map((value, place) => (place < known ? unredacted(value, asked[place], sent[place]) : value));
  }
  if (answered === asked) return sent;
  return typeof sent === "bigint" && Number.isSafeInteger(answered) ? BigInt(answered as number) : answered;
}
