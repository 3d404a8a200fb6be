"""Check what you wrote for an exercise (examples/exercises.md), and say what is wrong with it.

    $ python3 examples/transcripts/check.py 3 '{"method": "tools/changed"}'
    "jsonrpc" is missing: every message has "jsonrpc": "2.0" (lesson 53)
    $ python3 examples/transcripts/check.py 3 \
        '{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}'
    right

Without the second argument it reads standard input. It tells one mistake at a time, the one to mend
first; what it cannot know by itself, it asks the library (server.py), which the lessons talk to.
"""
from __future__ import annotations

import difflib
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE)]

import replay

import mcp_ref
from mcp_ref import META_CAPABILITIES, META_VERSION, RpcError, Schema

NEWEST, SESSION = "2026-07-28", "2025-11-25"
KINDS = {"str": (str, "a string"), "dict": (dict, "an object"), "list": (list, "an array"),
         "bool": (bool, "true or false")}
LESSONS = {path.stem[3:]: int(path.stem[:2]) for path in HERE.glob("[0-9]*.md")}
META = {META_VERSION: NEWEST, META_CAPABILITIES: {"elicitation": {}}}
OPENING: list[Any] = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": SESSION, "capabilities": {},
        "clientInfo": {"name": "reader", "version": "1.0"}}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"}]


class Wrong(Exception):
    """What was written is not right; the message says why, and what would be."""


def want(condition: Any, hint: str) -> None:
    """Stop at the first thing that is wrong."""
    if not condition:
        raise Wrong(hint)


def see(name: str) -> str:
    """Return where to read more; a lesson is named by its file, so that it may get a new number."""
    return f"(lesson {LESSONS[name]})"


# ---- what holds for every message

def message_of(line: str) -> Any:
    """Return the message in a line; say what is wrong with one that is no JSON."""
    try:
        message = mcp_ref.decode(line.encode("utf-8", "replace"))
    except RpcError as error:
        outside = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)      # what is not inside of a string
        want("'" not in outside, "JSON has double quotes: \"jsonrpc\", not 'jsonrpc' "
             + see("parse_error"))
        want(not re.search(r",\s*[}\]]", outside), "JSON has no comma before a } or ]")
        want(not re.search(r"\b(True|False|None)\b", outside),
             "JSON writes true, false and null in small letters")
        want(not re.search(r"//|/\*|#", outside), "JSON has no comments")
        want(outside.count("{") == outside.count("}") and outside.count("[") == outside.count("]"),
             "a { or [ and its } or ] do not pair up")
        raise Wrong(f"this is no JSON. {error}") from None
    want("\n" not in line.strip(), "this is JSON, but a message is one line: no line ends inside")
    want(not isinstance(message, list), "send one message, not an array of them "
         + see("mistake_batch"))
    want(isinstance(message, dict), "a message is an object: { ... }")
    want("jsonrpc" in message,
         '"jsonrpc" is missing: every message has "jsonrpc": "2.0" ' + see("mistake_jsonrpc"))
    want(message["jsonrpc"] == "2.0",
         '"jsonrpc" is the string "2.0", whatever the revision ' + see("mistake_jsonrpc"))
    return message


def request_of(line: str, method: str) -> Any:
    """Return a request of this method."""
    message = message_of(line)
    want("result" not in message and "error" not in message,
         "this is a response, but somebody has to ask first: write a request, with a method")
    want("id" in message, "without an id it is a notification, and nobody answers it")
    want(mcp_ref.is_id(message["id"]),
         "an id is a string or an integer, never null " + see("invalid_request"))
    check_method(message, method)
    check_kind(message)
    return message


def notification_of(line: str, method: str) -> Any:
    """Return a notification of this method."""
    message = message_of(line)
    want("result" not in message and "error" not in message,
         "this is a response, and nobody has asked: write a notification, with a method")
    want("id" not in message,
         "with an id it is a request, and has to be answered: a notification has none "
         + see("handshake_2025-11-25"))
    check_method(message, method)
    want(isinstance(message.get("params", {}), dict), "params are an object")
    return message


