"""Work side by side that can be stopped at any time, whatever it waits for."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from links import start

Put = Callable[[Any], None]


class Stopped(Exception):
    """The run was interrupted, or its time is over: why."""


class Turns:
    """Lets many play side by side, or one alone.

    `playing` is how many play now; `alone` is true while one of them is alone;
    `waiting` is how many want to be alone, for whom all others wait.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.playing = self.waiting = 0
        self.alone = False

    @contextlib.contextmanager
    def take(self, alone: bool) -> Iterator[None]:
        """Wait for a turn; it ends with the block."""
        with self.changed:
            self.waiting += alone
            self.changed.wait_for(lambda: self._is_free(alone))
            self.waiting -= alone
            self.playing += 1
            self.alone = alone
        try:
            yield
        finally:
            with self.changed:
                self.playing -= 1
                self.alone = False
                self.changed.notify_all()

    def _is_free(self, alone: bool) -> bool:
        return not (self.playing if alone else self.alone or self.waiting)


class End:
    """A thread has ended: what it raised, or None."""

    def __init__(self, problem: BaseException | None) -> None:
        self.problem = problem


class Pool:
    """Some threads that do the same with each of many items.

    Threads put what they find into a queue, from which each() yields it. They are
    daemons: if each() raises, nobody waits for them.
    """

    def __init__(self, jobs: int, ends: float = threading.TIMEOUT_MAX) -> None:
        self.jobs = jobs
        self.ends = ends  # when the time of the whole run is over, by time.monotonic()

    def each(
        self, items: Iterable[Any], work: Callable[[Any, Put], None]
    ) -> Iterator[Any]:
        """Call work(item, put) for each item; yield what is put, until all end."""
        tasks: queue.Queue[Any] = queue.Queue()
        found: queue.Queue[Any] = queue.Queue()
        for item in items:
            tasks.put(item)

        def run() -> None:
            problem = None
            try:
                while True:
                    work(tasks.get_nowait(), found.put)
            except queue.Empty:
                pass
            except BaseException as raised:
                problem = raised
            found.put(End(problem))

        left = min(self.jobs, tasks.qsize())
        for _ in range(left):
            start(run)
        while left:
            try:
                value = found.get(timeout=0.5)
            except queue.Empty:
                value = None
            if time.monotonic() > self.ends:
                raise Stopped("the time limit is over")
            if isinstance(value, End):
                left -= 1
                if value.problem:
                    raise value.problem
            elif value is not None:
                yield value
