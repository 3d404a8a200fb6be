"""Tests of tap.py and picture.py: traces."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from pathlib import Path

from testing.places import COURSE, TOOLS, called, command, draw, overview, picture
from testing.scripts import HERE, PYTHON, load, needs_posix, parametrize, value_of

# ---- the tap and the picture: traces


def trace(path: Path, text: str) -> Path:
    """Write a trace of lines like `> {...}` and `< not JSON`."""
    records = []
    for line in text.splitlines():
        value = value_of(line[2:])
        kind = "text" if isinstance(value, str) else "message"
        place = {"time": "2026-11-22T09:12:01.123Z", "on": "stdio", "way": line[0]}
        records.append({**place, kind: value})
    path.write_text("\n".join(map(json.dumps, records)), "utf-8")
    return path


PING = '> {"id": 1, "method": "ping"}\n'
ERROR = '< {"id": null, "error": {"code": -32601}}'


NOTE = '> {"method": "x"}\n'
CANCEL = '> {"method": "notifications/cancelled", "params": {"requestId": 1}}\n'


@parametrize(
    "what, lines",
    [
        ("Request without an answer", PING),
        ("Id used twice", PING + PING),
        ("Answer that nobody asked for", PING + '< {"id": "1", "result": {}}'),
        ("Answer to a notification", NOTE + '< {"id": null, "error": {"code": 1}}'),
        ("Line that is not JSON", "< Hello"),
        ("or not a message", '< {"x": 1}'),
        ("Request before the handshake", '> {"id": 1, "method": "tools/list"}'),
        (
            "Response after the cancellation",
            PING + CANCEL + '< {"id": 1, "result": {}}',
        ),
        ("Nothing.", PING + '< {"id": 1, "result": {}}'),
    ],
)
def test_the_overview_of_a_picture_says_what_is_wrong(what, lines, tmp_path):
    overview = draw(trace(tmp_path / "t", lines)).partition("What took long")[0]
    assert what in overview
    assert what == "Nothing." or re.search(r"lesson \d+\): <a href", overview)


@parametrize("first", ["notification", "request"])
def test_a_picture_blames_an_error_without_an_id_on_the_notification(first, tmp_path):
    sent = ['> {"method": "notifications/initialized"}\n', PING]
    lines = "".join(sent if first == "notification" else sent[::-1])
    page = draw(trace(tmp_path / "t", lines + ERROR + '\n< {"id": 1, "result": {}}'))
    assert "Answer to a notification (lesson 26): error\n" in overview(page)
    assert "asked for" not in page and "without an answer" not in page
    # Number 2 is the error, drawn beside the notification.
    (wrong,) = re.findall('(?s)id="m2".*?</summary>', page)
    assert f'to <a href="#m{int(first == "request")}">' in wrong


def test_a_picture_blames_what_could_not_be_read_and_not_a_notification(tmp_path):
    lines = (
        '> {"method": "notifications/initialized"}\n> not JSON\n'
        '< {"error": {"code": -32700}}\n> [{"id": 1, "method": "ping"}, '
        '{"id": 2, "method": "ping"}]\n< {"error": {"code": -32600}}\n'
    )
    text = overview(draw(trace(tmp_path / "t", lines)))
    assert (
        "What is wrong\nLine that is not JSON, or not a message (lesson 4): text"
        in text
    )
    assert "notification" not in text and "without an answer" not in text


MODERN_CALL = {
    "id": 1,
    "method": "tools/call",
    "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}},
}


RESULT = {"way": "<", "on": "stdio", "message": {"id": 1, "result": {}}}


REFUSAL = {"way": "<", "on": 5, "status": 405}
REFUSAL["message"] = {"error": {"code": -32600}}


@parametrize(
    "records",
    [
        # A call over HTTP is cancelled by hanging up, and the port is used again.
        [
            {"way": ">", "on": 5, "http": "POST /mcp", "message": MODERN_CALL},
            {"way": ">", "on": 5, "closed": True},
            {"way": ">", "on": 5, "http": "POST /mcp", "message": MODERN_CALL},
            {**RESULT, "on": 5, "status": 200, "http": "POST /mcp"},
        ],
        # A probe for HTTP+SSE is refused. (A server may not have written the GET.)
        [{"way": ">", "on": 5, "http": "GET /mcp"}, {**REFUSAL, "http": "GET /mcp"}],
        [REFUSAL],
        # Two runs in one file.
        [
            {"program": "mcp_ref 1.0", "process": 7},
            {"way": ">", "on": "stdio", "message": {"id": 1, "method": "ping"}},
            RESULT,
        ]
        * 2,
        # A notification is refused over HTTP, which answers everything.
        [
            {"way": ">", "on": 5, "http": "POST /mcp", "message": {"method": "x"}},
            {"way": "<", "on": 5, "status": 400, "message": {"error": {"code": 1}}},
        ],
    ],
    ids=["hang-up", "405", "405 alone", "two runs", "refused notification"],
)
def test_a_picture_raises_no_false_alarm(records, tmp_path):
    (tmp_path / "t").write_text("\n".join(map(json.dumps, records)), "utf-8")
    assert "What is wrong\nNothing." in overview(draw(tmp_path / "t"))


def test_a_server_that_closes_a_connection_still_owes_an_answer(tmp_path):
    records = [
        {"way": ">", "on": 5, "http": "POST /mcp", "message": MODERN_CALL},
        {"way": "<", "on": 5, "closed": True},
    ]
    (tmp_path / "t").write_text("\n".join(map(json.dumps, records)), "utf-8")
    assert "Request without an answer (lesson 5)" in overview(draw(tmp_path / "t"))


def test_a_picture_says_the_revision_the_progress_and_what_took_long(tmp_path):
    lessons = COURSE / "lessons"
    assert "Revision: 2026-07-28." in draw(lessons / "03_call_a_tool.md")
    page = draw(lessons / "20_changes_in_a_session.md")
    assert "Revision: 2025-11-25." in page and "No times were recorded." in page
    page = draw(lessons / "05_progress_and_cancel.md")
    assert "</b> 1/3 Dune" in page and "</b> 0 Ulysses" in page

    path = trace(tmp_path / "t", PING + '< {"id": 1, "result": {}}')
    assert "Every answer came within" in draw(path)
    path.write_text(
        path.read_text("utf-8")[::-1].replace("321", "329", 1)[::-1], "utf-8"
    )
    assert "What took long\nping 0.800 s\n" in overview(draw(path))


def test_a_picture_that_cannot_be_drawn_is_said_in_a_sentence(tmp_path):
    for words in ([], ["--what"], ["a", "b"], [str(tmp_path / "nothing")]):
        done = called(picture, *words)
        assert done.returncode and not done.stdout and "Traceback" not in done.stderr
        assert (
            "cannot read" if words[-1:] == [str(tmp_path / "nothing")] else "FILE"
        ) in (done.stderr)


@needs_posix
@parametrize(
    "words, keyword",
    [
        ("tools/check.py nothing", "command"),
        ("tools/tap.py - nothing", "cannot start"),
        ("tools/config.py nothing", "neither"),
        ("course/lessons/replay.py nothing.md", "cannot read"),
        ("course/04_ask_the_user.py --demo", "--demo REVISION"),
        ("course/09_socket.py", "--demo"),
    ],
)
def test_what_is_mistyped_is_said_in_a_sentence(words, keyword, tmp_path):
    path, *rest = words.split()
    path = HERE / "examples" / path
    if path.parent.name == "course":  # it has no main()
        done = command(str(path), *rest, cwd=tmp_path)
    else:
        done = called(load(path.stem, path), *rest, cwd=tmp_path)
    assert done.returncode and not done.stdout and keyword in done.stderr
    assert "Traceback" not in done.stderr


def test_the_tap_writes_when_a_run_begins_and_who_hangs_up(tmp_path):
    tap = [*PYTHON, str(TOOLS / "tap.py"), str(tmp_path / "log")]
    for _ in range(2):
        done = subprocess.run(
            [*tap, *PYTHON, str(COURSE / "01_hello_server.py")],
            input=b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n',
            stdout=subprocess.PIPE,
            check=True,
        )
        assert json.loads(done.stdout)["id"] == 1
    records = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [one for one in records if "program" in one][0]["program"] == "tap"
    closed = [one["way"] for one in records if one.get("closed")]
    assert sorted(closed) == ["<", "<", ">", ">"] and closed.index(">") < 2
    assert "What is wrong\nNothing." in overview(draw(tmp_path / "log"))


def test_a_picture_shows_whatever_a_trace_has_as_text(tmp_path):
    strange = json.dumps(
        "</pre></style><script>alert(1)</script>\"'><img src=//evil>\u202e\0"
    )
    lines = (
        f'> {{"id": {strange}, "method": {strange}, "params": {{"name": {strange}}}}}\n'
        f'< {{"id": {strange}, "error": {{"code": 1, "message": {strange}}}}}\n'
    )
    page = draw(trace(tmp_path / "t", lines + "> " + "[" * 5000 + "\n" + PING * 5000))
    style = re.search("(?s)<style>(.*?)</style>", page)[1].encode()
    assert base64.b64encode(hashlib.sha256(style).digest()).decode() in page
    assert (
        not re.search(r"<script|<img|\u202e|\0", page) and page.count("</style>") == 1
    )
    left_out = int(re.search("([0-9,]+) are left out", page)[1].replace(",", ""))
    shown = len(re.findall(r'id="m\d+"', page))
    assert 'href="#m1"' in page and left_out + shown == 5003


def test_a_picture_of_a_lesson_takes_the_first_digits_for_the_status(tmp_path):
    path = tmp_path / "lesson.md"
    path.write_text(f"# 1\n\n```mcp\n1< HTTP/1.1 200{'0' * 5000}\n```\n", "utf-8")
    assert "200" in draw(path)
