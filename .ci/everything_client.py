#!/usr/bin/env python3
"""Do what the official conformance suite expects of a client: everything_client.py URL.

The suite starts a server and this program with its URL. The environment says the rest:
MCP_CONFORMANCE_SCENARIO (its name), _PROTOCOL_VERSION (the revision), _CONTEXT (a JSON
object). Without a scenario it lists everything, calls each tool with made-up arguments,
and declines what it is asked; it prints nothing, and raises an exception if anything
fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

sys.path += [
    str(Path(__file__).resolve().parents[1] / folder)
    for folder in ("examples/extensions", "examples", ".")
]

import oauth
from mcp_client import connect, fetch
from skills import Skills

from mcp_ref import RpcError, versions

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))

# Arguments for a tool: one for each thing that its schema requires.
SAMPLES: dict[str, Any] = {"integer": 5, "number": 2.5, "boolean": True, "array": []}
SAMPLES.update({"object": {}, "null": None})


def sample(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that will do for a schema: what is required, and plain."""
    return {
        name: part.get("default", SAMPLES.get(part.get("type"), "text"))
        for name, part in schema.get("properties", {}).items()
        if name in schema.get("required", ())
    }


def look_at_all(client: Any) -> None:
    """List everything; then call each tool, read each resource, get each prompt."""
    for tool in client.list_tools():
        client.call_tool(tool["name"], sample(tool["inputSchema"]))
    for resource in client.list_resources():
        client.read_resource(resource["uri"])
    client.list_resource_templates()
    for prompt in client.list_prompts():
        needed = [one for one in prompt.get("arguments", ()) if one.get("required")]
        client.get_prompt(prompt["name"], {one["name"]: "text" for one in needed})


def call_as_told(client: Any) -> None:
    """Call the tools that the scenario names, with its arguments: some become
    headers."""
    client.list_tools()
    for call in CONTEXT["toolCalls"]:
        client.call_tool(call["name"], call["arguments"])


def echo_schema(client: Any) -> None:
    """Give back the schema of a tool as it came: nothing of it may be lost on the
    way."""
    schemas = {tool["name"]: tool["inputSchema"] for tool in client.list_tools()}
    schema = schemas["json_schema_2020_12_tool"]
    client.call_tool("json_schema_echo", {"schema": schema})


def call_all_tools(client: Any) -> None:
    """Call every tool; one that answers with an error does not keep us from the
    next."""
    for tool in client.list_tools():
        try:
            client.call_tool(tool["name"], sample(tool["inputSchema"]))
        except RpcError as error:
            print(f"{tool['name']}: {error}", file=sys.stderr)


class NoBrowser(oauth.Browser):
    """Logs in without a user: the suite's page redirects at once."""

    @contextlib.contextmanager
    def listen(self, registered: str, state: str) -> Iterator[str]:
        yield "http://localhost:3000/callback"  # nothing listens there

    def visit(self, url: str) -> str:
        return urljoin(url, fetch("GET", url, {})[1].get("location", ""))


def log_in() -> oauth.OAuth:
    """Return the hook for protected servers: the context says who we are, where it
    matters."""
    names = ("client_id", "client_secret", "issuer")
    own = {name: CONTEXT[name] for name in names if name in CONTEXT}
    grant: Any = oauth.AuthorizationCode(NoBrowser())
    if SCENARIO.startswith("auth/client-credentials"):
        grant = oauth.ClientCredentials()
    elif "valid_jwt" in CONTEXT:
        grant = oauth.Workload(lambda issuer: str(CONTEXT["valid_jwt"]))
    elif "idp_id_token" in CONTEXT:
        place, who = CONTEXT["idp_token_endpoint"], CONTEXT["idp_client_id"]
        grant = oauth.EnterpriseManaged(place, lambda: CONTEXT["idp_id_token"], who)
    pem = CONTEXT.get("private_key_pem")
    key = oauth.Key(pem) if pem else None
    url = "https://conformance-test.local/client-metadata.json"
    return oauth.OAuth(metadata_url=url, grant=grant, key=key, **own)


def list_skills(client: Any) -> Any:
    """List the skills, and read none of them."""
    skills = Skills(client, "suite", lambda skill: True)
    return skills, skills.list_skills()


def load_skills(client: Any) -> None:
    """Load each skill and read its files; one that differs from its entry ends this."""
    skills, found = list_skills(client)
    for skill in found:
        skills.load(skill)
        for path in skill.files:
            skills.read(skill, path)


SCENARIOS: dict[str, Callable[[Any], Any]] = {
    "http-custom-headers": call_as_told,
    "json-schema-2020-12-preservation": echo_schema,
    "json-schema-ref-no-deref": lambda client: client.list_tools(),
    "sep-2322-client-request-state": call_all_tools,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": load_skills,
    "sep-2640-client-verify-size": load_skills,
    "sep-2640-client-verify-frontmatter": load_skills,
}


def main(url: str) -> None:
    """Connect as the scenario wants it, and do what it is about."""
    # A revision of the modern era is tried first anyway; an older one has to be asked
    # for.
    revision = VERSION if VERSION in versions("legacy") else ""
    # A client that can be asked something opens a stream of its own for that, in a
    # legacy session; sse-retry takes any such stream for an answer to what it did to
    # another.
    answers: dict[str, Any] = (
        {}
        if SCENARIO == "sse-retry"
        else {
            "elicit": lambda form: {} if SCENARIO else "decline",
            "sample": lambda question: "a text",
            "roots": [],
        }
    )
    # The suite starts 48 of us at once: silence says less than it usually does, and
    # server/discover has half of the time.
    with connect(
        url, revision=revision, timeout=40, authorize=log_in(), **answers
    ) as client:
        act: Callable[[Any], Any] = SCENARIOS.get(SCENARIO, look_at_all)
        act(client)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
