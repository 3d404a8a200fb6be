"""Tasks: tool calls that return at once and keep running; the client polls for the
result.

Both roles of the extension `io.modelcontextprotocol/tasks`: tools/call is answered with
a taskId; tasks/get then returns the task's state, tasks/update sends answers to the
tool's questions, and tasks/cancel ends it. Only a request that declares the extension
can become a task.

    tasks = Tasks(server)

    @tasks.tool                                     # instead of @server.tool
    def report(pages: int, ctx: Context) -> str:    # it must take a Context
        ctx.progress(1, pages, "page 1")            # becomes the task's statusMessage
        answer = ctx.elicit("Which format?", ...)   # inputRequests; no thread waits

    with connect(url, declare=DECLARE, elicit=...) as client:
        ClientTasks(client)
        client.call_tool("report", {"pages": 3})    # polls, answers, returns the result

A thread handles the same tools/call again, with a peer that marks it as the task's own
run; what `Server.handle` sends becomes the state. Tasks are kept in memory; no
notifications are sent. Known limits: `most` is for all clients together; cancel() of a
client's call has no effect once it is a task.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

# in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]

from mcp_client import Client, Malformed, RequestCancelled

from mcp_ref import (
    STATE_SECONDS,
    ClientLacks,
    Context,
    HttpError,
    Peer,
    Result,
    RpcError,
    Server,
    decode,
    encode,
    log,
    versions,
)

Message = dict[str, Any]

EXTENSION = "io.modelcontextprotocol/tasks"
# a client: connect(..., declare=DECLARE)
DECLARE: Message = {"extensions": {EXTENSION: {}}}
STATES = {  # each status, and the member it adds to tasks/get: ext-tasks §Task Status
    "working": "",
    "input_required": "inputRequests",
    "completed": "result",
    "failed": "error",
    "cancelled": "",
}
FINAL = ("completed", "failed", "cancelled")
METHOD_NOT_FOUND, INVALID_PARAMS, MISSING_CAPABILITY = -32601, -32602, -32021
INTERNAL_ERROR = -32603
MAX_STATUS = 1000  # characters of a statusMessage
VALUE_BYTES = 200  # of a decoded value, at most


# ---- the server
# ----------------------------------------------------------------------------
# Each run of a tool has its own thread. `_lock` guards the tasks; no request is handled
# under it. All that is kept of a task is text, because decoded JSON may take 25 times
# as much memory; while a run has it decoded, that is counted.


def key_of(principal: Any) -> str:
    """Return what a principal is compared by: its JSON, in which `1`, `1.0` and `true`
    are three, and the order of a dict's members makes no difference."""
    return json.dumps(principal, sort_keys=True)


def decoded_size(text: bytes) -> int:
    """Return the bytes that JSON takes once decoded, at most."""
    values = sum(map(text.count, (b",", b"[", b"{")))
    # A character beyond U+FFFF makes each of its string take four bytes.
    return len(text) * (4 if b"\\u" in text else 1) + VALUE_BYTES * values


