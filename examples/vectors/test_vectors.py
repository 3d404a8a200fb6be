"""Tests of the vectors and their runners."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from testing.places import (
    Forked,
    asked,
    called,
    listening,
    play_vectors,
    vectors_runner,
    unused_port,
)
from testing.scripts import (
    EVERYTHING,
    HERE,
    MODERN,
    NEWEST,
    NEWEST_LEGACY,
    ORDER,
    PATIENCE,
    POSIX,
    PRELOADED,
    PYTHON,
    Site,
    begin,
    client,
    http_answer,
    http_serving,
    load,
    mcp,
    parametrize,
)

VECTORS = HERE / "examples" / "vectors"
RUNNERS = ["run.py", "run.mts"]  # for servers
run = vectors_runner()
run_client = load("run_client", VECTORS / "clients" / "run_client.py")
strange = load("strange", VECTORS / "strange.py")
checks = load("checks", VECTORS / "suite" / "checks.py")
links, patterns, play, report, spec = (
    sys.modules[name] for name in ("links", "patterns", "play", "report", "spec")
)
# The runner refuses a revision that it does not know.
assert play.REVISIONS == ORDER[::-1], play.__file__


everything = load("everything_server", EVERYTHING)
PRELOADED[__name__] = None


def be_python(*words):
    """Do what Python does with `-c TEXT` or a file; it has imported our server."""
    if words[0] == EVERYTHING:
        everything.server.run([])
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    else:
        sys.argv = list(words)
        runpy.run_path(words[0], run_name="__main__")


def launch(command, errors):
    """Fork a process instead of starting Python, and as links.launch() does."""
    start, words = command[: len(PYTHON)], command[len(PYTHON) :]
    if start != PYTHON or not POSIX:
        return LAUNCH(command, errors)
    return Forked(functools.partial(be_python, *words[2 * (words[0] == "-X") :]))


LAUNCH = links.launch


@pytest.fixture(autouse=True)
def forked_servers(monkeypatch):
    for module in (links, run_client):
        monkeypatch.setattr(module, "launch", launch)


@pytest.mark.slow
@parametrize("carrier", ["stdio", "http"])
def test_the_vectors_find_no_fault(carrier):
    if carrier == "stdio":
        return play_vectors(*PYTHON, EVERYTHING)
    with listening(EVERYTHING) as (server, url):
        begin(server.stdout.read)  # a full pipe, 4 KiB on Windows, would stop it
        play_vectors(url)


@pytest.mark.skipif(
    sys.implementation.name == "pypy", reason="each client is a process that PyPy warms"
)
@parametrize("carrier", ["stdio", "http"])
def test_the_vectors_find_no_fault_in_the_client(carrier):
    """Over stdio, what is not played over HTTP; `.ci/run vectors` plays everything."""
    # With more patience, those that a client should leave unanswered take as long.
    words = ["--revisions", NEWEST, "--timeout", "10", "--carriers", carrier]
    if carrier == "stdio":
        for one in report.read_vectors(run_client.FOLDER, run_client.check_steps):
            words += ["--only", one["id"]] * (one["carriers"] == ["stdio"])
    done = called(run_client, *words, *PYTHON, run_client.FOLDER / "driver.py")
    assert done.returncode == 0, done.stdout


@parametrize(
    "mutant, broken, fine",
    [
        ("retry-ids", "client-retry-id", "client-error-told"),
        ("latin", "client-utf8", "every-client-one-message"),
    ],
)
def test_the_vectors_find_a_fault_in_a_client(mutant, broken, fine):
    """One that retries under the old id, or does not write UTF-8, breaks that rule and
    no other, and the exit status says so."""
    # One of them never answers.
    words = ["--revisions", NEWEST, "--carriers", "stdio", "--timeout", "5"]
    words += ["--only", broken, "--only", fine]
    words += [*PYTHON, HERE / ".ci" / "client_mutants.py", "drive", mutant]
    done = called(run_client, *words)
    assert re.findall("^BROKEN (.*?):", done.stdout, re.M) == [broken], done.stdout
    assert done.returncode == 1


A_DRIVER = """
import json, sys
for line in sys.stdin:
    action = json.loads(line)
    if action["do"] == "call_tool":
        raise LookupError("no such tool")
    print(json.dumps({"id": action["id"], "result": []}), flush=True)
