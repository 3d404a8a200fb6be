"""Print the protocol on one page, made from the tables of mcp_ref.py.

For the wall beside your desk: methods, notifications, errors, headers, `_meta`, and
what differs between the revisions. The page is examples/course/reference.md; a test
compares the two. `--tables` prints plain text instead: each row, with who sends it or
its HTTP status, and a column for each revision.

    $ python3 examples/tools/reference.py
    # MCP on one page
    ...
    | `tools/call`‡ | client | all | `name`, `arguments`? | `content` | `tools` |
    ...
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]
import mcp_ref

ROOT = Path(__file__).resolve().parents[2]
MODULE, CLIENT = ROOT / "mcp_ref.py", ROOT / "examples" / "mcp_client.py"
OLDEST, NEWEST = [*mcp_ref.REVISIONS][-1], [*mcp_ref.REVISIONS][0]
WAYS = {">": "client", "<": "server", "<>": "both"}

# What results must have, besides what all or all cacheable ones have: a row for each
# method. Params of requests that a server sends are here, too.
RESULTS = {
    "server/discover": "supportedVersions capabilities",
    "tools/list": "tools",
    "tools/call": "content",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "resources/read": "contents",
    "prompts/list": "prompts",
    "prompts/get": "messages",
    "completion/complete": "completion",
    "subscriptions/listen": "_meta",
    "initialize": "protocolVersion capabilities serverInfo",
    "ping": "",
    "logging/setLevel": "",
    "resources/subscribe": "",
    "resources/unsubscribe": "",
    "elicitation/create": "action",
    "sampling/createMessage": "role content model",
    "roots/list": "roots",
}
ASKED = {
    "elicitation/create": "message requestedSchema | message mode url",
    "sampling/createMessage": "messages maxTokens",
}
CARRIED = {
    "notifications/cancelled": "requestId",
    "notifications/progress": "progressToken progress",
    "notifications/message": "level data",
    "notifications/resources/updated": "uri",
    "notifications/subscriptions/acknowledged": "notifications",
    "notifications/elicitation/complete": "elicitationId",
}

# The header, who sends it, the feature or the revisions that it belongs to, and what it
# says.
HEADERS = (
    (
        "Content-Type",
        "both",
        "",
        "`application/json`; of a stream, `text/event-stream`",
    ),
    ("Accept", "client", "", "both of these"),
    ("MCP-Protocol-Version", "client", "version header", "the revision"),
    ("Mcp-Method", "client", "header mirroring", "the method"),
    ("Mcp-Name", "client", "header mirroring", "the name or URI, of {mirrored}"),
    (
        "Mcp-Param-*",
        "client",
        "header mirroring",
        "an argument whose schema has `x-mcp-header`",
    ),
    ("Mcp-Session-Id", "both", "streamable sessions", "the session"),
    ("Last-Event-ID", "client", "streamable sessions", "the last event that arrived"),
    (
        "Origin",
        "browsers",
        "",
        "the site of a page; a server refuses unknown ones (403)",
    ),
    ("WWW-Authenticate", "server", "", "with 401 and 403: how to get a token"),
)
META = (
    (mcp_ref.META_VERSION, "request", "required", "the revision"),
    (mcp_ref.META_CAPABILITIES, "request", "required", "what the client can be asked"),
    (mcp_ref.META_CLIENT, "request", "recommended", "name and version of the client"),
    (
        mcp_ref.META_LOG_LEVEL,
        "request",
        "optional",
        "the lowest level to log; deprecated",
    ),
    ("progressToken", "request", "optional", "asks for progress, under this name"),
    (mcp_ref.META_SERVER, "result", "recommended", "name and version of the server"),
    (
        mcp_ref.META_SUBSCRIPTION,
        "notification",
        "required",
        "the id of the `subscriptions/listen` that it belongs to",
    ),
)


# Differences that are not in the tables above: features, and types of content.
FEATURES = {
    **mcp_ref.FEATURES,
    **mcp_ref.DIFFERENCES,
    **{
        f"content of type {name}": mcp_ref.FEATURES["batches"]._replace(
            name=f"content of type {name}", since=row.since, until=row.until
        )
        for name, row in mcp_ref.BLOCKS.items()
        if row.since != OLDEST
    },
}


def span(since: str, until: str, deprecated: str = "") -> str:
    """Return in which revisions something exists."""
    last = until or NEWEST
    if (since, last) == (OLDEST, NEWEST):
        words = "all"
    elif since == last:
        words = since if since == NEWEST else f"only {since}"
    elif since == OLDEST:
        words = f"to {last}"
    else:
        words = f"from {since}" + (f" to {until}" if until else "")
    return words + (f"; deprecated from {deprecated}" if deprecated else "")


def table(head: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a table of Markdown."""
    columns = head.split(", ")
    lines = [f"| {' | '.join(row)} |" for row in (columns, *rows)]
    lines.insert(1, "|---" * len(columns) + "|")
    return "\n".join(lines)


