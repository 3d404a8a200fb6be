#!/usr/bin/env node
// A second runner of these vectors, for servers, in TypeScript: the smallest that gives the verdicts of
// run.py. Node runs it without a build, from 22.6 on with --experimental-strip-types:
//
//     node run.mts [--only ID] [--revisions DATE,DATE] [--timeout 5] [--jobs 4] [--json FILE] COMMAND...
//     node run.mts [the same] [--header "NAME: VALUE"] URL
//
// Each vector has a process, or a session, of its own. runner.md says what run.py does beyond that.
import { isUtf8 } from "node:buffer";
import { spawn } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { isDeepStrictEqual as same } from "node:util";

type Json = any; // what JSON.parse() returns; undefined: a member that is not there
const REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
const BATCHES = REVISIONS.slice(0, 2), NAMED = REVISIONS.slice(2), MODERN = "2026-07-28";
const META = "io.modelcontextprotocol/", CLIENT = { name: "vectors", version: "1.0" };
const MIRRORED: Json = { "tools/call": "name", "prompts/get": "name", "resources/read": "uri" };
const LISTS: Json = { // kind in `needs`, name of an item
  "tools/list": ["tool", "name"], "prompts/list": ["prompt", "name"], "resources/list": ["resource", "uri"],
  "resources/templates/list": ["template", "uriTemplate"],
};
// A server that limits the rate of requests (over HTTP with 429) can refuse any.
const LIMITED = { error: { message: { $match: "[Rr]ate.?limit|[Tt]oo many requests" } } };
const BUSY = "time for it: it limits the rate of requests";
const LEFT = "the other end has left";
const OPTIONAL = ["ping", ...Object.keys(LISTS), ...Object.keys(MIRRORED), "resources/subscribe",
  "resources/unsubscribe", "completion/complete", "logging/setLevel", "subscriptions/listen"];
const VERDICTS: Json = { MUST: "broken", SHOULD: "unwise", text: "remark" }, PAGES = 50;
const verdictOf = (vector: Json): string => VERDICTS[vector.doubtful ? "text" : vector.level];

type Kind = "failed" | "missing" | "silent" | "no answer" | "unread" | "ended" | "not set up";
class Stop extends Error { // the end of a vector
  kind: Kind; received: Json;
  constructor(kind: Kind, why: string, received?: Json) {
    super(why);
    [this.kind, this.received] = [kind, received];
  }
}
const known = (problem: unknown): Stop => { // any other exception is a defect of this runner
  if (problem instanceof Stop) return problem;
  throw problem;
};

// ---- patterns

const isObject = (v: Json) => typeof v === "object" && v !== null && !Array.isArray(v);
const has = (v: Json, name: string) => isObject(v) && Object.hasOwn(v, name);
const show = (v: Json) => String(typeof v === "string" ? v : JSON.stringify(v)).slice(0, 400);
const isAnswer = (m: Json) => !has(m, "method") && (has(m, "result") || has(m, "error"));
const inside = (v: Json, path: string) =>
  path.split(".").filter(Boolean).reduce((part, name) => (has(part, name) ? part[name] : undefined), v);
const TYPES: Record<string, (v: Json) => boolean> = {
  string: (v) => typeof v === "string", integer: Number.isInteger, number: (v) => typeof v === "number",
  boolean: (v) => typeof v === "boolean", object: isObject, array: Array.isArray, null: (v) => v === null,
};
const isA = (v: Json, kinds: string) => kinds.split("|").some((kind) => TYPES[kind]?.(v));

function conforms(v: Json, schema: Json): boolean { // the plainest keywords of JSON Schema
  if (!isObject(schema)) return schema !== false;
  if (has(schema, "type") && ![schema.type].flat().some((kind: string) => isA(v, kind))) return false;
  if (has(schema, "enum") && !schema.enum.some((one: Json) => same(v, one))) return false;
  if (has(schema, "const") && !same(v, schema.const)) return false;
  if (Array.isArray(v)) return v.every((item) => conforms(item, schema.items ?? true));
  if (!isObject(v)) return true;
  const { properties = {}, required = [] } = schema, names = Object.keys(v);
  const closed = schema.additionalProperties === false && !has(schema, "patternProperties");
  return !(closed && names.some((n) => !has(properties, n))) && required.every((n: string) => has(v, n)) &&
    names.every((n) => !has(properties, n) || conforms(v[n], properties[n]));
}
function fits(pattern: Json, v: Json, saved: Json): boolean { // what it saves is kept if it matches
  const trial = { ...saved }, good = !mismatch(pattern, v, trial);
  if (good) Object.assign(saved, trial);
  return good;
}
const unlike = (values: Json[]) => values.every((v, n) => !values.slice(0, n).some((one) => same(one, v)));
const within = ([low, high]: Json, n: number) => (low === null || low <= n) && (high === null || n <= high);
const nowhere = (name: string, v: Json): boolean => !has(v, name) &&
  (v === null || typeof v !== "object" || Object.values(v).every((part) => nowhere(name, part)));
