/**
 * Asks people in Slack through clarify-bot and waits for their answers.
 *
 *     import { approve, ask } from "./clarify.ts";
 *
 *     const answer = await ask("Which retirement age should I plan for?", { choices: ["65", "67"], timeout: 300 });
 *     console.log(answer.value, answer.decidedBy);
 *
 *     const sending = { list: "customers", subject: "June" };
 *     const approval = await approve("Send the newsletter", { risk: "high", arguments: sending });
 *     await send(approval.arguments); // reached only if a person approved it
 *
 * One file without dependencies: copy it into any project. Node 22.18 or newer, Deno and Bun run it as it is; bundled, it
 * needs nothing but `fetch`.
 *
 * `approve` resolves only if the action was approved. Any other end throws `NotApproved`: a rejection, silence, a withdrawn
 * question. An object is always truthy in JavaScript, so with a result for both, `if (await approve(…))` would run what a
 * person rejected. This way it runs nothing unapproved, and neither does a call whose result is not looked at.
 *
 * Set `CLARIFY_URL` to the bot's address (default: http://127.0.0.1:8787) and `CLARIFY_TOKEN` to the token of your
 * `[[producers]]` table. If several producers have no token, set `CLARIFY_PRODUCER` to the name of yours. Questions survive
 * restarts of the bot. Aborting `signal` withdraws the question.
 *
 * Everything exported here is stable.
 */

const DEFAULT_URL = "http://127.0.0.1:8787";
const LONGEST_WAIT = 55; // seconds that one request may wait for an answer
const TIMEOUT = 3600; // seconds: the bot's own, if you give none
const PATIENCE = 15; // seconds for a response, beyond what the bot was told to wait
const FIRST_PAUSE = 0.2; // seconds until the first retry
const LONGEST_PAUSE = 3; // seconds between two retries
const LATE = 330; // seconds: a question expires once its thread was read, which may take the bot 5 minutes
const FAREWELL = 4; // seconds to withdraw a question
const MOST = 16 * 1024 * 1024; // bytes of one response
const LONGEST_TIMER = 2 ** 31 - 1; // milliseconds

// --- What questions end with.

/** How a question ended. */
export interface Outcome<S extends string = "answered" | "expired" | "withdrawn" | "closed"> {
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
  /** Who approved the action, in order; empty for questions. */
  readonly approvedBy: readonly string[];
  /** The signed receipt of the decision, a JWT; null if the bot made none. */
  readonly receipt: string | null;
  /** The link to the question's card in Slack. */
  readonly link: string | null;
  /** Everything the bot returned about the question. */
  readonly state: State;
}

/** A question's state, as the bot returns it. */
export type State = Readonly<Record<string, unknown>>;

/** A person's answer; if the status is `expired`, your `default`. It is an object, hence truthy even for a No: test `value`. */
export interface Answer<T> extends Outcome<"answered" | "expired"> {
  /** A boolean for yes_no, a number, a string, a choice's value (a list with `multiple`), or the form's content. */
  readonly value: T;
}

/** A person's approval of an action. There is none for an action that was not approved: see `NotApproved`. */
export interface Approval<A extends object = Record<string, unknown>> extends Outcome<"answered"> {
  readonly decision: "accept";
  /** The approved arguments, with the approver's edits. Parts that the bot's `redact` hid are as you sent them. */
  readonly arguments: A;
}

/** Base class of this module's errors. */
export class ClarifyError extends Error {
  override name = "ClarifyError";
}

/** The bot rejected the question. */
export class Refused extends ClarifyError {
  override name = "Refused";
  /** The HTTP status. */
  readonly status: number;
  /** Stable, for programs. */
  readonly code: string;
  /** The field that is wrong, if it is one field. */
  readonly field: string | null;