def code(words: str) -> str:
    """Return members as code; alternatives are separated by a bar."""
    groups = [[f"`{word}`" for word in one.split()] for one in words.split(" | ")]
    return " or ".join(", ".join(group) for group in groups)


def params_of(name: str) -> str:
    """Return the params of a method; a question mark stands after optional ones."""
    if name in ASKED:
        return code(ASKED[name])
    known: dict[str, Any] = mcp_ref.PARAMS.get(name, {})
    shown = []
    for member, kinds in known.items():
        if member not in mcp_ref.RETRY:
            shown.append(f"`{member}`" + ("?" if isinstance(kinds, tuple) else ""))
    if name in mcp_ref.LISTS:
        shown.append("`cursor`?")
    return ", ".join(shown)


def messages(head: str, rows: Any, name_of: Any, cells_of: Any) -> str:
    """Return a table of requests or notifications, which begin alike."""
    return table(
        f"{head}, capability",
        (
            (
                name_of(row),
                WAYS[row.way],
                span(row.since, row.until, row.deprecated),
                *cells_of(row),
                code(row.capability),
            )
            for row in rows.values()
        ),
    )


def methods() -> str:
    """Return the table of methods."""
    return messages(
        "method, sent by, revisions, params, the result must have",
        mcp_ref.METHODS,
        lambda row: f"`{row.name}`" + "†" * row.cacheable + "‡" * row.asks,
        lambda row: (params_of(row.name), code(RESULTS[row.name])),
    )


def notifications() -> str:
    """Return the table of notifications."""
    return messages(
        "notification, sent by, revisions, params, filter of a subscription",
        mcp_ref.NOTIFICATIONS,
        lambda row: f"`{row.name}`",
        lambda row: (code(CARRIED.get(row.name, "")), code(row.filter)),
    )


def errors() -> str:
    """Return the table of errors."""
    return table(
        "code, name, revisions, HTTP, when",
        (
            (
                str(row.code),
                row.name,
                span(row.since, row.until),
                str(row.status),
                row.sent,
            )
            for row in mcp_ref.ERRORS.values()
        ),
    )


def headers() -> str:
    """Return the table of headers."""
    named = [row.name for row in mcp_ref.METHODS.values() if row.mirrored]
    mirrored = ", ".join(f"`{name}`" for name in named)
    rows = []
    for name, who, feature, says in HEADERS:
        row = FEATURES.get(feature)
        when = span(row.since, row.until) if row else "all"
        rows.append((f"`{name}`", who, when, says.format(mirrored=mirrored)))
    return table("header, sent by, revisions, says", rows)


def features() -> str:
    """Return the table of other differences between revisions."""
    return table(
        "feature, revisions, members",
        (
            (row.name, span(row.since, row.until, row.deprecated), code(row.fields))
            for row in FEATURES.values()
        ),
    )


PAGE = """# MCP on one page

Made by `python3 examples/tools/reference.py` from the tables of `mcp_ref.py`. The
[lessons](lessons/README.md) explain each row.

Revisions: {revisions}.

**Modern**: each request has a `_meta` with the revision and the client's capabilities; a
server sends no requests; a question to the client is a result. **Legacy**: `initialize`,
its result, `notifications/initialized`; what they say holds for the session.

## Methods

{methods}

In the modern era, each request must have `_meta`, and each result `resultType`:
`complete`, or `input_required` for those marked ‡ (then with `inputRequests`,
`requestState` or both, and the client repeats the request with `inputResponses` and
`requestState`). Results of those marked † must have `ttlMs` and `cacheScope` (`public`
or `private`). A list that goes on has `nextCursor`. The last three methods are sent only
inside an `input_required` result. A question mark marks optional params.

## Notifications

{notifications}

A notification has no `id` and is never answered.

## `_meta` of the modern era

{meta}

## Errors

{errors}

The HTTP status is that of the modern era, before a method has begun; once it runs,
errors come with 200 (except −32021). In a session the errors of requests come with 200.
Choose your own codes outside −32768 to −32000.

## Headers

{headers}

## What else differs

{features}

Log levels: {levels}.
"""