const each = (v: Json, path: string): Json[] => Object.values(v).map((one) => inside(one, path));

// An operator: the types of values that it is for ("": any, also nothing), and its function.
const OPERATORS: Record<string, [string, (operand: Json, v: Json, saved: Json) => boolean]> = {
  $absent: ["", (o, v) => v === undefined],
  $optional: ["", (o, v, s) => v === undefined || fits(o, v, s)],
  $any: ["", (o, v, s) => o.some((one: Json) => fits(one, v, s))],
  $all: ["", (o, v, s) => o.every((one: Json) => fits(one, v, s))],
  $not: ["", (o, v, s) => !fits(o, v, { ...s })],
  $type: ["", (o, v) => isA(v, o)],
  $use: ["", (o, v, s) => has(s, o) && same(v, s[o])],
  $save: ["", (o, v, s) => v !== undefined && Object.assign(s, { [o]: v }) === s],
  $sameItems: ["array", (o, v, s) => Array.isArray(s[o]) && v.length === s[o].length && same(new Set(v), new Set(s[o]))],
  $fits: ["", (o, v, s) => v !== undefined && has(s, o) && conforms(v, s[o])],
  $match: ["string", (o, v) => new RegExp(o).test(v)],
  $range: ["number", within],
  $size: ["string|array|object", (o, v) => within(o, isObject(v) ? Object.keys(v).length : [...v].length)],
  $values: ["object", (o, v, s) => Object.values(v).every((one) => fits(o, one, s))],
  $names: ["object", (o, v, s) => Object.keys(v).every((one) => fits(o, one, s))],
  $each: ["array", (o, v, s) => v.every((one: Json) => fits(o, one, { ...s }))],
  $some: ["array|object", (o, v, s) => Object.values(v).some((one) => fits(o, one, s))],
  $first: ["array", (o, v, s) => fits(o, v[0], s)],
  $where: ["array", ([p, q], v, s) => fits(q, v.filter((one: Json) => fits(p, one, { ...s })), s)],
  $after: ["array", ([p, q], v, s) => {
    const place = v.findIndex((one: Json) => fits(p, one, { ...s }));
    return fits(q, place < 0 ? [] : v.slice(place + 1), s);
  }],
  $rising: ["array", (o, v) => each(v, o).every((n, place, all) => isA(n, "number") && !(all[place - 1] >= n))],
  $unique: ["array", (o, v) => unlike(each(v, o))],
  $apart: ["array", ([name, path], v, s) =>
    !each(v, path).some((one) => each(s[name] ?? [], path).some((other) => same(one, other)))],
  $differ: ["object", (o, v) =>
    unlike(each(v, o).filter((one) => typeof one === "string").map((one) => one.toLowerCase()))],
  $nowhere: ["", nowhere],
};

function mismatch(pattern: Json, v: Json, saved: Json, at = ""): string {
  let good = true, parts: [string, Json, Json][] = [];
  if (isObject(pattern) && Object.keys(pattern).some((name) => name.startsWith("$"))) {
    good = Object.entries(pattern).every(([name, operand]) => {
      const [kinds, rule] = OPERATORS[name]; // an unknown one is an error
      return (!kinds || isA(v, kinds)) && rule(operand, v, saved);
    });
  } else if (isObject(pattern) && isObject(v)) {
    parts = Object.entries(pattern).map(([n, p]) => [`${at}.${n}`, p, has(v, n) ? v[n] : undefined]);
  } else if (Array.isArray(pattern) && Array.isArray(v)) {
    good = pattern.length === v.length;
    parts = pattern.map((p, n) => [`${at}[${n}]`, p, v[n]]);
  } else good = same(pattern, v);
  if (!good) return `${at || "it"} should be ${show(pattern)}, not ${show(v)}`;
  for (const [place, wanted, item] of parts) {
    const why = mismatch(wanted, item, saved, place);
    if (why) return why;
  }
  return "";
}

function filled(v: Json, saved: Json): Json { // what is sent, with saved values
  if (Array.isArray(v)) return v.map((item) => filled(item, saved));
  if (!isObject(v)) return v;
  if (has(v, "$use") && !has(saved, v.$use)) throw new Stop("missing", `the server has no ${v.$use}`);
  if (has(v, "$use")) return saved[v.$use];
  if (has(v, "$repeat")) return v.$repeat[0].repeat(v.$repeat[1]);
  if (has(v, "$unit")) return String.fromCharCode(v.$unit);
  if (has(v, "$altered")) {
    const text: string = filled({ $use: v.$altered }, saved), place = Math.max(text.length - 5, 0);
    return text.slice(0, place) + (text[place] === "0" ? "1" : "0") + text.slice(place + 1);
  }
  const kept = Object.entries(v).filter(([, item]: Json) => !has(item, "$optional") || has(saved, item.$use));
  return Object.fromEntries(kept.map(([name, item]) => [name, filled(item, saved)]));
}