"""


def test_the_end_of_a_driver_is_charged_to_no_vector(tmp_path):
    """The vectors in which it ends are not set up, whatever their steps are."""
    call = {"do": "call_tool", "label": "a", "told": {"result": {}}}
    head = {"level": "MUST", "clause": "basic/index", "rule": "as it says"}
    head |= {"carriers": ["stdio"], "since": NEWEST}
    steps = {"given": [{**call, "given": "tool"}], "step": [call]}
    steps["fine"] = [{"do": "ping"}]
    some = [{"id": name, **head, "steps": one} for name, one in steps.items()]
    file = json.dumps({"format": 4, "vectors": some})
    (tmp_path / "some.json").write_text(file, "utf-8")
    words = ["--revisions", NEWEST, "--carriers", "stdio"]
    words += ["--json", str(tmp_path / "rows"), *PYTHON, "-c", A_DRIVER]
    with mock.patch.object(run_client, "FOLDER", tmp_path):
        done = called(run_client, *words)
    rows = json.loads((tmp_path / "rows").read_text("utf-8"))["rows"]
    found = {row["id"]: row["verdict"] for row in rows}
    wanted = {"given": "not set up", "step": "not set up", "fine": "passed"}
    assert found == wanted, done
    assert "LookupError: no such tool" in done.stdout and done.returncode == 1


def test_the_vectors_are_in_their_format(tmp_path):
    """Both schemas are closed; a runner refuses what it does not know."""
    for folder in (VECTORS, VECTORS / "clients"):
        schema = mcp.Schema(json.loads((folder / "schema.json").read_text("utf-8")))
        for path in set(folder.glob("*.json")) - {folder / "schema.json"}:
            assert schema.flaw(json.loads(path.read_text("utf-8"))) is None, path.name
    ping = (VECTORS / "ping.json").read_text("utf-8")
    for old, new in (
        ('"format": 4', '"format": 5'),
        ('"format": 4', '"format": 2'),
        ('"format": 4', '"format": 4, "com.example": 1'),
        ('"since": "2024-11-05"', '"since": "2024-11-06"'),
        ('"level":', '"com.example": 1, "level":'),
        ('"request": "ping"', '"com.example": 1, "request": "ping"'),
        ('"expect": {', '"expect": {"$example": 1, '),
    ):
        assert old in ping
        (tmp_path / "ping.json").write_text(ping.replace(old, new, 1), "utf-8")
        with pytest.raises(patterns.BadVector):
            report.read_vectors(tmp_path, play.check_steps)


def test_the_runner_reads_the_format_before(tmp_path):
    head = {"id": "it", "level": "MUST", "steps": [], "since": NEWEST_LEGACY}
    for form in (3, 4):
        path = tmp_path / f"{form}.json"
        path.write_text(json.dumps({"format": form, "vectors": [head]}), "utf-8")
        (vector,) = report.read_file(path)
        assert vector["revisions"] == [NEWEST_LEGACY, *MODERN[::-1]]


def test_the_runner_writes_what_machines_read(tmp_path):
    """A known failure is none; a line of the baseline that passes is stale."""
    mutant = [*PYTHON, HERE / ".ci" / "mutants.py", "pong", *SERVE]
    known = tmp_path / "known"
    options = ["--revisions", NEWEST_LEGACY, "--timeout", str(PATIENCE)]
    options += ["--only", "ping-empty-result", "--only", "id-integer"]
    for kind in ("json", "junit", "tap"):
        options += [f"--{kind}", str(tmp_path / kind)]
    listed = ["--baseline", str(known)]
    done = called(run, *options, *mutant)
    rows = json.loads((tmp_path / "json").read_text("utf-8"))["rows"]
    broken = {row["id"]: row for row in rows if row["verdict"] == "broken"}
    assert done.returncode == 1 and "ping-empty-result" in broken, done.stdout
    assert {"sent", "received"} <= set().union(
        *broken["ping-empty-result"]["transcript"]
    )
    assert (tmp_path / "junit").read_text("utf-8").count("<failure") == len(broken)
    assert "not ok" in (tmp_path / "tap").read_text("utf-8")
    known.write_text("".join(f"{name}  # known\n" for name in broken), "utf-8")

    done = called(run, *listed, *options, *mutant)
    assert done.returncode == 0 and "BROKEN" not in done.stdout, done.stdout
    assert "<failure" not in (tmp_path / "junit").read_text("utf-8")
    assert "# TODO known" in (tmp_path / "tap").read_text("utf-8")

    with http_serving(everything.server) as httpd:  # options after a URL count
        done = called(run, httpd.url, *options, *listed)
    assert done.returncode == 1 and "STALE ping-empty-result" in done.stdout


def write_vectors(folder: Path, vectors: dict, revision=NEWEST) -> None:
    """Write vectors into a folder, by their ids; what they lack is added."""
    head = {"level": "MUST", "clause": "basic/index", "rule": "as it says"}
    head |= {"since": revision, "carriers": ["stdio", "http"]}
    some = [{"id": name, **head, **vector} for name, vector in vectors.items()]
    file = json.dumps({"format": 4, "vectors": some})
    (folder / "some.json").write_text(file, "utf-8")


def play_with(
    folder: Path, vectors: dict, *words: str, revision=NEWEST, runner="run.py"
) -> Any:
    """Play vectors of one revision with a runner; return what became of the command,
    and write all reports that it knows."""
    write_vectors(folder, vectors, revision)
    options = ["--revisions", revision]
    kinds = ("json", "junit", "tap") if runner == "run.py" else ("json",)
    for kind in kinds:
        options += [f"--{kind}", str(folder / f"{kind}.rows")]
    if runner == "run.py":
        with mock.patch.object(run, "FOLDER", folder):
            return called(run, *options, *words)
    line = [*find_node(), str(shutil.copy(VECTORS / runner, folder)), *options, *words]
    return subprocess.run(
        line, capture_output=True, text=True, timeout=9 * PATIENCE, check=False
    )


def played_rows(folder: Path) -> dict[str, dict]:
    """Read the rows that play_with() has written, by the ids of the vectors."""
    rows = json.loads((folder / "json.rows").read_text("utf-8"))["rows"]
    return {row["id"]: row for row in rows}


def verdicts(folder: Path, vectors: dict, *target: str, **options) -> dict[str, dict]:
    """Play vectors of the newest revision with a runner; return their rows."""
    play_with(folder, vectors, *target, **options)
    return played_rows(folder)


DISCOVERED = {"supportedVersions": [NEWEST], "capabilities": {}}
STRAY = {"unasked": {"$not": {"$absent": True}}}


def answer_badly(verb, headers, message):
    """Answer as the name of the method says, for a runner that must notice it."""
    method, answer = message.get("method"), {"jsonrpc": "2.0", "id": message.get("id")}
    fault = {"code": -32601, "message": "unknown"}
    status, said = 200, [{**answer, "result": {}}]
    if verb == "GET":
        page = {"Content-Type": "application/json"}
        refusal = {"jsonrpc": "2.0", "id": None, "error": fault}
        yield http_answer(409, page, json.dumps(refusal))
        return
    if method == "server/discover":
        said = [{**answer, "result": DISCOVERED}]
    elif method == "gone":
        return
    elif method == "html":
        yield http_answer(500, {"Content-Type": "text/html"}, "<html>")
        return
    elif method in ("null", "bare", "notifications/bare", "refused"):
        status = 400 if method == "refused" else 200
        content = {"result": {}} if method == "null" else {"error": fault}
        said = [{"jsonrpc": "2.0", "id": None, **content}]
    elif method == "neither":
        said = [answer]
    elif method == "words":
        said = [{**answer, "id": str(message["id"]), "result": {}}]
    elif method == "floats":
        said = [{**answer, "id": float(message["id"]), "result": {"n": 2.0}}]
    elif method == "behind":
        said += [{"jsonrpc": "2.0", "method": "notifications/late"}]
    elif method.endswith("/list"):
        status, said = 404, [{**answer, "error": fault}]
    if len(said) > 1:
        events = "".join(f"data: {json.dumps(one)}\n\n" for one in said)
        yield http_answer(200, {"Content-Type": "text/event-stream"}, events)
    else:
        kind = {"Content-Type": "application/json"}
        yield http_answer(status, kind, json.dumps(said[0]))


def test_the_runner_notices_what_is_no_answer_over_http(tmp_path):
    """It judges messages, not responses, and reads what comes behind an answer."""
    strays = {"heard": {"$some": STRAY}}
    none = {"heard": {"$where": [STRAY, []]}}
    waits = [{"request": "refused", "label": "it", "later": True}]
    waits += [{"await": {"id": {"$use": "it"}, "result": {}}}]
    ended = {"body": {"$not": {"$absent": True}}}
    note = {"notify": "notifications/bare", "http": ended}
    vectors = {
        "no-message": asked("html", {}),
        "no-response": asked("gone", {}),
        "no-content": asked("neither", {}),
        "another-id": asked("words", {}),
        "another-id-awaited": {"steps": waits},
        "late": asked("behind", {}, never=[{"method": "notifications/late"}]),
        "null": asked("null", {"result": {}}, strays),
        "bare": asked("bare", {"error": {}}, strays),
        "bare-to-send": {"steps": [{"send": {"id": 1, "method": "bare"}}, none]},
        "bare-to-a-notification": {"steps": [note, {"barrier": True}, strays]},
        "refused": asked("refused", {"error": {}}, none),
        "floats": asked("floats", {"result": {"n": {"$type": "integer"}}}, none),
        "a-refused-get": {"steps": [{"verb": "GET", "http": ended}, {"heard": []}]},
    }
    site = Site(answer_badly)
    try:
        rows = verdicts(tmp_path, vectors, site.url)
    finally:
        site.close()
    broken = {name for name, row in rows.items() if row["verdict"] == "broken"}
    assert broken == set(list(vectors)[:6]), rows
    for name in list(vectors)[:5]:
        assert "in time" not in rows[name]["why"], rows[name]
    assert "no answer" in rows["another-id"]["why"]


@parametrize("kind, found", [("text/event-stream", ["half-spoken"]), ("text/html", [])])
def test_an_endpoint_that_does_not_answer_is_half_spoken(tmp_path, kind, found):
    """Over HTTP+SSE, once the event has named it; a server without it is not."""

    def answer(verb, headers, message):
        if headers[":path"] == "/sse":
            event = "event: endpoint\ndata: /gone\n\n"
            yield http_answer(200, {"Content-Type": kind}, event)
        else:
            yield http_answer(404, {"Content-Type": "text/html"}, "gone")

    site = Site(answer)
    try:
        words = ["--timeout", "0.5", site.url]
        play_with(tmp_path, {"it": asked("x", {})}, *words, revision=ORDER[-1])
    finally:
        site.close()
    assert list(played_rows(tmp_path)) == found


TALKATIVE = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    print("INFO a line for the log")
    print(json.dumps({"jsonrpc": "2.0", "id": "nobody", "result": {}}))
    result = DISCOVERED
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    sys.stdout.flush()
"""


def test_the_runner_waits_for_a_message_in_spite_of_others(tmp_path):
    program = TALKATIVE.replace("DISCOVERED", repr(DISCOVERED))
    waits = {"await": {"id": {"$use": "it"}, "result": {}}}
    steps = [{"request": "wait", "label": "it", "later": True}, waits]
    rows = verdicts(tmp_path, {"it": {"steps": steps}}, *PYTHON, "-c", program)
    assert rows["it"]["verdict"] == "passed", rows["it"]