def listing() -> str:
    """Return a line for each row: name, sender or HTTP status, and each revision."""
    order = list(reversed(mcp_ref.REVISIONS))
    row_of = ("  {:41} {:6}" + " {:10}" * len(order)).format
    lines = [row_of("", "", *order).rstrip()]
    for title, rows in (
        ("methods", mcp_ref.METHODS),
        ("notifications", mcp_ref.NOTIFICATIONS),
        ("features", FEATURES),
        ("errors", mcp_ref.ERRORS),
    ):
        lines.append(title)
        for key, row in rows.items():
            name, who = key, WAYS.get(getattr(row, "way", ""), "")
            if title == "errors":
                name, who = f"{key} {row.name}", row.status
            cells = []
            for place, version in enumerate(order, 1):
                last = order.index(row.until or NEWEST)
                is_there = order.index(row.since) <= order.index(version) <= last
                word = "yes" if is_there else ""
                if word and getattr(row, "deprecated", "") in order[:place]:
                    word = "deprecated"
                cells.append(word)
            lines.append(row_of(name, who, *cells).rstrip())
    return "\n".join(lines)


# ==== The reference of the API: the second half of examples/api.md ====

API = ROOT / "examples" / "api.md"
MARK = "## The names of mcp_ref.py\n"  # here the generated half begins
HEAD = """This half is made from the docstrings by `python3 examples/tools/reference.py --api
--write`. Without another word, a name exists since 1.0. Words such as `server/tools §Tool`
name a page of the specification and its heading. A `Message` is a `dict`; `Func`, `Hook`,
`Send` and `F` are functions (a `Hook` may be None). `[legacy]` and `[deprecated]` mark parts
of [older revisions](course/lessons/README.md#how-a-conversation-opens).""".replace(
    "\n", " "
)