def response_of(line: str, ident: Any) -> Any:
    """Return a response to the request with this id."""
    message = message_of(line)
    want("method" not in message, "a response has no method: its id says what it answers")
    want("id" in message, f"a response has the id of its request: {json.dumps(ident)}")
    want(str(message["id"]) == str(ident),
         f"the id is not that of the request, which is {json.dumps(ident)}")
    want(type(message["id"]) is type(ident),
         f"{json.dumps(message['id'])} is another id than {json.dumps(ident)} "
         + see("mistake_id_in_use"))
    want(not ("result" in message and "error" in message),
         "a response has a result or an error, never both " + see("mistake_result_and_error"))
    want("result" in message or "error" in message,
         "a response has a result or an error; this has neither")
    check_kind(message)
    return message


def check_kind(message: Any) -> None:
    """Let the module say what else is wrong."""
    try:
        mcp_ref.kind_of(message)
    except RpcError as error:
        raise Wrong(f"{error} " + see("invalid_request")) from None


def check_method(message: Any, wanted: str) -> None:
    """Compare the method with the one that is wanted, by the tables of the module."""
    given = message.get("method")
    want(isinstance(given, str), '"method" is missing, or no string')
    known = [*mcp_ref.METHODS, *mcp_ref.NOTIFICATIONS]
    if given not in known:
        near = difflib.get_close_matches(given, known, 1)
        meant = mcp_ref.MISNAMED.get(given) or "".join(near)
        raise Wrong(f"there is no method {given}" + (
            f"; did you mean {meant}? " + see("mistake_lsp_names") if meant else ""))
    want(given == wanted, f"{given} exists, but does something else")


def check_result(message: Any, method: str) -> Any:
    """Return the result, if it has what one of this method must have, by the module's table."""
    want("result" in message, "the request was fine: answer with a result, not with an error")
    result = message["result"]
    want(isinstance(result, dict), "a result is an object: { ... }")
    for word in mcp_ref.RESULTS[method].split():
        name, _, kind = word.partition(":")
        accepted, called = KINDS[kind.rstrip("?")]
        want(name in result or kind.endswith("?"), f"the result of {method} has {name}, {called}")
        want(name not in result or isinstance(result[name], accepted), f"{name} is {called}")
    return result


def ask_library(*messages: Any, server: Any = None) -> Any:
    """Hand messages to a library; return its last response, which has to be a result."""
    heard: list[Any] = []
    server, peer = server or replay.new_library(), mcp_ref.Peer()
    for message in messages:
        server.handle(message, heard.append, peer=peer)
    want(heard, "the library has nothing to say to that: it is no request")
    if "error" in heard[-1]:
        raise Wrong("the library answers: {message} ({code})".format(**heard[-1]["error"]))
    return heard[-1]["result"]


# ---- the exercises

def list_tools(attempt: str) -> None:
    """1: in a session, ask for the list of tools."""
    message = request_of(attempt, "tools/list")
    want(message["id"] != 1, "initialize had the id 1, in the same session: this request needs "
         "another one " + see("mistake_id_in_use"))
    want(META_VERSION not in json.dumps(message),
         "in a session there is no version in _meta: the handshake has said it")
    ask_library(*OPENING, message)


TOOL = Schema({
    "type": "object", "required": ["name", "inputSchema"], "properties": {
        "name": {"type": "string"}, "description": {"type": "string"},
        "inputSchema": {"type": "object", "required": ["type"], "properties": {
            "type": {"const": "object"}, "properties": {"type": "object"}}}}})


def answer_with_a_tool(attempt: str) -> None:
    """2: answer tools/list, id 2, with the tool `add`, which takes the integers a and b."""
    tools = check_result(response_of(attempt, 2), "tools/list")["tools"]
    want(len(tools) == 1, f"there is one tool, not {len(tools)}")
    tool = tools[0]
    for name in ("input_schema", "parameters", "arguments", "schema"):
        want(not isinstance(tool, dict) or name not in tool,
             f"{name} is called inputSchema here, with a capital S " + see("list_tools"))
    flaw = TOOL.flaw(tool)
    want(flaw is None, f"the tool is not complete: {flaw}")
    want(tool["name"] == "add", "the tool is called add")
    try:
        schema = Schema(tool["inputSchema"])
    except ValueError as problem:
        raise Wrong(f"inputSchema is no JSON Schema: {problem}") from None
    flaw = schema.flaw({"a": 2, "b": 3})
    want(flaw is None, f'the schema refuses {{"a": 2, "b": 3}}: {flaw}')
    for arguments in ({"a": 2}, {"b": 3}):
        want(schema.flaw(arguments), f"the schema lets {json.dumps(arguments)} pass: in `required` "
             "stands what has to be there")
    for bad in ({"a": "2", "b": 3}, {"a": 2, "b": 0.5}):
        want(schema.flaw(bad), f'the schema lets {json.dumps(bad)} pass: an integer is '
             '{"type": "integer"}')


