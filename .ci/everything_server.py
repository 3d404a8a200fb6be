#!/usr/bin/env python3
"""The server that the official conformance suite expects: every feature, by the suite's
names.

    everything_server.py                on stdio
    everything_server.py --http 8000    on http://127.0.0.1:8000/mcp

In the variable MCP_USERS there may be tokens of users; then it serves nobody else.
The suite calls the first tool of the list without arguments, so that tool needs none.
"""

import base64
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any, Literal

sys.path += [
    str(Path(__file__).resolve().parents[1] / folder)
    for folder in ("examples/extensions", "examples", ".")
]

from skills import serve_skills
from tasks import Tasks

import mcp_ref as mcp
from mcp_ref import ClientLacks, Context, RpcError, Server, elicitation, embedded, image

ABOUT = "Everything a server can do, for conformance tests."
server = Server("everything", "1.0", ABOUT, title="Everything")
tasks = Tasks(server)

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEh"
    "QGAhKmMIQAAAABJRU5ErkJggg=="
)
SOUND = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")


def always(value: Any) -> Any:
    """Return a function that returns this value."""
    return lambda: value


# ---- tools: content of every kind

MIXED = embedded(
    "test://mixed-content-resource", '{"test": "data"}', "application/json"
)
EMBEDDED = "test://embedded-resource", "This is an embedded resource content."
for name, result in {
    "test_simple_text": "This is a simple text response for testing.",
    "test_image_content": image(PIXEL, "image/png"),
    "test_audio_content": mcp.audio(SOUND, "audio/wav"),
    "test_embedded_resource": embedded(*EMBEDDED, "text/plain"),
    "test_multiple_content_types": [
        mcp.text("Multiple content types test:"),
        image(PIXEL, "image/png"),
        MIXED,
    ],
}.items():
    server.tool(always(result), name=name, description=f"Return what {name} is about.")


@server.tool
def test_error_handling() -> str:
    """Fail: a result with isError."""
    raise RuntimeError("This tool intentionally returns an error for testing")


# ---- tools: while they run


@server.tool
def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages."""
    for what in ("execution started", "processing data", "execution completed"):
        ctx.log("info", f"Tool {what}")
        time.sleep(0.02)
    return "Tool with logging executed successfully"


@server.tool
def test_logging_tool(ctx: Context) -> str:
    """Log at every level; the client hears those that it asked for."""
    for level in ("debug", "info", "warning", "error"):
        ctx.log(level, f"a message at {level}")
    return "logged"


@server.tool
def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        ctx.progress(done, 100, f"{done} of 100")
        time.sleep(0.02)
    return "Tool with progress executed successfully"


@server.tool
def test_reconnection(ctx: Context) -> str:
    """Hang up in the middle; the client comes back for the result."""
    ctx.close_stream()
    time.sleep(0.1)
    return "Reconnection test completed successfully"


# ---- tools: that ask the client


@server.tool
def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    return f"LLM response: {ctx.sample(prompt, max_tokens=100)['content']}"


@server.tool
def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user."""
    name, email = (
        Annotated[str, "User's response"],
        Annotated[str, "User's email address"],
    )
    answer = ctx.elicit(message, username=name, email=email)
    return f"User response: {answer}"


@server.tool
def test_streaming_elicitation(ctx: Context) -> str:
    """Ask the user, after some progress."""
    ctx.progress(1, 2)
    return str(ctx.elicit("Go on?", go=bool)["action"])


