"""Checks of pages, figures, links and layout: `.ci/run pages_and_figures`."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import textwrap
import tokenize
from pathlib import Path
from typing import Any

import pytest
from testing.places import (
    EXERCISES,
    HOST,
    LESSONS,
    TOOLS,
    ask,
    command,
    listening,
    make_certificate,
    modern,
    run_printed,
    serve_tool,
)
from testing.scripts import (
    HERE,
    MCP_CLIENT,
    MCP_REF,
    OTHER,
    PATIENCE,
    POSIX,
    begin,
    client,
    exchange,
    headers_of,
    load,
    mcp,
    needs_posix,
    parametrize,
    wait_until,
)

# ---- the reference: the tables of hints, the programs, the names


API = (HERE / "examples" / "api.md").read_text("utf-8")
HINTS = load("hint_schemas", HERE / ".ci" / "hint_schemas.py")


def rows_of(title: str) -> list[str]:
    """Return the rows of the first table under a heading, without its head."""
    table = API.partition(f"\n## {title}\n")[2].partition("\n|---")[2]
    return table.partition("\n\n")[0].splitlines()[1:]


@parametrize("hint, schema, sent, got, returned", [*HINTS.rows()])
def test_the_page_of_hints_is_true(hint, schema, sent, got, returned):
    kind, value = eval(hint, HINTS.NAMES), eval(got, HINTS.NAMES)
    assert mcp.schema_of(kind) == json.loads(schema)
    seen = []

    def takes(x):
        seen.append(x)
        return value

    takes.__annotations__ = {"x": kind, "return": kind}
    server, tool = serve_tool(takes)
    result = ask(server, "tools/call", name="t", arguments={"x": json.loads(sent)})
    assert seen == [value], result
    shown = result["content"]
    text = shown[0]["text"] if shown else "null"
    if os.name == "nt":  # a Path has the separators of its platform
        text = text.replace("\\", "/")
    assert returned in (text, json.dumps(text))
    if "outputSchema" in tool:
        structured = result["structuredContent"]
        assert mcp.Schema(tool["outputSchema"]).flaw(structured) is None


def result_rows():
    """Yield the rows of the table: each hint, and the other cells."""
    for line in rows_of("Results"):
        hints, *cells = line.strip("| ").split(" | ")
        for hint in hints.split(", `"):
            yield (hint.strip("`"), *cells)


@parametrize("hint, returned, schema, content, structured", [*result_rows()])
def test_the_page_tells_what_a_client_sees(hint, returned, schema, content, structured):
    names = {**HINTS.NAMES, "image": mcp.image, "text": mcp.text}

    def gives():
        return eval(returned.strip("`"), names)

    if hint != "none":
        gives.__annotations__ = {"return": eval(hint, names)}
    server = mcp.Server("s")
    server.tool(gives)
    assert ("outputSchema" in server.tools["gives"].definition) == (schema == "yes")
    result = server.call("gives")
    blocks = [
        f"`{one['text']}`" if "text" in one else f"an {one['type']}"
        for one in result["content"]
    ]
    assert ", ".join(blocks or ["none"]) == content
    shown = json.dumps(result.get("structuredContent", ""))
    assert (f"`{shown}`" if shown != '""' else "none") == structured


GUIDE = (HERE / "examples" / "guide.md").read_text("utf-8")


def programs_of(page: str) -> list[str]:
    return re.findall("(?s)```python\n(.*?)```", page)


# Those that serve run in a process of their own: see below.
@parametrize("source", [one for one in programs_of(API + GUIDE) if ".run()" not in one])
def test_the_programs_of_the_pages_run(source, capfd):
    exec(source, {"__name__": "page"})


# Its second half. What it says must be what the files have, whoever made the page.
GENERATED = API.partition("\n## The names of mcp_ref.py\n")[2]
MODULES = {"mcp_ref": mcp, "mcp_client": client}
MAKE = "run `python3 examples/tools/reference.py --api --write`"


def public_names() -> dict[str, Any]:
    """Return all public names, and those of the methods of public classes."""
    found = {}
    for module in MODULES.values():
        for name in module.__all__:
            value = getattr(module, name)
            value = found[name] = getattr(value, "__wrapped__", value)
            if not isinstance(value, type) or name == "connect":
                continue  # connect() is another name for Client
            for base in value.__mro__:
                # A public base has its own entry.
                is_ours = base.__module__ == module.__name__
                if base is value or is_ours and base.__name__ not in module.__all__:
                    for key, one in vars(base).items():
                        is_shown = inspect.isfunction(one) or isinstance(one, property)
                        if key[0] != "_" and is_shown:
                            found[f"{name}.{key}"] = one
    return found


PUBLIC = public_names()


def test_the_reference_is_what_the_docstrings_say():
    page = HERE / "examples" / "tools" / "reference.py"
    made = command(str(page), "--api").stdout
    assert API.endswith(made), f"examples/api.md is old: {MAKE}"


def test_what_lessons_say_of_the_code_is_true():
    """Where this fails because the module has changed, one command writes it again."""
    done = command(str(TOOLS / "walk.py"), "--check", seconds=20 * PATIENCE)
    assert (done.returncode, done.stdout) == (0, "as written\n"), done


def calls_of(page: str) -> dict[str, tuple[str, str]]:
    """Return the call and the text of each name: of sections, items, rows."""
    sections = r"(?ms)^####+ \S+\n\n```py\n(.*?)\n```(.*?)(?=^##|^- \*\*|\Z)"
    found = re.findall(sections, page)
    found += re.findall(r"(?m)^\| `([A-Z_]+)` \|(.*)", page)
    for line in re.findall(r"(?m)^- \*\*.*", page):
        calls = re.findall(r"\*\*`(.*?)`\*\*", line)  # several if they are inherited
        found += [(call, line.rpartition("**: ")[2]) for call in calls]
    names = [re.match(r"[\w.]+", call)[0] for call, _ in found]
    assert len(names) == len(set(names)) > 100
    return dict(zip(names, found))


CALLS = calls_of(GENERATED)


@parametrize("name", PUBLIC)
def test_the_reference_has_each_name_and_parameter(name):
    assert name in CALLS, f"examples/api.md lacks {name}: {MAKE}"
    call, text = CALLS[name]
    value = PUBLIC[name]
    value = getattr(value, "fget", value)  # of a property
    if name.isupper():
        return
    assert len(text.split()) > 2, f"{name} has no docstring"
    if name == "connect" or (isinstance(value, type) and "__init__" not in vars(value)):
        return  # another name, or a class with the parameters of its base
    for parameter in inspect.signature(value).parameters.values():
        if parameter.name not in ("self", "function"):
            assert re.search(rf"\b{parameter.name}\b", call), (
                f"{call}\n{parameter}: {MAKE}"
            )


def test_the_reference_has_no_name_that_does_not_exist():
    assert {*CALLS} == {*PUBLIC}, MAKE


def test_new_names_of_the_reference_exist():
    page = load("reference", HERE / "examples" / "tools" / "reference.py")
    named = " ".join(page.SINCE.values()).split()
    for name in {
        *named,
        *page.EXAMPLES,
        *page.NOTES,
        *page.CALLS,
        *page.LIMITS,
        *page.TABLES,
    }:
        called, _, parameter = name.rstrip("=)").partition("(")
        assert called in PUBLIC, name
        if parameter:
            assert parameter in inspect.signature(PUBLIC[called]).parameters, name


EXAMPLES = sorted((HERE / "examples").rglob("*.py"))
RUN = [
    path
    for path in EXAMPLES
    if '\nif __name__ == "__main__":' in path.read_text("utf-8")
    or path.name == "00_client_by_hand.py"
    if path.parent.name != "hosts"  # they run inside an application
]


@needs_posix
@parametrize("path", RUN, ids=lambda path: path.stem)
def test_every_example_that_is_run_answers_help(path):
    """A server takes the words for its program's, and ends with its input."""
    done = command(str(path), "--help")
    assert done.returncode == 0, done.stderr


