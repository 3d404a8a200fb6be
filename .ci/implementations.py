#!/usr/bin/env python3
"""Play the vectors on other people's servers, as their packages come.

    implementations.py list
    implementations.py FOLDER [NAME ...] [-- OPTION ...]    # options of run.py

Each server gets a folder of its own in FOLDER, with its packages and the few lines that
start it; what is there is not installed again. Reports are FOLDER/NAME.txt and .json.
Each break is to be judged by the sentence of the specification: a vector that is unjust
is a defect of the vectors.

Some servers are examples of the official SDKs, which no package has. They are cloned
from GitHub, or taken from the bare clones in $MCP_SOURCES (OWNER+NAME/repo).
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "examples" / "vectors" / "run.py"
PYTHON = "MCP_PYTHON"  # names the Python of their environments; some need 3.10 or later
START_SECONDS = 60
MOST_SECONDS = "900"  # for one server; on a busy machine some need half of it


class Server(NamedTuple):
    """How to install and start a server. {port} stands for a port, if it is HTTP."""

    packages: str  # pip or npm, and its arguments
    start: str  # a command; `python` is that of its environment
    program: str = ""  # the text of the file program.* that the command names
    source: str = ""  # OWNER/NAME COMMIT FILE-OR-FOLDER
    path: str = "/mcp"


PYTHON_EVERYTHING = "examples/servers/everything-server/mcp_everything_server"
TS_EVERYTHING = "test/conformance/src/everythingServer.ts"
CALCULATE = """
server.tool({name: 'add', description: 'Add two numbers',
    schema: z.object({a: z.number(), b: z.number()})},
    async ({a, b}) => ({content: [{type: 'text', text: `${a + b}`}]}));
server.tool({name: 'fail', description: 'Fail'}, async () => { throw new Error('no'); });
"""
TMCP = f"""
import * as http from 'node:http';
import {{ McpServer }} from 'tmcp';
import {{ ZodJsonSchemaAdapter }} from '@tmcp/adapter-zod';
import {{ HttpTransport }} from '@tmcp/transport-http';
import {{ StdioTransport }} from '@tmcp/transport-stdio';
import {{ createRequestListener }} from '@remix-run/node-fetch-server';
import {{ z }} from 'zod';
const changed = {{listChanged: true}};
const server = new McpServer({{name: 'it', version: '1.0.0', description: 'it'}}, {{
    adapter: new ZodJsonSchemaAdapter(),
    capabilities: {{tools: changed, prompts: changed, resources: changed}}}});
{CALCULATE}
if (process.argv[2]) {{
    const transport = new HttpTransport(server, {{path: '/mcp'}});
    http.createServer(createRequestListener(async (request) =>
        await transport.respond(request) ?? new Response(null, {{status: 404}})
    )).listen(Number(process.argv[2]), '127.0.0.1');
}} else new StdioTransport(server).listen();
"""
MCP_LITE = """
import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { InMemorySessionAdapter, McpServer, StreamableHttpTransport } from 'mcp-lite';
import { z } from 'zod';
const mcp = new McpServer({name: 'it', version: '1.0.0',
    schemaAdapter: (schema) => z.toJSONSchema(schema)});
mcp.tool('weather', {description: 'The weather somewhere',
    inputSchema: z.object({place: z.string()}),
    outputSchema: z.object({temperature: z.number()}),
    handler: (args) => ({content: [{type: 'text', text: `22 in ${args.place}`}],
        structuredContent: {temperature: 22}})});
const sessions = new InMemorySessionAdapter({maxEventBufferSize: 1024});
const transport = new StreamableHttpTransport({sessionAdapter: sessions});
const handler = transport.bind(mcp);
const app = new Hono();
app.all('/mcp', (c) => handler(c.req.raw));
serve({fetch: app.fetch, port: Number(process.argv[2]), hostname: '127.0.0.1'});
"""
FASTMCP_TS = """
import { FastMCP } from 'fastmcp';
import { z } from 'zod';
const server = new FastMCP({name: 'it', version: '1.0.0'});
server.addTool({name: 'add', description: 'Add two numbers',
    parameters: z.object({a: z.number(), b: z.number()}),
    execute: async ({a, b}) => String(a + b)});
server.addPrompt({name: 'greet', arguments: [{name: 'who', required: true}],
    load: async ({who}) => `Greet ${who}`});
server.addResource({uri: 'test://a', name: 'a', mimeType: 'text/plain',
    load: async () => ({text: 'a'})});
if (process.argv[2]) server.start({transportType: 'httpStream',
    httpStream: {port: Number(process.argv[2]), endpoint: '/mcp'}});