# The groups of names, in the order of the page. A name that is in no group comes last.
GROUPS = {
    "mcp_ref": (
        ("Make a server", "Server"),
        ("In a handler", "Context"),
        ("Questions", "elicitation sampling roots"),
        ("Content and results", "text image audio embedded link Result"),
        ("Errors", "ToolError NotFound RpcError AskError ClientLacks HttpError"),
        ("Schemas", "keywords schema_of Schema"),
        (
            "Run a server",
            "serve_stdio serve_http http_server bearer event Endpoint Exchange",
        ),
        (
            "Messages and transports",
            "decode encode kind_of is_id mirror unmirror log printable Peer Pipe",
        ),
        ("Tables of the protocol", "versions meta_for rules"),
    ),
    "mcp_client": (
        ("Connect and call", "connect Client"),
        ("Requests and changes", "Request Subscription"),
        ("Errors", "Disconnected Malformed ServerLacks RequestCancelled"),
        ("Transports", "Transport StdioTransport HttpTransport MemoryTransport"),
        ("HTTP", "fetch url_warnings merge_headers"),
    ),
}
# The version that brought a name or a parameter, if it is newer than 1.0.
SINCE = {
    "2.0": """CHECK_SECONDS MAX_BATCH_BYTES MAX_ERRORS MAX_SENDING_BYTES
        ON_CANCEL_SECONDS DIFFERENCES FILE_SECONDS MAX_IDLE_SECONDS Endpoint.begin_checks
        Exchange.ready LISTS META Peer.check_questions Peer.disconnect Peer.register
        Pipe STALL_SECONDS Schema.errors Server(show_errors=)
        Server.capabilities(tells=) Server.run(http=) meta_for COURTESY_SECONDS
        Client(sse=) HttpTransport(sse=) MAX_COOKIE_BYTES MAX_FIELDS
        MAX_LAST_TEXT MAX_RETRIES merge_headers""",
    "1.1": """keywords printable MAX_ID_LENGTH MAX_VALUES Context.ask(take=)
        Exchange.hang_up Peer.prepare Peer.push Server.entries Client(cacert=)
        Client(proxy=) HttpTransport(cacert=) HttpTransport(proxy=) MAX_STUCK_PAGES""",
}
# What a user wants to know beyond the docstring.
NOTES = {
    "Server.tool": "`input_schema`, `output_schema`: [by hand](#schemas-by-hand).",
    "Server.prompt": "`members`: icons, _meta.",
    "Server": "`run` gets functions, and has a thread of yours call them: "
    "[Which thread runs a handler?](guide.md#which-thread-runs-a-handler)",
    "Server.resource": "`annotations`: audience, priority, lastModified.",
    "Server.completion": "`reference`: the name of the prompt, or the URI of the template. "
    "[An example](guide.md#how-do-i-complete-an-argument)",
    "Server.call_handler": "`entry` is the registered function, with its `name` and "
    "`definition`; `ctx.method` tells a tool (`tools/call`) from a resource or prompt.",
    "Server.handle": "`principal`: who has sent it, for `ctx.principal`.",
    "Context.log": "`logger`: the name of its source.",
    "Context.elicit": "`form`: the fields, or `url=` or `schema=`, as elicitation() has "
    "them. `key`: a name for the question; without it, its words are its name.",
    "Context.sample": "`options` and `messages`: see sampling().",
    "elicitation": "`schema`: the form as a JSON Schema, in place of `fields`.",
    "sampling": "`messages`: a text, a message, or a list of messages. `options`: "
    "systemPrompt, temperature, tools, ...",
    "image": "`data` is encoded for you.",
    "bearer": "`metadata_url` goes into the header WWW-Authenticate of a 401 (RFC 9728).",
    "event": "`ident`: the id of the event; `fields`: other fields, such as `retry`.",
    "serve_http": "`endpoint` takes the place of `options`.",
    "Endpoint": "`path`: where it is.",
    "Peer.cancel_all": "Cancel all requests that run.",
    "fetch": "`verb`: GET, POST, ...",
    "url_warnings": "`server_url`: that of the server which has sent `url`.",
    "Client.request": "The `options` of other methods are these, too.",
    "Client.complete": "`reference`: the name of the prompt, or the URI of the template.",
    "StdioTransport": "`command`: the program and its arguments; `cwd`: its folder.",
    "Request": "`longest`: seconds, beyond which progress does not extend the `timeout`.",
}
EXAMPLES = {
    "Server.method": """
        from mcp_client import connect
        from mcp_ref import Server
        server = Server("shop")

        @server.method("example.com/stock", extension="example.com/shop")
        def stock(params: dict) -> dict:
            return {"left": 7}

        with connect(server) as client:
            assert client.request("example.com/stock", {})["left"] == 7
    """,
    "Context.ask": """
        from mcp_client import connect
        from mcp_ref import Context, Server, elicitation, roots
        server = Server("shop")

        @server.tool
        def pack(ctx: Context) -> str:
            answers = ctx.ask({"size": elicitation("Which size?", size=str), "where": roots()})
            return answers["size"]["content"]["size"]

        with connect(server, elicit=lambda params: {"size": "L"}, roots="/tmp") as client:
            assert client.call_tool("pack")["content"][0]["text"] == "L"
    """,
    "Client.listen": """
        from mcp_client import connect
        from mcp_ref import Server
        server = Server("shop")
        server.tool(lambda: 7, name="seven")
        with connect(server) as client:
            changes = client.listen(["tools"])
            server.changed("tools")
            assert next(iter(changes)) == "tools"
            changes.close()
    """,
}
# The calls of classes that inherit __init__ from a class of Python's.
CALLS = {
    "keywords": "keywords(**members)",
    "Result": "Result(members: dict)",
    "Transport": "Transport()",
}
# Limits that the comments on them do not explain alone.
LIMITS = {
    "CLOSE_STEP_SECONDS": "until a server exits, after its stdin was closed, and again after "
    "SIGTERM",
    "IDLE_SECONDS": "how long an idle connection is kept: many servers close it after 5 s",
    "MAX_IDLE_SECONDS": "how long a connection is kept between two requests",
    "MAX_CHANGE": "bytes of a change in memory; a larger one is kept if no other waits",
    "MAX_COMPLETIONS": "values of a completion",
    "MAX_CONNECTIONS": "HTTP connections, if there are descriptors (`LimitNOFILE=`: 32 more); "
    "further ones get 503",
    "MAX_LIST_BYTES": "of a list's pages together, decoded",
    "MAX_NAME_LENGTH": "characters of a client's name, title and version",
    "MAX_PAGES": "pages of a list",
    "MAX_QUESTIONS": "questions in one result, or open at a time in a session",
    "MAX_STUCK_PAGES": "pages in a row without a new item",
    "MAX_UNREAD": "changes kept for a reader",
    "PROBE_SECONDS": "until a server on stdio answers; a silent one counts as legacy",
    "RETRY_SECONDS": "before a stream is opened again, or a request repeated, unless the "
    "server names a time",
}
# What the tables of the module have: their rows are named tuples.
TABLES = {
    "REVISIONS": "the revisions, by date, newest first",
    "METHODS": "the methods, by name",
    "NOTIFICATIONS": "the notifications, by name",
    "FEATURES": "the other differences between revisions, by name",
    "DIFFERENCES": "those that this file need not read, by name",
    "META": "the reserved keys of `_meta`",
    "LISTS": "the methods that list something, by name",
    "ERRORS": "the errors, by code",
    "LOG_LEVELS": "the names of log levels, least urgent first",
}