# ======== Documents: printed commands print what they say; cut copies work; figures


README = (HERE / "README.md").read_text("utf-8")


DOCUMENTS = {"README": "\n".join(re.findall(r"(?ms)^```console\n(.*?)^```", README))}
for path in EXAMPLES:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")), clean=False) or ""
    if "\n    $ " in docstring and path != MCP_CLIENT:
        DOCUMENTS[path.stem] = inspect.cleandoc(docstring) + "\n"


@parametrize("name", DOCUMENTS)
def test_a_document_shows_what_its_commands_print(name):
    # Under Wine, a server may take longer to start than 02_long_work waits.
    others = "02_long_work 09_socket check config mount server tap".split()
    if ("by_hand" in name or name in others) and not POSIX:
        pytest.skip(OTHER)
    # `$ command`, perhaps on several lines, and the output, where `...` stands for
    # anything
    found = re.findall(
        r"(?m)^( *)\$ ((?:.*\\\n)*.+)\n((?:\1(?!\$ ) *\S.*\n)*)", DOCUMENTS[name]
    )
    assert found, "there is no command"
    came = [begin(run_printed, line) for _, line, _ in found]  # all at the same time
    for (_, line, shown), output in zip(found, [future.result() for future in came]):
        pattern = re.escape(textwrap.dedent(shown).strip()).replace(
            re.escape("..."), ".*"
        )
        assert re.fullmatch(pattern, output.strip(), re.DOTALL), (
            f"{line}\n{shown}\ncame:\n{output}"
        )