  constructor(status: number, code: string, message: string, field: string | null = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

/** The action must not run: a person rejected it, or no one approved it. The message says which. */
export class NotApproved extends ClarifyError {
  override name = "NotApproved";
  /** The decision; null if no one decided. */
  readonly decision: "reject" | null;

  constructor(state: State) {
    super(whyNot(state));
    this.decision = decisionIn(state) === "reject" ? "reject" : null;
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
export class Expired extends NotAnswered {
  override name = "Expired";
}

/** The question's time ran out while the bot could not be reached. */
export class Unreachable extends Expired {
  override name = "Unreachable";
}

/** A person closed the question without an answer; see `comment` and `decidedBy`. */
export class Closed extends NotAnswered {
  override name = "Closed";
}

/** The question was withdrawn. */
export class Withdrawn extends NotAnswered {
  override name = "Withdrawn";
}

/** A person's answer does not fit your schema, although it fits the JSON Schema of the form. */
export class Invalid extends ClarifyError {
  override name = "Invalid";
  readonly issues: readonly Issue[];
  readonly state: State;

  constructor(issues: readonly Issue[], state: State) {
    super(`The answer does not fit the schema: ${issues.map(issueText).join("; ")}`);
    this.issues = issues;
    this.state = state;
  }
}

// --- What to ask.

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
  /** Aborting it withdraws the question; the call rejects with its reason. */
  signal?: AbortSignal | undefined;
  /** Seconds until the question expires; default: 3600. */
  timeout?: number | undefined;
  /** Your name; default: the producer's name. */
  agent?: string | undefined;
  /** Questions with the same session share a Slack thread. */
  session?: string | undefined;
  /** Background the person needs. */
  context?: string | undefined;
  /** The only person who may answer: an email address or a Slack ID. */
  to?: string | undefined;
  /** The person you work for, likewise; someone else may have to approve. */
  requestedBy?: string | undefined;
  /** Page the person on call if no one answers; default: true. */
  escalate?: boolean | undefined;
  /** Repeating a request with the same key returns the same question, even from another process. */
  key?: string | undefined;
  /** Where the bot posts the outcome, too. */
  callbackUrl?: string | undefined;
  /** The issue that the question belongs to. */
  issue?: number | undefined;
  topic?: string | undefined;
}

/** Options of `approve`. */
export interface ApproveOptions<A extends object> extends Options {
  /** The exact arguments of the action: an object of JSON values. */
  arguments?: A | undefined;
  /** People can edit the arguments before they approve: run the action with the approval's `arguments`. */
  editable?: boolean | undefined;
  /** How much damage a mistake would do; default: medium. */
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

/** A JSON Schema. */
export type JsonSchema = { readonly [keyword: string]: unknown };

export interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** A schema of any library that implements Standard Schema: https://standardschema.dev. */
export interface StandardSchema<I = unknown, O = I> {
  readonly "~standard": {
    readonly types?: { readonly input: I; readonly output: O } | undefined;
    readonly validate: (value: unknown) => Validated<O> | Promise<Validated<O>>;
  };
}
type Validated<O> = { readonly value: O; readonly issues?: undefined } | { readonly issues: readonly Issue[] };

/** One that implements Standard JSON Schema as well, such as zod's (4.2 or newer). */
export interface StandardJsonSchema<I = unknown, O = I> extends StandardSchema<I, O> {
  readonly "~standard": StandardSchema<I, O>["~standard"] & {
    readonly jsonSchema: { readonly input: (options: { target: "draft-2020-12" }) => Record<string, unknown> };
  };
}

type InputOf<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["input"];
type OutputOf<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["output"];
type ValueOf<C extends Choice> = C extends string ? C : C extends { value: infer V } ? V : never;
type Chosen<V, M extends boolean, O extends boolean> = M extends true ? V[] : O extends true ? V | null : V;
type Kinds = { yes_no: boolean; number: number; text: string };

interface Asks {
  /** Asks a person to fill in a form, and resolves to what the schema makes of it. */
  <S extends StandardJsonSchema>(
    question: string,
    options: Options & { schema: S; json?: JsonSchema | undefined; kind?: "form" | undefined; default?: InputOf<S> | undefined },
  ): Promise<Answer<OutputOf<S>>>;
  /** The same with a library that cannot give its JSON Schema: `json` is the form, `schema` checks the answer. */
  <S extends StandardSchema>(
    question: string,
    options: Options & { schema: S; json: JsonSchema; kind?: "form" | undefined; default?: InputOf<S> | undefined },
  ): Promise<Answer<OutputOf<S>>>;
  /** The same with a plain JSON Schema. */
  (
    question: string,
    options: Options & {
      schema: JsonSchema & { readonly "~standard"?: undefined };
      kind?: "form" | undefined;
      default?: Readonly<Record<string, unknown>> | undefined;
    },
  ): Promise<Answer<Record<string, unknown>>>;
  /** Asks a person to pick one of the choices, or several with `multiple`. With `other`, people can write their own answer. */
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
  /** Asks a person a question that they answer in their own words, with a number, or with Yes or No. */
  <K extends keyof Kinds = "text">(
    question: string,
    options?: Options & { kind?: K | undefined; default?: NoInfer<Kinds[K]> | undefined },
  ): Promise<Answer<Kinds[K]>>;
}

interface Approves {
  /**
   * Asks for approval of an action. Resolves only if it was approved.
   *
   * @throws NotApproved: a person rejected it, or no one approved it. Refused: the bot rejected the question.
   */
  <A extends object = Record<string, never>>(action: string, options?: ApproveOptions<A>): Promise<Approval<A>>;
}

type AnyQuestion = Options & { schema?: JsonSchema | StandardSchema; json?: JsonSchema | undefined; default?: unknown };

/** A connection to the bot. Values that are left out are read from the environment. */
export class Client {
  readonly url: string;
  readonly #headers: Record<string, string>;
  readonly #producer: string | undefined;

  /** @throws TypeError: the URL is not an HTTP address, or the token is malformed. */
  constructor(connection: Connection = {}) {
    this.url = address(connection.url || environment("CLARIFY_URL") || DEFAULT_URL);
    const token = connection.token ?? environment("CLARIFY_TOKEN");
    if (token && !/^[ -~]+$/.test(token)) {
      throw new TypeError("CLARIFY_TOKEN: the token must contain only printable ASCII characters.");
    }
    this.#producer = connection.producer ?? environment("CLARIFY_PRODUCER");
    this.#headers = { Accept: "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  }

  /**
   * Asks a person and waits for the answer.
   *
   * @throws Expired, Closed, Withdrawn: the question ended without an answer. Refused: the bot rejected the question.
   */
  readonly ask: Asks = async (question: string, options: AnyQuestion = {}): Promise<Answer<any>> => {
    const { schema, json, default: assumed, ...more } = options;
    const standard = schema && "~standard" in schema ? (schema as StandardJsonSchema)["~standard"] : undefined;
    const isAssumed = assumed !== undefined && assumed !== null;
    const filled = async (value: unknown, state: State): Promise<unknown> => {
      const found = standard === undefined ? { value } : await standard.validate(value);
      if (found.issues !== undefined) throw new Invalid(found.issues, state);
      return found.value;
    };
    const usual = isAssumed ? await filled(assumed, {}) : undefined; // a wrong one is no surprise at the end
    const form = standard === undefined ? schema : asForm(json ?? jsonOf(standard));
    const state = await this.#settled({ question, ...more, schema: form, default: assumed }, options);
    if (state["status"] === "expired" && isAssumed) return { ...outcome(state), value: usual } as Answer<unknown>;
    if (state["status"] !== "answered") throw unanswered(state);
    return { ...outcome(state), value: await filled(state["answer"], state) } as Answer<unknown>;
  };

  /**
   * Asks for approval of an action. Resolves only if it was approved.
   *
   * @throws NotApproved: a person rejected it, or no one approved it. Refused: the bot rejected the question.
   */
  readonly approve: Approves = async <A extends object>(
    action: string,
    options: ApproveOptions<A> = {},
  ): Promise<Approval<A>> => {
    const sent = options.arguments === undefined ? undefined : exact(options.arguments, "arguments");
    const state = await this.#settled({ ...options, kind: "approval", action, arguments: sent }, options);
    if (decisionIn(state) !== "accept") throw new NotApproved(state);
    const answer = state["answer"] as Fields;
    const asked = isObject(state["asked"]) ? state["asked"]["arguments"] : undefined;
    const approved = unredacted(answer["arguments"] ?? {}, asked ?? {}, sent ?? {});
    return { ...outcome(state), decision: "accept", arguments: approved } as Approval<A>;
  };

  async #settled(fields: Fields, options: Options): Promise<State> {
    const { signal } = options;
    signal?.throwIfAborted();
    const asking = new Asking(fields, (...call) => this.#call(...call), this.url);
    try {
      return await asking.ended(signal);
    } catch (error) {
      if (signal?.aborted) await asking.withdraw();
      throw error;
    }
  }

  /** Sends a request. Resolves to a `Failure` without a response; rejects only if `signal` is aborted. */
  async #call(call: Call, signal?: AbortSignal): Promise<Reply | Failure> {
    const target = new URL(this.url + call.path);
    if (this.#producer) target.searchParams.set("producer", this.#producer);
    const stop = new AbortController();
    const late = setTimeout(() => stop.abort(new Error(`no response within ${Math.round(call.patience)} s`)), call.patience * 1000);
    const onAbort = (): void => stop.abort();
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      signal?.throwIfAborted();
      const request: RequestInit & { cache: "no-store" } = {
        method: call.method,
        headers: { ...this.#headers, ...(call.body === undefined ? {} : { "Content-Type": "application/json" }) },
        body: call.body ?? null,
        redirect: "manual", // the token goes nowhere else
        cache: "no-store", // some frameworks would keep what GET returned
        signal: stop.signal,
      };
      const response = await fetch(target, request);
      return { status: response.status, retryAfter: secondsIn(response.headers.get("retry-after")), json: await jsonIn(response) };
    } catch (error) {
      signal?.throwIfAborted();
      return failure(error);
    } finally {
      clearTimeout(late);
      signal?.removeEventListener("abort", onAbort);
    }
  }
}

/**
 * Asks a person and waits for the answer.
 *
 * @throws Expired, Closed, Withdrawn: the question ended without an answer. Refused: the bot rejected the question.
 */
export const ask: Asks = async (question: string, options: Options = {}): Promise<Answer<any>> =>
  new Client(options).ask(question, options);

/**
 * Asks for approval of an action. Resolves only if it was approved.
 *
 * @throws NotApproved: a person rejected it, or no one approved it. Refused: the bot rejected the question.
 */
export const approve: Approves = async (action, options = {}) => new Client(options).approve(action, options);

// --- The conversation with the bot.

type Fields = Record<string, unknown>;
type Call = { method: string; path: string; body?: string; patience: number };
type Reply = { status: number; retryAfter: number | null; json: unknown };

/** No response. `isUnsent`: the connection failed before any part of the request was sent. */
class Failure {
  readonly why: string;
  readonly isUnsent: boolean;

  constructor(why: string, isUnsent: boolean) {
    this.why = why;
    this.isUnsent = isUnsent;
  }
}

/** One question, from asking to its outcome. */
class Asking {
  readonly #fields: Fields;
  readonly #call: (call: Call, signal?: AbortSignal) => Promise<Reply | Failure>;
  readonly #url: string;
  readonly #timeout: number | undefined;
  readonly #ends: number;
  #id: string | null = null;
  #mayBeAsked = false;

  constructor(fields: Fields, call: (call: Call, signal?: AbortSignal) => Promise<Reply | Failure>, url: string) {
    const { url: _, token: __, producer: ___, signal: ____, timeout, requestedBy, callbackUrl, ...rest } = fields;
    if (timeout !== undefined && timeout !== null && !Number.isFinite(timeout)) {
      throw new TypeError("`timeout` must be a number of seconds.");
    }
    this.#timeout = (timeout as number | null | undefined) ?? undefined;
    const named = { ...rest, requested_by: requestedBy, callback_url: callbackUrl };
    const given = Object.entries(named).filter(([, value]) => value !== undefined && value !== null);
    // A copy: what the caller changes meanwhile is not what people see.
    this.#fields = JSON.parse(JSON.stringify({ key: `ts-${random()}`, ...Object.fromEntries(given) }));
    this.#call = call;
    this.#url = url;
    this.#ends = now() + (this.#timeout ?? TIMEOUT);
  }

  /**
   * Asks, and resolves to the question's last state.
   *
   * @throws Refused: the bot rejected the question. The signal's reason: it was aborted.
   */
  async ended(signal?: AbortSignal): Promise<State> {
    let pause = FIRST_PAUSE;
    let state: State = { id: null };
    let isWarned = false;
    for (;;) {
      const began = now();
      const known = this.#mayBeAsked;
      const call = this.#id === null ? this.#ask() : this.#look();
      this.#mayBeAsked = true;
      const reply = await this.#call(call, signal);
      if (reply instanceof Failure && reply.isUnsent) this.#mayBeAsked = known;
      if (!(reply instanceof Failure) && !isPassing(reply.status)) {
        state = this.#told(reply);
        if (state["status"] !== "waiting") return state;
        if (this.#left < -LATE) return { ...state, status: "expired" };
        if (now() - began > 1 || reply.status === 201) {
          pause = FIRST_PAUSE;
          continue; // it waited as it should
        }
      } else if (this.#left <= 0) {
        return { ...state, status: "expired", comment: this.#why(reply) };
      } else if (reply instanceof Failure && !isWarned) {
        isWarned = true;
        console.warn(`${this.#why(reply)} Retrying until the question expires.`);
      }
      const asked = reply instanceof Failure ? null : reply.retryAfter;
      await sleep(Math.max(0.05, Math.min(asked || pause, this.#left)), signal);
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }

  /** Withdraws the question, if it may have been asked, within a few seconds. */
  async withdraw(): Promise<void> {
    const ends = now() + FAREWELL;
    for (let left = FAREWELL; this.#mayBeAsked && left > 0; left = ends - now()) {
      // Asked again it is the same question, so that its id is known, whatever became of the first time.
      const call = this.#id === null ? this.#ask() : { method: "DELETE", path: `/questions/${this.#id}`, patience: left };
      const reply = await this.#call({ ...call, patience: left });
      if (reply instanceof Failure || isPassing(reply.status)) {
        await sleep(FIRST_PAUSE);
      } else {
        const named = isObject(reply.json) ? reply.json["id"] : undefined;
        if (this.#id !== null || typeof named !== "string") return;
        this.#id = named;
      }
    }
  }

  get #left(): number {
    return this.#ends - now();
  }

  #ask(): Call {
    const timeout = this.#timeout;
    const left = timeout === undefined || !this.#mayBeAsked ? timeout : Math.min(timeout, Math.max(1, this.#left));
    return { method: "POST", path: "/questions", body: JSON.stringify({ ...this.#fields, timeout: left }), patience: PATIENCE };
  }

  #look(): Call {
    const wait = Math.min(LONGEST_WAIT, Math.max(1, Math.trunc(this.#left) + 2));
    return { method: "GET", path: `/questions/${this.#id}?wait=${wait}`, patience: wait + PATIENCE };
  }

  #told(reply: Reply): State {
    if (reply.status >= 400) throw refusal(reply);
    const state = reply.json;
    if (!isObject(state) || typeof state["id"] !== "string" || !("status" in state)) {
      throw new Refused(reply.status, "NO_BOT", `The server at ${this.#url} is not clarify-bot. Check CLARIFY_URL.`);
    }
    this.#id = state["id"];
    return state;
  }

  #why(reply: Reply | Failure): string {
    const why = reply instanceof Failure ? `${reply.why}.` : refusal(reply).message;
    return `clarify-bot at ${this.#url} cannot be reached: ${why}`;
  }
}

function isPassing(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || status >= 500;
}

function refusal(reply: Reply): Refused {
  const said = reply.json;
  if (!isObject(said) || typeof said["message"] !== "string") {
    return new Refused(reply.status, `HTTP_${reply.status}`, `The server answered with HTTP ${reply.status}.`);
  }
  return new Refused(reply.status, String(said["error"]), said["message"], text(said["field"]));
}

function failure(error: unknown): Failure {
  const cause = (error as { cause?: unknown }).cause ?? error; // Node says in the cause what failed
  const { code, message, syscall } = cause as { code?: unknown; message?: unknown; syscall?: unknown };
  const isUnsent =
    syscall === "connect" ||
    syscall === "getaddrinfo" ||
    ["ECONNREFUSED", "ConnectionRefused", "UND_ERR_CONNECT_TIMEOUT"].includes(String(code));
  return new Failure(String(message || code || cause), isUnsent);
}

/** Reads the JSON of a response; undefined if it is not JSON. */
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
    return JSON.parse(found + decoder.decode());
  } catch {
    return undefined;
  }
}

function secondsIn(header: string | null): number | null {
  return header !== null && /^\d+$/.test(header) ? Number(header) : null;
}

function address(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed === null || !/^https?:$/.test(parsed.protocol) || parsed.search || parsed.hash) {
    throw new TypeError(`CLARIFY_URL: "${url}" is not an HTTP address. Use one such as ${DEFAULT_URL}.`);
  }
  return parsed.origin + parsed.pathname.replace(/\/+$/, "");
}

function environment(name: string): string | undefined {
  return (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env?.[name];
}

function random(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (each) => each.toString(16).padStart(2, "0")).join("");
}

/** Seconds of a clock that is never set. */
function now(): number {
  return performance.now() / 1000;
}

function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(
      () => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      },
      Math.min(seconds * 1000, LONGEST_TIMER),
    );
    if (signal?.aborted) onAbort();
    else signal?.addEventListener("abort", onAbort, { once: true });
  });
}

// --- What states and schemas mean.

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

function whyNot(state: State): string {
  const comment = text(state["comment"]);
  if (decisionIn(state) === "reject") {
    return `Rejected by ${text(state["decided_by"]) ?? "a person"}${comment ? `: ${comment}` : "."}`;
  }
  return unanswered(state).message;
}

function unanswered(state: State): NotAnswered {
  const comment = text(state["comment"]);
  if (state["status"] === "expired" && text(state["id"]) === null) {
    return new Unreachable(comment ?? "The bot could not be reached, so no one was asked.", state);
  }
  if (state["status"] === "expired") return new Expired(comment ?? "No one answered in time.", state);
  if (state["status"] === "withdrawn") return new Withdrawn(comment ?? "The question was withdrawn.", state);
  return new Closed(comment ?? "The question was closed without an answer.", state);
}

function issueText(issue: Issue): string {
  const path = issue.path?.map((each) => String(typeof each === "object" ? each.key : each)).join(".");
  return path ? `${path}: ${issue.message}` : issue.message;
}

function jsonOf(standard: StandardSchema["~standard"]): JsonSchema {
  if (!("jsonSchema" in standard)) {
    throw new TypeError("This library cannot give the JSON Schema of its schemas: pass it as `json`.");
  }
  return (standard as StandardJsonSchema["~standard"]).jsonSchema.input({ target: "draft-2020-12" });
}

/** Drops the patterns that libraries write beside a `format`: the bot checks formats, and the schema checks the answer. */
function asForm(json: JsonSchema): JsonSchema {
  const field = (given: unknown): unknown => {
    if (!isObject(given)) return given;
    const parts = Object.fromEntries(Object.entries(given).filter(([name]) => name !== "pattern" || !("format" in given)));
    return Array.isArray(parts["anyOf"]) ? { ...parts, anyOf: parts["anyOf"].map(field) } : parts;
  };
  const { properties } = json;
  if (!isObject(properties)) return json;
  return { ...json, properties: Object.fromEntries(Object.entries(properties).map(([name, each]) => [name, field(each)])) };
}

/**
 * Returns a copy of a JSON value.
 *
 * @throws TypeError: JSON would carry something else, so that people would approve something else.
 */
function exact(value: unknown, path: string): unknown {
  if (value === null || typeof value === "string" || typeof value === "boolean" || Number.isFinite(value)) return value;
  if (Array.isArray(value)) return Array.from(value, (each, place) => exact(each, `${path}[${place}]`));
  const prototype: unknown = typeof value === "object" ? Object.getPrototypeOf(value) : undefined;
  if (prototype !== null && (prototype === undefined || Object.getPrototypeOf(prototype) !== null)) {
    const what = typeof value === "object" ? value?.constructor?.name : String(value);
    throw new TypeError(`\`${path}\` is not a JSON value (${what}): convert it first.`);
  }
  const given = Object.entries(value as Fields).filter(([, each]) => each !== undefined);
  return Object.fromEntries(given.map(([name, each]) => [name, exact(each, `${path}.${name}`)]));
}

/**
 * Returns `answered` with every unchanged part restored from `sent`, because the bot's `redact` may have hidden it in `asked`.
 * Parts that people changed stay as they are, even if they contain `[redacted]`.
 */
export function unredacted(answered: unknown, asked: unknown, sent: unknown): unknown {
  if (isSame(answered, asked)) return sent;
  if (isObject(answered) && isObject(asked) && isObject(sent)) {
    // A name may be redacted, too. The others are as they were, and all are in their order.
    const names = new Map(Object.keys(asked).flatMap((name) => (Object.hasOwn(sent, name) ? [[name, name]] : [])));
    const hidden = Object.keys(sent).filter((name) => !Object.hasOwn(asked, name));
    const shown = Object.keys(asked).filter((name) => !Object.hasOwn(sent, name));
    shown.slice(0, hidden.length).forEach((name, place) => names.set(name, hidden[place] as string));
    const restored = Object.entries(answered).map(([name, value]) => {
      const own = names.get(name);
      return own === undefined ? [name, value] : [own, unredacted(value, asked[name], sent[own])];
    });
    return Object.fromEntries(restored);
  }
  if (Array.isArray(answered) && Array.isArray(asked) && Array.isArray(sent)) {
    const known = Math.min(asked.length, sent.length);
    return answered.map((value, place) => (place < known ? unredacted(value, asked[place], sent[place]) : value));
  }
  return answered;
}

function isSame(one: unknown, other: unknown): boolean {
  if (Array.isArray(one) && Array.isArray(other)) {
    return one.length === other.length && one.every((each, place) => isSame(each, other[place]));
  }
  if (!isObject(one) || !isObject(other)) return one === other;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => Object.hasOwn(other, name) && isSame(one[name], other[name]));
}