def list_changed(attempt: str) -> None:
    """3: tell the client that the list of tools has changed."""
    notification_of(attempt, "notifications/tools/list_changed")


def unknown_tool(attempt: str) -> None:
    """4: answer a call, id 7, of a tool that does not exist."""
    message = response_of(attempt, 7)
    want("error" in message, "no tool has failed, since there is none: what is wrong is the "
         "request, and so the answer is an error " + see("mistake_two_kinds_of_error"))
    error = message["error"]
    want(isinstance(error, dict), "an error is an object, with a code and a message")
    want("code" in error, "an error has a code")
    code = error["code"]
    want(type(code) is int, "the code is an integer")
    want(code != mcp_ref.METHOD_NOT_FOUND, f"{code} is for a method that does not exist. "
         "tools/call does; what is wrong stands in its params")
    row = mcp_ref.ERRORS.get(code)
    meant = f"means {row.name}: {row.sent}" if row else "means nothing here"
    want(code == mcp_ref.INVALID_PARAMS, f"the code {code} {meant} " + see("invalid_params"))
    want(isinstance(error.get("message"), str), "an error has a message, a string")


def cancel(attempt: str) -> None:
    """5: cancel the request with the id 7."""
    check_cancelled(notification_of(attempt, "notifications/cancelled"), 7)


def check_cancelled(message: Any, ident: Any) -> None:
    """Check what notifications/cancelled says: it is the request with this id."""
    params = message.get("params")
    named = f"the {'number' if isinstance(ident, int) else 'string'} {json.dumps(ident)}"
    want(isinstance(params, dict), "in params stands what is to be cancelled")
    want("id" not in params, "id is how LSP calls it; here it is requestId "
         + see("mistake_lsp_names"))
    want("requestId" in params, "requestId is missing: which request is it?")
    want(type(params["requestId"]) is type(ident), f"the id was {named} "
         + see("mistake_id_in_use"))
    want(params["requestId"] == ident, f"the request that runs has another id, {named}")


def fill_form(attempt: str) -> None:
    """6: answer elicitation/create, id 1: the user is called Ada, and is 36."""
    message = response_of(attempt, 1)
    want("result" in message, "the user filled in the form: that is a result, no error")
    check_answer(message["result"])


def check_answer(answer: Any) -> None:
    """Check what the user said: the form was filled in with Ada and 36."""
    want(isinstance(answer, dict), "the answer is an object, with an action")
    want("action" in answer, "what did the user do? `action` is missing: accept, decline or cancel")
    want(answer["action"] in ("accept", "decline", "cancel"), "action is accept, decline or cancel")
    want(answer["action"] == "accept", f"{answer['action']} is a no: this user filled in the form")
    want("content" in answer, "what the user typed stands in `content`")
    form = {"type": "object", "required": ["name", "age"], "properties": {
        "name": {"const": "Ada"}, "age": {"type": "integer", "const": 36}}}
    flaw = Schema(form).flaw(answer["content"])
    want(flaw is None, f"content is not what the form asked for, or the user typed: {flaw}")


def modern_call(attempt: str) -> None:
    """7: in 2026-07-28, call the tool search with the word emma."""
    message = request_of(attempt, "tools/call")
    check_meta(message, {})
    result = ask_library(message)
    want(not result.get("isError"), "the tool says: " + result["content"][0].get("text", ""))
    want(result.get("structuredContent") == {"result": ["Emma"]},
         "this is a call, but not of search with the word emma")


def check_meta(message: Any, needed: Any) -> None:
    """Check what every request of 2026-07-28 carries."""
    want("_meta" not in message, "_meta is a member of params, not of the message")
    params = message.get("params", {})
    meta = params.get("_meta")
    want(meta is not None, f"_meta is missing in params: requests of {NEWEST} have it "
         + see("discover"))
    want(isinstance(meta, dict), "_meta is an object")
    for key in META_VERSION, META_CAPABILITIES:
        name = key.partition("/")[2]
        want(name not in meta, f"the whole key is {key}")
        want(key in meta, f"{key} is missing in _meta: it has to be there " + see("discover"))
    want(meta[META_VERSION] == NEWEST, f"the revision is {NEWEST}")
    flaw = Schema({"type": "object", "required": list(needed)}).flaw(meta[META_CAPABILITIES])
    want(flaw is None, f"the client has to say again what it can do: {flaw}")


