"""Tests of the course: its programs, lessons and exercises."""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import threading
import time
from typing import Any
from unittest import mock

import pytest
from testing.places import (
    COURSE,
    EXERCISES,
    LESSONS,
    OPENING,
    READY,
    TOOLS,
    Forked,
    called,
    command,
    modern,
    run_printed,
)
from testing.scripts import (
    HERE,
    MCP_REF,
    ORDER,
    PATIENCE,
    POSIX,
    PRELOADED,
    PYTHON,
    Context,
    client,
    limits,
    load,
    mcp,
    needs_posix,
    parametrize,
    wait_until,
)

check = load("check", TOOLS / "check.py")
config = load("config", TOOLS / "config.py")
reference = load("reference", TOOLS / "reference.py")

# ======== The course, beyond what its docstrings print


@needs_posix
def test_the_check_finds_no_flaw_in_a_good_server():
    check.SECONDS = 3 * PATIENCE
    hello = [*PYTHON, str(COURSE / "01_hello_server.py")]
    assert [check.play(hello, *row[1:]) for row in check.HOSTS] == [""] * len(
        check.HOSTS
    )


@needs_posix
@parametrize(
    "flaw, said",
    [
        ("sys.stderr.write('x' * 200_000)", ""),  # nobody needs to have read it
        ("print('> ', end='', flush=True); sys.stdin.close()", "'> ' without"),
    ],
)
def test_the_check_waits_for_no_reader_and_for_no_line_end(flaw, said, tmp_path):
    check.SECONDS = 1.0 if said else 3 * PATIENCE
    (tmp_path / "s.py").write_text(f"import sys, time; {flaw}\n{ONLY_MODERN}")
    if said:
        (tmp_path / "s.py").write_text(f"import sys, time; {flaw}; time.sleep(60)")
    found = check.play([*PYTHON, str(tmp_path / "s.py")], *check.HOSTS[0][1:])
    assert said in found and bool(said) == bool(found), found