def test_the_python_of_the_readme_runs():
    start = f"import sys\nsys.path += {[str(HERE / 'examples'), str(HERE / 'examples' / 'extensions')]}\n"
    serving = [one for one in programs_of(API + GUIDE) if ".run()" in one]
    for block in [*programs_of(README), *serving]:
        done = command("-c", start + block, cwd=HERE)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_the_readme_is_short_and_names_the_newest_release():
    assert len(README.splitlines()) <= 130
    changes = (HERE / ".github" / "CHANGELOG.md").read_text("utf-8")
    number, entry = re.search(r"(?ms)^## (\S+) \(\d.*?\n(.*?)^## ", changes).groups()
    digest = re.search(r"([0-9a-f]{64})  mcp_ref.py", entry)[1]
    assert f"The newest release is {number}," in README and digest in README


# The page for operators: its server and its nginx, together.
OPERATE = (HERE / "examples" / "operate.md").read_text("utf-8")


def block_of(language: str) -> str:
    return re.search(rf"(?ms)^```{language}\n(.*?)^```", OPERATE)[1]


@pytest.fixture
def operated(tmp_path, monkeypatch):
    """Let the page's server be started, with the key "k"; return its path."""
    (tmp_path / "keys.json").write_text('{"k": "ann"}')
    for name, value in (
        ("MCP_KEYS", str(tmp_path / "keys.json")),
        ("MCP_STATE_KEY", "s" * 32),
        ("PYTHONPATH", str(MCP_REF.parent)),
    ):
        monkeypatch.setenv(name, value)
    (tmp_path / "server.py").write_text(block_of("python"))
    return tmp_path / "server.py"


def call_whoami(key: str, host: str = HOST) -> tuple[dict, str]:
    message = modern("tools/call", name="whoami", arguments={})
    headers = {**headers_of(message), "Host": host, "Authorization": f"Bearer {key}"}
    return headers, json.dumps(message)


def test_the_operators_server_tells_its_health_and_takes_new_keys(operated):
    with listening(str(operated)) as (process, url):
        port = int(url.split(":")[2].partition("/")[0])
        health = exchange(port, "GET", "/health", {"Host": "10.0.0.1"})
        assert (health[0], health[2]) == (200, b"ok\n")

        def status(*who):
            headers, body = call_whoami(*who)
            return exchange(port, "POST", "/mcp", headers, body)[0]

        assert [status("k"), status("new")] == [200, 401]
        (operated.parent / "keys.json").write_text('{"new": "ann"}')
        assert [status("k"), status("new"), status("new", "x")] == [401, 200, 403]
        process.terminate()
        assert process.wait(PATIENCE) == 0 or not POSIX
        log = process.stdout.read()
        assert re.findall("POST /mcp: (...) ", log) == ["401", "401", "403"], log
        assert "health" not in log