A_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), {}
    if method == "die":
        raise LookupError("no database")
    if method == "initialize" and message["params"]["capabilities"]:
        break
    if method == "server/discover":
        result = DISCOVERED
    elif method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"]}
    elif method == "pages":
        place = int(message["params"].get("cursor", 1))
        result = {"items": [{"n": place}, {"n": place + 1}], "nextCursor": str(place % 3 + 1)}
    elif method == "endless":
        result = {"items": [1], "nextCursor": str(message["id"])}
    elif method == "echo":
        result = {"text": message["params"]["text"]}
    if "id" in message and method != "silence":
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
""".replace("DISCOVERED", repr(DISCOVERED))


SERVE = [*PYTHON, "-X", "utf8", "-c", A_SERVER]


def test_a_premise_that_does_not_come_about_skips_a_vector(tmp_path):
    """What excuses a step is tried after it has failed; a doubtful vector is never
    more than a remark, and does not decide the exit status."""
    waits = {"await": {"method": "notifications/none"}, "given": "change"}
    empty = {"request": "x", "expect": {"result": {"$size": [0, 0]}}}
    other = {"request": "echo", "params": {"text": "other"}, "expect": {"error": {}}}
    wrong = [{"request": "x", "expect": {"error": {}}}]
    late = [{"request": "x", "label": "x", "later": True}, waits]
    vectors = {
        "excused": {"steps": [*late[:1], {**waits, "excuse": [empty]}]},
        "premise": {"steps": [{**wrong[0], "given": "error"}]},
        "doubtful": {"steps": wrong, "doubtful": "pages disagree"},
        "alike": {"steps": wrong, "level": "SHOULD", "harms": "it hurts"},
    }
    done = play_with(tmp_path, vectors, *SERVE)
    found = {name: row["verdict"] for name, row in played_rows(tmp_path).items()}
    said = ["skipped", "skipped", "remark", "unwise"]
    assert found == dict(zip(vectors, said)), done.stdout
    assert done.returncode == 0 and "NO MUST, BUT HARM:" in done.stdout
    assert played_rows(tmp_path)["alike"]["alike"] == "doubtful"
    not_excused = {"guilty": {"steps": [*late[:1], {**waits, "excuse": [other]}]}}
    done = play_with(tmp_path, not_excused, *SERVE)
    assert done.returncode == 1 and "BROKEN guilty" in done.stdout
    row = played_rows(tmp_path)["guilty"]
    assert "echo" not in row["sent"] and "HTTP" not in row["why"], row


def test_a_remark_that_depends_on_the_order_harms_nobody(tmp_path):
    """What fails behind other vectors only is never broken; that every client is harmed
    is said of a MUST."""
    echo = 'elif method == "echo":'
    counted = 'elif method == "late":\n        result = {"n": message["id"]}\n    '
    program = A_SERVER.replace(echo, counted + echo)
    warm = {"steps": [{"request": "x"}] * 3}
    late = asked("late", {"result": {"n": {"$range": [1, 3]}}})
    vectors = {"one": warm, "must": late, "two": warm}
    vectors["text"] = {**late, "level": "text"}
    done = play_with(tmp_path, vectors, *PYTHON, "-c", program)
    rows = played_rows(tmp_path)
    assert {rows[name]["order"] for name in ("must", "text")} == {"passes alone"}, rows
    assert "harms" in rows["must"] and "harms" not in rows["text"]
    assert done.returncode == 0 and "HARM:\n  basic/index: what " in done.stdout


def test_a_set_up_that_fails_is_charged_to_no_vector(tmp_path):
    client = {"client": {"roots": {}}, "until": NEWEST_LEGACY}
    vectors = {"one": asked("x", {}, **client), "two": asked("y", {}, **client)}
    done = play_with(tmp_path, vectors, *SERVE, revision=NEWEST_LEGACY)
    assert {row["verdict"] for row in played_rows(tmp_path).values()} == {"not set up"}
    assert done.returncode == 1 and "BROKEN" not in done.stdout
    assert done.stdout.count("NOT SET UP, so not judged: 2 outcomes") == 1
    assert 'errors="2"' in (tmp_path / "junit.rows").read_text("utf-8")


def test_a_run_that_is_stopped_leaves_whole_reports(tmp_path):
    vectors = {"good": asked("x", {}), "slow": asked("silence", {})}
    done = play_with(tmp_path, vectors, "--limit", "2", "--timeout", "60", *SERVE)
    assert done.returncode == 1 and "STOPPED: the time limit is over" in done.stdout
    assert list(played_rows(tmp_path)) == ["good"]
    suite = ElementTree.parse(tmp_path / "junit.rows").getroot()
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors")}
    assert counts == {"tests": "2", "failures": "0", "errors": "1"}
    assert "Bail out!" in (tmp_path / "tap.rows").read_text("utf-8")


def test_a_runner_says_at_once_what_cannot_be_played(tmp_path):
    baseline = tmp_path / "known"
    baseline.write_text("id-integr stdio\n", "utf-8")
    for words, said in (
        (["--only", "pnig", "true"], "did you mean ping?"),
        (["--baseline", str(baseline), "true"], "did you mean id-integer?"),
        (["--baseline", str(tmp_path / "none"), "true"], "No such file"),
        (["--revisions", "1999-01-01", "true"], "is not one of"),
        (["no-such-command-here"], "no such command"),
        ([f"http://127.0.0.1:{unused_port()}/mcp"], "cannot be reached"),
    ):
        done = called(run, *words)
        assert done.returncode == 1 and said in done.stderr, (words, done.stderr)
    driver = [*PYTHON, "-c", "raise LookupError('no client')"]
    done = called(run_client, *driver)
    assert done.returncode == 1 and "LookupError: no client" in done.stdout


def test_the_cause_of_a_dead_server_is_told(tmp_path):
    done = play_with(tmp_path, {"it": asked("die", {})}, *SERVE)
    assert "the other end has left: LookupError: no database" in done.stdout


FRAIL = A_SERVER.replace('if method == "die":', 'if method in ("die", "given"):')


def test_the_end_of_a_server_is_one_finding(tmp_path):
    """No vector is charged with it, in a given step or another; one may be about it."""
    dies = {"request": "die"}
    vectors = {
        "given": {"steps": [{"request": "given", "given": "premise"}]},
        "step": {"steps": [dies]},
        "later": {"steps": [{**dies, "later": True}, {"barrier": True}]},
        "about-it": {"steps": [{**dies, "waits": "the rule is that it lives"}]},
        "next": asked("x", {}),
    }
    rows = verdicts(tmp_path, vectors, *PYTHON, "-c", FRAIL)
    found = {name: row["verdict"] for name, row in rows.items()}
    skipped = dict.fromkeys(["given", "step", "later"], "skipped")
    rest = {"about-it": "broken", "next": "passed", "server-ended": "broken"}
    assert found == {**skipped, **rest}, rows
    end = rows["server-ended"]
    assert end["alike"] == "given step later" and '"given"' in end["sent"]
    assert "LookupError: no database" in end["why"]
    vectors = {"foreign": {"foreign": True, "steps": [dies]}}
    end = verdicts(tmp_path, vectors, *PYTHON, "-c", FRAIL)["server-ended"]
    assert end["verdict"] == "remark" and "loses its server" in end["harms"]


@parametrize("runner", RUNNERS)
@parametrize("root, verdict", [("die", "remark"), ("x", "broken")])
def test_an_end_is_charged_once(tmp_path, runner, root, verdict):
    """To the vector that waits, and not again where another that follows from it meets
    the same end; a server that ends only in the other is found."""
    wrong = {"request": root, "expect": {"error": {}}, "waits": "the rule is an answer"}
    given = [{"request": root, "given": "premise"}, {"request": "die"}]
    vectors = {
        "first": {"follows": ["root"], "steps": given},
        "root": {"steps": [wrong]},
    }
    words = [*PYTHON, "-c", FRAIL]
    rows = verdicts(tmp_path, vectors, *words, runner=runner)
    found = {name: row["verdict"] for name, row in rows.items()}
    assert found == {"first": "skipped", "root": "broken", "server-ended": verdict}


DEAF = A_SERVER.replace('raise LookupError("no database")', "sys.stdin.read()")


@parametrize("foreign, verdict", [(True, "remark"), (False, "broken")])
def test_a_server_that_hears_nothing_more_is_as_one_that_ends(
    tmp_path, foreign, verdict
):
    """After what is no request of the revision, that is harm, and breaks no rule."""
    steps = [{"notify": "die"}, {"barrier": True}]
    vectors = {"it": {"steps": steps, **({"foreign": True} if foreign else {})}}
    words = ["--timeout", "0.5", *PYTHON, "-c", DEAF]
    row = verdicts(tmp_path, vectors, *words)["no-answer"]
    assert row["verdict"] == verdict and ("harms" in row) == foreign, row


IDLE = A_SERVER.replace(
    '    if "id" in message and',
    """    if method in ("late", "later", "tools/call"):
        import threading
        words = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        delay = 1.5 if method == "later" else 0.75
        threading.Timer(delay, print, [words], {"flush": True}).start()
    elif "id" in message and""",
)


def test_silence_is_one_finding(tmp_path):
    """It is charged to a vector only where waiting decides; slow is not silent."""
    silent = {"request": "silence"}
    note = {"await": {"method": "notifications/none"}}
    vectors = {
        "given": {"steps": [{**silent, "given": "premise"}]},
        "step": {"steps": [silent]},
        "about-it": {"steps": [{**silent, "waits": "the rule is an answer"}]},
        "late": {"steps": [{"request": "x"}, {"request": "late"}]},
        "later": {"steps": [{"request": "x"}, {"request": "later"}]},
        "no-message": {"steps": [{"request": "x"}, note]},
        "message": {"steps": [{"request": "x"}, {**note, "waits": "it changed"}]},
    }
    quick = ["--timeout", "0.5"]
    rows = verdicts(tmp_path, vectors, *quick, *PYTHON, "-c", IDLE)
    found = {name: row["verdict"] for name, row in rows.items()}
    skipped = ["given", "step", "late", "later", "no-message"]
    skipped = dict.fromkeys(skipped, "skipped")
    rest = dict.fromkeys(["about-it", "message", "no-answer"], "broken")
    assert found == {**skipped, **rest}, rows
    assert rows["no-answer"]["alike"] == "step" and "later" in rows["late"]["why"]


@parametrize("runner", RUNNERS)
def test_what_comes_after_the_end_of_input_is_judged(tmp_path, runner):
    """It is heard, and rules for every message hold for it."""
    program = f"{A_SERVER}\nprint('bye', flush=True)"
    after = [{"exit": 9}, {"heard": {"$some": {"rubbish": {"$match": "^bye"}}}}]
    vectors = {
        "rule": {"every": {"rubbish": {"$absent": True}}},
        "heard": {"own": "connection", "steps": [{"request": "x"}, *after]},
    }
    words = [*PYTHON, "-c", program]
    rows = verdicts(tmp_path, vectors, *words, runner=runner)
    found = {name: row["verdict"] for name, row in rows.items()}
    assert found == {"rule": "broken", "heard": "passed"}, rows


# It answers `latin` in Latin-1, and writes to its log in it before it answers `log`.
LATIN = A_SERVER.replace(
    '    if "id" in message and',
    """    if method == "log":
        sys.stdout.buffer.write(b"Gr\\xfc\\xdfe\\n")
    if method == "latin":
        words = {"jsonrpc": "2.0", "id": message["id"], "result": {"text": "\u00fc"}}
        line = json.dumps(words, ensure_ascii=False)
        sys.stdout.buffer.write(line.encode("latin-1") + b"\\n")
        sys.stdout.flush()
    elif "id" in message and""",
)
EVERY_UTF8 = {"every": {"utf8": {"$absent": True}}}
MISENCODED = {
    "utf8": EVERY_UTF8,
    "lines": {"every": {"rubbish": {"$absent": True}}},
    "answer": {"steps": [{"request": "latin", "waits": "its rule is an answer"}]},
    "other": {"steps": [{"request": "latin"}]},
}


@parametrize("runner", RUNNERS)
def test_what_is_not_utf8_breaks_one_rule(tmp_path, runner):
    """That of UTF-8, if it would be a message; no vector, and not silence."""
    alien = {**MISENCODED["answer"], "foreign": True}
    vectors = {**MISENCODED, "fine": asked("x", {}), "foreign": alien}
    words = ["--timeout", "0.5", *PYTHON, "-c", LATIN]
    rows = verdicts(tmp_path, vectors, *words, runner=runner)
    found = {name: row["verdict"] for name, row in rows.items()}
    passed = dict.fromkeys(["lines", "fine"], "passed")
    wrong = {"utf8": "broken", "foreign": "broken"}
    assert found == {**passed, **wrong, "answer": "skipped", "other": "skipped"}, rows
    vectors = {**MISENCODED, "answer": asked("log", {}), "other": asked("log", {})}
    rows = verdicts(tmp_path, vectors, *words, runner=runner)
    assert [name for name in rows if rows[name]["verdict"] != "passed"] == ["lines"]
    ends = {"steps": [{"request": "latin", "later": True}, {"request": "die"}]}
    vectors = {"utf8": EVERY_UTF8, "ends": ends}
    rows = verdicts(tmp_path, vectors, *words, runner=runner)
    found = {name for name, row in rows.items() if row["verdict"] == "broken"}
    assert found == {"utf8", "server-ended"}, rows


@parametrize("kind", ["application/json", "text/event-stream"])
@parametrize("runner", RUNNERS)
def test_what_is_not_utf8_over_http_breaks_one_rule(tmp_path, runner, kind):
    def answer(verb, headers, message):
        text = "\u00fc" if message["method"] == "latin" else ""
        result = {**DISCOVERED, "text": text}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        data = body.replace(r"\u00fc", "\u00fc").encode("latin-1")
        if kind != "application/json":
            data = b"data: " + data + b"\r\n\r\n"
        yield http_answer(200, {"Content-Type": kind})
        yield data

    site = Site(answer)
    try:
        words = ["--timeout", "0.5", site.url]
        rows = verdicts(tmp_path, MISENCODED, *words, runner=runner)
    finally:
        site.close()
    found = {name: row["verdict"] for name, row in rows.items()}
    skipped = dict.fromkeys(["answer", "other"], "skipped")
    assert found == {"utf8": "broken", "lines": "passed", **skipped}, rows


CHOOSY = A_SERVER.replace(
    "        print(",
    """        if method == "tools/list" or message.get("params", {}).get("name") == "no":
            code = {"code": -32601, "message": "Method not found"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": code}), flush=True)
            continue
        print(""",
)


def test_a_server_that_limits_the_rate_is_not_accused(tmp_path):
    """It may refuse any request, which says nothing about a rule."""

    def answer(verb, headers, message):
        said = {"jsonrpc": "2.0", "id": message.get("id"), "result": DISCOVERED}
        if message.get("method") == "x":
            error = {"code": -42900, "message": "rate limit exceeded for x"}
            said = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        status = 429 if message.get("method") == "y" else 200
        yield http_answer(
            status, {"Content-Type": "application/json"}, json.dumps(said)
        )

    late = {"request": "y", "label": "it", "later": True}
    vectors = {
        "error": asked("x", {"result": {}}),
        "status": asked("y", {"result": {}}),
        "later": {"steps": [late, {"of": "it", "http": {"status": 404}}]},
        "given": {"steps": [{"request": "x", "expect": {"result": {}}, "given": "x"}]},
        "refused": asked("z", {"error": {}}),
    }
    site = Site(answer)
    try:
        rows = verdicts(tmp_path, vectors, site.url)
    finally:
        site.close()
    found = {name: row["verdict"] for name, row in rows.items()}
    skipped = dict.fromkeys(["error", "status", "later", "given"], "skipped")
    assert found == {**skipped, "refused": "broken"}, rows
    assert "limits the rate" in rows["later"]["why"]


def test_what_is_not_offered_is_not_demanded(tmp_path):
    """A method is not offered if -32601 is its only answer."""
    call = {"request": "tools/call", "expect": {"result": {}}}
    vectors = {
        "not-offered": asked("tools/list", {"result": {"tools": []}}),
        "refused": {"steps": [{**call, "params": {"name": "no"}}]},
        "offered": {"steps": [{**call, "params": {"name": "yes"}}]},
        "unknown": asked("no/such/method", {"result": {}}, {"request": "x"}),
    }
    vectors["unknown"]["steps"][0]["params"] = {"name": "no"}
    rows = verdicts(tmp_path, vectors, *PYTHON, "-c", CHOOSY)
    found = {name: row["verdict"] for name, row in rows.items()}
    bad = dict.fromkeys(["refused", "unknown"], "broken")
    assert found == {"not-offered": "skipped", "offered": "passed", **bad}, rows
    assert rows["not-offered"]["why"] == "the server has no tools/list"


def test_a_server_without_ping_is_charged_once(tmp_path):
    """What asks for a ping to see something else is skipped; what fails elsewhere is
    not."""
    program = A_SERVER.replace('method == "die"', 'method in ("die", "ping")')
    program = program.replace(
        'raise LookupError("no database")',
        """print(json.dumps({"jsonrpc": "2.0", "id": message["id"],
            "error": {"code": -32601, "message": "unknown"}}), flush=True)
        continue""",
    )
    alive = {"result": {}}
    vectors = {
        "ping": {"steps": [{"request": "ping", "expect": alive, "waits": "the rule"}]},
        "after": {"steps": [{"barrier": True, "expect": alive}]},
        "beside": {"steps": [{"barrier": True}, {"heard": []}]},
    }
    old = {"revision": "2025-11-25"}
    play_with(tmp_path, vectors, *PYTHON, "-c", program, **old)
    rows = played_rows(tmp_path)
    found = {name: row["verdict"] for name, row in rows.items()}
    assert found == {"ping": "broken", "after": "skipped", "beside": "broken"}, rows
    assert rows["after"]["why"] == "the server has no ping"


LOOSE = A_SERVER.replace(
    "method, result =",
    """if FAULT == "prints":
        print("handling", message["method"], flush=True)
    if FAULT == "numbers" and isinstance(message.get("id"), str):
        continue
    method, result =""",
).replace(
    '    if "id" in message and',
    """    if method == "initialize":
        result |= {"capabilities": {"tools": {}, "prompts": {}}, "serverInfo": {}}
    if method == "tools/list":
        result = {"tools": [{"name": "a", "inputSchema": {}}]}
        result = {"tools": [], "nextCursor": FAULT} if FAULT in (None, "") else result
    if "cursor" in message.get("params", {}):
        error = {"code": -32602, "message": "cursor"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    if "id" in message and""",
)


PAGES = ["pages-tools", "cursor-followed-tools", "pages-apart-tools", "cursor-stable"]


@pytest.mark.parametrize(
    "fault, parts, charged",
    [
        (None, PAGES, ["REMARK pages-tools"]),
        ("", PAGES, ["REMARK cursor-followed-tools"]),
        ("prints", ["ping", "stdio-lines", "stdio-surrogate"], ["BROKEN stdio-lines"]),
        ("numbers", ["id-string", "id-digits", "ping-string-id"], ["BROKEN id-string"]),
        ("types", ["tools-schema", "tools-types"], ["REMARK tools-types"]),
    ],
)
def test_each_common_fault_is_charged_once(fault, parts, charged):
    """A cursor is null or refused, logs come on stdout, ids are numbers only, a schema
    is empty: one rule is charged with it, and others follow."""
    program = LOOSE.replace("FAULT", repr(fault))
    words = ["--revisions", "2025-11-25", "--timeout", "0.5"]
    words += [word for part in parts for word in ("--only", part)]
    words += [*PYTHON, "-c", program]
    done = called(run, *words)
    failures = re.split(r"^(?=BROKEN |UNWISE |REMARK )", done.stdout, flags=re.M)[1:]
    alone = [one for one in failures if "follows from" not in one and ": " in one[:60]]
    assert [one.split(":")[0] for one in alone] == charged, done.stdout


def answer_anything(verb, headers, message):
    """Answer whatever is asked, without a look at headers and _meta; what is no request
    is 202 with a body."""
    one = message[0] if isinstance(message, list) else message
    head = {"jsonrpc": "2.0", "id": one.get("id")}
    result = {**DISCOVERED, "protocolVersion": "2025-03-26"}
    said = {**head, "result": result if "ping" not in str(message) else {}}
    if isinstance(message, list):
        said = [{**said, "id": each.get("id")} for each in message]
    if verb == "GET":
        yield http_answer(405, {}, "")
    elif "method" in one and "id" in one:
        yield http_answer(200, {"Content-Type": "application/json"}, json.dumps(said))
    else:
        yield http_answer(202, {"Content-Type": "application/json"}, "null")


def test_a_stream_that_begins_with_its_first_event_breaks_no_rule():
    """Some frameworks send the head of a response together with the first event; nor
    does a server that has one stream for all, which is open already."""
    over = threading.Event()
    status = []

    def answer(verb, headers, message):
        if verb == "GET" and status:
            yield http_answer(status[0], {}, "")
            return
        if verb == "GET":
            over.wait(PATIENCE)
        yield from answer_anything(verb, headers, message)

    words = ["--only", "legacy-get", "--only", "legacy-get-begins", "--timeout", "0.5"]
    site = Site(answer)
    try:
        words += ["--revisions", "2025-03-26", site.url]
        done = called(run, *words)
        for code in (409, 404):
            status[:] = [code]
            other = called(run, *words)
            assert ("BROKEN legacy-get" in other.stdout) == (code == 404), other.stdout
    finally:
        over.set()
        site.close()
    assert "BROKEN" not in done.stdout, done.stdout
    assert "REMARK legacy-get-begins" in done.stdout, done.stdout


@pytest.mark.parametrize(
    "revision, parts, charged",
    [
        (
            "2026-07-28",
            ["meta-no-version", "meta-none", "meta-forgotten", "method-header-missing"]
            + ["method-header-differs", "method-header-case", "method-header-empty"],
            ["BROKEN meta-no-version", "BROKEN method-header-missing"],
        ),
        (
            "2025-03-26",
            ["legacy-notification", "legacy-notification-unknown", "legacy-response"]
            + ["batch-notifications", "cancel-late-http"],
            ["BROKEN legacy-notification"],
        ),
    ],
)
def test_a_check_that_is_left_out_is_charged_once(revision, parts, charged):
    """... and not as what a server does wrong that has it."""
    words = [word for part in parts for word in ("--only", part)]
    site = Site(answer_anything)
    try:
        words += ["--revisions", revision, site.url]
        done = called(run, *words)
    finally:
        site.close()
    failures = re.split(r"^(?=BROKEN |UNWISE |REMARK )", done.stdout, flags=re.M)[1:]
    alone = [one for one in failures if "follows from" not in one and ": " in one[:60]]
    assert sorted({one.split(":")[0] for one in alone}) == charged, done.stdout


def test_each_rule_has_its_sentence():
    """A vector for a MUST or SHOULD has words of its sentence, by which --spec finds
    it; --spec fails if a page lacks them."""
    for path in VECTORS.glob("*.json"):
        for one in json.loads(path.read_text("utf-8")).get("vectors", []):
            strict = one["level"] != "text" and "doubtful" not in one
            schema = one["clause"].startswith("schema.ts")
            assert "says" in one or not strict or schema, one["id"]


def test_the_sentence_is_that_of_the_revision(tmp_path):
    """It is found by its words, under the vector's heading; a list has its head."""
    for date, word in zip(reversed(ORDER), "abcdefghijkl"):
        page = tmp_path / "docs" / "specification" / date / "basic" / "index.mdx"
        page.parent.mkdir(parents=True)
        text = (
            f"# Page\n\n## Other\n\nIt MUST be so {word}.\n\n## Here\n\nServers MUST:\n"
        )
        page.write_text(f"{text}- first {word}\n- it MUST be so {word}\n", "utf-8")
    index = spec.Index(tmp_path)
    one = {"id": "it", "clause": "basic/index §Here", "says": "MUST be so"}
    one["revisions"] = ORDER[::-1]
    other = {**one, "id": "other", "says": "no such words"}
    assert index.sentences([one, other]) == {
        ("it", date): f"Servers MUST: it MUST be so {word} ({date} basic/index §Here)"
        for date, word in zip(reversed(ORDER), "abcdefghijkl")
    }
    assert index.faults([one, other]) == ["NO SENTENCE other: no such words"]


def test_params_that_are_no_object_break_one_rule():
    """... which is about params, and not about names within them."""
    wrong = [{"params": None}, {"params": "all"}, {"params": 5}]
    head = {"jsonrpc": "2.0", "method": "notifications/message"}
    messages = [{**head, **one} for one in wrong]
    broken = [
        vector["id"]
        for vector in report.read_vectors(VECTORS, play.check_steps)
        for message in messages
        if not patterns.fits(vector.get("every", {}), message, {})
    ]
    assert broken == ["every-message"] * 3


def test_one_fault_is_charged_once(tmp_path):
    """A vector follows from another that fails in the same place, and only then."""
    wrong, right = asked("x", {"error": {}}), asked("x", {"result": {}})
    vectors = {
        "root": wrong,
        "follower": {**wrong, "follows": ["other", "root"]},
        "fine": right,
        "alone": {**wrong, "follows": ["fine"]},
    }
    rows = verdicts(tmp_path, vectors, *SERVE)
    found = {name: row["verdict"] for name, row in rows.items()}
    assert found.pop("follower") == "remark" and found.pop("fine") == "passed"
    assert found == dict.fromkeys(["root", "alone"], "broken")
    assert rows["follower"]["after"] == "follows from root"


def test_each_vector_follows_from_one_beside_it():
    """The root is played in each place of the vector that follows from it."""
    files = [json.loads(path.read_text("utf-8")) for path in VECTORS.glob("*.json")]
    known = {one["id"]: one for file in files for one in file.get("vectors", [])}
    for name, vector in known.items():
        roots = [known[root] for root in vector.get("follows", [])]
        assert all(root["level"] == "MUST" or "harms" in root for root in roots), name
        assert name not in vector.get("follows", [])
        for carrier in vector["carriers"] if roots else ():
            assert any(carrier in root["carriers"] for root in roots), name


def test_a_baseline_can_be_written(tmp_path):
    known = str(tmp_path / "known")
    vectors = {"it": asked("x", {"error": {}}), "other": asked("x", {"result": {}})}
    done = play_with(tmp_path, vectors, "--write-baseline", known, *SERVE)
    assert done.returncode == 0, done.stdout
    assert Path(known).read_text("utf-8").startswith(f"it stdio {NEWEST}  # broken")
    done = play_with(tmp_path, vectors, "--baseline", known, *SERVE)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def action(tmp_path_factory) -> Path:
    """Copy what the action runs into a folder, without vectors."""
    folder = tmp_path_factory.mktemp("action")
    for path in VECTORS.glob("*.py"):
        shutil.copyfile(path, folder / path.name)
    start = folder / "python3"
    start.write_text(f'#!/bin/sh\nexec {shlex.join(PYTHON)} "$@"\n', "utf-8")
    start.chmod(0o700)
    return folder


def run_action(action: Path, folder: Path, vectors: dict, **inputs: str) -> Any:
    """Run the steps of the action for GitHub in a folder, as its runner does; return
    what became of them."""
    write_vectors(action, vectors)
    text = (VECTORS / "action.yml").read_text("utf-8")
    head, steps = text.split("\nruns:\n  using: composite\n  steps:\n")
    known = dict(re.findall(r"(?m)^  ([a-z]+):\n((?:    .*\n?)+)", head))
    for name, lines in known.items():
        default = re.search(r"(?m)^    default: (.*)", lines)
        if name not in inputs:
            inputs[name] = default[1].strip('"')  # the others are required
    assert set(inputs) == set(known)
    (step,) = steps.split("    - shell: bash\n")[1:]
    env = dict(re.findall(r"(?m)^        ([A-Z]+): \$\{\{ inputs\.(\w+) \}\}$", step))
    script = folder / "step.sh"
    script.write_text(textwrap.dedent(step.split("      run: |\n")[1]), "utf-8")
    path = os.pathsep.join([str(action), os.environ["PATH"]])
    given = {name: inputs[value] for name, value in env.items()}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        capture_output=True,
        text=True,
        timeout=9 * PATIENCE,
        cwd=folder,
        env={**os.environ, **given, "PATH": path, "GITHUB_ACTION_PATH": str(action)},
    )


needs_bash = pytest.mark.skipif(
    os.name == "nt" or not shutil.which("bash"), reason="GitHub's runner has bash"
)


@needs_bash
def test_the_action_sends_headers_as_they_stand(action, tmp_path):
    """Each line is one, with its quotes and spaces; empty lines are none."""
    headers = {
        "x-words": "\"two  words\" and 'one' $HOME \\\\",
        "authorization": "Bearer a b",
    }
    lines = "\n\n".join(f"{name}: {value}" for name, value in headers.items())
    site = Site(answer_badly)
    try:
        options = f"--revisions {NEWEST}"
        given = {"server": site.url, "headers": f"{lines}\n", "options": options}
        done = run_action(action, tmp_path, {"it": asked("x", {"result": {}})}, **given)
    finally:
        site.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(site.asked) > 5
    for _, sent, _ in site.asked:
        assert {name: sent.get(name) for name in headers} == headers
    assert ElementTree.parse(tmp_path / "vectors.xml").getroot().get("tests") == "1"


@needs_bash
@parametrize(
    "inputs, status",
    [
        ({}, 1),
        ({"baseline": "what we know.txt"}, 0),
        ({"baseline": "what we know.txt", "options": "--fail-on 'harms'"}, 1),
        ({"baseline": "what we know.txt", "options": '--only "it"'}, 0),
        ({"baseline": "no such file"}, 1),
        ({"options": "--only nothing"}, 1),
    ],
)
def test_the_action_fails_as_its_inputs_say(action, tmp_path, inputs, status):
    """On stdio, with a command of several lines, and names that have spaces."""
    wrong = asked("x", {"error": {}})
    vectors = {"it": wrong, "harm": {**wrong, "level": "text", "harms": "it hurts"}}
    (tmp_path / "what we know.txt").write_text(f"it stdio {NEWEST}  # known", "utf-8")
    given = {"server": shlex.join(SERVE), "report": "to read.xml", **inputs}
    given["options"] = f"--revisions {NEWEST} {inputs.get('options', '')}"
    done = run_action(action, tmp_path, vectors, **given)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if inputs.get("options") != "--only nothing" and "no such" not in str(inputs):
        suite = ElementTree.parse(tmp_path / "to read.xml").getroot()
        assert suite.get("failures") == str(int(not inputs)), done.stdout


@parametrize(
    "fail_on, failed",
    [("broken", []), ("harms", ["harm"]), ("unwise", ["harm", "should"])],
)
def test_what_fails_the_run_can_be_chosen(tmp_path, fail_on, failed):
    wrong = asked("x", {"error": {}})
    kinds = {
        "text": {**wrong, "level": "text"},
        "harm": {**wrong, "level": "text", "harms": "it hurts"},
        "should": {**wrong, "level": "SHOULD"},
        "doubt": {**wrong, "harms": "it hurts", "doubtful": "pages disagree"},
    }
    for name, vector in kinds.items():
        done = play_with(tmp_path, {name: vector}, "--fail-on", fail_on, *SERVE)
        assert done.returncode == (name in failed), done.stdout


def test_a_report_says_what_was_played(tmp_path):
    """The JSON has the version of the set, the server and the options, no secrets."""
    meta = {"io.modelcontextprotocol/serverInfo": {"name": "it"}}
    told = {**DISCOVERED, "_meta": meta}
    program = A_SERVER.replace(repr(DISCOVERED), repr(told))
    words = ["--timeout", "60", "--header", "Authorization: secret"]
    play_with(tmp_path, {"one": asked("x", {})}, *words, *PYTHON, "-c", program)
    text = (tmp_path / "json.rows").read_text("utf-8")
    report = json.loads(text)
    assert report["server"] == {"name": "it"} and report["stopped"] == ""
    fixtures = json.loads((VECTORS / "suite/fixtures.json").read_text())
    assert report["set"] == fixtures["version"]
    assert report["options"]["timeout"] == 60 and "secret" not in text


def test_the_runner_sends_and_reads_as_a_vector_says(tmp_path):
    """Texts that are made, pieces of lines, second clients, pages, new operators."""
    echo = {"request": "echo", "params": {"text": {"$repeat": ["\u00fc", 3000]}}}
    echo["expect"] = {"result": {"text": {"$match": "^\u00fc{3000}$"}}}
    half = {"request": "echo", "params": {"text": {"$unit": 0xD83D}}}
    half["expect"] = {"result": {"text": {"$size": [1, 1]}}}
    saved = {**echo, "params": {"text": "state.0a-Z_="}}
    saved["expect"] = {"result": {"text": {"$save": "state"}}}
    altered = {**echo, "params": {"text": {"$altered": "state"}}}
    altered["expect"] = {"result": {"text": "state.00-Z_="}}
    again = {**altered, "expect": {"result": {"text": {"$save": "state"}}}}
    back = {**altered, "expect": {"result": {"text": "state.01-Z_="}}}
    own = [{"request": "x", "as": "b", "id": 9}, {"heard": [], "label": "none"}]
    own += [{"heard": [{"id": 9}], "as": "b"}]
    pages = {"request": "pages", "expect": {"result": {"items": {"$save": "first"}}}}
    next_page = {"request": "pages", "params": {"cursor": "2"}}
    apart = {"result": {"items": {"$not": {"$apart": ["first", "n"]}}}}
    deep = {"result": {"$all": [{"$nowhere": "cursor"}, {"$not": {"$nowhere": "n"}}]}}
    some = {"result": {"$some": {"$match": "^2$"}}}
    vectors = {
        "made": {"steps": [{**echo, "pieces": 7}, half]},
        "altered": {"steps": [saved, altered, again, back]},
        "second-client": {"steps": own},
        "apart": {"steps": [pages, {**next_page, "expect": apart}]},
        "deep": {"steps": [{"request": "pages", "expect": deep}]},
        "some": {"steps": [{"request": "pages", "params": {}, "expect": some}]},
        "pages-that-lead-back": {"steps": [{"pages": "pages"}]},
        "endless-pages": {"steps": [{"pages": "endless"}]},
    }
    rows = verdicts(tmp_path, vectors, *SERVE)
    broken = [name for name, row in rows.items() if row["verdict"] != "passed"]
    assert broken == ["pages-that-lead-back", "endless-pages"], rows
    assert "come again" in rows["endless-pages"]["why"]
    assert "leads back to itself" in rows["pages-that-lead-back"]["why"]


A_SESSION = """
import json, sys
kind, lists = sys.argv[1], ("tools/list", "resources/list", "resources/templates/list")
unknown = {"error": {"code": -32601, "message": "unknown"}}
cancelled = False
for line in sys.stdin:
    message = json.loads(line)
    method, content = message.get("method"), unknown
    cancelled |= method == "notifications/cancelled"
    if method == "initialize" and (message["id"] != "open" or kind == "good"):
        version = message["params"]["protocolVersion"]
        content = {"result": {"protocolVersion": version, "capabilities": {}}}
    elif method == "server/discover" and kind in DISCOVERED:
        content = {"result": {"supportedVersions": DISCOVERED[kind], "capabilities": {}}}
    elif method == "prompts/list" and kind == "lists":
        content = {"result": {"prompts": [{"name": "hidden"}]}}
    elif method == "no/such/method" and kind == "served":
        content = {"error": {"code": -32602, "message": "no such method"}}
    elif method == "subscriptions/listen" and kind == "served":
        content = {"result": {}}
    elif method in (*lists, "ping") and not (cancelled and kind == "ended"):
        content = {"result": {}}
    if "id" in message and not (kind == "silent" and content is unknown):
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **content}), flush=True)
""".replace("DISCOVERED", repr({"modern": [NEWEST], "both": ORDER}))


@parametrize(
    "kind, name, verdict",
    [
        ("good", "prompts-undeclared", "passed"),
        ("lists", "prompts-undeclared", "broken"),
        ("silent", "prompts-undeclared", "skipped"),
        ("silent", "unknown-method", "skipped"),
        ("silent", "modern-method-in-session", "skipped"),
        ("served", "modern-method-in-session", "remark"),
        ("good", "discover-before-initialize", "passed"),
        ("old", "discover-before-initialize", "remark"),
        ("both", "discover-before-initialize", "skipped"),
        ("modern", "discover-before-initialize", "skipped"),
        ("good", "cancel-late", "passed"),
        ("ended", "cancel-late", "broken"),
    ],
)
def test_a_vector_is_charged_with_its_own_fault_only(tmp_path, kind, name, verdict):
    """Who is silent on what it does not know has not listed anything; who answers a
    server/discover needs no initialize; who is broken by a cancellation is found."""
    words = ["--revisions", NEWEST_LEGACY, "--only", name]
    words += ["--json", str(tmp_path / "rows")]
    patience = "0.5" if kind == "silent" else str(PATIENCE)
    words += ["--timeout", patience, *PYTHON, "-c", A_SESSION, kind]
    done = called(run, *words)
    row, *others = json.loads((tmp_path / "rows").read_text("utf-8"))["rows"]
    assert row["verdict"] == verdict, done.stdout
    findings = [one["id"] for one in others]
    assert findings == ["no-answer"] * (name == "unknown-method" and kind == "silent")


def test_what_is_forbidden_is_judged_where_it_is_there():
    """No `never` fits an answer that says nothing: `$not` holds on absent members."""
    bare: list[Any] = [{"content": [], "isError": True}, {"resultType": "complete"}, {}]
    answers = [{"jsonrpc": "2.0", "id": 1, "result": result} for result in bare]
    answers += [{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": ""}}]
    for folder in (VECTORS, VECTORS / "clients"):
        for vector in report.read_vectors(folder, lambda *_: None):
            for pattern in vector.get("never", []):
                found = [one for one in answers if patterns.fits(pattern, one, {})]
                assert not found, vector["id"]


def test_a_process_that_has_said_nothing_has_more_time_to_exit():
    link, given = links.Link(), []
    link.close = lambda seconds: given.append(seconds) or "left"
    link.inbox.put((0, "left", ""))
    talk = play.Talk(play.Scene(), link, {})
    talk.leave({"exit": 1})
    link.spoke = True
    talk.leave({"exit": 1})
    assert given == [20.0, 5.0]


def test_the_runner_writes_its_report_whoever_reads_it(tmp_path):
    """A file that cannot be written is refused at once; `| head` ends nothing."""
    to = str(tmp_path / "none" / "rows")
    done = called(run, "--json", to, "true")
    assert done.returncode == 2 and repr(to) in done.stderr, done.stderr
    options = [
        "--only",
        "ping",
        "--revisions",
        NEWEST,
        "--json",
        str(tmp_path / "rows"),
    ]
    words = [*PYTHON, str(VECTORS / "run.py"), *options, *PYTHON, "-c", "pass"]
    with subprocess.Popen(words, stdout=-1, stderr=-1, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert json.loads((tmp_path / "rows").read_text("utf-8"))["rows"] == []


def test_outcomes_that_come_at_once_are_written_one_by_one(tmp_path, monkeypatch):
    """Clients are played side by side, and their report is one file."""
    monkeypatch.setattr(report, "WRITE_SECONDS", -1)
    recorder = report.Recorder(report.make_parser("").parse_args(["--quiet"]))
    both, met = threading.Barrier(2), []

    def make(*_):
        with contextlib.suppress(threading.BrokenBarrierError):
            met.append(both.wait(0.05))
        return ""

    recorder.files = {make: tmp_path / "rows"}
    for added in [begin(recorder.add, {}) for _ in "ab"]:
        added.result(PATIENCE)
    assert not met and len(recorder.rows) == 2


def test_each_rule_has_a_row_that_names_what_exists():
    """Each line of CLAUSES.md begins with the test that shows its rules, and the public
    name that keeps them. So it stays true when private names change."""
    extensions = sorted((HERE / "examples" / "extensions").glob("*.py"))
    public = {name: vars(one)[name] for one in (mcp, client) for name in one.__all__}
    for one in extensions:
        if not one.stem.startswith("test_"):
            public |= vars(load(one.stem, one))
    page = (VECTORS / "CLAUSES.md").read_text("utf-8").split("\n## ")[-1]
    rows = [row.split(": §")[0] for row in page.split("\n- ")[1:]]
    assert len(rows) > 150 and page.count("§") > 200
    files = [HERE / "test_mcp_ref.py", *(HERE / "examples").rglob("test_*.py")]
    texts = "".join(one.read_text("utf-8") for one in files)
    known = re.findall(r"(?m)^(?:def )?(test_\w+)(?: =|\()", texts)
    for proof, _, kept in (row.partition(" (") for row in rows):
        for name in re.findall(r"`([\w.]+)`", kept):
            assert not re.search(r"(^|\.)_", name), f"{name} is private"
            first, *parts = name.split(".")
            functools.reduce(getattr, parts, public[first])
        assert fnmatch.filter(known, proof.strip("`")), proof


def test_the_fixtures_of_the_vectors_are_all_that_they_need():
    """suite/fixtures.json is what a server has to offer; ours for tests offers it."""
    table = json.loads((VECTORS / "suite" / "fixtures.json").read_text("utf-8"))
    kinds = {"tools": "tool", "prompts": "prompt", "resources": "resource"}
    kinds["templates"] = "template"
    listed = {f"{kinds[kind]} {one['name']}" for kind in kinds for one in table[kind]}
    used = {
        need
        for path in VECTORS.glob("*.json")
        for vector in json.loads(path.read_text("utf-8")).get("vectors", [])
        for need in vector.get("needs", [])
        if need.split()[0] in kinds.values()
    }
    assert used | {"tool test_structured_content"} == listed
    names = {"tools": "name", "prompts": "name", "resources": "uri"}
    names["templates"] = "uriTemplate"
    with client.connect(everything.server) as one:
        offered = {
            "tools": one.list_tools(),
            "prompts": one.list_prompts(),
            "resources": one.list_resources(),
            "templates": one.list_resource_templates(),
        }
        capabilities = one.capabilities
    for kind, items in offered.items():
        there = {item[names[kind]]: item for item in items}
        for row in table[kind]:
            item = there[row["name"]]
            if kind == "tools":
                schema = mcp.Schema(item["inputSchema"])
                assert schema.flaw(row["arguments"]) is None, row
            elif kind == "prompts":
                required = {
                    o["name"] for o in item.get("arguments", ()) if o.get("required")
                }
                assert required == set(row["arguments"]), row
    for path in table["capabilities"]:
        found = capabilities
        for part in path.split("."):
            assert part in found, f"suite/fixtures.json: {NEWEST} has no {path}"
            found = found[part]
        assert found in (True, {}), path


def test_a_sep_is_written_in_the_form_of_the_official_suite(tmp_path):
    """A rule of the page is a check, named by its vector, or excluded with a reason."""
    page = tmp_path / "docs" / "specification" / NEWEST / "basic/transports/stdio.mdx"
    page.parent.mkdir(parents=True)
    shown = (
        "Messages are delimited by newlines, and **MUST NOT** contain embedded ones."
    )
    page.write_text(f"{shown} It MUST be the server's.\n", "utf-8")
    words = ["9999", str(tmp_path)]
    done = called(checks, *words, "basic/transports/stdio")
    head, *rows = done.stdout.split("\n  - ")
    url = (
        f"https://modelcontextprotocol.io/specification/{NEWEST}/basic/transports/stdio"
    )
    assert head == f"sep: 9999\nspec_url: {url}\nrequirements:", done.stderr
    found = [row.split("\n    ") for row in rows]
    assert "check: sep-9999-stdio-newline-in-text" in [row[0] for row in found]
    for name, text, where in found[:-1]:
        assert re.fullmatch("check: sep-9999-[a-z0-9-]+", name)
        assert (
            text == f"text: '{shown.replace('*', '')}'"
            and where.strip() == f"url: {url}"
        )
    text, reason = found[-1]
    assert text == "text: 'It MUST be the server''s.'" and reason.startswith(
        "excluded: '"
    )


def test_each_vector_on_stdio_has_a_check():
    """The checks of the suite, or ids in its form; none stands for two rules."""
    done = called(checks, "stdio")
    rows = dict(line.split(": ") for line in done.stdout.splitlines())
    assert rows["stdio-utf8"] == "stdio-utf8" and rows["ping"].split()[0] == "ping"
    assert rows["stdio-id-zero"] == "id-zero"
    ids = [name for names in rows.values() for name in names.split()]
    assert len(ids) == len(set(ids)) > 400
    assert all(re.fullmatch("[a-z0-9-]+", check) for check in rows)
    new = sum(check.startswith("stdio-") for check in rows)
    text = f"{len(rows)} checks for the {len(ids)} vectors on stdio, {new} of them new"
    assert text in (VECTORS / "suite" / "README.md").read_text("utf-8")


def test_a_strange_page_is_that_of_its_own_cursor():
    """Clients of several revisions are played at once, and use the same ids."""
    proxy = strange.Proxy([strange.Pages()])

    def ask(cursor):
        message = {"jsonrpc": "2.0", "id": 1, "method": "prompts/list"}
        message["params"] = {"cursor": cursor}
        return proxy.up(json.dumps(message).encode(), {})[1]

    def page(request):
        answer = {"jsonrpc": "2.0", "id": 1, "result": {"prompts": ["a", "b", "c"]}}
        return json.loads(proxy.down(answer, request)[0])["result"]

    second = page(ask(None))["nextCursor"]
    third = page(ask(second))["nextCursor"]
    both_open = [ask(second), ask(third)]
    assert [page(one)["prompts"][0] for one in both_open] == ["b", "c"]


# Freedoms that do not depend on time. (`pages` beside `list-order` loses items.)
TEN_FLAGS = "reorder no-server-info float-progress extra events batches old-codes"
TEN_FLAGS = f"{TEN_FLAGS} private header-first no-templates".split()


def find_node() -> list[str]:
    """Find a Node that runs TypeScript; MCP_NODE names another than that of PATH."""
    words = [os.environ.get("MCP_NODE", "node"), "--no-warnings"]
    words += ["--experimental-strip-types"]
    try:
        found = subprocess.run([*words, "-e", ""], capture_output=True)
    except OSError:
        found = None
    if not found or found.returncode:
        pytest.skip("no Node from 22.6 on: MCP_NODE=PATH names one")
    return words


def both_runners() -> list[list[str]]:
    """Return the commands of both, which wait as long for an answer."""
    options = ["--timeout", "10"]
    first = [sys.executable, str(VECTORS / "run.py"), "--quiet", *options]
    return [first, [*find_node(), str(VECTORS / "run.mts"), *options]]


def rows_of(folder: Path, words: list[str]) -> dict[tuple[str, str], dict]:
    """Play with a runner; return the rows by vector and revision."""
    rows = folder / "rows"
    runner, target = words[: words.index("--")], words[words.index("--") + 1 :]
    line = [*runner, "--json", str(rows), *target]
    subprocess.run(line, capture_output=True, timeout=60 * PATIENCE)
    played = json.loads(rows.read_text("utf-8"))["rows"]
    return {(row["id"], row["revision"]): row for row in played}


def differences(one: dict, two: dict) -> dict:
    """Return the verdicts of two runners where they differ, and why."""
    none: dict[str, Any] = {"verdict": None}
    rows = {key: (one.get(key, none), two.get(key, none)) for key in {*one, *two}}
    return {
        key: [(row["verdict"], row.get("why")) for row in pair]
        for key, pair in rows.items()
        if pair[0]["verdict"] != pair[1]["verdict"]
    }


@pytest.mark.slow
@parametrize("carrier", ["stdio", "http"])
def test_the_second_runner_agrees_on_a_strange_server(tmp_path, carrier):
    strange = [sys.executable, str(VECTORS / "strange.py"), ",".join(TEN_FLAGS)]
    options = ["--revisions", f"{NEWEST_LEGACY},{NEWEST}"]
    found = []
    for runner in both_runners():
        if carrier == "stdio":
            for page in ("stdio", "tools", "pagination"):
                runner += ["--only", page]
            words = [*runner, *options, "--", *strange, sys.executable, EVERYTHING]
            found.append(rows_of(tmp_path, words))
            continue
        with listening(EVERYTHING) as (_, url):
            proxy = [*strange, "--http", "0", url]
            with subprocess.Popen(proxy, stdout=-1, text=True) as process:
                try:
                    target = process.stdout.readline().strip()
                    found.append(rows_of(tmp_path, [*runner, *options, "--", target]))
                finally:
                    process.kill()
    verdicts = [row["verdict"] for row in found[0].values()]
    assert not differences(*found)
    assert len(verdicts) > 50 and "broken" not in verdicts
    assert verdicts.count("skipped") < len(verdicts) / 4


@pytest.mark.slow
@parametrize("mutant", ["pong", "no-code"])
def test_the_second_runner_agrees_on_a_broken_server(tmp_path, mutant):
    script = str(HERE / ".ci" / "mutants.py")
    target = ["--", sys.executable, script, mutant, sys.executable, EVERYTHING]
    options = ["--revisions", NEWEST_LEGACY]
    for page in ("basic", "ping", "stdio"):
        options += ["--only", page]
    one, two = (rows_of(tmp_path, [*run, *options, *target]) for run in both_runners())
    assert not differences(one, two)
    assert "broken" in [row["verdict"] for row in one.values()]


def test_the_page_about_the_official_suite_counts_its_checks():
    done = called(checks)
    rows = [line.split(": ") for line in done.stdout.splitlines()]
    total = len({name for _, names in rows for name in names.split()})
    page = (VECTORS / "suite" / "README.md").read_text("utf-8")
    assert f"{len(rows)} checks and {total} vectors" in page.replace("\n", " ")
    # The version of the set is said in three places.
    version = re.search(r'(?m)^SET = "(.*?)"', (VECTORS / "report.py").read_text())[1]
    assert f"\n## {version} " in (VECTORS / "CHANGES.md").read_text("utf-8")
    assert f'"version": "{version}"' in (VECTORS / "suite/fixtures.json").read_text()
