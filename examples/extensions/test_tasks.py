"""Tests of tasks.py: the server's half by a clock of ours, then the client's."""

from __future__ import annotations

import re
import threading
import time
from typing import Any
from unittest import mock

import pytest
import tasks
from testing.places import modern
from testing.scripts import (
    NEWEST_LEGACY,
    PATIENCE,
    Context,
    client,
    differences,
    mcp,
    parametrize,
)

KNOWS_TASKS = {**tasks.DECLARE, "elicitation": {}}
TASK_ERROR: Any = {"code": 7, "message": "seven", "data": [7]}
WORKS, DONE = {"status": "working"}, {"status": "completed", "result": {"x": 1}}
ASKS = {"status": "input_required", "inputRequests": {"k": "?"}}
LOST, STOP = OSError("lost"), ["get", "cancel"]
UPDATES = [("update", {k: "? tag"}) for k in "kl"]


class Clock:  # stands in for the module `time`; sleeping moves it
    def __init__(self):
        self.now, self.pauses = 1.8e9, []
        self.strftime, self.gmtime = time.strftime, time.gmtime
        self.time = self.monotonic = lambda: self.now

    def sleep(self, seconds: float):
        self.pauses.append(seconds)
        self.now += seconds


class Oven:  # a server whose tools become tasks; calling it sends a request
    def __init__(self, **options):
        self.clock, self.runs, self.server = Clock(), [], mcp.Server("oven")
        self.opened, self.begun, self.ended = (threading.Event() for _ in range(3))
        self.tasks = tasks.Tasks(self.server, clock=self.clock.time, **options)
        self.tasks.tool(self.hold)
        self.tasks.tool(self.ask)
        self.tasks.tool(required=True, name="must", title="Must!")(self.hold)

    def hold(self, ctx: Context, says: str = "") -> str:
        self.runs.append(says)
        if says in ("own", "value"):
            raise (
                mcp.RpcError(**TASK_ERROR) if says == "own" else ValueError("told you")
            )
        ctx.notify("notifications/other")
        ctx.progress(1, 3, says or None)
        ctx.on_cancel(self.opened.set)
        self.begun.set()
        self.opened.wait(9 * PATIENCE)
        self.ended.set()
        return f"baked for {ctx.principal}"

    def ask(self, ctx: Context) -> str:
        self.runs.append("requestState" in ctx.params)
        both = ctx.ask(
            {"a-b": mcp.elicitation("A", n=int), "c": mcp.elicitation("C", n=int)}
        )
        every = (both["a-b"], both["c"], ctx.elicit("D?", key="d", n=int))
        return "".join(str(one["content"]["n"]) for one in every)

    def __call__(self, method: str, knows=KNOWS_TASKS, who="ann", **more):
        out, message = [], modern(method, **more)
        message["params"]["_meta"][mcp.META_CAPABILITIES] = knows
        self.server.handle(message, out.append, principal=who)
        return out[-1]["result"] if "result" in out[-1] else out[-1]["error"]["code"]

    def make(self, name: str, **arguments) -> str:
        return self("tools/call", name=name, arguments=arguments)["taskId"]

    def until(self, task: str, status: str, **wanted):
        wanted, end = (
            {"taskId": task, "status": status, **wanted},
            time.monotonic() + PATIENCE,
        )
        while differences(wanted, self("tasks/get", taskId=task)):
            assert time.monotonic() < end, differences(
                wanted, self("tasks/get", taskId=task)
            )
            time.sleep(0.002)
        return self("tasks/get", taskId=task)


def test_a_task_from_start_to_end():
    bake, begin = Oven(), "2027-01-15T08:00:00Z"
    made = bake("tools/call", name="hold", arguments={"says": "in the oven"})
    task = made.pop("taskId")
    assert re.fullmatch("[0-9a-f]{32}", task) and made.pop("_meta")
    assert made == {
        "resultType": "task",
        "status": "working",
        "ttlMs": 3_600_000,
        "pollIntervalMs": 1000,
        "createdAt": begin,
        "lastUpdatedAt": begin,
    }
    other = bake.make("hold")
    bake.until(other, "working", statusMessage="1")
    bake.until(task, "working", statusMessage="in the oven", result=None)
    bake.clock.now += 61
    assert set(bake("tasks/cancel", taskId=other)) == {"resultType", "_meta"}
    bake.until(other, "cancelled", statusMessage="cancelled by the client", result=None)
    assert bake.ended.wait(PATIENCE)  # both tools wait for the same event
    late = bake.until(
        task,
        "completed",
        createdAt=begin,
        lastUpdatedAt="2027-01-15T08:01:01Z",
        statusMessage=None,
        result={"content": [{"text": "baked for ann"}]},
    )
    assert bake("tasks/cancel", taskId=task) and bake("tasks/get", taskId=task) == late
    bake.until(
        bake.make("must", says="own"), "failed", error=TASK_ERROR, statusMessage="seven"
    )
    failed = {"error": None, "result": {"isError": True}}
    bake.until(bake.make("hold", says="value"), "completed", **failed)
    with pytest.raises(TypeError, match="Context"):
        bake.tasks.tool(lambda: "x")
    with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError):
        bake.until(bake.make("must", says="own"), "failed")