// ---- wires: they put what comes, as (number of the exchange, what it is, data)

type Put = (number: number, what: string, data: Json) => void;
interface Wire {
  send(number: number, body: Buffer, verb: string, headers: Json, pieces: number): void;
  hangUp(number: number): void;
  close(seconds: number): Promise<string>;
}
const sleep = (seconds: number) => new Promise((done) => setTimeout(done, seconds * 1000));
function readJson(bytes: Buffer): Json { // what is not JSON stays text; an object that is not UTF-8 stays bytes
  const good = isUtf8(bytes);
  try {
    const value = JSON.parse(bytes.toString(good ? "utf8" : "latin1"));
    if (good || isObject(value)) return good ? value : bytes;
  } catch {} // not JSON
  return bytes.toString().slice(0, 1000);
}
function linesTo(take: (line: Buffer) => void): (part: Buffer) => void {
  let rest = Buffer.alloc(0);
  return (part) => {
    rest = Buffer.concat([rest, part]);
    for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1)) take(rest.subarray(0, end));
  };
}

function openStdio(command: string[], put: Put): Wire {
  const child = spawn(command[0], command.slice(1), { detached: true, stdio: ["pipe", "pipe", "ignore"] });
  const gone = new Promise<string>((done) => child.once("exit", () => done("left")).once("error", () => done("left")));
  let sending: Promise<unknown> = Promise.resolve();
  child.stdin.on("error", () => {});
  child.stdout.on("data", linesTo((line) => put(0, "message", readJson(line))));
  child.stdout.on("end", () => put(0, "left", "the process"));
  return {
    send(number, body, verb, headers, pieces) {
      const line = Buffer.concat([body, Buffer.from("\n")]), size = Math.ceil(line.length / pieces);
      sending = sending.then(async () => {
        for (let place = 0; place < line.length; place += size) {
          child.stdin.write(line.subarray(place, place + size));
          if (pieces > 1) await sleep(0.02); // so that they are read apart
        }
      });
    },
    hangUp() {},
    async close(seconds) {
      sending.then(() => child.stdin.end());
      const outcome = await Promise.race([gone, sleep(seconds).then(() => "killed")]);
      if (outcome === "killed") process.kill(-child.pid!, "SIGKILL");
      return outcome;
    },
  };
}

function openHttp(url: string, credentials: Json, put: Put): Wire { // each exchange has its own connection
  const requests: Record<number, http.ClientRequest> = {};
  function deliver(number: number, verb: string, answer: http.IncomingMessage, end: (text: string) => void) {
    const type = (answer.headers["content-type"] ?? "").split(";")[0].trim().toLowerCase(), parts: Buffer[] = [];
    let events: Json[] = [], event: Json = {};
    const follow = linesTo((line) => {
      const [, name, value] = /^([^:]*)(?:: ?)?(.*)$/s.exec(line.toString("latin1").replace(/\r$/, ""))!;
      if (name) event[name] = name === "data" && has(event, "data") ? `${event.data}\n${value}` : value;
      if (line.length > 1 || !Object.keys(event).length) return;
      const data = Buffer.from(event.data ?? "", "latin1"); // each character was a byte
      put(number, "http", { events: (events = [...events, event.data ? { ...event, data: data.toString() } : event]) });
      if (data.length && (event.event ?? "message") === "message") put(number, "message", readJson(data));
      event = {};
    });
    put(number, "http", { status: answer.statusCode, headers: answer.headers });
    answer.on("error", () => {});
    answer.on("data", type === "text/event-stream" ? follow : (part) => parts.push(part));
    answer.on("close", () => {
      const text = Buffer.concat(parts), value = [text.length && /\/json$/.test(type) ? readJson(text) : []].flat();
      const called = answer.statusCode === 200; // elsewhere it may be a page about it
      if (verb === "POST" && value.length && (called || value.every((one) => has(one, "jsonrpc")))) put(number, "message", readJson(text));
      end(text.toString());
    });
  }
  return {
    send(number, body, verb, headers) {
      let connected = false, over = false;
      const end = (text: string, what = "http") => { if (!over) put(number, what, { body: text }); over = true; };
      try {
        const options = { method: verb, headers: { ...credentials, ...headers }, agent: false as const };
        const module = url.startsWith("https") ? https : http;
        const request = module.request(url, options, (answer) => deliver(number, verb, answer, end));
        request.on("socket", (socket) => socket.on("connect", () => (connected = true)));
        request.on("error", (error) => end(String(error), connected ? "http" : "left"));
        requests[number] = request.end(body.length ? body : undefined);
      } catch (error) { end(String(error)); } // a header that Node does not send
    },
    hangUp: (number) => void requests[number]?.destroy(),
    async close() { Object.values(requests).forEach((request) => request.destroy()); return "left"; },
  };
}