class Source:
    """The source text of a module, and the places of its public names."""

    def __init__(self, path: Path) -> None:
        self.module = importlib.import_module(path.stem)
        self.text = path.read_text("utf-8")
        self.lines = self.text.splitlines()
        self.nodes: dict[str, Any] = {}
        for node in ast.parse(self.text).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                self.nodes[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.nodes[node.targets[0].id] = node

    def find(self, name: str) -> Any:
        """Return the class or function of a name; of an alias, those that it names."""
        node = self.nodes[name]
        if isinstance(node, ast.Assign):
            names = [
                one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)
            ]
            return self.nodes[names[-1]]
        return node

    def members(self, node: ast.ClassDef) -> dict[str, Any]:
        """Return the methods of a class, by name, with those of its private bases."""
        found = {}
        for base in node.bases:
            parent = self.nodes.get(getattr(base, "id", ""))
            if isinstance(parent, ast.ClassDef):
                inherited = self.members(parent)
                if parent.name in self.module.__all__:
                    inherited = {"__init__": inherited.get("__init__")}
                found.update(inherited)
        for one in node.body:
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                # The implementation of an overloaded function has `**members`.
                last = found.get(one.name)
                if not (last in node.body and "overload" in decorators(last)):
                    found[one.name] = one
                elif last.args.args[1:]:  # @tool, without parentheses
                    found[one.name] = one
                else:
                    last.told = ast.get_docstring(one)
        return found

    def signature(self, name: str, node: Any, of_class: bool = False) -> str:
        """Return a call with all parameters, as the source has them."""
        if node is None:
            return CALLS.get(name, f"{name}(message: str)")
        if "property" in decorators(node):
            return f"{name}: {self.segment(node.returns)}"
        given = node.args
        plain = given.posonlyargs + given.args
        values = [None] * (len(plain) - len(given.defaults)) + given.defaults
        parts = [self.parameter(*pair) for pair in zip(plain, values)]
        if given.posonlyargs:
            parts.insert(len(given.posonlyargs), "/")
        if plain and plain[0].arg == "self":
            del parts[0]
        if given.vararg:
            parts.append("*" + self.parameter(given.vararg, None))
        elif given.kwonlyargs:
            parts.append("*")
        parts += [self.parameter(*p) for p in zip(given.kwonlyargs, given.kw_defaults)]
        if given.kwarg:
            parts.append("**" + self.parameter(given.kwarg, None))
        returns = ""
        if not of_class and self.segment(node.returns) not in ("None", "Any"):
            returns = " -> " + self.segment(node.returns)
        short = f"{name}({', '.join(parts)}){returns}"
        if len(short) <= 100:
            return short
        return f"{name}(\n" + "".join(f"    {one},\n" for one in parts) + f"){returns}"

    def segment(self, node: Any) -> str:
        """Return the source of a node, on one line."""
        # ast.get_source_segment() reads the whole text each time.
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join("\n".join(lines).split())

    def parameter(self, node: ast.arg, default: Any) -> str:
        """Return a parameter with its hint and default."""
        shown = node.arg
        hint = self.segment(node.annotation) if node.annotation else "Any"
        if hint != "Any":
            shown += ": " + hint
        if default is not None:
            shown += ("=" if hint == "Any" else " = ") + self.segment(default)
        return shown

    def comment(self, name: str) -> str:
        """Return the comment at the end of a constant's line."""
        line: str = self.lines[self.nodes[name].lineno - 1]
        return line.partition("  # ")[2]