def configure_nginx(folder: str, ports: list[str]) -> list[str]:
    """Write the page's block, with other places in it; return the command."""
    block = block_of("nginx")
    for old, new in (
        ("/etc/tools/key.pem", f"{folder}/key"),
        ("/etc/tools/cert.pem", f"{folder}/cert"),
        ("listen 443 ", f"listen unix:{folder}/front "),
        ("127.0.0.1:8001", ports[0]),
        ("127.0.0.1:8002", ports[1]),
    ):
        assert block.count(old) == 1, old
        block = block.replace(old, new)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    Path(folder, "conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{places}{block}}}\n"
    )
    return ["nginx", "-e", f"{folder}/log", "-c", f"{folder}/conf"]


def ask_nginx(folder: str) -> bytes:
    headers, body = call_whoami("k")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    plain = socket.socket(socket.AF_UNIX)
    plain.settimeout(PATIENCE)
    plain.connect(f"{folder}/front")
    context = ssl.create_default_context(cafile=f"{folder}/cert")
    with context.wrap_socket(plain, server_hostname=HOST) as link:
        link.sendall(
            f"POST /tools/mcp HTTP/1.1\r\n{head}Connection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        with link.makefile("rb") as answer:
            return answer.read()


@needs_posix
@pytest.mark.skipif(not shutil.which("nginx"), reason="there is no nginx")
@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")
@parametrize("gone", [0, 1])
def test_the_operators_nginx_finds_the_process_that_is_left(gone, operated):
    folder = tempfile.mkdtemp()  # the path of a Unix socket must be short

    def listens() -> bool:
        with socket.socket(socket.AF_UNIX) as link:
            return link.connect_ex(f"{folder}/front") == 0

    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        make_certificate(folder)
        started = [stack.enter_context(listening(str(operated))) for _ in "ab"]
        words = configure_nginx(folder, [url.split("/")[2] for _, url in started])
        subprocess.run([*words, "-t"], check=True, capture_output=True)
        nginx = stack.enter_context(subprocess.Popen(words))
        stack.callback(nginx.kill)
        wait_until(listens)
        assert b'"text":"ann"' in ask_nginx(folder)
        started[gone][0].kill()
        started[gone][0].wait(PATIENCE)
        assert b'"text":"ann"' in ask_nginx(folder)


# ---- the layout of the repository's Python


FILES = sorted(
    path
    for folder in (HERE, HERE / ".ci", HERE / "examples")
    for path in (folder.glob("*.py") if folder == HERE else folder.rglob("*.py"))
)


MOST_LINES, MOST_COLUMNS = 50, 88  # of a function; of a comment or docstring
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def prose_of(source: str) -> set[int]:
    """Return the numbers of the lines with comments and docstrings.

    But for commands with what they print, `# mypy:` lines, and what `# fmt: off` leaves
    as it is.
    """
    lines, found = ["", *source.split("\n")], set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            shown = False
            for number in range(node.body[0].lineno, node.body[0].end_lineno + 1):
                line = lines[number].strip()
                shown = bool(line) and (shown or line.startswith("$ "))
                found.update(() if shown else [number])
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("# mypy:"):
            found.add(token.start[0])
    off = 0
    for number, line in enumerate(lines):
        if line.strip() in ("# fmt: off", "# fmt: on"):
            off = number if "off" in line else 0
        found.difference_update([number] if off else ())
    return found


@parametrize("path", FILES, ids=lambda path: path.relative_to(HERE).as_posix())
def test_functions_are_short_and_prose_is_narrow(path):
    source = path.read_text("utf-8")
    lines = source.split("\n")
    long = [
        f"{path}:{node.lineno}: {node.name} has more than {MOST_LINES} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno - node.lineno >= MOST_LINES
    ]
    wide = [
        f"{path}:{number}: more than {MOST_COLUMNS} columns: {lines[number - 1]}"
        for number in sorted(prose_of(source))
        if len(lines[number - 1]) > MOST_COLUMNS
    ]
    assert not long + wide, "\n".join(long + wide)


# The wall: minutes of reading. CONTRIBUTING.md says how a file may grow.
MOST_MINUTES = {"mcp_ref.py": 512, "examples/mcp_client.py": 200}
SHAPE = load("shape", HERE / ".ci" / "shape.py")


def minutes_of(path: str) -> int:
    return SHAPE.measured((HERE / path).read_text("utf-8"))["minutes"]


@parametrize("path", MOST_MINUTES)
def test_a_file_to_copy_is_read_in_its_time(path):
    minutes = minutes_of(path)
    assert minutes <= MOST_MINUTES[path], (
        f"{path} takes {minutes} minutes to read, {MOST_MINUTES[path]} are allowed: "
        "simplify it, or leave a feature out and say so (`python3 .ci/shape.py`)"
    )


def test_a_figure_of_the_shape_is_the_same_on_every_python():
    source = 'x = f"{a!r} of {b}"  # two words\n'
    (part,) = SHAPE.sections(source)
    assert (part.tokens, part.words, part.skip) == (3, 2, False)


def is_about(stated: str, true: int) -> bool:
    """Tell whether a figure of the README is true, to 10 %."""
    return abs(int(stated.replace(",", "")) - true) <= true / 10


def test_the_sizes_in_the_readme_are_true():
    said = re.search(
        r"one file of ([\d,]+) lines \((\d+) minutes of reading\), the client another of "
        r"([\d,]+) \((\d+)\)",
        README,
    )
    files = ["mcp_ref.py", "examples/mcp_client.py"]
    lines = [len((HERE / one).read_bytes().splitlines()) for one in files]
    minutes = [minutes_of(one) for one in files]
    assert is_about(said[1], lines[0]) and is_about(said[2], minutes[0])
    assert is_about(said[3], lines[1]) and is_about(said[4], minutes[1])
    together = re.search(r"lines of Python, including dependencies \| ([\d,]+)", README)
    assert is_about(together[1], sum(lines))
    vectors = sum(
        len(json.loads(path.read_text("utf-8")).get("vectors", ()))
        for path in (HERE / "examples" / "vectors").rglob("*.json")
    )
    said = re.search(r"(\d+) recorded conversations", README)
    assert int(said[1]) == len(LESSONS) and len(EXERCISES) == 8  # "eight"
    least = int(re.search(r"more than (\d+) \[test vectors\]", README)[1])
    assert least < vectors <= least + 150


# ---- references: no file of the repository mentions one that it does not contain


TEXTS = sorted(
    path
    for folder in (HERE, HERE / ".github", HERE / ".ci", HERE / "examples")
    for path in (folder.glob("*") if folder == HERE else folder.rglob("*"))
    if path.suffix in (".md", ".py", ".yml") or path.parent.name == ".ci"
    if path.is_file() and "__pycache__" not in path.parts
)


def anchors_of(path: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text("utf-8"))
    titles = re.findall(r"(?m)^#+ (.+)$", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", text))
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles}


@parametrize("path", TEXTS, ids=lambda path: path.relative_to(HERE).as_posix())
def test_what_a_file_refers_to_exists(path):
    text = path.read_text("utf-8")
    names = {one.name for one in TEXTS} | {"SKILL.md", "NN_name.md", "t.md"}
    missing = []
    if path.suffix == ".md":
        links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
        missing += [one for one in links if not (path.parent / one).exists()]
        for page, anchor in re.findall(r"\]\(([\w./-]*\.md)?#([^)]+)\)", text):
            target = path.parent / page if page else path
            if target.exists() and anchor not in anchors_of(target):
                missing.append(f"{page}#{anchor}")
    if not path.name.startswith("test_"):
        pages = re.findall(r"(?<![\w/*.-])((?:\w+/)*\w+\.md)\b", text)
        missing += [one for one in pages if one.rpartition("/")[2] not in names]
    paths = re.findall(
        r"(?<![\w/.-])((?:examples|\.ci|\.github)/[\w/.-]*\w\.(?:py|md|json|html))",
        text,
    )
    missing += [one for one in paths if not (HERE / one).exists() and "NN_" not in one]
    assert not missing, missing