// ---- one vector, for one client

class Talk {
  scene: Server; vector: Json; wire: Wire; inbox: [number, string, Json][] = []; wake = () => {}; last = 0;
  ended = false; session = ""; ready = false; spoke = false; sound = true; forbidden = false; loose = 0; sent = "";
  heard: [number, Json][] = []; exchanges: Json = {}; labels: Json = {}; methods: Json = {}; saved: Json;
  named: Record<number, string[]> = {}; others: Record<string, Talk> = {}; taken = new Set<number>();
  waiting = new Set<string>(); used = new Set<string>(); refused = new Set<string>();
  constructor(scene: Server, vector: Json) {
    [this.scene, this.vector, this.saved] = [scene, vector, { revision: scene.revision }];
    const put: Put = (...item) => { this.inbox.push(item); this.wake(); };
    const { target, carrier, options } = scene;
    this.wire = carrier === "stdio" ? openStdio(target, put) : openHttp(target[0], options.header, put);
  }
  exchange(number: number) { return (this.exchanges[number] ??= {}); }
  all(): Talk[] { return [this, ...Object.values(this.others)]; }
  async close(): Promise<void> { for (const talk of this.all()) await talk.wire.close(2); }

  async until(found: () => Json, what: string, due = false, seconds = 0): Promise<Json> {
    const deadline = Date.now() + 1000 * (seconds || this.scene.options.timeout * (this.spoke ? 1 : 4));
    for (;;) {
      const value = found(), left = deadline - Date.now();
      if (value !== undefined) return value;
      if (left < 0) throw new Stop(due ? "no answer" : "silent", `no ${what} in time`);
      if (this.ended && !this.inbox.length) throw new Stop("ended", LEFT);
      if (this.inbox.length) this.take(...this.inbox.shift()!);
      else await new Promise<void>((done) => { const timer = setTimeout(done, left); this.wake = () => { clearTimeout(timer); done(); }; });
    }
  }

  take(number: number, what: string, data: Json) {
    if (what === "left") this.ended = true;
    else if (what === "http") {
      Object.assign(this.exchange(number), data);
      if (data.status === 429) throw new Stop("missing", BUSY);
    } else for (const item of Array.isArray(data) && BATCHES.includes(this.scene.revision) ? data : [data]) {
      const message = this.classify(item, number), never = this.vector.never ?? [];
      this.spoke = true;
      this.heard.push([number, message]);
      if (message.method === "ping" && has(message, "id") && this.scene.legacy) { // at any time
        const reply = { jsonrpc: "2.0", id: message.id, result: {} };
        this.wire.send(number && ++this.last, Buffer.from(JSON.stringify(reply)), "POST", this.headers(reply, {}), 1);
      }
      if (fits(LIMITED, message, {})) throw new Stop("missing", BUSY);
      this.forbidden ||= never.some((pattern: Json) => fits(pattern, message, { ...this.saved }));
      if (this.forbidden) throw new Stop("failed", "this must never come", message);
    }
  }

  classify(item: Json, number: number): Json { // is it an answer that was asked for?
    if (Buffer.isBuffer(item)) return { rubbish: item.toString(), utf8: false };
    if (!isObject(item)) return { rubbish: item };
    if (!isAnswer(item)) return item;
    const name = JSON.stringify(item.id ?? null), { status = 200, resumes } = this.exchange(number);
    const unknown = inside(item, "error.code") === -32601;
    (unknown ? this.refused : this.scene.served).add(this.methods[name] ?? "");
    const refusal = number > 0 && status >= 400 && has(item, "error");
    if (this.waiting.delete(name) || (resumes && this.used.has(name))) return item;
    if (refusal && this.named[number]?.includes(name)) return item;
    if (name !== "null" || !has(item, "error")) return { unasked: item };
    return refusal || this.loose-- > 0 ? item : { unasked: item };
  }

  pick(wanted: (number: number, message: Json) => boolean): Json { // the first that no step has taken
    const place = this.heard.findIndex(([number, message], n) => !this.taken.has(n) && wanted(number, message));
    if (place >= 0) this.taken.add(place);
    return this.heard[place]?.[1];
  }

  answer(ids: Json[], number: number): Json {
    const found = this.pick((source, message) => {
      if (number && source === number) message = message.unasked ?? message;
      return [number, 0].includes(source) && isAnswer(message) && ids.some((id) => same(message.id ?? null, id));
    });
    const exchange = this.exchange(number);
    if (!found && number && has(exchange, "body")) throw new Stop("failed", "the HTTP response brings no answer", exchange);
    return found?.unasked ?? found;
  }

