"""The referee's own rows: what each revision has, read from its schema.ts and pages.

They repeat the tables of mcp_ref.py on purpose: a wrong row there makes a test fail
(`test_the_tables_are_those_of_the_specification`). A new revision adds rows to both.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A method, a notification, a code, a key of `_meta`, a member or another
    difference."""

    name: str
    since: str
    until: str = ""
    way: str = ""  # ">" if clients send it, "<" if servers send it
    flags: str = ""


def rows(text: str) -> dict[str, Row]:
    """Read a table; `-` is an empty cell."""
    found = {}
    for line in text.strip().splitlines():
        cells = ["" if cell == "-" else cell for cell in line.split()]
        found[cells[0]] = Row(*cells)
    return found


# `cacheable`: its result has caching hints; `asks`: it may ask for input.
METHODS = rows("""
    server/discover           2026-07-28  -           >   cacheable
    tools/list                2024-11-05  -           >   cacheable
    tools/call                2024-11-05  -           >   asks
    resources/list            2024-11-05  -           >   cacheable
    resources/templates/list  2024-11-05  -           >   cacheable
    resources/read            2024-11-05  -           >   cacheable,asks
    prompts/list              2024-11-05  -           >   cacheable
    prompts/get               2024-11-05  -           >   asks
    completion/complete       2024-11-05  -           >
    subscriptions/listen      2026-07-28  -           >
    initialize                2024-11-05  2025-11-25  >
    ping                      2024-11-05  2025-11-25  <>
    logging/setLevel          2024-11-05  2025-11-25  >
    resources/subscribe       2024-11-05  2025-11-25  >
    resources/unsubscribe     2024-11-05  2025-11-25  >
    elicitation/create        2025-06-18  -           <
    sampling/createMessage    2024-11-05  -           <
    roots/list                2024-11-05  -           <
""")
NOTIFICATIONS = rows("""
    notifications/cancelled                   2024-11-05  -           <>
    notifications/progress                    2024-11-05  -           <>
    notifications/message                     2024-11-05  -           <
    notifications/tools/list_changed          2024-11-05  -           <
    notifications/prompts/list_changed        2024-11-05  -           <
    notifications/resources/list_changed      2024-11-05  -           <
    notifications/resources/updated           2024-11-05  -           <
    notifications/subscriptions/acknowledged  2026-07-28  -           <
    notifications/elicitation/complete        2025-11-25  2025-11-25  <
    notifications/initialized                 2024-11-05  2025-11-25  >
    notifications/roots/list_changed          2024-11-05  2025-11-25  >
""")
ERRORS = rows("""
    -32700  2024-11-05
    -32600  2024-11-05
    -32601  2024-11-05
    -32602  2024-11-05
    -32603  2024-11-05
    -32020  2026-07-28
    -32021  2026-07-28
    -32022  2026-07-28
    -32002  2024-11-05  2025-11-25
    -32042  2025-11-25  2025-11-25
""")
META = rows("""
    io.modelcontextprotocol/protocolVersion     2026-07-28  -  >
    io.modelcontextprotocol/clientCapabilities  2026-07-28  -  >
    io.modelcontextprotocol/clientInfo          2026-07-28  -  >
    io.modelcontextprotocol/logLevel            2026-07-28  -  >
    io.modelcontextprotocol/subscriptionId      2026-07-28  -  <
    io.modelcontextprotocol/serverInfo          2026-07-28  -  <
""")
# Members that some revisions lack, as "kind.member"; "*": of anything that is listed.
MEMBERS = rows("""
    result.ttlMs              2026-07-28
    result.cacheScope         2026-07-28
    result.resultType         2026-07-28
    *.icons                   2025-11-25
    server.description        2025-11-25
    server.websiteUrl         2025-11-25
    *.title                   2025-06-18
    *._meta                   2025-06-18
    tool.outputSchema         2025-06-18
    result.structuredContent  2025-06-18
    annotations.lastModified  2025-06-18
    tool.annotations          2025-03-26
    elicitation.mode          2025-11-25
    elicitation.url           2025-11-25
    sampling.tools            2025-11-25
    capabilities.completions  2025-03-26
""")
OTHERS = rows("""
    batches            2025-03-26  2025-03-26
    null-id-in-errors  2024-11-05  2025-06-18
""")