class Task:
    """One task: its request, the answers so far, and its state, as tasks/get returns
    it."""

    def __init__(self, ctx: Context, now: float, ttl_ms: int, poll_ms: int) -> None:
        # ext-tasks §Security Considerations: unguessable
        self.id = os.urandom(16).hex()
        self.principal, self.ends = ctx.principal, now + ttl_ms / 1000
        self.principal_key = key_of(ctx.principal)
        # The progress token is the task's id, so that progress comes to us, not to the
        # client.
        params = {**ctx.params, "_meta": {**ctx.meta, "progressToken": self.id}}
        self.request_state, self.sealed = params.pop("requestState", None), now
        # by the tool's keys
        given = params.pop("inputResponses", {})
        self.answers = {key: encode(one) for key, one in given.items()}
        self.params = encode(params)
        self.rounds, self.ended = 0, now
        self.fixed = {
            "taskId": self.id,
            "createdAt": _iso(now),
            "ttlMs": ttl_ms,
            "pollIntervalMs": poll_ms,
        }
        self.set_state("working", now)
        self.begin_run()

    @property
    def state(self) -> Message:
        """Its state, as tasks/get returns it."""
        return dict(json.loads(self.text))

    def set_state(self, status: str, now: float, **members: Any) -> None:
        """Replace its state; TypeError, ValueError, RecursionError: not JSON, or too
        large."""
        if "statusMessage" in members:
            members["statusMessage"] = members["statusMessage"][:MAX_STATUS]
        moment = {"status": status, "lastUpdatedAt": _iso(now)}
        self.text = encode({**self.fixed, **moment, **members})
        self.status = status

    @property
    def size(self) -> int:
        """The bytes that are kept of it and its run."""
        answers = sum(map(len, self.answers.values()))
        sizes = [len(self.text), len(self.params), answers, self.run_size]
        return sum(sizes) + len(self.request_state or "")

    def begin_run(self) -> None:
        """Count what the next run decodes, until the run has ended."""
        texts = [self.params, *self.answers.values()]
        self.run_size = sum(map(decoded_size, texts))

    def request(self, now: float) -> Message:
        """Return the request for the next run: without answers, if the state is too
        old."""
        self.fresh = (
            self.request_state is not None and now - self.sealed < STATE_SECONDS / 2
        )
        more = {
            "inputResponses": {key: decode(one) for key, one in self.answers.items()},
            "requestState": self.request_state,
        }
        return {
            "jsonrpc": "2.0",
            "id": self.id,
            "method": "tools/call",
            "params": {**decode(self.params), **(more if self.fresh else {})},
        }