  headers(message: Json, step: Json): Json {
    const { legacy, revision } = this.scene, found: Json = { accept: "application/json, text/event-stream" };
    if (step.verb === "GET") found.accept = "text/event-stream";
    else found["content-type"] = "application/json";
    if (!legacy || (this.ready && NAMED.includes(revision))) found["mcp-protocol-version"] = revision;
    if (this.session) found["mcp-session-id"] = this.session;
    if (!legacy && typeof message?.method === "string") {
      const name = inside(message, `params.${MIRRORED[message.method] ?? "?"}`);
      Object.assign(found, { "mcp-method": message.method }, typeof name === "string" && { "mcp-name": name });
    }
    Object.assign(found, filled(step.headers ?? {}, this.saved));
    return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== null));
  }

  message(step: Json): Json {
    const { saved, scene } = this, request = has(step, "request");
    if (has(step, "send")) return filled(step.send, saved);
    const own = { protocolVersion: scene.revision, clientInfo: CLIENT, clientCapabilities: this.vector.client ?? {} };
    const modern = Object.entries(!scene.legacy && request ? own : {}).map(([name, v]) => [META + name, v]);
    const meta = Object.entries({ ...Object.fromEntries(modern), ...filled(step.meta ?? {}, saved) });
    const kept = Object.fromEntries(meta.filter(([, value]) => value !== null)), some = Object.keys(kept).length;
    const message: Json = { jsonrpc: "2.0", method: step.request ?? step.notify };
    if (request) message.id = saved[step.label ?? ""] = has(step, "id") ? filled(step.id, saved) : ++this.last;
    const params = some ? { ...filled(step.params, saved), _meta: kept } : filled(step.params, saved);
    return (params ?? null) === null ? message : { ...message, params };
  }

  expecting(message: Json, verbatim: boolean): Json[] { // note which answers may come
    const members = Array.isArray(message) && message.length ? message : [message];
    const asked = members.filter((m) => has(m, "method") && isA(m.id, "string|integer"));
    for (const { id, method, ...m } of asked) {
      const name = JSON.stringify(id), sound = m.jsonrpc === "2.0" && isA(method, "string");
      this.methods[name] = sound && (!has(m, "params") || isObject(m.params)) ? method : "";
      this.waiting.add(name) && this.used.add(name);
    }
    if (verbatim) this.loose += members.filter((m) => has(m, "id") || !has(m, "method")).length;
    return asked.map((m) => m.id);
  }

  async send(step: Json): Promise<Json> {
    const verbatim = !["request", "notify", "reply"].some((name) => has(step, name));
    let message: Json = {}, body = step.text ? Buffer.from(step.text) : Buffer.from(step.bytes ?? "", "latin1");
    if (!verbatim || has(step, "send")) body = Buffer.from(JSON.stringify((message = step.reply ?? this.message(step))));
    const ids = this.expecting(message, verbatim && !has(step, "verb")), first = this.methods[JSON.stringify(ids[0])];
    this.sound = !verbatim || (message.jsonrpc === "2.0" && isA(message.method, "string") && ids.length > 0);
    const number = this.scene.carrier === "stdio" ? 0 : ++this.last, headers = this.headers(message, step);
    const exchange = this.exchange((this.labels[step.label ?? ""] = number));
    this.sent = `${step.verb ?? ""} ${number ? show(headers) : ""} ${show(body.toString())}`;
    if (has(headers, "last-event-id")) exchange.resumes = true;
    this.named[number] = [message].flat().filter((m) => has(m, "id")).map((m) => JSON.stringify(m.id));
    this.wire.send(number, body, step.verb ?? "POST", headers, step.pieces ?? 1);
    let answer: Json = {};
    if ((has(step, "request") || has(step, "expect")) && !step.later) {
      if (verbatim || number) ids.push(null);
      answer = await this.until(() => this.answer(ids, number), "answer", this.sound);
      if (this.sound && (answer.id ?? null) === null && inside(answer, "error.code") === -32700)
        throw new Stop("unread", "it was not read", answer);
      this.judge(step.expect ?? {}, answer);
    }
    const begun = () => has(exchange, "status") || has(exchange, "body") || undefined;
    if (number && !step.later) await this.until(begun, "HTTP response", this.sound);
    await this.checkHttp(step, number);
    return answer;
  }

  judge(pattern: Json, v: Json) {
    const why = mismatch(pattern, v, this.saved);
    if (why) throw new Stop("failed", why, v);
  }

  async checkHttp({ http: pattern }: Json, number: number) { // wait until it fits, or cannot fit any more
    if (!number || !pattern) return;
    const exchange = this.exchange(number), begun = () => has(exchange, "status"), { events, ...rest } = pattern;
    const match = (one: Json, v: Json) => fits(one, v, { ...this.saved });
    await this.until(() => match(pattern, exchange) || has(exchange, "body") ||
      (begun() && has(pattern, "status") && !match(pattern.status, exchange.status)) || undefined,
      "HTTP response").catch((silence) => {
        known(silence).kind = this.sound && !begun() ? "no answer" : silence.kind;
        // A stream that stays open is wrong only if its end cannot make it right.
        if (!begun() || silence.kind !== "silent" || match(rest, { ...exchange, body: "" })) throw silence;
      });
    this.judge(pattern, exchange);
  }

  async wait(step: Json) {
    const pattern = step.await, source = this.labels[step.from ?? "?"] ?? 0, asked = has(pattern, "id");
    const match = (one: Json, m: Json) => fits(one, m, { ...this.saved });
    const message = await this.until(() => {
      const found = this.pick((number, m) => [0, number].includes(source) &&
        (match(pattern, m) || (isAnswer(m) && match(asked ? { id: pattern.id } : {}, m))));
      const answered = this.heard.filter(([, m]) => isAnswer(m) && (m.id ?? null) !== null).map(([n]) => n);
      for (const number of found ? [] : (Object.values(this.labels) as number[])) {
        const { body, status = 500 } = this.exchange(number);
        if (!answered.includes(number) && body !== undefined && status >= 400)
          throw new Stop("failed", "an HTTP error comes instead", this.exchange(number));
      }
      return found;
    }, show(pattern), asked && !isA(pattern.method, "string"));
    this.judge(pattern, message);
    const head = { jsonrpc: "2.0", id: message.id ?? null };
    if (step.reply) await this.send({ ...step, reply: { ...head, ...filled(step.reply, this.saved) } });
  }

  async barrier(step: Json) {
    const { sent } = this, before = { ...this.methods };
    await this.send({ ...step, request: this.scene.legacy ? "ping" : "server/discover" }).finally(() => {
      for (const name of Object.keys(this.methods)) this.methods[name] = before[name] ?? "";
      this.sent = sent || this.sent;
    });
  }

  async pages(method: string, items: Json[] = []): Promise<Json[]> { // `items` has them even if a page fails
    const cursors: Json[] = [];
    for (let params = {}; cursors.length < PAGES; params = { cursor: cursors.at(-1) }) {
      const { result } = await this.send({ request: method, params, expect: { result: {} } });
      items.push(...((Object.values(result).find(Array.isArray) as Json[]) ?? []));
      if ((result.nextCursor ?? null) === null) return items;
      if (cursors.push(result.nextCursor) && !unlike(cursors)) throw new Stop("failed", "a cursor leads back to itself");
    }
    throw unlike(items) ? new Stop("missing", "pages do not end") : new Stop("failed", "pages do not end, and repeat");
  }

  act(step: Json): Promise<Json> | void {
    if (has(step, "await")) return this.wait(step);
    if (has(step, "of")) return this.checkHttp(step, this.labels[step.of]);
    if (has(step, "barrier")) return this.barrier(step);
    if (has(step, "heard")) return this.judge(step.heard, this.heard.map(([, message]) => message));
    if (has(step, "hang_up")) return this.wire.hangUp(this.labels[step.hang_up]);
    if (has(step, "pages")) return this.pages(step.pages).then((items) => this.judge(step.expect ?? [], items));
    if (!has(step, "exit")) return this.send(step);
    return this.leave(step.exit * this.scene.options.timeout * (this.spoke ? 1 : 4));
  }

  async leave(seconds: number) { // close stdin, and take what still comes
    const outcome = await this.wire.close(seconds);
    await this.until(() => undefined, "end of the output", false, 1)
      .catch((problem) => { if (!/silent|ended/.test(known(problem).kind)) throw problem; });
    this.judge("left", outcome);
  }

  async step(step: Json): Promise<void> { // play it; if it fails, find out what that shows
    const talk = has(step, "as") ? (this.others[step.as] ??= await this.scene.connect(this.vector)) : this;
    talk.saved = this.saved;
    try { await talk.act(step); } catch (error) {
      const problem = known(error), { kind } = problem, waits = has(step, "waits");
      if (/missing|not set up/.test(kind) || (kind === "ended" && !waits)) throw problem;
      if (has(step, "given") && !talk.forbidden && (await this.isExcused(step))) throw new Stop("missing", step.given);
      const odd = kind === "silent" && ["send", "text", "bytes"].some((name) => has(step, name));
      if ((waits && kind !== "unread") || odd) problem.kind = "failed";
      else if (kind === "silent") problem.kind = "missing";
      if (waits && has(step, "request")) talk.refused.clear(); // -32601 is no excuse there
      if (!has(step, "barrier") && step.request !== "ping") talk.refused.delete("ping");
      throw problem;
    }
  }

  async isExcused(step: Json): Promise<boolean> {
    try { for (const one of step.excuse ?? []) await this.step(one); } catch (problem) { return !known(problem); }
    return true;
  }

  async play(): Promise<void> {
    for (const step of this.vector.steps) await this.step(step);
    if (!this.vector.never) return;
    for (const talk of this.all()) // what comes behind an answer, on the same HTTP response
      for (const number of new Set(talk.heard.filter(([n, m]) => n && isAnswer(m)).map(([n]) => n)))
        await talk.until(() => has(talk.exchange(number), "body") || undefined, "end", false, 1)
          .catch((problem) => { if (known(problem).kind !== "silent") throw problem; });
  }
}