# A modern server that knows no other method.
ONLY_MODERN = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"error": {"code": -32601, "message": "Method not found"}}
    if message["method"] == "server/discover":
        answer = {"result": {"supportedVersions": ["2026-07-28"]}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@needs_posix
def test_the_check_says_which_hosts_cannot_use_a_modern_server(tmp_path):
    (tmp_path / "only.py").write_text(ONLY_MODERN)
    words = [*PYTHON, str(tmp_path / "only.py")]
    done = called(check, "--timeout", f"{PATIENCE}", "--", *words)
    first, *lines = done.stdout.splitlines()
    assert first == "modern only: these hosts cannot use it"
    assert [line.split(" ", 1)[0] for line in lines[:4]] == ["", "", "", "ok"]
    assert "no session" not in done.stdout


@needs_posix
def test_a_socket_carries_both_eras():
    example = load("socket_example", COURSE / "09_socket.py")
    call = modern("tools/call", name="greet", arguments={"name": "Ada"})
    bare = {**call, "params": {**call["params"], "_meta": {}}}
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("r", newline="\n") as answers:
        example.in_thread(example.serve, theirs)
        ours.settimeout(PATIENCE)
        for sent, word in (
            (b"junk\n", "-32700"),
            (mcp.encode(call), "Hello, Ada!"),
            (mcp.encode(OPENING), "2025-11-25"),
            (READY + mcp.encode(bare), "Hello, Ada!"),
        ):
            ours.sendall(sent)
            assert word in answers.readline()


@needs_posix
def test_a_socket_survives_its_clients(tmp_path):
    """One leaves, one reads nothing, one sends too long a line, one does it right."""
    example = load("socket_example", COURSE / "09_socket.py")
    cancelled = threading.Event()
    began = threading.Event()

    def waits(ctx: Context) -> str:
        ctx.on_cancel(cancelled.set)
        began.set()
        return str(cancelled.wait(PATIENCE))

    waits.__annotations__ = {"ctx": mcp.Context, "return": str}
    example.server.tool(waits)
    path = str(tmp_path / "s")
    with limits(MAX_MESSAGE_BYTES=100_000), example.listening(path):
        leaver, silent, endless = (socket.socket(socket.AF_UNIX) for _ in range(3))
        for link in (leaver, silent, endless):
            link.settimeout(PATIENCE)
            link.connect(path)
        leaver.sendall(mcp.encode(modern("tools/call", name="waits")))
        assert began.wait(PATIENCE)
        leaver.close()
        assert cancelled.wait(PATIENCE)

        wanted = {"toolsListChanged": True}
        silent.sendall(mcp.encode(modern("subscriptions/listen", notifications=wanted)))
        with client.connect(example.SocketTransport(path), timeout=PATIENCE) as bob:
            with bob.listen("tools") as changes:
                seen = iter(changes)
                for _ in range(9000):  # more than the kernel takes for one
                    example.server.changed("tools")
                assert next(seen) == "tools"
            with contextlib.suppress(OSError):
                endless.sendall(b"x" * 200_000 + b"\n")
            assert b"-32700" in endless.makefile("rb").readline()
            assert bob.list_tools()
            silent.close()
            endless.close()
    with pytest.raises(client.Disconnected):
        client.connect(example.SocketTransport(path)).open()


@needs_posix
def test_nobody_waits_for_a_client_of_a_socket_that_never_reads(tmp_path):
    """It asks more than the kernel and the queue can hold; then it leaves, or the
    server ends."""
    example = load("socket_example", COURSE / "09_socket.py")
    example.MAX_WAITING = 3
    path = str(tmp_path / "s")

    def fill() -> socket.socket:
        link = socket.socket(socket.AF_UNIX)
        link.connect(path)
        link.settimeout(0.05)
        wanted = {"toolsListChanged": True}
        link.sendall(mcp.encode(modern("subscriptions/listen", notifications=wanted)))
        with contextlib.suppress(OSError):  # until the reader waits for room
            while True:
                link.sendall(b"junk\n" * 1000)
        return link

    with example.listening(path):
        with fill():
            assert len(example.connections) == 1
        wait_until(lambda: not example.connections)
        silent = [fill() for _ in range(3)]
        assert len(example.connections) == 3
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE and not example.connections
    for link in silent:
        link.close()


@needs_posix
def test_the_client_of_a_socket_survives_a_line_that_is_no_json(tmp_path):
    example = load("socket_example", COURSE / "09_socket.py")
    path = str(tmp_path / "s")
    with example.listening(path):
        transport = example.SocketTransport(path)
        with client.connect(transport, timeout=PATIENCE) as ada:
            assert ada.list_tools()
            example.connections[0].link.sendall(b"no json\n")
            assert ada.list_tools()
            transport.stop()
            assert ada.list_tools()  # it connects anew


def test_what_to_paste_starts_the_server(tmp_path):
    output = run_printed(
        "python3 examples/tools/config.py examples/course/01_hello_server.py hello"
    )
    entry = json.JSONDecoder().raw_decode(output[output.index("{") :])[0]["mcpServers"][
        "hello"
    ]
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        cwd="/",
        stdout=subprocess.PIPE,
        input=b'{"jsonrpc": "2.0", "id": 0, "method": "ping"}',
        check=True,
    )
    assert json.loads(done.stdout)["result"] == {}