def answer_and_retry(attempt: str) -> None:
    """8: in 2026-07-28, answer "input_required": send the call of join, id 7, again."""
    message = message_of(attempt)
    want("result" not in message, f"in {NEWEST} a client sends no responses: it sends the call "
         "again, with the answers in it " + see("ask_the_user"))
    message = request_of(attempt, "tools/call")
    want(message["id"] != 7, "this is a new request: it has a new id")
    check_meta(message, {"elicitation": {}})
    params = message["params"]
    want(params.get("name") == "join", "it is the same call as before: of the tool join")
    want("arguments" in params, "arguments is missing: there it was, though it was empty")
    want(params["arguments"] == {}, "arguments has changed: it was {}, and the state belongs to "
         "the call as it was " + see("request_state"))
    want("inputResponses" in params, "inputResponses is missing in params: the answers")
    answers = params["inputResponses"]
    want(isinstance(answers, dict), "inputResponses is an object: an answer for each key")
    want("elicitation-1" in answers, "an answer has the key of its question: elicitation-1")
    check_answer(answers["elicitation-1"])
    want("requestState" in params, "requestState is missing: it goes back as it came")
    want(params["requestState"] == "k7Qx", "requestState goes back as it came: k7Qx")
    more = sorted(params.keys() - {"name", "arguments", "_meta", "inputResponses", "requestState"})
    want(not more, f"{', '.join(more)}: not there before, and the call is to be sent as it was")
    server = replay.new_library()
    question = ask_library({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "join", "arguments": {}, "_meta": META}}, server=server)
    params["requestState"] = question["requestState"]       # k7Qx was made up
    ask_library(message, server=server)


def session(attempt: str) -> None:
    """9: a whole session of 2025-11-25, a message on each line, with the call of exercise 7."""
    lines = [line for line in attempt.splitlines() if line.strip()]
    messages = [on_line(number, message_of, line) for number, line in enumerate(lines, 1)]
    steps = ["initialize", "notifications/initialized", "tools/call"]
    for number, (line, method) in enumerate(zip(lines, steps), 1):
        said = messages[number - 1].get("method")
        want(said not in steps[number:], f"line {number}: {said} is too early, first comes "
             f"{method} " + see("mistake_too_early"))
        on_line(number, notification_of if "/init" in method else request_of, line, method)
    want(len(lines) == 3, f"the client sends three messages, and not {len(lines)}")
    opened = on_line(1, ask_library, messages[0])
    want(opened["protocolVersion"] == messages[0]["params"]["protocolVersion"] == SESSION,
         f"the revision is {SESSION}")
    want(messages[0]["id"] != messages[2]["id"],
         "line 3: this id was used before in the session " + see("mistake_id_in_use"))
    found = on_line(3, ask_library, *messages).get("structuredContent")
    want(found == {"result": ["Emma"]}, "line 3: it is search that is called, with the word emma")


def on_line(number: int, check: Any, *arguments: Any) -> Any:
    """Check a line of several, and say which one it is that is wrong."""
    try:
        return check(*arguments)
    except Wrong as problem:
        raise Wrong(f"line {number}: {problem}") from None


HEADERS = {     # what has to be in them, and what to say if it is not
    "Host": ("localhost", "names the server: localhost:8000"),
    "Content-Type": ("application/json", "says what the body is: application/json"),
    "Accept": ("application/json", "lists application/json and text/event-stream, both")}
PLAIN = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": "<length>",
         "Accept": "application/json, text/event-stream"}


def post_of(attempt: str, lesson: str,
            more: dict[str, tuple[str, str]]) -> tuple[list[str], str, int]:
    """Take a POST apart, with these headers: its head, its body, and the line where that is."""
    head, empty, body = attempt.strip().partition("\n\n")
    first, *lines = head.splitlines() or [""]
    want(first == "POST /mcp HTTP/1.1", "the first line is POST /mcp HTTP/1.1")
    want(empty, "an empty line stands between the headers and the body")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        want(colon and name.strip() == name, f"a header is a name, a colon, a value; not {line}")
        headers[name.lower()] = value.strip()
    for name, (part, hint) in {**HEADERS, **more}.items():
        want(name.lower() in headers,
             f"the header {name} is missing: it {hint} " + see(lesson))
        want(part in headers[name.lower()], f"the header {name} {hint}")
    want("text/event-stream" in headers["accept"], "the header Accept " + HEADERS["Accept"][1])
    length = len(body.encode("utf-8", "replace"))
    want(headers.get("content-length") in ("<length>", str(length)),
         f"the header Content-Length is {length}, the bytes of the body, or <length>")
    return [first, *lines, ""], body, len(lines) + 3