// ---- one revision of a server

const isGarbled = (vector: Json, heard: Json[]) => !vector.foreign && heard.some((one) => has(one, "utf8"));

class Server {
  target: string[]; options: Json; revision: string; legacy: boolean; carrier: string;
  served = new Set<string>(); capabilities: Json; lists: Json = {}; // what it has answered, and has
  constructor(target: string[], options: Json, revision: string) {
    [this.target, this.options, this.revision, this.legacy] = [target, options, revision, revision < MODERN];
    this.carrier = /^https?:/.test(target[0]) ? "http" : "stdio";
  }

  async connect(vector: Json): Promise<Talk> {
    const talk = new Talk(this, vector), capabilities = vector.client ?? {}, protocolVersion = this.revision;
    if (!this.legacy || vector.own === "connection") return talk;
    try {
      const params = { protocolVersion, capabilities, clientInfo: CLIENT }, label = "opening";
      const expect = { result: { protocolVersion } };
      const answer = await talk.send({ request: "initialize", label, params, expect });
      talk.session = talk.exchange(talk.labels.opening).headers?.["mcp-session-id"] ?? "";
      [talk.ready, this.capabilities] = [true, answer.result.capabilities ?? {}];
      await talk.send({ notify: "notifications/initialized", http: { status: { $type: "integer" } } });
      if (this.carrier === "http" && !vector.own) await talk.send({ verb: "GET", later: true });
    } catch (problem) {
      await talk.close();
      throw new Stop("not set up", `no handshake: ${known(problem).message}`);
    }
    talk.saved = { revision: this.revision, ...(talk.session && { session: talk.session }) };
    return Object.assign(talk, { heard: [], labels: {}, sent: "", taken: new Set() });
  }

