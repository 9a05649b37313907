/** What types clarify.ts gives, and which mistakes tsc finds. Nothing here runs; test_types.py has tsc read it. */

import type { StandardJSONSchemaV1, StandardSchemaV1 } from "@standard-schema/spec";
import { toJsonSchema, toStandardJsonSchema } from "@valibot/to-json-schema";
import * as v from "valibot";
import { z } from "zod";

import { type Answer, type Approval, approve, ask, Client, Expired, NotApproved, Refused } from "../../clients/clarify.ts";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
type ValueOf<P> = P extends Promise<Answer<infer V>> ? V : never;

declare function answers<P, V>(..._: Equal<ValueOf<P>, V> extends true ? [] : ["another type"]): void;
declare function is<A, B>(..._: Equal<A, B> extends true ? [] : ["another type"]): void;
declare const names: string[];
declare const flag: boolean;

// --- Choices: no `as const` needed.

const one = ask("Which?", { choices: ["65", "67"], default: "65" });
answers<typeof one, "65" | "67">();

const described = ask("Which?", { choices: ["65", { value: "67", label: "Sixty-seven" }] });
answers<typeof described, "65" | "67">();

const several = ask("Which?", { choices: ["a", "b"], multiple: true, default: ["a"] });
answers<typeof several, ("a" | "b")[]>();

const ownWords = ask("Which?", { choices: ["a", "b"], other: true });
answers<typeof ownWords, "a" | "b" | null>();

const dynamic = ask("Which?", { choices: names });
answers<typeof dynamic, string>();

const perhapsSeveral = ask("Which?", { choices: ["a"], multiple: flag });
answers<typeof perhapsSeveral, "a" | "a"[]>();

const constant = ["a", { value: "b" }] as const;
const fromConstant = ask("Which?", { choices: constant });
answers<typeof fromConstant, "a" | "b">();

// @ts-expect-error: no such choice
ask("Which?", { choices: ["a"], default: "b" });
// @ts-expect-error: several choices
ask("Which?", { choices: ["a"], multiple: true, default: "a" });
// @ts-expect-error: no such option
ask("Which?", { choices: ["a"], timout: 3 });

// --- Kinds.

const words = ask("Why?");
answers<typeof words, string>();
const text = ask("Why?", { timeout: 3, default: "because" });
answers<typeof text, string>();
const count = ask("How many?", { kind: "number", default: 4 });
answers<typeof count, number>();
const yes = ask("Go on?", { kind: "yes_no" });
answers<typeof yes, boolean>();

// @ts-expect-error: a number
ask("How many?", { kind: "number", default: "4" });
// @ts-expect-error: actions are approved
ask("Send it?", { kind: "approval" });
// @ts-expect-error: no such option
ask("Why?", { timout: 3 });

// --- Forms.

const Plan = z.object({ percent: z.number().default(5), region: z.string().transform((name) => name.length) });
const form = ask("Plan it", { schema: Plan, default: { region: "eu" } });
answers<typeof form, { percent: number; region: number }>();

const Valibot = v.object({ percent: v.number() });
const withJson = ask("Plan it", { schema: Valibot, json: toJsonSchema(Valibot) });
answers<typeof withJson, { percent: number }>();
const converted = ask("Plan it", { schema: toStandardJsonSchema(Valibot) });
answers<typeof converted, { percent: number }>();

declare const standard: StandardSchemaV1<string, Date> & StandardJSONSchemaV1<string, Date>;
const official = ask("Plan it", { schema: standard });
answers<typeof official, Date>();

const single = ask("How many?", { schema: { type: "integer", minimum: 1 }, default: 3 });
answers<typeof single, number>();
// @ts-expect-error: a number
ask("How many?", { schema: { type: "integer" }, default: "3" });

const plain = ask("Plan it", { schema: { type: "object", properties: { percent: { type: "number" } } } });
answers<typeof plain, Record<string, unknown>>();
const typed = ask("Plan it", { schema: toJsonSchema(Valibot) });
answers<typeof typed, Record<string, unknown>>();

// @ts-expect-error: valibot's schemas cannot give their JSON Schema
ask("Plan it", { schema: Valibot });
// @ts-expect-error: a region is a text
ask("Plan it", { schema: Plan, default: { region: 3 } });
// @ts-expect-error: choices or a form
ask("Plan it", { choices: ["a"], schema: Plan });

// --- Approvals.

interface Mail {
  to: string;
  env: "test" | "live";
  copies: number | null;
  lines?: string[];
}
declare const mail: Mail;
const approved = await approve("Send it", { arguments: mail, risk: "high" });
is<typeof approved, Approval<Mail>>();
is<typeof approved.arguments, Mail>();
is<typeof approved.decision, "accept">();
is<typeof approved.status, "answered">();

const edited = await approve("Send it", { arguments: mail, argumentsSchema: z.object({ to: z.string() }), editable: true });
is<typeof edited.arguments, { to: string; env: string; copies: unknown; lines?: unknown[] }>();

const large = await approve("Delete it", { arguments: { id: 1187654321098765433n }, editable: true });
is<typeof large.arguments, { id: number | bigint }>();

// @ts-expect-error: not awaited
if (approve("Send it")) console.log("sent");
// @ts-expect-error: no such option
approve("Send it", { risc: "high" });
// @ts-expect-error: no such risk
approve("Send it", { risk: "huge" });
// @ts-expect-error: arguments have names
approve("Send it", { arguments: "mail" });

// --- Clients and errors.

const answer = await new Client({ url: "https://clarify.example.com" }).ask("Which?", { choices: ["a"] });
is<typeof answer.value, "a">();
is<typeof answer.status, "answered" | "expired">();
is<typeof answer.decidedBy, string | null>();

declare const error: unknown;
if (error instanceof NotApproved) {
  is<typeof error.status, "answered" | "expired" | "withdrawn" | "closed">();
  is<typeof error.decision, "reject" | null>();
  is<typeof error.comment, string | null>();
}
if (error instanceof Expired) is<typeof error.status, "expired" | "withdrawn" | "closed">();
if (error instanceof Refused) is<typeof error.field, string | null>();
