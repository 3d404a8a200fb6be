r"""Tasks: a tool that takes its time answers at once, and the client comes back for the result.

This is the extension `io.modelcontextprotocol/tasks`, for a server and for a client. A tools/call
is answered by a task, {"resultType": "task", "taskId": ...}, and from then on no request waits:
tasks/get says how far it is, tasks/update brings answers to what the tool asks meanwhile,
tasks/cancel ends it. The server decides which call becomes a task, but only for a client that says
in that very request that it knows them.

    working <-> input_required      and from both, once and for good, to
    completed (with the result)  |  failed (with the error)  |  cancelled

A server makes tasks by another decorator, and the tool is written as any other:

    tasks = Tasks(server)

    @tasks.tool                             # (required=True): not for clients without tasks
    def report(pages: int, ctx: Context) -> str:
        ctx.progress(1, pages, "page 1")    # becomes the statusMessage
        ctx.elicit("Which format?", ...)    # becomes inputRequests; no thread waits for the answer

A client does what it did before, or holds on to the task, perhaps longer than it lives itself:

    with connect(url, declare=DECLARE, elicit=...) as client:
        tasks = ClientTasks(client)
        client.call_tool("report", {"pages": 3})            # waits, asks the user, has the result
        task = tasks.start("report", {"pages": 3})          # is back at once; keep task.id
        tasks.resume(task.id).wait()                        # in another life, if need be

The key to the server: the work of a task is the same tools/call, handled once more by the public
server.handle(), on a thread of ours, and what comes of that becomes the state of the task. So
arguments, schemas, errors and questions are the core's matter, as ever.

Run as a program, it shows a task from its first message to its last (but for times and `_meta`):

    $ python3 examples/tasks.py
    > tools/call {"name": "bake", "arguments": {"cake": "carrot"}}
    < {"resultType": "task", "taskId": "ID", "status": "working", "ttlMs": 3600000, "pollIntervalMs": 20}
    > tasks/get {"taskId": "ID"}
    < {"resultType": "complete", "taskId": "ID", "status": "input_required", "ttlMs": 3600000, "pollIntervalMs": 20, "inputRequests": {"1-elicitation-1": {"method": "elicitation/create", "params": {"mode": "form", "message": "Which topping?", "requestedSchema": {"type": "object", "properties": {"topping": {"type": "string"}}, "required": ["topping"]}}}}}
    > tasks/update {"taskId": "ID", "inputResponses": {"1-elicitation-1": {"action": "accept", "content": {"topping": "nuts"}}}}
    < {"resultType": "complete"}
    > tasks/get {"taskId": "ID"}
    < {"resultType": "complete", "taskId": "ID", "status": "working", "statusMessage": "in the oven", "ttlMs": 3600000, "pollIntervalMs": 20}
    > tasks/get {"taskId": "ID"}
    < {"resultType": "complete", "taskId": "ID", "status": "completed", "ttlMs": 3600000, "pollIntervalMs": 20, "result": {"resultType": "complete", "content": [{"type": "text", "text": "A carrot cake with nuts."}]}}

Weak spots, known: tasks live in this process and end with it; a tool cannot be stopped, only asked
to (ctx.cancelled), and one that does not listen keeps its thread. `ext-tasks §Task Creation` names
a heading of the extension's specification.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mcp_ref import (  # noqa: I001
    INVALID_PARAMS, MISSING_CAPABILITY, STATE_SECONDS, Client, ClientLacks, Context, HttpError,
    Malformed, Peer, RequestCancelled, RpcError, Server, ServerLacks, Signature, connect, decode,
    encode, log, shown, text)

Message = dict[str, Any]

EXTENSION = "io.modelcontextprotocol/tasks"
DECLARE: Message = {"extensions": {EXTENSION: {}}}      # a client: connect(..., declare=DECLARE)
SUPPORTED = ("tools/call",)                 # ext-tasks §Supported Methods: there may be more later
OVER = frozenset(["completed", "failed", "cancelled"])  # no task leaves these


# ---- the server: one task

MAX_STATUS = 500            # characters of a statusMessage


class TaskPeer(Peer):
    """Stands in for a client while a task runs: isinstance(ctx.peer, TaskPeer) tells such runs."""

    def __init__(self, ident: str) -> None:
        super().__init__()
        self._ident, self._stopped = ident, False       # the id of the only request there ever is

    def admit(self, ctx: Context) -> None:
        """Note a run; if the task is over before it began, cancel it."""
        super().admit(ctx)
        if self._stopped:
            self.cancel(ctx.id)

    def stop(self) -> None:
        """Cancel the run, be it under way or about to begin."""
        self._stopped = True        # first: either we find the run, or it finds this
        self.cancel(self._ident)


class Task:
    """What is kept of a task. The lock of Tasks guards all of it but `telling`."""

    def __init__(self, ctx: Context, now: float, ttl_ms: int | None, poll_ms: int) -> None:
        self.id = os.urandom(16).hex()      # ext-tasks §Security Considerations: not to be guessed
        self.principal, self.peer = ctx.principal, TaskPeer(self.id)
        self.status, self.said = "working", ""
        self.outcome: Message = {}          # inputRequests, result or error
        self.created = self.updated = now
        self.ttl_ms, self.poll_ms = ttl_ms, poll_ms
        self.ends = float("inf") if ttl_ms is None else now + ttl_ms / 1000
        self.changes, self.told = 0, 0      # so far, and those that listeners know of
        self.telling = threading.Lock()     # held while they are told, so that they hear in order
        # The request, with a token of ours: its progress is for us.
        self.method = ctx.method
        self.params = {**ctx.params, "_meta": {**ctx.meta, "progressToken": self.id}}
        self.retry: Message = {             # what answers add to the params
            key: self.params.pop(key) for key in ("inputResponses", "requestState")
            if key in self.params}
        self.sealed = now                           # how old the requestState is, at least
        # The questions: a tool may use a key again, on the wire that must not happen.
        self.asked: Message = {}                    # in the last round, by the tool's keys
        self.answers: dict[str, tuple[Message, Any]] = {}   # to which question: likewise
        self.open: dict[str, str] = {}              # the tool's keys, by those on the wire
        self.numbers = itertools.count(1)

    def to_json(self) -> Message:
        """Return the DetailedTask: ext-tasks §Task Status."""
        return {"taskId": self.id, "status": self.status,
                **({"statusMessage": self.said} if self.said else {}),
                "createdAt": _iso(self.created), "lastUpdatedAt": _iso(self.updated),
                "ttlMs": self.ttl_ms, "pollIntervalMs": self.poll_ms, **self.outcome}


def _iso(seconds: float) -> str:
    whole, rest = divmod(int(seconds * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{rest:03}Z"


# ---- the server: all tasks


class Tasks:
    """The tasks of a server. Make one with the server, then use its decorator, tool().

    `ttl_ms`: how long a task is kept, counted from its beginning (None: for ever); what still runs
    then is cancelled. `poll_ms`: how often clients should ask. `most` tasks are kept, `each` of a
    principal (if it is known who calls); `threads` of them work at once, others wait their turn.
    `clock` returns seconds since 1970. Threads: tasks-work, tasks-clock; they end with the tasks.
    Locks, in this order: Context._gate of a run, Task.telling, that of a listener; `_lock` last.
    """

    def __init__(self, server: Server, *, ttl_ms: int | None = 3_600_000, poll_ms: int = 1000,
                 most: int = 1000, each: int = 100, threads: int = 16,
                 clock: Callable[[], float] = time.time) -> None:
        _check_milliseconds(ttl_ms, poll_ms)
        self.server, self.ttl_ms, self.poll_ms = server, ttl_ms, poll_ms
        self.most, self.each, self.threads = most, each, threads
        self._clock = clock
        self._lock = threading.Condition()      # guards all below; notified of a new _alarm
        self._tasks: dict[str, Task] = {}
        self._waiting: dict[Task, None] = {}    # for a thread, oldest first
        self._working = 0                       # threads
        self._alarm = float("inf")              # when tasks-clock looks again
        self._ticking = False                   # it runs
        for name, function in (("get", self._get), ("update", self._update),
                               ("cancel", self._cancel)):
            # ext-tasks §Streamable HTTP: Routing Headers
            server.method("tasks/" + name, extension=EXTENSION, mirrored="taskId")(function)
        server.filters["taskIds"] = self._filter

    # ---- for authors of tools

    def tool(self, function: Callable[..., Any] | None = None, *, required: bool = False,
             ttl_ms: int | None = 0, poll_ms: int = 0, **members: Any) -> Callable[..., Any]:
        """Register a tool whose calls become tasks: @tasks.tool, bare or with options.

        `required`: to a client without tasks it is an error; else that one waits for the result.
        `ttl_ms`, `poll_ms`: its own (0: those of all). `members`: those of server.tool().
        """
        _check_milliseconds(ttl_ms or None, poll_ms or None)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            if not inspect.isroutine(function):
                raise TypeError(f"{function!r} is neither a function nor a method")
            own = Signature(function).context       # the parameter that is annotated Context

            def wrapper(**arguments: Any) -> Any:
                ctx = arguments[own] if own else arguments.pop("_ctx")
                task = self.start(ctx, required=required, ttl_ms=ttl_ms, poll_ms=poll_ms)
                return function(**arguments) if task is None else task
            functools.update_wrapper(wrapper, function)
            if not own:
                _add_context(wrapper)
            self.server.tool(wrapper, **members)
            return function
        return register if function is None else register(function)

    def start(self, ctx: Context, *, required: bool = False, ttl_ms: int | None = 0,
              poll_ms: int = 0) -> Message | None:
        """Make a task of the call that a tool is in; return what the tool has to return then.

        None: go on, since this is the task's own run, or the client has no tasks. So a tool can
        find out first what it needs, or even ask, and become a task after that:

            where = ctx.elicit("Where to?", place=str)
            task = tasks.start(ctx)
            if task is not None:
                return task
        """
        if ctx.method not in SUPPORTED:
            raise ValueError(f"{ctx.method} cannot become a task")
        if required:
            self.require(ctx)
        if isinstance(ctx.peer, TaskPeer) or not _declares(ctx):
            return None
        self.sweep()
        task = Task(ctx, self._clock(), self.ttl_ms if ttl_ms == 0 else ttl_ms,
                    poll_ms or self.poll_ms)
        with self._lock:
            own = sum(one.principal is not None and one.principal == task.principal
                      for one in self._tasks.values())
            if len(self._tasks) >= self.most or own >= self.each:
                # Nothing is wrong with the call but the time: that is for the model to read.
                return {"resultType": "complete", "isError": True, "content": [
                    text("Too many tasks are kept already; try again later")]}
            self._set_alarm_locked(task.ends)
            self._queue_locked(task)
            self._tasks[task.id] = task     # ext-tasks §Task Creation: before anybody hears of it
            created = {"resultType": "task", **task.to_json()}
        # Who cancels the call before it is answered will never know the id.
        ctx.on_cancel(functools.partial(self._stop, task, "the call was cancelled"))
        return created

    def require(self, ctx: Context) -> None:
        """Raise ClientLacks if the client has no tasks: ext-tasks §Capability Negotiation."""
        if not _declares(ctx):
            raise ClientLacks(MISSING_CAPABILITY, f"This is for clients that declare {EXTENSION}",
                              {"requiredCapabilities": DECLARE})

    # ---- for clients: one function per method

    def _get(self, params: Message, ctx: Context) -> Message:
        """ext-tasks §Task Polling."""
        with self._lock:
            return self._find_locked(ctx).to_json()

    def _update(self, params: Message, ctx: Context) -> Message:
        """ext-tasks §Task Update Requests: an answer to what is not open is passed over."""
        with self._lock:
            task, given = self._find_locked(ctx), params.get("inputResponses")
            if not isinstance(given, dict):
                raise RpcError(INVALID_PARAMS, "tasks/update needs inputResponses, an object")
            answered = task.open.keys() & given.keys()
            if answered and answered == task.open.keys():
                self._queue_locked(task)
            for key in answered:
                asked = task.open.pop(key)
                task.answers[asked] = task.asked[asked], given[key]
            if answered:
                self._ask_locked(task)
        self._tell(task)
        return {}

    def _cancel(self, params: Message, ctx: Context) -> Message:
        """ext-tasks §Task Cancellation: a task that is over stays as it is."""
        with self._lock:
            task = self._find_locked(ctx)
        self._stop(task, "cancelled by the client")
        return {}

    def _filter(self, wanted: Any, ctx: Context) -> list[str] | None:
        """ext-tasks §Task Status Notifications: grant the caller's own tasks."""
        self.require(ctx)
        if not isinstance(wanted, list) or not all(isinstance(ident, str) for ident in wanted):
            raise RpcError(INVALID_PARAMS, "taskIds is an array of strings")
        with self._lock:
            granted = {ident: True for ident in wanted if self._known_locked(ident, ctx)}
        return list(granted) or None

    def _find_locked(self, ctx: Context) -> Task:
        if ctx.session is not None:         # the legacy era had tasks of another kind
            self.server.not_found(ctx.method)
        self.require(ctx)
        task = self._known_locked(ctx.params.get("taskId"), ctx)
        if task is None:
            raise RpcError(INVALID_PARAMS, "Task not found")
        return task

    def _known_locked(self, ident: Any, ctx: Context) -> Task | None:
        """Return a task of the caller's: ext-tasks §Security Considerations."""
        task = self._tasks.get(ident) if isinstance(ident, str) else None
        known = task is not None and task.principal == ctx.principal and task.ends > self._clock()
        return task if known else None

    # ---- the work: threads run what waits, then end

    def _queue_locked(self, task: Task) -> None:
        """Let a task wait for a thread. To start one may fail, so this comes before all changes."""
        if self._working < self.threads:
            threading.Thread(target=self._work, name="tasks-work", daemon=True).start()
            self._working += 1
        self._waiting[task] = None

    def _work(self) -> None:
        while True:
            with self._lock:
                task = next(iter(self._waiting), None)
                if task is None:
                    self._working -= 1
                    return
                del self._waiting[task]
                if self._clock() - task.sealed > STATE_SECONDS / 2:
                    task.retry = {}         # the state may be too old: see _take_questions_locked
                message = {"jsonrpc": "2.0", "id": task.id, "method": task.method,
                           "params": {**task.params, **task.retry}}
            self.server.handle(message, functools.partial(self._take, task), peer=task.peer,
                               principal=task.principal)

    def _take(self, task: Task, message: Message) -> None:
        """Take what a run sends: progress, and in the end one response.

        ext-tasks §Task Status Notifications: log messages and the like have nowhere to go.
        """
        message = decode(encode(message))       # a copy; what is not JSON fails here, as it should
        params, result = message.get("params", {}), message.get("result", {})
        error = message.get("error")
        with self._lock:
            if task.status in OVER:             # it was cancelled: too late
                return
            if params.get("progressToken") == task.id:
                self._change_locked(task, task.status, _in_words(params))
            elif error is not None:             # ext-tasks §Task Execution Errors
                self._end_locked(task, "failed", error["message"], error=error)
            elif result.get("resultType") == "input_required":
                self._take_questions_locked(task, result)
            elif "result" in message:           # isError included
                self._end_locked(task, "completed", "", result=result)
        self._tell(task)

    def _take_questions_locked(self, task: Task, result: Message) -> None:
        """Put the questions of a run to the client, each with a key that was never used.

        If the run brought an answer to the same question, that was a bad one, and is asked for
        anew. If it brought none because its state was too old (people take their time), so that the
        tool ran from the beginning, the answer that we have is as good as ever.
        """
        for key in task.retry.get("inputResponses", ()):
            if key in result["inputRequests"]:
                task.answers.pop(key, None)
        task.asked, task.sealed = result["inputRequests"], self._clock()
        task.retry = {"requestState": result["requestState"]}
        task.open = {f"{next(task.numbers)}-{key}": key for key, question in task.asked.items()
                     if task.answers.get(key, (None,))[0] != question}
        if not task.open:
            self._queue_locked(task)
        self._ask_locked(task)

    def _ask_locked(self, task: Task) -> None:
        """Show the questions that are open; without any, the next run has all answers."""
        if task.open:
            self._change_locked(task, "input_required", "", inputRequests={
                key: task.asked[asked] for key, asked in task.open.items()})
        else:
            task.retry["inputResponses"] = {key: task.answers[key][1] for key in task.asked}
            self._change_locked(task, "working", "")

    # ---- the states

    def _change_locked(self, task: Task, status: str, said: str, **outcome: Any) -> None:
        task.status, task.said, task.outcome = status, said[:MAX_STATUS], outcome
        task.updated = self._clock()
        task.changes += 1

    def _end_locked(self, task: Task, status: str, said: str, **outcome: Any) -> None:
        self._change_locked(task, status, said, **outcome)
        self._waiting.pop(task, None)
        for part in (task.params, task.retry, task.asked, task.answers, task.open):
            part.clear()                    # nobody needs them any more, and they may be large

    def _stop(self, task: Task, why: str) -> None:
        """Cancel a task, unless it is over, and its run."""
        with self._lock:
            if task.status in OVER:
                return
            self._end_locked(task, "cancelled", why)
        for step in (task.peer.stop, functools.partial(self._tell, task)):
            try:
                step()
            except Exception as problem:    # noqa: BLE001  of a tool's on_cancel, or of a listener
                log(f"while a task was cancelled: {shown(problem)}")

    def _tell(self, task: Task) -> None:
        """Tell who listens how a task stands: no state after a later one, the last one for sure."""
        with task.telling:                  # a slow listener holds up this task, and no other
            with self._lock:
                if task.told == task.changes:
                    return
                task.told, state = task.changes, task.to_json()
            self.server.tell("taskIds", task.id, "notifications/tasks", state)

    # ---- the time

    def sweep(self) -> None:
        """Forget the tasks whose time is over, and cancel what still runs. It is done by itself."""
        with self._lock:
            late = [task for task in self._tasks.values() if task.ends <= self._clock()]
            for task in late:
                del self._tasks[task.id]
        for task in late:
            self._stop(task, "its time is over")

    def _set_alarm_locked(self, when: float) -> None:
        """See to it that tasks-clock looks at that time."""
        if when < self._alarm:
            if not self._ticking:
                threading.Thread(target=self._tick, name="tasks-clock", daemon=True).start()
            self._alarm, self._ticking = when, True
            self._lock.notify()

    def _tick(self) -> None:
        while True:
            self.sweep()
            with self._lock:
                self._alarm = min((task.ends for task in self._tasks.values()),
                                  default=float("inf"))
                self._ticking = self._alarm < float("inf")
                if not self._ticking:
                    return
                self._lock.wait(max(0.05, min(self._alarm - self._clock(), 3600)))