def decorators(node: Any) -> list[str]:
    """Return the names of a function's decorators."""
    return [getattr(one, "id", "") for one in node.decorator_list]


def told(docstring: str | None) -> str:
    """Return the part of a docstring that is for users, as Markdown.

    It ends where a table of states begins, or where it says that the rest is for
    readers of the file. Paragraphs about private names are left out. A table of fields
    becomes a list.
    """
    shown = []
    for paragraph in (docstring or "").split("\n\n"):
        if re.match(r"The rest is for readers|state  ", paragraph):
            break
        if re.match(r" +state  ", paragraph):
            break
        if re.search(
            r"(?<![\w.])_(?!meta\b)[a-z]", re.sub("(?m)^ {4}.*", "", paragraph)
        ):
            continue
        if re.match(" {4}", paragraph):
            shown.append(fields(paragraph))
        else:
            shown.append(" ".join(paragraph.split()))
    return "\n\n".join(filter(None, shown))


def fields(paragraph: str) -> str:
    """Return a list of a table of fields, without private ones."""
    rows: list[list[str]] = []
    for line in paragraph.splitlines():
        names, _, text = line[4:].partition("  ")
        if names:
            rows.append([names, text.strip()])
        elif rows:
            rows[-1][1] += " " + text.strip()
    lines = []
    for names, text in rows:
        if names[0] != "_":
            called = ", ".join(f"`{one}`" for one in names.split(", "))
            lines.append(f"- {called}: {text}")
    return "\n".join(lines)


def newer(name: str) -> str:
    """Tell since which version a name exists, or one of its parameters."""
    words = []
    for version, names in SINCE.items():
        for one in names.split():
            if one == name:
                words.append(f"Since {version}.")
            elif one.startswith(f"{name}("):
                words.append(f"`{one[len(name) + 1 : -1]}` since {version}.")
    return " ".join(words)


class Part(NamedTuple):
    """What the page says about one name."""

    name: str
    call: str
    paragraphs: list[str]
    example: str = ""

    def is_short(self) -> bool:
        """Tell whether an item of a list is enough."""
        return "\n" not in self.call and not self.example

    def item(self) -> str:
        """Return the item of a list."""
        return f"- **`{self.call}`**: {' '.join(self.paragraphs)}"

    def section(self, depth: str) -> str:
        """Return a part of the page with a heading."""
        parts = [f"{depth} {self.name}", f"```py\n{self.call}\n```", *self.paragraphs]
        if self.example:
            parts.append(f"```python\n{self.example}\n```")
        return "\n\n".join(parts)


def part_of(name: str, doc: str, call: str) -> Part:
    """Make the part about one name."""
    example = textwrap.dedent(EXAMPLES.get(name, "")).strip()
    words = [*doc.split("\n\n"), NOTES.get(name, ""), newer(name)]
    return Part(name, call, [one for one in words if one], example)


def listed(parts: list[Part]) -> list[str]:
    """Return a list of parts, if there are any."""
    return ["\n".join(one.item() for one in parts)] if parts else []


def methods_of(source: Source, name: str, node: Any) -> list[str]:
    """Return the parts of the page about the public methods of a class."""
    parts, inherited = [], []
    for key, one in source.members(node).items():
        if key[0] != "_":
            label = f"{name}.{key}"
            call = source.signature(label, one)
            text = told(getattr(one, "told", None) or ast.get_docstring(one))
            if text or label in NOTES or not node.bases:
                parts.append(part_of(label, text, call))
            else:
                inherited.append(f"**`{call}`**")
    long = [one for one in parts if not one.is_short()]
    short = listed([one for one in parts if one.is_short()])
    if inherited:
        base = source.segment(node.bases[0])
        short.append(f"- {', '.join(inherited)}: as in [{base}](#{base.lower()}).")
    if long and short:
        short.insert(0, f"##### Other members of {name}\n")
    return [*(one.section("#####") for one in long), "\n".join(short)]