@parametrize(
    "source, words",
    [
        ("def f(): pass", ["{folder}{slash}mcp_cli.py", "serve"]),
        ("from mcp_ref import Server\ns = Server('s')\ndef f(): pass", []),
        ("import sys\ndef f(): pass\nsys.exit('usage')", []),
        ("assert not __import__('sys').stdin.read()\ndef main(): pass", []),
        ("import nope", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_to_paste_is_found_out_by_importing_the_file(tmp_path, source, words):
    # A name that no code page has; the copy beside a file serves it.
    file = tmp_path / "given\u2603\U0001f600.py"
    file.write_text(source)
    shutil.copy(HERE / "examples" / "mcp_cli.py", tmp_path / "mcp_cli.py")
    done = called(config, str(file), "it")
    if isinstance(words, str):
        assert done.returncode == 1 and words in done.stderr
        return
    assert done.returncode == 0 and done.stdout.isascii()
    entry = json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("{") :])[0]
    words = [word.format(folder=tmp_path, slash=os.sep) for word in words]
    expected = [*words, str(file)]
    assert entry["mcpServers"]["it"]["args"] == expected
    assert "given\\U00002603\\U0001F600.py" in done.stdout  # TOML


# ---- lessons and exercises: every line that is written there is what the server says


replay = load("replay", COURSE / "lessons" / "replay.py")
PRELOADED[__name__] = None


def serve_lesson():
    sys.argv[1:] = []
    runpy.run_path(str(replay.SERVER), run_name="__main__")


@pytest.fixture(autouse=POSIX)
def forked_lessons(monkeypatch):
    """Lessons and exercises are played with forked servers."""
    process = mock.Mock(wraps=subprocess)
    process.Popen = lambda *_, **options: Forked(serve_lesson, options["encoding"])
    monkeypatch.setattr(replay, "subprocess", process)


# for each exercise: what a learner gets wrong in the solution, a word of the check
START = '{"jsonrpc"'
SLIPS = [
    [('"word"', '"title"', "is required"), ('"id": 1, ', "", "is this a request")],
    [('"uri"', '"url"', "uri is missing"), (', "_meta": <meta>', "", "_meta")],
    [("requestId", "id", "have requestId"), (START, '{"id": 3, "jsonrpc"', "notif")],
    [("<state>", "<state>x", "not valid"), ('"accept"', '"agree"', "input_required")],
    [("Mcp-Name", "Mcp-Tool", "Header mismatch"), ("POST", "GET", "405")],
    [('"2025-11-25"', '"2024-11-05"', "2024"), ('"id": 1, ', "", "is this a request")],
    [('"ping"', '"pong"', "Method not found"), ('"id"', "id", "not a JSON")],
    [("36", '"36"', "not valid"), ('"id": 1', '"id": 2', "is this a response")],
]


@parametrize("name", sorted(LESSONS))
def test_a_lesson_replays_and_its_task_has_an_answer(name):
    lesson = LESSONS[name].read_text("utf-8")
    conversations = "".join(re.findall(r"(?ms)^```mcp\n(.*?)^```", lesson))
    task = r"(?ms)^\*\*(Question|Predict|Write|Find the fault\.)\*\*(.*?)</summary>\n\n(.*?)</details>"
    ((kind, asked, answer),) = re.findall(task, lesson)
    ((language, said),) = re.findall(r"(?ms)^```(\w+)\n(.*?)^```", answer)
    if kind == "Question":  # the answer is a line of the lesson
        assert language == "text" and said.strip("\n") in conversations.splitlines()
    else:  # the answer is the end of the conversation, and is replayed with it
        assert language == "mcp" and re.match("> (?s:.*)\n< ", said)
    if kind in ("Predict", "Find the fault."):
        (shown,) = re.findall(r"(?ms)^```text\n(.*?)^```", asked)
        assert said.startswith(shown)
    found = replay.run(LESSONS[name], update=False)
    place = LESSONS[name].relative_to(HERE)
    remedy = f"is it right? python3 examples/course/lessons/replay.py --update {place}"
    assert not found, "\n".join([remedy, *found])


def test_lessons_and_files_are_in_one_order():
    index = (COURSE / "lessons" / "README.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| \[(.*?)\]\((\w+)\.md\) \| (.*) \| \d+ % \|$", index)
    assert [name for _, name, _ in rows] == sorted(LESSONS)
    following = [f"Next: [{title}]({name}.md)." for title, name, _ in rows[1:]]
    for (title, name, files), link in zip(rows, [*following, "the last lesson"]):
        lesson = LESSONS[name].read_text("utf-8")
        assert lesson.startswith(f"# {title}\n")
        head, foot = (
            lesson.partition("*In Python:")[2].partition("Specification:")[0],
            lesson.split("</details>")[-1],
        )
        assert link in " ".join(foot.split())
        # The table and the lesson name the same files, each by its number.
        numbers = re.findall(r"\b\d\d\b(?!_)|\b18_by_hand(?=\])", files)
        assert numbers == re.findall(r"\[(18_by_hand|\d\d)[\w.]*\]", head), name
        done = re.findall(r"exercise (\d+)\]\(\.\./exercises\.md#\1-", foot)
        number = str(int(name[:2]))
        named = [one for one in EXERCISES if re.search(rf"\[Lesson\s+{number}\]", one)]
        assert done == [one.partition(".")[0] for one in named]
    # Today's lessons come with the files in the order of their numbers.
    today = [
        int(files.strip("[")[:2])
        for _, name, files in rows
        if name < "18" and name[:2] != "14"
    ]
    assert today == sorted(today)

    names = sorted(path.name for path in COURSE.glob("[0-9]*.py"))
    for name, after in zip(names, names[1:]):
        text = " ".join((COURSE / name).read_text("utf-8").split())
        assert f"Next: {after}." in text, name


def test_the_page_to_print_is_what_the_tables_say():
    done = called(reference)
    path = COURSE / "reference.md"
    assert not done.stderr and done.stdout == path.read_text("utf-8"), (
        f"run `python3 examples/tools/reference.py > {path.relative_to(HERE)}`"
    )
    named = [*mcp.METHODS, *mcp.NOTIFICATIONS, *map(str, mcp.ERRORS), *mcp.FEATURES]
    assert [name for name in named if name not in done.stdout] == []


def test_the_playground_serves_on_one_thread(tmp_path):
    """Its Python runs here as in a browser, where no thread can be started."""
    for folder in ("tools", "course/lessons"):
        shutil.copytree(HERE / "examples" / folder, tmp_path / "examples" / folder)
    shutil.copy(MCP_REF, tmp_path / "mcp_ref.py")
    page = (COURSE / "playground.html").read_text("utf-8")
    driver = re.search(r'(?s)<script type="text/x-python".*?>(.*?)</script>', page)[1]
    source = (COURSE / "lessons" / "server.py").read_text("utf-8")
    said = """
import threading
threading.Thread.start = lambda thread: (_ for _ in ()).throw(RuntimeError("no thread"))
boot(SOURCE_OF_SERVER)
for name in ("10_ask_the_user.md", "16_http_headers.md"):
    for line in json.loads(steps(name)):
        print(say(line))
print(drawing().count('class="row request'))
try:
    boot("async def late(): ...")
except SystemExit as refused:
    print(refused)
""".replace("SOURCE_OF_SERVER", repr(source))
    done = command("-c", driver.replace("/repo", tmp_path.as_posix()) + said)
    for part in ("input_required", "member number 1", "Mcp-Name is", "Refused by "):
        assert part in done.stdout, done.stderr + done.stdout
    *_, requests, refusal = done.stdout.splitlines()
    assert requests == "9" and refusal.startswith("line 1: `async def`")


@parametrize(
    "to, amount, word",
    [
        ("bob", 40, ""),
        ("bob", -40, "amount"),
        ("bob", 0, "amount"),
        ("bob", 101, "amount"),
        ("ann", 1, "yourself"),
        ("eve", 1, "one of"),
    ],
)
def test_a_company_transfers_only_what_one_has(to, amount, word):
    company = load("company", COURSE / "11_for_a_company.py")
    ledger = {"ann": 100, "bob": 0}
    with company.on_a_loop(company.open_ledger()) as (loop, _):
        server = company.make_server(company.PEOPLE, ledger, loop=loop)
        out: list[Any] = []
        call = modern(
            "tools/call", name="transfer", arguments={"to": to, "amount": amount}
        )
        server.handle(call, out.append, principal="ann")
        wait_until(lambda: out)
    result = out[0]["result"]
    assert bool(result.get("isError")) == bool(word)
    assert word in result["content"][0]["text"]
    assert ledger == ({"ann": 100, "bob": 0} if word else {"ann": 60, "bob": 40})


def test_a_company_counts_a_call_that_asks_once(capsys):
    company = load("company", COURSE / "11_for_a_company.py")
    server = company.CompanyServer({"k": {"name": "ann", "may": ["sure"]}}, 1, 60)

    @server.tool
    def sure(ctx: Context) -> str:
        return ctx.elicit("Sure?", yes=bool)["action"]

    def call(**more):
        out: list[Any] = []
        request = modern("tools/call", name="sure", arguments={}, **more)
        request["params"]["_meta"][mcp.META_CAPABILITIES] = {"elicitation": {}}
        server.handle(request, out.append, principal="ann")
        return out[0].get("result") or out[0]["error"]

    asked = call()
    (key,) = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"yes": True}}}
    state = asked["requestState"]
    done = call(inputResponses=answers, requestState=state)
    assert done["content"][0]["text"] == "accept"
    assert call()["code"] == 429
    said = re.findall(r"sure: (\w+)", capsys.readouterr()[1])
    assert said == ["asks", "ok", "refused"]