@server.tool
def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask by a form in which every field has a default."""
    answer = ctx.elicit(
        "Please review the form",
        name=(str, "John Doe"),
        age=(int, 30),
        score=(float, 95.5),
        verified=(bool, True),
        status=(Literal["active", "inactive", "pending"], "active"),
    )
    return f"Elicitation completed: action={answer['action']}, content={answer.get('content')}"


@server.tool
def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask by a form with every kind of choice."""
    options = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{title} Option"}
        for n, title in enumerate(("First", "Second", "Third"), 1)
    ]
    legacy: dict[str, Any] = {"type": "string", "enum": ["opt1", "opt2", "opt3"]}
    legacy["enumNames"] = ["Option One", "Option Two", "Option Three"]
    answer = ctx.elicit(
        "Please select",
        untitledSingle={"type": "string", "enum": options},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum=legacy,
        untitledMulti={"type": "array", "items": {"type": "string", "enum": options}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    return f"Elicitation completed: action={answer['action']}, content={answer.get('content')}"


def asking(questions: dict[str, Any]) -> Any:
    """Return a tool that asks, and returns the answers."""

    def tool(ctx: Context) -> str:
        return f"state-ok {ctx.ask(questions)}"

    return tool


NAME = elicitation("What is your name?", name=str)
CONFIRM = elicitation("Please confirm", ok=bool)
CAPITAL = mcp.sampling("What is the capital of France?")
GREETING = mcp.sampling("Generate a greeting", max_tokens=50)
SEVERAL = {"user_name": NAME, "greeting": GREETING, "client_roots": mcp.roots()}
for name, questions in {
    "missing_capability": {"": mcp.sampling("Hello?")},
    "input_required_result_elicitation": {"user_name": NAME},
    "input_required_result_sampling": {"capital_question": CAPITAL},
    "input_required_result_list_roots": {"client_roots": mcp.roots()},
    "input_required_result_request_state": {"confirm": CONFIRM},
    "input_required_result_tampered_state": {"confirm": CONFIRM},
    "input_required_result_multiple_inputs": SEVERAL,
}.items():
    server.tool(asking(questions), name=f"test_{name}", description="Ask the client.")


@server.tool
def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice, one after the other."""
    name = ctx.elicit("Step 1: What is your name?", key="step1", name=str)
    color = ctx.elicit("Step 2: What is your favorite color?", key="step2", color=str)
    return f"{name.get('content')} {color.get('content')}"


@server.tool
def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask in the best way that this client can be asked."""
    try:
        return str(ctx.elicit("What is your name?", key="name", name=str)["action"])
    except ClientLacks:
        return str(ctx.sample("Make up a name.", key="name_by_model")["content"])


# ---- tools: changes, headers, schemas


@server.tool
def test_trigger_tool_change() -> str:
    """Tell the clients that the list of tools changed."""
    server.changed("tools")
    return "told"


@server.tool
def test_trigger_prompt_change() -> str:
    """Tell the clients that the list of prompts changed."""
    server.changed("prompts")
    return "told"


@server.tool
def test_trigger_resource_update(uri: str) -> str:
    """Tell those who watch a resource that it changed."""
    server.changed(uri)
    return "told"


COUNT = {"properties": {"count": {"type": "integer"}}, "required": ["count"]}


@server.tool(output_schema={"type": "object", **COUNT})
def test_structured_content() -> dict[str, Any]:
    """Return what the output schema describes."""
    return {"count": 3}


@server.tool
def test_x_mcp_header(
    region: Annotated[str, "Where to run", {"x-mcp-header": "Region"}] = "",
) -> str:
    """Take an argument that HTTP repeats in a header."""
    return f"region {region}"


SCHEMA = json.loads("""{
  "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
  "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {
    "street": {"type": "string"}, "city": {"type": "string"}}}},
  "properties": {
    "name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
    "contactMethod": {"type": "string", "enum": ["phone", "email"]},
    "phone": {"type": "string"}, "email": {"type": "string"}},
  "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
  "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
  "then": {"required": ["phone"]}, "else": {"required": ["email"]},
  "additionalProperties": false}""")


@server.tool(input_schema=SCHEMA)
def json_schema_2020_12_tool(**arguments: Any) -> str:
    """Have a schema of its own, which goes out as it is."""
    return f"called with {arguments}"


# ---- tools: tasks (see tasks.py)


@server.tool
def greet(name: str) -> str:
    """Greet at once: this tool never becomes a task."""
    return f"Hello, {name}!"


@tasks.tool
def slow_compute(ctx: Context, seconds: float = 0, label: str = "") -> str:
    """Take this long, unless the task is cancelled."""
    stopped = threading.Event()
    ctx.on_cancel(stopped.set)
    stopped.wait(seconds)
    return f"computed {label}"


@tasks.tool(required=True)
def failing_job(ctx: Context) -> str:
    """Fail: the task is completed, with a result that has isError."""
    raise RuntimeError("This job intentionally fails")


@tasks.tool(required=True)
def protocol_error_job(ctx: Context) -> str:
    """Answer with an error: the task is failed."""
    raise RpcError(1, "This job intentionally answers with an error")


@tasks.tool(required=True)
def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask in the middle of a task."""
    answer = ctx.elicit(f"Delete {filename}?", confirm=bool)
    confirmed = answer.get("content", {}).get("confirm")
    return f"{filename} is {'deleted' if confirmed else 'kept'}"


@tasks.tool(required=True)
def multi_input(ctx: Context) -> str:
    """Ask two things at once in the middle of a task."""
    confirm = elicitation("Go on?", confirm=bool)
    answers = ctx.ask({"name": NAME, "confirm": confirm})
    return f"got {', '.join(sorted(answers))}"


@server.tool
def test_tool_with_task(ctx: Context) -> Any:
    """Ask first, then become a task."""
    tasks.require(ctx)
    answer = ctx.elicit("What is your name?", key="user_name", name=str)
    greeting = f"Hello, {answer.get('content', {}).get('name', 'stranger')}!"
    return tasks.start(ctx) or greeting


# ---- resources

for name, kind, content in (
    ("static-text", "text/plain", "This is the content of the static text resource."),
    ("static-binary", "image/png", PIXEL),
    ("watched-resource", "text/plain", "Watched resource content"),
):
    server.resource(f"test://{name}", name=name, mime_type=kind)(always(content))


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """Return data of a template."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# ---- prompts

server.prompt(
    always("This is a simple prompt for testing."),
    name="test_simple_prompt",
    description="Say something simple.",
)
server.prompt(
    always([image(PIXEL, "image/png"), "Please analyze the image above."]),
    name="test_prompt_with_image",
    description="Show an image.",
)


@server.prompt
def test_prompt_with_arguments(
    arg1: Annotated[str, "First"], arg2: Annotated[str, "Second"]
) -> str:
    """Use two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
def test_prompt_with_embedded_resource(
    resourceUri: Annotated[str, "URI to embed"],
) -> list[Any]:
    """Embed a resource."""
    return [
        embedded(resourceUri, "Embedded resource content for testing.", "text/plain"),
        "Please process the embedded resource above.",
    ]


@server.prompt
def test_input_required_result_prompt(ctx: Context) -> str:
    """Ask before the prompt is made."""
    question = "What context should the prompt use?"
    return str(ctx.elicit(question, key="user_context", context=str))


@server.completion("test_prompt_with_arguments", "arg1")
def complete_arg1(typed: str) -> list[str]:
    """Complete the first argument."""
    return [word for word in ("paris", "park", "party") if word.startswith(typed)]


# ---- an extension: skills (see skills.py)

EXTENSIONS = Path(__file__).resolve().parents[1] / "examples" / "extensions"
serve_skills(server, EXTENSIONS / "skills")

if __name__ == "__main__":
    users = os.environ.get("MCP_USERS", "").split()
    authorize = mcp.bearer({one: one for one in users}) if users else None
    server.run(authorize=authorize)