def group(source: Source, names: list[str]) -> list[str]:
    """Return the parts about functions and classes; the short ones come first."""
    items, sections = [], []
    for name in names:
        node = source.find(name)
        doc = told(ast.get_docstring(node))
        methods: list[str] = []
        if isinstance(node, ast.FunctionDef):
            call = source.signature(name, node)
        elif node.name != name and node.name in source.module.__all__:
            call = f"{name}(...)"
            doc = f"Another name for [{node.name}](#{node.name.lower()})."
        else:
            made = source.members(node).get("__init__")
            call = source.signature(name, made, of_class=True)
            methods = methods_of(source, name, node)
            bases = [source.segment(one) for one in node.bases]
            known = source.module.__all__ + ["ConnectionError"]
            public = [f"`{one}`" for one in bases if one in known]
            doc += "".join(f" A subclass of {one}." for one in public)
        part = part_of(name, doc, call)
        if part.is_short() and not any(methods):
            items.append(part)
        else:
            sections += [part.section("####"), *methods]
    return [*listed(items), *filter(None, sections)]


def value_of(name: str, value: Any) -> str:
    """Return the value of a limit, with its unit."""
    if name.endswith("_SECONDS"):
        return f"{value:g} s"
    if name.endswith("_MS"):
        return f"{value} ms"
    if name.endswith("_BYTES"):
        if value % 2**20 == 0:
            return f"{value >> 20} MiB"
        return f"{value >> 10} KiB"
    return f"{value:,}"


def constants(source: Source) -> str:
    """Return the limits, and names of the protocol."""
    rows, tables, names = [], [], []
    is_module = source.module is mcp_ref
    for name in source.module.__all__:
        value = getattr(source.module, name)
        if not name.isupper():
            continue
        if name in TABLES:
            row = next(iter(value.values()), "") if isinstance(value, dict) else ""
            columns = code(" ".join(getattr(row, "_fields", [])))
            has = f"; each row has {columns}" if row else ""
            tables.append(f"- **`{name}`**: {TABLES[name]}{has}")
        elif isinstance(value, (str, bytes)) or value < 0:
            shown = value if isinstance(value, str) else repr(value)
            names.append(f"- **`{name}`**: `{shown}`")
        else:
            words = LIMITS.get(name) or source.comment(name)
            rows.append((f"`{name}`", value_of(name, value), words))
    parts = [
        "### Limits",
        f"Change one before the first call: `{source.module.__name__}.NAME = value`. "
        + ("[operate.md](operate.md#limits) tells how they work together." * is_module),
        table("name, default, limits", sorted(rows)),
    ]
    if tables:
        parts += [
            "### Tables",
            "\n".join(tables),
            "### Names and codes",
            "[One page](course/reference.md) says when each error and key is sent.",
            "\n".join(names),
        ]
    return "\n\n".join(parts)


def api() -> str:
    """Return the generated half of examples/api.md."""
    parts = []
    for path in (MODULE, CLIENT):
        source = Source(path)
        exported = [one for one in source.module.__all__ if not one.isupper()]
        groups = [*GROUPS[path.stem]]
        grouped = " ".join(names for _, names in groups).split()
        rest = " ".join(sorted(set(exported) - set(grouped)))
        if rest:
            groups.append(("More", rest))
        parts.append(f"## The names of {path.name}")
        if path == MODULE:
            parts.append(HEAD)
        for title, names in groups:
            parts.append(f"### {title}")
            parts += group(source, [one for one in names.split() if one in exported])
        parts.append(constants(source))
    return "\n\n".join(parts) + "\n"


def write_api() -> None:
    """Replace the generated half of examples/api.md."""
    first, mark, _ = API.read_text("utf-8").partition(MARK)
    assert mark, f"{API} has no line {MARK!r}"
    API.write_bytes((first + api()).encode())


def main(words: list[str]) -> None:
    """Print the page, the tables or the reference of the API."""
    if words == ["--api", "--write"]:
        return write_api()
    if words == ["--api"]:
        sys.stdout.buffer.write(api().encode())
        return None
    if words == ["--tables"]:
        return print(listing())
    if words:
        wrong = set(words) - {"-h", "--help"}
        print(__doc__, file=sys.stderr if wrong else sys.stdout)
        sys.exit(2 if wrong else 0)
    revisions = (f"{row.date} ({row.era})" for row in mcp_ref.REVISIONS.values())
    meta = ((f"`{name}`", *rest) for name, *rest in META)
    page = PAGE.format(
        revisions=", ".join(revisions),
        methods=methods(),
        notifications=notifications(),
        meta=table("key, in a, is, says", meta),
        errors=errors(),
        headers=headers(),
        features=features(),
        levels=", ".join(mcp_ref.LOG_LEVELS),
    )
    sys.stdout.buffer.write(page.encode())


if __name__ == "__main__":
    main(sys.argv[1:])