@parametrize("version", ORDER)
def test_a_tool_with_a_page_has_a_text_for_other_hosts(version):
    app = load("app", COURSE / "12_app.py")
    known = {"extensions": {app.UI: {"mimeTypes": [app.HTML]}}}
    for declared, word in (({}, "tools/call conversation"), (known, "a picture of")):
        with client.connect(app.server, revision=version, declare=declared) as host:
            text = host.call_tool("conversation")["content"][0]["text"]
            assert word in text
            assert "tools/call" in host.call_tool("picture")["_meta"]["page"]
            tools = {tool["name"]: tool for tool in host.list_tools()}
            if "_meta everywhere" in mcp.rules(version).features:
                uri = tools["conversation"]["_meta"]["ui"]["resourceUri"]
                (page,) = host.read_resource(uri)
                assert page["mimeType"] == app.HTML and "ui/initialize" in page["text"]


def test_every_method_and_notification_appears_in_a_lesson():
    said = "".join(path.read_text("utf-8") for path in LESSONS.values())
    names = {*mcp.METHODS, *mcp.NOTIFICATIONS}
    missing = [name for name in names if f'"method":"{name}"' not in said]
    assert not missing, f"no lesson shows {missing}"


@parametrize(
    "name, line, changed",
    [
        ("03_call_a_tool", "Invalid arguments", "Wrong arguments"),
        ("03_call_a_tool", "lent.append(title)", "lent.add(title)"),
        ("10_ask_the_user", "Ada is member number 1", "Ada is member number 9"),
        ("17_http_streams", "200 OK", "201 Created"),
        ("17_http_streams", '"progress":2', '"progress":9'),
    ],
)
def test_a_changed_line_is_reported_and_update_restores_it(
    tmp_path, name, line, changed
):
    lesson, copy = LESSONS[name].read_text("utf-8"), tmp_path / "lesson.md"
    copy.write_text(lesson.replace(line, changed, 1), "utf-8")
    (problem,) = replay.run(copy, update=True)
    assert re.search(r"line \d+: .*expected .*received ", problem, re.DOTALL)
    assert copy.read_text("utf-8") == lesson