@parametrize(
    "declared, who, ident, code",
    [
        ({}, "ann", None, -32021),
        ({"extensions": []}, "ann", None, -32021),
        ({"extensions": {tasks.EXTENSION: 3}}, "ann", None, -32021),
        ({"tasks": {}}, "ann", None, -32021),
        (KNOWS_TASKS, "bob", None, -32602),
        (KNOWS_TASKS, "ann", "x", -32602),
        (KNOWS_TASKS, "ann", ["x"], -32602),
    ],
)
def test_who_has_tasks(declared, who, ident, code):
    bake = Oven()
    task = bake.make("must", says="own")
    for verb in ("get", "cancel", "update"):
        given = {"taskId": ident or task, "inputResponses": {}}
        assert bake("tasks/" + verb, declared, who, **given) == code
    assert bake("tasks/update", taskId=task, inputResponses=["x"]) == -32602
    if code == -32021:
        bake.opened.set()
        bake.until(task, "failed")
        assert bake("tools/call", declared, name="must") == -32021 and bake.runs == [
            "own"
        ]
        done = bake("tools/call", declared, name="hold", task={"ttl": 9})
        assert (
            done["resultType"] == "complete"
            and done["content"][0]["text"] == "baked for ann"
        )
    options = {"revision": NEWEST_LEGACY, "declare": tasks.DECLARE}
    with (
        client.connect(bake.server, **options) as session,
        pytest.raises(mcp.RpcError, match="not found"),
    ):
        assert session.call_tool("must")["isError"]
        session.request("tasks/get", {"taskId": task})
    assert (
        bake("server/discover")["capabilities"]["extensions"]
        == tasks.DECLARE["extensions"]
    )


@parametrize("late, runs", [(0, [1, 1, 1]), (1, [0, 1, 0, 1, 0, 1])])
def test_a_task_asks_and_takes_answers_one_by_one(late, runs):
    bake = Oven()
    task = bake.make("ask")
    asked = {"1-a-b": {"params": {"message": "A"}}}
    asked["1-c"] = {"params": {"message": "C"}}
    given = {"requestState": None, "inputRequests": asked}
    first = bake.until(task, "input_required", **given)
    # only the first answer counts; a bad one is asked for again
    for key, n, now_asked in (
        ("other", 1, first["inputRequests"]),
        ("1-c", None, {"1-a-b": "*"}),
        ("1-c", 3, {"1-a-b": "*", "1-c": None}),
        ("1-a-b", 2, {"2-c": {}, "2-a-b": None}),
        ("2-c", 3, {"3-d": {}}),
        ("3-d", 4, None),
        ("3-d", 5, None),
    ):
        bake.clock.now += late * tasks.STATE_SECONDS / 2
        given = {key: {"action": "accept", "content": {"n": n}}, "x": 1}
        assert (
            bake("tasks/update", taskId=task, inputResponses=given)["resultType"]
            == "complete"
        )
        state = "input_required" if now_asked else "completed"
        bake.until(task, state, inputRequests=now_asked)
    bake.until(task, "completed", result={"content": [{"text": "234"}]})
    assert bake.runs == [0, *runs]  # late: each run begins without request state


def test_a_principal_is_compared_by_its_json():
    bake = Oven()
    first = {"sub": 1, "of": "x"}
    made = bake("tools/call", who=first, name="must", arguments={"says": "own"})
    for who, good in (
        ({"of": "x", "sub": 1}, True),
        ({"of": "x", "sub": 1.0}, False),
        ({"of": "x", "sub": True}, False),
    ):
        answer = bake("tasks/get", who=who, taskId=made["taskId"])
        assert (answer != -32602) == good
    bake.opened.set()


def test_tasks_expire_and_are_not_too_many():
    bake = Oven(most=2, ttl_ms=60_000, poll_ms=5)
    task, other = bake.make("hold"), bake.make("hold")
    assert "Too many" in bake("tools/call", name="hold")["content"][0]["text"]
    bake.clock.now += 59.9
    bake.until(task, "working", ttlMs=60_000, pollIntervalMs=5)
    assert bake.begun.wait(PATIENCE) and not bake.ended.is_set()
    bake.clock.now += 0.1
    # it was cancelled
    assert bake.make("must", says="own") and bake.ended.wait(PATIENCE)
    assert bake("tasks/get", taskId=task) == bake("tasks/get", taskId=other) == -32602