class Tasks:
    """The tasks of a server: at most `most`, each kept for `ttl_ms` milliseconds from
    its start.

    All together take at most `most_bytes`: the requests, questions and answers of those
    that run, decoded, too; and the results of those that have ended, of which the
    oldest are forgotten first.
    `poll_ms`: how often clients should poll, in milliseconds; `clock` returns seconds
    since 1970.
    """

    def __init__(
        self,
        server: Server,
        *,
        ttl_ms: int = 3_600_000,
        poll_ms: int = 1000,
        most: int = 200,
        most_bytes: int = 2**27,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.server, self.ttl_ms, self.poll_ms = server, ttl_ms, poll_ms
        self.most, self.most_bytes = most, most_bytes
        self._clock, self._lock = clock, threading.RLock()
        self._tasks: dict[Any, Task] = {}
        # the peer of the tasks' own runs, by which start() knows them
        self._peer = Peer()
        for name, function in (
            ("tasks/get", self._get),
            ("tasks/update", self._update),
            ("tasks/cancel", self._cancel),
        ):
            # ext-tasks §Streamable HTTP: Routing Headers
            server.method(name, extension=EXTENSION, mirrored="taskId")(function)

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        *,
        required: bool = False,
        **options: Any,
    ) -> Callable[..., Any]:
        """Register a tool whose calls become tasks, with or without options.

        Other clients wait for the result, or get an error if `required`; options:
        server.tool()'s.
        """
        if function is None:
            return functools.partial(self.tool, required=required, **options)
        if Context not in get_type_hints(function).values():
            raise TypeError(
                f"{function.__name__}: a tool that becomes a task must take a Context"
            )

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            ctx = next(
                one for one in (*args, *named.values()) if isinstance(one, Context)
            )
            if required:
                self.require(ctx)
            return self.start(ctx) or function(*args, **named)

        self.server.tool(call, **options)
        return function

    def start(self, ctx: Context) -> Message | None:
        """Make a task of the current tools/call; the tool must return what this
        returns.

        None means continue: the client does not support tasks, or this is the task's
        own run. So a tool can check and even ask before it becomes a task: `return
        tasks.start(ctx) or work()`.
        """
        if ctx.peer is self._peer:
            task = self._tasks.get(ctx.id)
            if task is None or task.status in FINAL:  # cancelled before it ran
                raise RpcError(INVALID_PARAMS, "the task has ended")
            return None
        if not _declares(ctx):
            return None
        self._remove_expired()
        task = Task(ctx, self._clock(), self.ttl_ms, self.poll_ms)
        created = Result({"resultType": "task", **task.state})
        with self._lock:
            if not self._has_room(task):
                return {
                    "isError": True,
                    "content": [{"type": "text", "text": "Too many tasks"}],
                }
            # ext-tasks §Task Creation: before its id is sent
            self._tasks[task.id] = task
        self._run(task)
        return created

    def _has_room(self, task: Task) -> bool:
        """Forget what has ended until the bytes of a task fit; tell whether it may be
        kept. The oldest goes first, of whoever holds most."""
        others = [one for one in self._tasks.values() if one is not task]
        if len(others) >= self.most or task.size > self.most_bytes:
            return False
        held = {one.principal_key: 0 for one in [*others, task]}
        for one in [*others, task]:
            held[one.principal_key] += one.size
        ended = [one for one in others if one.status in FINAL and not one.run_size]
        while sum(held.values()) > self.most_bytes and ended:
            one = max(ended, key=lambda one: (held[one.principal_key], -one.ended))
            ended.remove(one)
            held[one.principal_key] -= self._tasks.pop(one.id).size
        return sum(held.values()) <= self.most_bytes

    def require(self, ctx: Context) -> None:
        """Raise ClientLacks unless the client supports tasks: ext-tasks §Capability
        Negotiation."""
        if not _declares(ctx):
            raise ClientLacks(
                MISSING_CAPABILITY,
                f"the client must declare {EXTENSION}",
                {"requiredCapabilities": DECLARE},
            )

    def _get(self, params: Message, ctx: Context) -> Message:
        """Return a task's state: ext-tasks §Task Polling."""
        return self._find(ctx).state

    def _update(self, params: Message, ctx: Context) -> Message:
        """Store answers to open questions, ignore others: ext-tasks §Task Update
        Requests."""
        task, given = self._find(ctx), params.get("inputResponses")
        if not isinstance(given, dict):
            raise RpcError(INVALID_PARAMS, "inputResponses must be an object")
        with self._lock:
            asked = task.state.get("inputRequests", {})
            rest = {
                key: question for key, question in asked.items() if key not in given
            }
            if rest == asked:
                return {}
            before = task.answers
            task.answers = {
                **before,
                **{
                    key.partition("-")[2]: encode(given[key])
                    for key in asked.keys() & given.keys()
                },
            }
            if not rest:
                task.begin_run()
            if not self._has_room(task):
                task.answers, task.run_size = before, 0
                raise RpcError(INTERNAL_ERROR, "The answers are too large")
            members = {"inputRequests": rest} if rest else {}
            self._change(task, "input_required" if rest else "working", **members)
        if not rest:
            self._run(task)
        return {}

    def _cancel(self, params: Message, ctx: Context) -> Message:
        """Cancel a task, unless it has ended: ext-tasks §Task Cancellation."""
        self._stop(self._find(ctx), "cancelled by the client")
        return {}

    def _find(self, ctx: Context) -> Task:
        """Return the task that a request is about."""
        if ctx.version in versions("legacy"):  # its experimental tasks were different
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {ctx.method}")
        self.require(ctx)
        self._remove_expired()
        task = self._tasks.get(str(ctx.params.get("taskId")))
        # ext-tasks §Security Considerations
        if task is None or task.principal_key != key_of(ctx.principal):
            raise RpcError(INVALID_PARAMS, "Task not found")
        return task

    def _run(self, task: Task) -> None:
        try:
            threading.Thread(
                target=self._work, args=(task,), name="task", daemon=True
            ).start()
        except RuntimeError:  # no threads are left: this request waits for the run
            self._work(task)

    def _work(self, task: Task, renewed: frozenset[str] = frozenset()) -> None:
        """Run the tool. Its answer is used after the run, when the id may be used
        again."""
        answer: Message = {}

        def take(message: Message) -> None:
            params = message.get("params", {})
            if "method" not in message:
                answer.update(message)
            elif params.get("progressToken") == task.id:
                self._change(
                    task,
                    "working",
                    statusMessage=str(params.get("message") or params["progress"]),
                )

        self.server.handle(
            task.request(self._clock()), take, peer=self._peer, principal=task.principal
        )
        result, error = answer.get("result") or {}, answer.get("error")
        if result.get("resultType") == "input_required":
            return self._ask(task, result, renewed)
        task.run_size = 0
        if error is not None:  # ext-tasks §Task Execution Errors
            self._fail(task, error)
        else:
            self._change(task, "completed", result=result)  # isError included

    def _ask(self, task: Task, result: Message, renewed: frozenset[str]) -> None:
        """Wait for answers, or run again with those that are known: ext-tasks §Task
        Update Requests."""
        asked = result["inputRequests"]
        is_known = asked.keys() <= task.answers.keys() and not asked.keys() & renewed
        again = is_known and (bool(renewed) or not task.fresh)
        with self._lock:
            if not again:
                task.run_size = 0
            if task.status not in FINAL:
                task.request_state, task.sealed = result["requestState"], self._clock()
                if not again:
                    task.rounds += 1  # no key is used twice
                    named = {f"{task.rounds}-{key}": one for key, one in asked.items()}
                    self._change(task, "input_required", inputRequests=named)
            fits = task.status in FINAL or self._has_room(task)
        if not fits:
            task.run_size = 0
            message = "The questions and answers are too large"
            self._fail(task, {"code": INTERNAL_ERROR, "message": message})
        elif again:
            self._work(task, renewed | asked.keys())

    def _fail(self, task: Task, error: Message) -> None:
        self._change(task, "failed", statusMessage=error["message"], error=error)

    def _stop(self, task: Task, why: str) -> None:
        """Cancel a task and its run, unless it has ended."""
        if self._change(task, "cancelled", statusMessage=why):
            self.server.handle(
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": task.id},
                },
                lambda _: None,
                peer=self._peer,
            )

    def _change(self, task: Task, status: str, **members: Any) -> bool:
        """Replace a task's state, unless the task has ended; tell whether it was
        replaced."""
        with self._lock:
            if task.status in FINAL:
                return False
            try:
                task.set_state(status, self._clock(), **members)
            except (TypeError, ValueError, RecursionError) as problem:
                log(f"the state of a task cannot be sent: {problem!r}")
                error = {"code": INTERNAL_ERROR, "message": "It cannot be sent"}
                task.set_state("failed", self._clock(), error=error)
            if task.status in FINAL:  # what is final keeps its result only
                task.params, task.answers, task.request_state = b"{}", {}, None
                task.ended = self._clock()
                if not self._has_room(task):
                    self._tasks.pop(task.id, None)
            return True

    def _remove_expired(self) -> None:
        with self._lock:
            expired = [one for one in self._tasks.values() if one.ends <= self._clock()]
            for task in expired:
                del self._tasks[task.id]
        for task in expired:
            self._stop(task, "expired")