  async survey(): Promise<string> { // why it does not speak this revision
    let talk: Talk | undefined;
    try {
      talk = await this.connect({});
      const expect = { result: { supportedVersions: { $some: this.revision } } };
      if (!this.legacy) this.capabilities = (await talk.send({ request: "server/discover", expect })).result.capabilities;
      for (const [method, [kind, name]] of Object.entries(LISTS) as Json) {
        const items: Json[] = [];
        await talk.pages(method, items).catch(known);
        this.lists[kind] = items.map((one) => inside(one, name));
      }
      return "";
    } catch (problem) { return known(problem).message; } finally { await talk?.close(); }
  }

  lacks(need: string): boolean {
    const [, negated, kind, name] = /^(not )?(\S+) ?(.*)$/.exec(need)!;
    if (kind === "other") return true; // it needs the credentials of a second user
    if (kind === "local") return !/^(localhost|127\..*|\[::1\])$/.test(new URL(this.target[0]).hostname);
    const there = this.lists[kind]?.includes(name) ?? ![undefined, null, false].includes(inside(this.capabilities, kind));
    return there === Boolean(negated);
  }

  async play(vector: Json): Promise<[Json, Json[]]> { // its row, and all that was heard
    const row: Json = { ...vector, verdict: "passed", carrier: this.carrier, revision: this.revision };
    const lack = (vector.needs ?? []).find((need: string) => this.lacks(need));
    if (lack) return [{ ...row, verdict: "skipped", why: `needs ${lack}` }, []];
    let talk: Talk | undefined;
    try { await (talk = await this.connect(vector)).play(); } catch (error) {
      const { kind, message: why, received } = known(error), waiting = [...(talk?.waiting ?? [])].map((id) => talk!.methods[id]);
      const methods = talk?.all().flatMap((one) => [...one.refused]).filter((one) => OPTIONAL.includes(one));
      Object.assign(row, { why, received, sent: talk?.sent, refused: methods });
      row.verdict = kind === "failed" ? verdictOf(vector) : kind === "not set up" ? kind : "skipped";
      const calls = kind === "no answer" && waiting.includes("tools/call"), idle = (kind === "ended" || vector.foreign) && !waiting.some(Boolean);
      if (/no answer|unread|ended/.test(kind)) // this is charged to no vector
        row.finding = { id: kind === "ended" ? "server-ended" : "no-answer", sure: !calls && !idle && !(kind === "ended" && vector.foreign) };
    } finally { await talk?.close(); }
    const heard = talk?.all().flatMap((one) => one.heard.map(([, message]) => message)) ?? [];
    const excused = row.verdict !== "passed" && row.finding?.id !== "server-ended";
    if (excused && isGarbled(vector, heard)) // whatever else fails, may fail for that
      return [{ ...vector, verdict: "skipped", why: "not UTF-8", carrier: this.carrier, revision: this.revision }, heard];
    return [row, heard];
  }