class Played:  # stands in for a client: the answers are a list; an exception is raised
    def __init__(self, answers, closed: bool):
        self.left, self.sent = [*answers], []
        self.answer, self.closed = "{} {}".format, closed
        self.result_types, self.mirrored = {}, {}

    def request(self, method: str, params):
        assert params.pop("taskId") == "T" and self.mirrored[method] == "taskId"
        self.sent.append((method[6:], *params.values()) if params else method[6:])
        answer = self.left.pop(0) if self.sent[-1] != "cancel" else {}
        if isinstance(answer, Exception):
            raise answer
        return {"taskId": "T", **answer}


def every(*intervals: Any) -> list[dict[str, Any]]:
    return [{**WORKS, "pollIntervalMs": one} for one in intervals]


ASKS_TWO = {**ASKS, "inputRequests": {"k": "?", "l": "?"}}
ASKS_MANY = {**ASKS, "inputRequests": {str(n): "?" for n in range(101)}}
ANSWERED = ["get", UPDATES[0], "get", UPDATES[1], "get", "get"]
LOST_THRICE = [LOST] * 3
OFTEN_LOST = [*LOST_THRICE, ASKS, LOST, {}, LOST, LOST, WORKS, *LOST_THRICE, DONE]
CANCELLED = {"status": "cancelled", "statusMessage": "why"}


@parametrize(
    "answers, sent, pauses, outcome",
    [
        ([*every(250, 0, 1e9), WORKS, DONE], ["get"] * 5, [0.25, 0.02, 60, 1], "x"),
        ([*every(10**400), DONE], ["get"] * 2, [60], "x"),
        ([*every(-(10**400)), DONE], ["get"] * 2, [1], "x"),
        ([*every(-1), DONE], ["get"] * 2, [1], "x"),
        ([*every(-0.5), DONE], ["get"] * 2, [1], "x"),
        ([*every(float("inf")), DONE], ["get"] * 2, [60], "x"),
        ([*every(float("-inf")), DONE], ["get"] * 2, [1], "x"),
        ([*every(float("nan")), DONE], ["get"] * 2, [0.02], "x"),
        ([ASKS, {}, ASKS_TWO, {}, {**ASKS, **WORKS}, DONE], ANSWERED, [1], "x"),
        (OFTEN_LOST, ["get"] * 4 + [UPDATES[0]] * 2 + ["get"] * 7, [1] * 10, "x"),
        ([ASKS_MANY], STOP, [], "Malformed questions"),
        ([LOST] * 4, ["get"] * 4 + ["cancel"], [1] * 3, "OSError lost"),
        ([LOST], STOP, [], "OSError"),
        (every(*[40_000] * 4), ["get"] * 3 + STOP, [40, 40, 0.5], "TimeoutError"),
        ([{"status": "failed", "error": TASK_ERROR}], STOP, [], "RpcError 7 seven"),
        ([{"status": "failed", "error": {"code": "x"}}], STOP, [], "RpcError -32603"),
        ([CANCELLED], STOP, [], "RequestCancelled why"),
        ([{}], STOP, [], "Malformed T"),
        ([{"status": "done"}], STOP, [], "Malformed T"),
        ([{"status": ["working"]}], STOP, [], "Malformed T"),
        ([{"status": "completed", "result": []}], STOP, [], "Malformed T"),
        ([{"status": "input_required"}], STOP, [], "Malformed T"),
        ([{**WORKS, "taskId": "U"}], STOP, [], "Malformed T"),
        (every("5"), STOP, [], "Malformed T"),
    ],
)
def test_a_client_follows_a_task(monkeypatch, answers, sent, pauses, outcome):
    clock, played, seen = Clock(), Played(answers, outcome == "OSError"), []
    made = {"taskId": "T", "status": "made"}
    monkeypatch.setattr(tasks, "time", clock)
    tasks.ClientTasks(played, longest=80.5, on_state=seen.append)
    try:
        come = "x" * (
            played.result_types["task"]("tools/call", made, "tag") == {"x": 1}
        )
    except Exception as problem:
        come = f"{type(problem).__name__} {getattr(problem, 'code', '')} {problem}"
    assert all(word in come for word in outcome.split()), come
    assert (played.sent, clock.pauses, played.left) == (sent, pauses, [])
    assert made in seen
    with pytest.raises(client.Malformed):
        played.result_types["task"]("prompts/get", made, None)