@parametrize(
    "number, right, wrong, word",
    [
        (5, ": ", ":", "^$"),
        (5, "\n", "\r\n", "^$"),
        (1, '"_meta": {', '"_meta": <metta>, "x": {', "no name <metta>; .*meta with"),
        (4, '"arguments": {}', '"arguments": {"x": 1}', "hint: .*the same as before"),
        (1, '"emma"', '"u"', r"expected \.\.\..{30,50}Emma"),
    ],
    ids=["no space", "CRLF", "unknown name", "state", "long lines"],
)
def test_an_exercise_helps_with_what_is_easily_overlooked(number, right, wrong, word):
    exercise = EXERCISES[number - 1]
    solution = re.findall(r"(?ms)^```(?:json|http)\n(.*?)\n```", exercise)[0]
    head, empty, body = solution.rpartition("\n\n")
    attempt = head.replace(right, wrong) + empty + body if head else ""
    attempt = attempt or solution.replace(right, wrong)
    assert attempt != solution
    assert re.search(word, replay.check(number, attempt), re.DOTALL)


@parametrize("words", ["--update COPY", "COPY --update", "COPY"])
def test_the_option_to_update_may_stand_anywhere(words, tmp_path, capsys):
    copy = tmp_path / "copy.md"
    copy.write_text(LESSONS["01_discover"].read_text("utf-8"), "utf-8")
    replay.run(copy, update=True)  # the lesson itself may be out of date
    lesson = copy.read_text("utf-8")
    said = '"instructions":"Search first'
    copy.write_text(lesson.replace(said, said[:-5] + "last", 1), "utf-8")
    assert replay.main(words.replace("COPY", str(copy)).split()) == 1
    assert "line 18: expected" in capsys.readouterr().out
    assert (copy.read_text("utf-8") == lesson) == ("--update" in words)


def test_an_exercise_can_be_read_from_standard_input():
    path = str(COURSE / "lessons" / "replay.py")
    done = command(
        path, "--check", "7", "-", text='{"jsonrpc":"2.0","id":9,"method":"ping"}'
    )
    assert (done.returncode, done.stdout) == (0, "right\n")


@parametrize("number", range(1, len(EXERCISES) + 1))
def test_an_exercise_accepts_its_solution_and_explains_wrong_attempts(number):
    exercise = EXERCISES[number - 1]
    solution = re.findall(r"(?ms)^```(?:json|http)\n(.*?)\n```", exercise)[0]
    assert (
        f"replay.py --check {number} " in exercise
        and replay.check(number, solution) == ""
    )
    assert "jsonrpc" in replay.check(number, solution.replace('"2.0"', "2.0"))
    for right, wrong, word in SLIPS[number - 1]:
        assert right in solution, right
        assert re.search(
            word, replay.check(number, solution.replace(right, wrong)), re.DOTALL
        )