# ---- the server: small print


def _declares(ctx: Context) -> bool:
    """Tell whether this very request declares the extension; legacy sessions cannot."""
    extensions = ctx.client_capabilities.get("extensions")
    return ctx.session is None and isinstance(extensions, dict) \
        and isinstance(extensions.get(EXTENSION), dict)


def _in_words(progress: Message) -> str:
    of = " of {:g}".format(progress["total"]) if "total" in progress else ""
    return str(progress.get("message") or "{:g}{}".format(progress["progress"], of))


def _check_milliseconds(*values: Any) -> None:
    if any(value is not None and (type(value) is not int or value < 1) for value in values):
        raise ValueError("ttl_ms and poll_ms are whole numbers from 1 up")


def _add_context(wrapper: Callable[..., Any]) -> None:
    """Give a function, in what it says of itself, a parameter that takes the Context."""
    signature = inspect.signature(wrapper)
    listed = list(signature.parameters.values())
    own = inspect.Parameter("_ctx", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    listed.insert(len(listed) - any(one.kind is one.VAR_KEYWORD for one in listed), own)
    vars(wrapper)["__signature__"] = signature.replace(parameters=listed)
    wrapper.__annotations__ = {**wrapper.__annotations__, "_ctx": Context}


# ---- the client

LONGEST_SECONDS = 3600.0    # that we wait for a task, unless told otherwise
POLL_SECONDS = (0.02, 1.0, 60.0)    # between polls: at least; if the server does not say; at most
LISTEN_SECONDS = 30.0       # ... if it announces changes: one may get lost
CANCEL_SECONDS = 1.0        # to tell the server that nobody waits any more
MAX_MISSES = 3              # polls in a row that may fail because of the network
MAX_QUESTIONS = 100         # of one task
MAX_ID = 1000               # characters: HTTP repeats it in a header


class ClientTasks:
    """What a client needs for tasks, besides declaring them: connect(..., declare=DECLARE).

    From then on client.call_tool() returns the result of a task as that of any call. `longest`:
    seconds to wait for one; who gives up, or has no answer to a question, cancels it. `listen`:
    have changes announced, and ask less often. `on_change` is called with each new state of a task,
    a dict, on the thread that waits: keep the id of the first, and you can resume().
    """

    def __init__(self, client: Client, *, longest: float = LONGEST_SECONDS, listen: bool = False,
                 on_change: Callable[[Message], Any] | None = None) -> None:
        self.client, self.longest, self.listen, self.on_change = client, longest, listen, on_change
        self._thread = threading.local()    # `starts`: start() is under way on it
        client.result_types["task"] = self._follow
        client.mirrored.update({"tasks/" + name: "taskId" for name in ("get", "update", "cancel")})

    def start(self, name: str, arguments: Message | None = None, **options: Any) -> TaskHandle:
        """Call a tool, return its task. If the server made none, that has no id, and is over.

        `options`: those of client.call_tool().
        """
        self._thread.starts = True
        try:
            result = self.client.call_tool(name, arguments, **options)
        except _Started as started:
            return started.task
        finally:
            self._thread.starts = False
        return TaskHandle(self, "", {"taskId": "", "status": "completed", "result": result})

    def resume(self, ident: str, tag: Any = None) -> TaskHandle:
        """Return a task that was started before, perhaps by another process."""
        return TaskHandle(self, ident, {}, tag)

    def _follow(self, method: str, created: Message, tag: Any) -> Message:
        """Make a whole result of a CreateTaskResult: wait for it."""
        if method not in SUPPORTED:         # ext-tasks §Capability Negotiation
            raise Malformed(f"{method} was answered by a task")
        task = TaskHandle(self, created.get("taskId"), created, tag)
        if getattr(self._thread, "starts", False):
            raise _Started(task)
        try:
            return task.wait()
        except BaseException:               # ext-tasks §Task Polling: to the end, or to a cancel
            if not task.over and not self.client.closed:
                with contextlib.suppress(OSError, RpcError, HttpError, Malformed):
                    task.cancel(timeout=CANCEL_SECONDS)
            raise


class _Started(BaseException):
    """Carries a task out of call_tool(), unfinished."""

    def __init__(self, task: TaskHandle) -> None:
        self.task = task


class TaskHandle:
    """A task of the server's: `id`, and `state`, as last seen ({}: not yet). For one thread.

    Methods raise what those of Client raise. `tag` is for the functions that answer questions.
    """

    def __init__(self, tasks: ClientTasks, ident: Any, state: Message, tag: Any = None) -> None:
        if not isinstance(ident, str) or len(ident) > MAX_ID:
            raise Malformed("a task has no proper taskId: " + shown(ident))
        self.id, self.tag, self.state = ident, tag, {}      # type: str, Any, Message
        self._tasks, self._client = tasks, tasks.client
        self._began = time.monotonic()
        self._answers: Message = {}         # by key: nobody is asked twice
        self._sent: set[str] = set()        # the keys of those that the server has
        if state:
            self._see(state)

    @property
    def over(self) -> bool:
        """Tell whether the task is known to be over."""
        return self.state.get("status") in OVER

    def get(self, **options: Any) -> Message:
        """Return the state, fresh from the server unless it is final."""
        if not self.over:
            self._see(self._client.request("tasks/get", {"taskId": self.id}, **options))
        return self.state

    def update(self, answers: Message, **options: Any) -> None:
        """Answer inputRequests, by their keys. (wait() does it by itself.)"""
        self._client.request("tasks/update", {"taskId": self.id, "inputResponses": answers},
                             **options)
        self._sent.update(answers)

    def cancel(self, **options: Any) -> None:
        """Ask the server to end the task; that may take a while, or come too late."""
        self._client.request("tasks/cancel", {"taskId": self.id}, **options)

    def wait(self, timeout: float | None = None) -> Message:
        """Wait for the end, answering what is asked on the way; return the result.

        Raises RpcError if the task failed, or is not there; RequestCancelled if it was cancelled;
        TimeoutError after `timeout` seconds, or the task's ttl: to cancel it is up to you.
        """
        longest = min(self._tasks.longest if timeout is None else timeout, 1e6)
        deadline, misses = time.monotonic() + longest, 0
        with self._news(longest) as rest:
            while not self.over:
                unsent = self._unsent()
                if misses or self.state and not unsent:
                    self._rest(rest, deadline)
                left = min(deadline - time.monotonic(), self._client.timeout)
                try:
                    if unsent:
                        self.update(unsent, timeout=left)
                    self.get(timeout=left)
                    misses = 0
                except (OSError, HttpError):    # a task outlives a break, and "too many requests"
                    misses += 1
                    if misses > MAX_MISSES or self._client.closed:
                        raise
                self._answer()
        return self._result()

    def _see(self, state: Message) -> None:
        """Take a state if it is one: ext-tasks §Task Status, §Task Creation."""
        status, created = state.get("status"), state.get("resultType") == "task"
        member = {"input_required": "inputRequests", "completed": "result",
                  "failed": "error"}.get(str(status))
        if state.get("taskId") != self.id or status not in ("working", "input_required", *OVER) \
                or member and not created and not isinstance(state.get(member), dict):
            raise Malformed("this is no state of the task: " + shown(json.dumps(state)))
        before, self.state = self.state, {key: value for key, value in state.items()
                                          if key not in ("resultType", "_meta")}
        if created:                         # it has but the status, tasks/get will have the rest
            self.state["status"] = "working"
        if self._tasks.on_change is not None and self.state != before:
            self._tasks.on_change(self.state)

    def _result(self) -> Message:
        """Return the result, or raise what came instead. (_see has let nothing else through.)"""
        status = self.state["status"]
        if status == "cancelled":
            raise RequestCancelled("the task was cancelled: {}".format(
                shown(self.state.get("statusMessage"))))
        ended: Message = self.state["error" if status == "failed" else "result"]
        if status == "failed" and type(ended.get("code")) is int:
            raise RpcError(ended["code"], str(ended.get("message", "")), ended.get("data"))
        if status == "failed" or ended.get("resultType", "complete") != "complete" \
                or not isinstance(ended.get("content"), list):
            raise Malformed("this is no end of a task: " + shown(json.dumps(self.state)))
        return ended

    def _answer(self) -> None:
        """Have new questions answered: ext-tasks §Task Update Requests."""
        for key, question in self._open.items():
            if key not in self._answers:
                if len(self._answers) >= MAX_QUESTIONS:
                    raise Malformed(f"the task asks more than {MAX_QUESTIONS} questions")
                self._answers[key] = self._client.answer(question, self.tag)

    @property
    def _open(self) -> Message:
        """The questions that wait for an answer."""
        asks = self.state.get("status") == "input_required"
        return self.state.get("inputRequests", {}) if asks else {}

    def _unsent(self) -> Message:
        return {key: self._answers[key] for key in self._open
                if key in self._answers and key not in self._sent}

    @contextlib.contextmanager
    def _news(self, longest: float) -> Iterator[Callable[[float, float], None]]:
        """Yield a function that waits for news: so many seconds, but no more than those left."""
        subscription, news = None, threading.Event()
        if self._tasks.listen and not self.over:
            with contextlib.suppress(OSError, RpcError, HttpError, Malformed, ServerLacks):
                subscription = self._client.listen([], filters={"taskIds": [self.id]},
                                                   timeout=min(longest, self._client.timeout))

        def rest(pause: float, left: float) -> None:
            if subscription is None or subscription.over.is_set():
                self._client.left.wait(min(pause, left))
            else:
                news.wait(min(max(pause, LISTEN_SECONDS), left))
                news.clear()
                self._client.left.wait(POLL_SECONDS[0])     # a flood must not become one of ours

        def listen() -> None:
            news.set()                      # there may be some from before
            for _ in subscription or ():    # what is announced but wakes us: tasks/get counts
                news.set()
            news.set()                      # it has ended, perhaps with the client
        with subscription or contextlib.nullcontext():
            if subscription is not None:
                threading.Thread(target=listen, name="tasks-listen", daemon=True).start()
            yield rest

    def _rest(self, rest: Callable[[float, float], None], deadline: float) -> None:
        """Wait as long as the server wishes, within reason. (ext-tasks §Task Polling)"""
        least, usual, most = POLL_SECONDS
        ttl, wish = _seconds(self.state.get("ttlMs")), _seconds(self.state.get("pollIntervalMs"))
        left = min(deadline, self._began + (ttl or float("inf"))) - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the task {shown(self.id)} is not over in time")
        rest(max(least, min(wish or usual, most)), left)


def _seconds(value: Any) -> float | None:
    """Return foreign milliseconds as seconds, None for what cannot be meant."""
    return value / 1000 if type(value) in (int, float) and 0 < value < 1e15 else None


# ---- the demonstration


def main() -> None:
    """Show the life of a task, as messages; polls that bring nothing new are left out."""
    server = Server("bakery")
    tasks, seen = Tasks(server, poll_ms=20), threading.Event()
    tape: list[tuple[str, Message]] = []
    left_out = ("_meta", "createdAt", "lastUpdatedAt")

    @tasks.tool
    def bake(cake: str, ctx: Context) -> str:
        """Bake a cake."""
        answer = ctx.elicit("Which topping?", topping=str)
        ctx.progress(1, 2, "in the oven")
        seen.wait(10)                       # until that was shown
        return f"A {cake} cake with {answer['content']['topping']}."

    def show() -> None:
        """Print the last exchange."""
        for way, message in tape[-2:]:
            members = json.dumps(message["params" if way == ">" else "result"])
            plain = json.loads(members.replace(task.id, "ID"), object_hook=lambda part: {
                key: value for key, value in part.items() if key not in left_out})
            print(*filter(None, (way, message.get("method"), json.dumps(plain))))

    def poll_until(member: str, value: str) -> None:
        while task.get(timeout=10).get(member) != value and not task.over:
            client.left.wait(0.02)
        show()

    with connect(server, declare=DECLARE, elicit=lambda form: {"topping": "nuts"},
                 trace=lambda way, message: tape.append((way, message))) as client:
        task = ClientTasks(client).start("bake", {"cake": "carrot"})
        show()
        poll_until("status", "input_required")
        task.update({key: client.answer(question)
                     for key, question in task.state["inputRequests"].items()})
        show()
        poll_until("statusMessage", "in the oven")
        seen.set()
        poll_until("status", "completed")


if __name__ == "__main__":
    main()