def test_what_has_ended_keeps_its_result_only():
    bake = Oven(most_bytes=3_000_000)
    bake.opened.set()
    big = ["x" * 100] * 5000  # which takes twice its text and 200 bytes a value
    made = []
    for _ in range(5):  # the request of one is more than half of what is kept
        named = {"name": "hold", "arguments": {}, "big": big}
        made.append(bake("tools/call", **named)["taskId"])
        bake.until(made[-1], "completed")
    for task in made:
        bake.until(task, "completed")


def test_the_oldest_results_of_whoever_holds_most_are_forgotten():
    bake, made = Oven(most_bytes=100_000), []

    @bake.tasks.tool
    def fill(ctx: Context, size: int) -> str:
        return "x" * size

    def make(who: str, size: int):
        named = {"name": "fill", "arguments": {"size": size}}
        task = bake("tools/call", who=who, **named)["taskId"]
        end = time.monotonic() + PATIENCE
        while True:
            state = bake("tasks/get", who=who, taskId=task)
            if state == -32602 or state["status"] != "working":
                break
            assert time.monotonic() < end
            time.sleep(0.002)
        bake.clock.now += 1
        made.append((who, task))

    make("bob", 20_000)
    for _ in range(5):
        make("ann", 30_000)
    make("ann", 200_000)  # more than all may have: its result is not kept
    found = [bake("tasks/get", who=who, taskId=task) != -32602 for who, task in made]
    assert found == [True, False, False, False, True, True, False]


def test_a_request_that_finds_no_room_is_refused():
    bake = Oven(most_bytes=1000)
    said = bake("tools/call", name="hold", arguments={}, big="x" * 2000)
    assert said["isError"] and said["content"][0]["text"] == "Too many tasks"


def test_answers_count_among_what_is_kept():
    bake = Oven(most_bytes=100_000)
    task = bake.make("ask")
    (first, *_) = bake.until(task, "input_required")["inputRequests"]
    big = {"action": "accept", "content": {"n": 1, "more": ["x"] * 30_000}}
    assert bake("tasks/update", taskId=task, inputResponses={first: big}) == -32603
    # It is still asked, and a smaller answer is taken; others have room.
    assert first in bake.until(task, "input_required")["inputRequests"]
    fits = {"action": "accept", "content": {"n": 1, "more": "x" * 45_000}}
    assert bake("tasks/update", taskId=task, inputResponses={first: fits}) != -32603
    named = {"name": "hold", "arguments": {}}
    said = bake("tools/call", **named, big="x" * 50_000)
    assert said["content"][0]["text"] == "Too many tasks"
    # The tool's request state repeats the answers, and counts, too.
    key = next(iter(bake.until(task, "input_required")["inputRequests"]))
    more = {"action": "accept", "content": {"n": 1}}
    bake("tasks/update", taskId=task, inputResponses={key: more})
    bake.until(task, "failed", statusMessage="The questions and answers are too large")
    assert bake.make("hold")


def test_what_a_run_has_decoded_counts_until_it_ends():
    """It may take 25 times as much memory as its text."""
    bake = Oven(most_bytes=1_000_000)
    named = {"arguments": {}, "big": [{"1": "x1"}] * 2000}
    first = bake("tools/call", name="hold", **named)["taskId"]
    assert bake("tools/call", name="hold", **named)["isError"]
    bake.opened.set()
    bake.until(first, "completed")

    begun, go = threading.Event(), threading.Event()

    @bake.tasks.tool
    def stay(ctx: Context) -> str:
        begun.set()
        go.wait(PATIENCE)
        return ""

    second = bake("tools/call", name="stay", **named)["taskId"]
    assert begun.wait(PATIENCE)
    bake("tasks/cancel", taskId=second)
    bake.until(second, "cancelled")
    assert bake("tools/call", name="hold", **named)["isError"]  # stay() has not ended
    go.set()


def test_questions_count_among_what_is_kept():
    bake = Oven(most_bytes=100_000)

    @bake.tasks.tool
    def talk(ctx: Context, size: int) -> str:
        return str(ctx.elicit("Q" * size, n=int))

    def make(size: int) -> str:
        return bake.make("talk", size=size)

    bake.until(make(60_000), "input_required")
    bake.until(make(60_000), "failed", error={"code": -32603})
    bake.until(make(10_000), "input_required")


def test_a_status_message_is_short_and_a_result_is_json(capsys):
    bake = Oven()

    @bake.tasks.tool
    def work(ctx: Context) -> Any:
        ctx.progress(1, 2, "x" * 9999)
        bake.opened.wait(PATIENCE)
        return mcp.Result({"content": [], "structuredContent": {"x": float("nan")}})

    task = bake.make("work")
    bake.until(task, "working", statusMessage="x" * tasks.MAX_STATUS)
    bake.opened.set()
    bake.until(task, "failed", error={"code": -32603})
    assert "cannot be sent" in capsys.readouterr()[1]