def http_post(attempt: str) -> None:
    """10: the call of exercise 7 as an HTTP POST to /mcp on localhost, with all its headers."""
    head, body, number = post_of(attempt, "http_post", {
        "MCP-Protocol-Version": (NEWEST, f"is {NEWEST}, as in _meta"),
        "Mcp-Method": ("tools/call", "repeats the method: tools/call"),
        "Mcp-Name": ("search", "repeats the name of the tool: search")})
    on_line(number, modern_call, body)
    library = replay.Http()
    answer = [*post(library, "1", head, body), *library.close()]
    want(answer[0] == "HTTP/1.1 200 OK", f"the library answers: {answer[0]}, {answer[-1]}")


def post(library: Any, connection: str, head: list[str], body: str) -> list[str]:
    """Post something to the library; return the head of the answer."""
    for line in [*head, body]:
        library.send(line, connection)
    return list(itertools.takewhile(lambda line: line not in ("", replay.NOTHING), iter(
        lambda: library.receive(connection), None)))


def end_subscription(attempt: str) -> None:
    """11: on a pipe, in 2026-07-28, end the subscription that has the id "news"."""
    said = message_of(attempt).get("method")
    want(said != "resources/unsubscribe", f"{said} is for sessions. Here the subscription is a "
         "request that waits for its response: end it like any other " + see("watch"))
    check_cancelled(notification_of(attempt, "notifications/cancelled"), "news")


def hang_up(attempt: str) -> None:
    """12: over HTTP, in 2026-07-28, cancel a call."""
    want("notifications/cancelled" not in attempt, f"over HTTP this cancels nothing in {NEWEST}: "
         "the server passes it over. Do not say it, do it " + see("http_cancel"))
    want("DELETE" not in attempt, "DELETE ends a session, and here is none")
    want(attempt.strip().lstrip("> ") == replay.HANGS_UP, "no message is needed. What a client "
         "does without a word stands in parentheses in the lessons " + see("http_cancel"))


def cancel_in_a_session(attempt: str) -> None:
    """13: over HTTP, in a session of 2025-11-25 with the id s-41, cancel the call 7."""
    want(replay.HANGS_UP not in attempt, "in a session the call goes on when the connection "
         "breaks: it has to be said " + see("http_cancel"))
    head, body, number = post_of(attempt, "http_session", {
        "MCP-Protocol-Version": (SESSION, f"is {SESSION}, as the handshake has said"),
        "Mcp-Session-Id": ("s-41", "says which session it is: s-41")})
    on_line(number, cancel, body)
    library = replay.Http()
    plain = [head[0], *(f"{name}: {value}" for name, value in PLAIN.items()), ""]
    opened = post(library, "1", plain, json.dumps(OPENING[0]))
    ident, = (line.split()[1] for line in opened if line.startswith("Mcp-Session-Id"))
    answer = post(library, "2", [line.replace("s-41", ident) for line in head], body)
    library.close()
    want(answer[0] == "HTTP/1.1 202 Accepted", f"the library answers: {answer[0]}")


# ---- the command

EXERCISES = [list_tools, answer_with_a_tool, list_changed, unknown_tool, cancel, fill_form,
             modern_call, answer_and_retry, session, http_post, end_subscription, hang_up,
             cancel_in_a_session]


def hint_for(number: int, attempt: str) -> str:
    """Return what is wrong with an attempt at an exercise; "right" if nothing is."""
    try:
        EXERCISES[number - 1](attempt)
        return "right"
    except Wrong as problem:
        return str(problem)


def main(arguments: list[str]) -> int:
    """Check an attempt; return 0 if it is right."""
    number = arguments[0] if arguments else ""
    if not number.isdecimal() or not 0 < int(number) <= len(EXERCISES):
        print(__doc__)
        return 2
    hint = hint_for(int(number), arguments[1] if len(arguments) > 1 else sys.stdin.read())
    print(hint)
    return int(hint != "right")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
