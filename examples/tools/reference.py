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

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 2)]
import mcp_ref

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
    "cancelled": "requestId",
    "progress": "progressToken progress",
    "message": "level data",
    "resources/updated": "uri",
    "subscriptions/acknowledged": "notifications",
    "elicitation/complete": "elicitationId",
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
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


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
        lambda row: f"`notifications/{row.name}`",
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


def main(words: list[str]) -> None:
    """Print the page, or the tables."""
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