else server.start({transportType: 'stdio'});
"""
FASTMCP = """
import sys
from fastmcp import Context, FastMCP
mcp = FastMCP("it")
@mcp.tool
def add(a: int, b: int) -> int:
    return a + b
@mcp.tool
def fail() -> str:
    raise ValueError("no")
@mcp.tool
async def report(ctx: Context) -> str:
    for done in range(3):
        await ctx.report_progress(done, 3)
        await ctx.info(f"{done} of 3")
    return "done"
@mcp.prompt
def greet(who: str) -> str:
    return f"Greet {who}"
@mcp.resource("test://a")
def a() -> str:
    return "a"
@mcp.resource("test://{name}/data")
def data(name: str) -> str:
    return name
if len(sys.argv) > 1:
    mcp.run("http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    mcp.run()
"""
ZEROMCP = """
import sys, threading
from zeromcp import McpServer
mcp = McpServer("it")
@mcp.tool
def greet(name: str) -> str:
    "Greet somebody."
    return f"Hello, {name}!"
if len(sys.argv) > 1:
    mcp.serve("127.0.0.1", int(sys.argv[1]))
    threading.Event().wait()
else:
    mcp.stdio()
"""
AIOMCP = """
import asyncio
from aiomcp import McpServer, McpStdioServerTransport
async def add(a: int, b: int) -> int:
    return a + b
async def main() -> None:
    server = McpServer("it")
    await server.register_tool(add)
    await server.host(McpStdioServerTransport())
asyncio.run(main())
"""
HTTP_MCP = """
import sys, uvicorn
from http_mcp.server import MCPServer
from http_mcp.types import Arguments, Tool
from pydantic import BaseModel
from starlette.applications import Starlette
class Said(BaseModel):
    text: str
class Heard(BaseModel):
    text: str
def echo(args: Arguments[Said]) -> Heard:
    "Say it again."
    return Heard(text=args.inputs.text)
tools = (Tool(func=echo, inputs=Said, output=Heard),)
server = MCPServer(name="it", version="1.0.0", tools=tools)
app = Starlette()
app.mount("/mcp", server.app)
uvicorn.run(app, port=int(sys.argv[1]))
"""
CHUK = """
import sys
from chuk_mcp_server import run, tool
@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
if len(sys.argv) > 1:
    run(transport="http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    run(transport="stdio")
"""
ARCADE = """
import sys
from typing import Annotated
from arcade_mcp_server import MCPApp
app = MCPApp(name="it", version="1.0.0")
@app.tool
def greet(name: Annotated[str, "Whom to greet"]) -> Annotated[str, "The greeting"]:
    "Greet somebody."
    return f"Hello, {name}!"
if len(sys.argv) > 1:
    app.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    app.run(transport="stdio")
"""
MINIMCP = """
import sys, uvicorn
from minimcp import HTTPTransport, MiniMCP
mcp = MiniMCP(name="it")
@mcp.tool(description="Add two numbers")
def add(a: int, b: int) -> int:
    return a + b
uvicorn.run(HTTPTransport(mcp).as_starlette("/mcp"), port=int(sys.argv[1]))
"""
FASTAPI_MCP = """
import sys, uvicorn
from fastapi import FastAPI
from fastapi_mcp import FastApiMCP
app = FastAPI()
@app.get("/add", operation_id="add")
def add(a: int, b: int) -> int:
    return a + b
FastApiMCP(app).mount_http()
uvicorn.run(app, port=int(sys.argv[1]))
"""
FLASK_MCP = """
import sys
from flask import Flask
from flask_mcp_server import Mcp, mount_mcp
app = Flask(__name__)
@Mcp.tool(name="add")
def add(a: int, b: int) -> int:
    return a + b
mount_mcp(app, url_prefix="/mcp")
app.run(port=int(sys.argv[1]), threaded=True)
"""
TYPESCRIPT = """
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';
serveStdio(() => {
    const server = new McpServer({name: 'it', version: '1.0.0'});
    server.registerTool('add', {description: 'Add two numbers',
        inputSchema: z.object({a: z.number(), b: z.number()})},
        async ({a, b}) => ({content: [{type: 'text', text: String(a + b)}]}));
    return server;
});
"""
MINE = "-m mcp_everything_server.server"
KUBERNETES = """
{apiVersion: v1, kind: Config, current-context: it,
 clusters: [{name: it, cluster: {server: "http://127.0.0.1:9"}}],
 contexts: [{name: it, context: {cluster: it, user: it}}], users: [{name: it, user: {}}]}
"""
TOOLBOX = """
sources:
  it: {kind: sqlite, database: ":memory:"}
tools:
  one: {kind: sqlite-sql, source: it, description: Select one, statement: SELECT 1}
"""
PY_SDK, TS_SDK = (
    "modelcontextprotocol/python-sdk",
    "modelcontextprotocol/typescript-sdk",
)
TS_2 = "@modelcontextprotocol/server @modelcontextprotocol/express @modelcontextprotocol/node"
TMCP_PACKAGES = (
    "npm tmcp @tmcp/adapter-zod @tmcp/transport-http @tmcp/transport-stdio zod "
    "@remix-run/node-fetch-server"
)
# To add one: a line, and above it the few lines of its README's quick start.
SERVERS = {
    "python-sdk-1": Server(
        "pip mcp==1.30.0 click",
        f"python {MINE} --port {{port}}",
        source=f"{PY_SDK} v1.29.0 {PYTHON_EVERYTHING}",
    ),
    "python-sdk-2": Server(
        "pip mcp==2.3.0 click",
        f"python {MINE} --port {{port}}",
        source=f"{PY_SDK} 57394b054 {PYTHON_EVERYTHING}",
    ),
    "typescript-sdk-1": Server(
        "npm @modelcontextprotocol/sdk@1.32.2 cors express tsx zod",
        "env PORT={port} node --import tsx everythingServer.ts",
        source=f"{TS_SDK} v1.29.0 {TS_EVERYTHING}",
    ),
    "typescript-sdk-2": Server(
        f"npm {TS_2} cors express tsx zod",
        "env PORT={port} node --import tsx everythingServer.ts",
        source=f"{TS_SDK} 3924de99d {TS_EVERYTHING}",
    ),
    "typescript-sdk-2-stdio": Server(
        "npm @modelcontextprotocol/server zod", "node program.mjs", TYPESCRIPT
    ),
    "typescript-everything": Server(
        "npm @modelcontextprotocol/server-everything",
        "env PORT={port} npx mcp-server-everything streamableHttp",
    ),
    "typescript-everything-stdio": Server(
        "npm @modelcontextprotocol/server-everything", "npx mcp-server-everything"
    ),
    "typescript-filesystem": Server(
        "npm @modelcontextprotocol/server-filesystem", "npx mcp-server-filesystem ."
    ),
    "fastmcp": Server("pip fastmcp", "python program.py {port}", FASTMCP),
    "fastmcp-stdio": Server("pip fastmcp", "python program.py", FASTMCP),
    "python-time": Server("pip mcp-server-time", "python -m mcp_server_time"),
    "zeromcp": Server("pip zeromcp", "python program.py {port}", ZEROMCP),
    "zeromcp-stdio": Server("pip zeromcp", "python program.py", ZEROMCP),
    "aiomcp": Server("pip aiomcp", "python program.py", AIOMCP),
    "http-mcp": Server(
        "pip http-mcp uvicorn", "python program.py {port}", HTTP_MCP, path="/mcp/"
    ),
    "chuk-mcp": Server("pip chuk-mcp-server", "python program.py {port}", CHUK),
    "chuk-mcp-stdio": Server("pip chuk-mcp-server", "python program.py", CHUK),
    "arcade": Server("pip arcade-mcp-server", "python program.py {port}", ARCADE),
    "arcade-stdio": Server("pip arcade-mcp-server", "python program.py", ARCADE),
    "minimcp": Server("pip minimcp mcp<2 uvicorn", "python program.py {port}", MINIMCP),
    "fastapi-mcp": Server(
        "pip fastapi-mcp mcp<2", "python program.py {port}", FASTAPI_MCP
    ),
    "flask-mcp": Server("pip flask-mcp-server", "python program.py {port}", FLASK_MCP),
    "fastmcp-typescript": Server(
        "npm fastmcp zod", "node program.mjs {port}", FASTMCP_TS
    ),
    "fastmcp-typescript-stdio": Server(
        "npm fastmcp zod", "node program.mjs", FASTMCP_TS
    ),
    "mcp-lite": Server(
        "npm mcp-lite hono @hono/node-server zod", "node program.mjs {port}", MCP_LITE
    ),
    "tmcp": Server(TMCP_PACKAGES, "node program.mjs {port}", TMCP),
    "tmcp-stdio": Server(TMCP_PACKAGES, "node program.mjs", TMCP),
    # In Go (the official SDK; a toolbox of its own) and C# (the official SDK).
    "kubernetes-go": Server(
        "npm kubernetes-mcp-server",
        "npx kubernetes-mcp-server --bind-address 127.0.0.1 --port {port} "
        "--kubeconfig program.yaml",
        KUBERNETES,
    ),
    "toolbox-go": Server(
        "npm @toolbox-sdk/server",
        "npx toolbox --port {port} --config program.yaml",
        TOOLBOX,
    ),
    "azure-csharp": Server(
        "npm @azure/mcp-linux-x64", "npx azmcp-linux-x64 server start"
    ),
}


# ---- installing


def git_of(repository: str, scratch: Path) -> Path:
    """Find a clone of a repository, or make one."""
    if sources := os.environ.get("MCP_SOURCES"):
        return Path(sources) / repository.replace("/", "+") / "repo"
    clone = scratch / repository.replace("/", "+")
    if not clone.exists():
        url = f"https://github.com/{repository}"
        subprocess.run(["git", "clone", "-q", "--bare", url, str(clone)], check=True)
    return clone


def install(server: Server, folder: Path) -> None:
    """Install what a server needs, unless it is there."""
    done = folder / "installed"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        manager, *packages = server.packages.split()
        if manager == "pip":
            python = os.environ.get(PYTHON, sys.executable)
            subprocess.run([python, "-m", "venv", "venv"], cwd=folder, check=True)
            command = ["venv/bin/python", "-m", "pip", "install", "-qqq", *packages]
        else:
            package = {"name": "it", "version": "1.0.0", "type": "module"}
            (folder / "package.json").write_text(json.dumps(package), "utf-8")
            command = ["npm", "install", "--silent", "--no-audit", *packages]
        subprocess.run(command, cwd=folder, check=True)
        if server.source:
            check_out(server.source, folder)
        done.touch()
    for word in server.start.split():
        if word.startswith("program."):
            (folder / word).write_text(server.program, "utf-8")


def check_out(source: str, folder: Path) -> None:
    """Put a file or a folder of a repository into a folder, under its last name."""
    repository, commit, path = source.split()
    tree = folder / "tree"
    tree.mkdir(exist_ok=True)
    git = ["git", f"--git-dir={git_of(repository, folder)}", f"--work-tree={tree}"]
    # A bare clone may be read-only, and its index is not ours.
    environment = {**os.environ, "GIT_INDEX_FILE": str(folder.resolve() / "index")}
    checkout = [*git, "checkout", "-qf", commit, "--", path]
    subprocess.run(checkout, check=True, env=environment)
    found = tree / path
    if found.is_file():  # in the repository, the SDK's own sources are beside it
        text = found.read_text("utf-8")
        text = text.replace("../../../src/", "@modelcontextprotocol/sdk/")
        found.write_text(text, "utf-8")
    found.rename(folder / found.name)


# ---- playing


def free_port() -> int:
    """Find a port that is free now."""
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        port: int = link.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server listens."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the server did not start")


def command_of(server: Server, folder: Path, port: int) -> list[str]:
    """Make the command that starts a server."""
    programs = {"python": folder / "venv/bin/python"}
    words = shlex.split(server.start.replace("{port}", str(port)))
    if "npx" in words:  # npx would stand between us and the server
        place = words.index("npx")
        words[place : place + 2] = [
            str(folder / "node_modules/.bin" / words[place + 1])
        ]
    return [str(programs.get(word, word)) for word in words]


def play(name: str, folder: Path, options: list[str]) -> str:
    """Play the vectors on a server; return the last words of the report."""
    server = SERVERS[name]
    folder = (folder / name).resolve()
    install(server, folder)
    port = free_port()
    command = command_of(server, folder, port)
    report = folder.parent / f"{name}.txt"
    report_json = str(folder.parent / f"{name}.json")
    options = ["--quiet", "--limit", MOST_SECONDS, "--json", report_json, *options]
    target, process = command, None
    if "{port}" in server.start:
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=-3,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(port, process)
        target = [f"http://127.0.0.1:{port}{server.path}"]
    try:
        with open(report, "wb") as text:
            runner = [sys.executable, str(RUN), *options, *target]
            subprocess.run(runner, cwd=folder, stdout=text, stderr=text, check=False)
    finally:
        if process:
            os.killpg(process.pid, 9)
            process.wait()
    return report.read_text("utf-8")


def main() -> int:
    """Read the command line."""
    words, options = sys.argv[1:] or ["list"], []
    if "--" in words:
        place = words.index("--")
        words, options = words[:place], words[place + 1 :]
    if words[0] in ("list", "-h", "--help"):
        print(__doc__)
        for name, server in SERVERS.items():
            print(f"{name:28}{server.packages}")
        return 0
    failed = 0
    for name in words[1:] or SERVERS:
        try:
            text = play(name, Path(words[0]), options)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as problem:
            failed += 1
            text = f"not played: {problem}"
        found = [line for line in text.splitlines() if line.startswith("BROKEN ")]
        print(f"{name}: {text.splitlines()[-1]}", *found, sep="\n  ", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