def _declares(ctx: Context) -> bool:
    """Tell whether this request declares the extension; legacy requests never do."""
    extensions = ctx.client_capabilities.get("extensions")
    return (
        ctx.version not in versions("legacy")
        and isinstance(extensions, dict)
        and isinstance(extensions.get(EXTENSION), dict)
    )


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


# ---- the client
# ----------------------------------------------------------------------------

POLL_SECONDS = 0.02, 60.0  # shortest and longest wait between polls
POLL_MS = 1000  # wait between polls, unless the server says how long
MAX_MISSES = 3  # consecutive polls that may fail because of the network
MAX_ASKED = 100  # questions of one task


class ClientTasks:
    """Wait for the tasks that a client's calls become, so that call_tool() returns
    their results.

    `longest`: seconds to wait for a task before cancelling it. `on_state` is called
    with each state, on the waiting thread; with the taskId in it, another process can
    also wait().
    """

    def __init__(
        self,
        client: Client,
        *,
        longest: float = 3600.0,
        on_state: Callable[[Message], Any] = lambda state: None,
    ) -> None:
        self.client, self.longest, self.on_state = client, longest, on_state
        client.result_types["task"] = self._follow
        client.mirrored.update(
            {"tasks/" + verb: "taskId" for verb in ("get", "update", "cancel")}
        )

    def wait(
        self, ident: str, timeout: float | None = None, tag: Any = None
    ) -> Message:
        """Wait for a task to end, answering its questions; return the result.

        Raises RpcError if it failed, RequestCancelled if it was cancelled;
        TimeoutError, without cancelling it, after `timeout` seconds. `tag` is passed to
        the functions that answer.
        """
        deadline = time.monotonic() + (self.longest if timeout is None else timeout)
        misses, state, answers = 0, {}, {}  # type: int, Message, Message
        # ext-tasks §Task Update Requests: each key is answered once
        sent: set[str] = set()
        while True:
            try:
                if answers:
                    self._send("update", ident, inputResponses=answers)
                    sent, answers = {*sent, *answers}, {}
                state, misses = _checked(ident, self._send("get", ident)), 0
            except (OSError, HttpError):  # a task outlives a broken connection
                misses += 1
                if misses > MAX_MISSES or self.client.closed:
                    raise
            else:
                self.on_state(state)
                if state["status"] in FINAL:
                    return _result(state)
                asked = (
                    state["inputRequests"]
                    if state["status"] == "input_required"
                    else {}
                )
                if len(sent | asked.keys()) > MAX_ASKED:
                    raise Malformed(f"task {ident!r} asked {MAX_ASKED} questions")
                answers = {
                    key: self.client.answer(question, tag)
                    for key, question in asked.items()
                    if key not in sent
                }
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"task {ident!r} did not end in time")
            if not answers or misses:
                wish = state.get("pollIntervalMs", POLL_MS)
                if wish < 0:
                    wish = POLL_MS
                # Bound it first: an integer may be too large to become a float.
                wish = min(wish, 1000 * POLL_SECONDS[1]) / 1000
                time.sleep(min(max(POLL_SECONDS[0], wish), left))

    def _follow(self, method: str, created: Message, tag: Any) -> Message:
        """Turn a CreateTaskResult into the result of its task."""
        ident = created.get("taskId")
        if method != "tools/call" or not isinstance(ident, str):
            raise Malformed(
                f"unexpected or invalid task for {method}: {created!r:.200}"
            )
        try:
            self.on_state(created)
            return self.wait(ident, tag=tag)
        except BaseException:  # ext-tasks §Task Polling: poll to the end, or cancel
            with contextlib.suppress(Exception):
                self._send("cancel", ident)
            raise

    def _send(self, verb: str, ident: str, **params: Any) -> Message:
        return dict(self.client.request("tasks/" + verb, {"taskId": ident, **params}))


def _checked(ident: str, state: Message) -> Message:
    """Return a task's state; Malformed if it is not one."""
    member = STATES.get(str(state.get("status")))
    if (
        state.get("taskId") != ident
        or member is None
        or member
        and not isinstance(state.get(member), dict)
        or not isinstance(state.get("pollIntervalMs", 0), (int, float))
    ):
        raise Malformed(f"expected the state of task {ident!r}, found {state!r:.200}")
    return state


def _result(state: Message) -> Message:
    """Return the result of a task that has ended, or raise its error."""
    if state["status"] == "cancelled":
        raise RequestCancelled(
            str(state.get("statusMessage", "the task was cancelled"))
        )
    if state["status"] == "failed":
        code, message = (
            state["error"].get("code"),
            str(state["error"].get("message", "")),
        )
        raise RpcError(
            code if type(code) is int else -32603, message, state["error"].get("data")
        )
    return dict(state["result"])