  async playAll(vectors: Json[], jobs: number): Promise<Json[]> {
    const rules = vectors.filter((one) => one.every).sort((a, b) => +(verdictOf(b) === "broken") - +(verdictOf(a) === "broken"));
    const rows: Json[] = [], left = vectors.filter((one) => !one.every), findings: Json = {}, messages: [Json, string][] = [];
    const work = async () => {
      for (let vector; (vector = left.shift()); ) {
        const [row, heard] = await this.play(vector);
        rows.push(row);
        if ((row.verdict === "passed" && !vector.foreign) || isGarbled(vector, heard))
          messages.push(...heard.map((one): [Json, string] => [one, row.id]));
      }
    };
    await Promise.all(Array.from({ length: jobs }, work));
    const head = { carrier: this.carrier, revision: this.revision };
    const lost = rows.filter((one) => one.verdict === "broken" && one.why === LEFT).map((one) => one.id);
    for (const row of rows) {
      const lacks = /broken|unwise|remark/.test(row.verdict) && row.refused.find((one: string) => !this.served.has(one));
      if (lacks) Object.assign(row, { verdict: "skipped", why: `the server has no ${lacks}` }); // nor is it demanded
      if (!row.finding) continue;
      const found = (findings[row.finding.id] ??= { ...head, id: row.finding.id, verdict: "remark", why: `${row.why} in ${row.id}` });
      const told = row.follows?.some((one: string) => lost.includes(one)); // of that end
      if (row.finding.sure && !told) found.verdict = "broken";
    }
    const charged: Json[] = rules.map((rule) => ({ ...rule, ...head, verdict: rule.needs?.some((one: string) => this.lacks(one)) ? "skipped" : "passed" }));
    for (const [message, id] of messages)
      for (const row of charged) { // those that MUST first; of a message that breaks one, nothing else
        if (row.verdict === "skipped" || fits(row.every, message, { revision: this.revision })) continue;
        if (row.verdict === "passed") Object.assign(row, { verdict: verdictOf(row), why: `in ${id}`, received: message });
        if (verdictOf(row) === "broken") break;
      }
    return [...rows, ...charged, ...(Object.values(findings) as Json[])];
  }
}

function readVectors(only: string[]): Json[] {
  const folder = new URL(".", import.meta.url), found: Json[] = [];
  for (const name of readdirSync(folder).filter((one) => /(?<!schema)\.json$/.test(one)).sort()) {
    const file = JSON.parse(readFileSync(new URL(name, folder), "utf8")), page = name.slice(0, -5);
    if (file.format !== 4) throw new Error(`${name}: the format must be 4`);
    found.push(...file.vectors.map((one: Json) => ({ steps: [], until: REVISIONS.at(-1), ...one, page })));
  }
  return found.filter((one) => !only.length || only.includes(one.id) || only.includes(one.page));
}

const options: Json = { only: [], timeout: 5, jobs: 4, header: {}, revisions: REVISIONS.join(","), json: "" };
const words = process.argv.slice(2);
while (words[0]?.startsWith("--")) {
  const [option, value] = words.splice(0, 2), name = option.slice(2);
  if (!has(options, name)) throw new Error(`unknown option ${option}`);
  if (name === "only") options.only.push(value);
  else if (name === "header") options.header[value.split(":")[0]] = value.slice(value.indexOf(":") + 1).trim();
  else options[name] = /timeout|jobs/.test(name) ? Number(value) : value;
}
// A server's control characters and invisible ones become escapes.
const say = (text: string) =>
  console.log(text.replace(/[^\P{C}\n]|[\p{Zl}\p{Zp}]/gu, (one) => `\\u{${one.codePointAt(0)!.toString(16)}}`));
const rows: Json[] = [], vectors = readVectors(options.only);
for (const revision of options.revisions.split(",")) {
  const server = new Server(words, options, revision), why = await server.survey();
  say(`${server.carrier} ${revision}: ${why || "spoken"}`);
  const some = vectors.filter((one) => one.since <= revision && revision <= one.until && one.carriers.includes(server.carrier));
  if (!why) rows.push(...(await server.playAll(some, server.carrier === "stdio" ? options.jobs : 1)));
}
const isBad = (row: Json) => /broken|unwise|remark/.test(row.verdict);
const failed = rows.filter(isBad).map((row) => `${row.id} ${row.revision}`), count: Json = {};
for (const row of rows) {
  row.after = row.follows?.find((one: string) => failed.includes(`${one} ${row.revision}`));
  if (row.after && isBad(row)) row.verdict = "remark";
  count[row.verdict] = (count[row.verdict] ?? 0) + 1;
  if (!/passed|skipped/.test(row.verdict))
    say(`${row.verdict.toUpperCase()} ${row.id} ${row.revision}: ${row.rule ?? ""} (${row.clause ?? ""}; ${row.after ?? ""})\n  ${row.sent}\n  ${row.why}`);
}
say(show(count));
if (options.json) writeFileSync(options.json, JSON.stringify({ rows }, null, 1));
process.exit(count.broken || count["not set up"] || !rows.length ? 1 : 0);
