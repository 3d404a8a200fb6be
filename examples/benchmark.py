#!/usr/bin/env python3
"""Measure a server made with mcp_ref against a bare loop, side by side, and check every answer.

    python3 examples/benchmark.py             all rounds, well under a minute
    python3 examples/benchmark.py --quick     few rounds, a few seconds

The *bare loop* is the least that a Python program can do: read a line, `json.loads`, call the
function, `json.dumps`, write, flush. It knows no protocol and checks nothing. What this program
prints is how many times that our server costs. Times alone say more of the machine than of the
server; a ratio, measured in one run, can be compared from one machine to the next.

How it is measured. A round measures the one program and then the other, the next round the other
way round, so that a machine that grows slower or busier meanwhile is unjust to both alike. `base`
and `ours` are the medians of the rounds; each round has a ratio of its own, and `ratio` is the
median of those, `rounds` the smallest and the largest. An answer is checked, id and result, when
the clock has stopped; a wrong one, a missing one and one too many make a row MISSED, as being slow
does.

The exit status is 0 if every target is met, 1 otherwise. The targets stand in the table ROWS; the
columns behind them say what the best other Python implementation of MCP needs, and the official
SDK for Python; those were measured on another day, against a loop like this one.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, NoReturn

MODULE = Path(__file__).resolve().parent.parent / "mcp_ref.py"
WARM_UP = 300               # calls before the clock starts: caches, specialised bytecode
LOOK_SECONDS = 0.0005       # how long the client of `pipelined` sleeps between two looks
LIMIT_SECONDS = 30.0        # a child that lives longer is killed, so nothing here waits for ever

# The same flags for every child, so that the base is fair. -E: no PYTHON... variables, since
# PYTHONDONTWRITEBYTECODE and PYTHONUNBUFFERED would measure something that real hosts do not have.
# -S: no site-packages. What is installed there, .pth files above all, can cost more than all the
# rest of a start; it would be added to both sides, and make our ratio look better than it is.
FLAGS = ("-E", "-S")


class WrongAnswer(Exception):
    """A server said something else than it should have, or nothing."""


class NotMeasured(Exception):
    """This machine has no means to measure it."""


# ==========================================================================================
# The programs that are measured
#
# They are written to a temporary directory, beside a copy of mcp_ref.py: Python keeps the bytecode
# of what it imports in a directory next to it, and nothing is to be written to the repository.
# ==========================================================================================

# `INITIALIZED` is put in front of it: our server's own answer, so that both send the same.
BARE = """
import json
import sys

def echo(text):
    return text

for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = INITIALIZED
    else:
        text = echo(**message["params"]["arguments"])
        result = {"content": [{"type": "text", "text": text}]}
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\\n")
    sys.stdout.buffer.flush()
"""

OURS = """
from mcp_ref import Server
server = Server("bench")

@server.tool
def echo(text: str) -> str:
    return text

server.run()
"""

MANY_TOOLS = """
from mcp_ref import Server
server = Server("bench")

def echo(text: str) -> str:
    return text

for name in NAMES:
    server.tool(echo, name=name)

server.run()
"""


class Program(NamedTuple):
    """One server, as a file that can be started."""
    path: Path
    tools: list[str]        # names of those that are called, in turn
    initialized: Any        # the result of `initialize` that it has to give


def write_programs(folder: Path) -> dict[str, Program]:
    """Write all programs to a directory, and return them by the names that ROWS uses."""
    shutil.copyfile(MODULE, folder / "mcp_ref.py")
    ours = write_program(folder, "ours", OURS, ["echo"], None)
    initialized = learn(ours)
    prefix = f"INITIALIZED = {initialized!r}\n"
    return {
        "bare": write_program(folder, "bare", prefix + BARE, ["echo"], initialized),
        "ours": ours._replace(initialized=initialized),
        "10 tools": write_many(folder, 10, initialized),
        "10,000 tools": write_many(folder, 10_000, initialized),
    }


def write_program(folder: Path, name: str, source: str, tools: list[str],
                  initialized: Any) -> Program:
    """Write one program to `folder`."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    return Program(path, tools, initialized)


def write_many(folder: Path, count: int, initialized: Any) -> Program:
    """Write our server with `count` tools, ten of which are called, whatever `count` is.

    The row is about tools that are registered, and a model uses few of them. To call all of them
    in turn would measure something else: how far the processor's caches reach.
    """
    names = [f"echo_{number:05}" for number in range(count)]    # equally long for every count
    source = f"NAMES = [f'echo_{{number:05}}' for number in range({count})]\n" + MANY_TOOLS
    return write_program(folder, f"tools_{count}", source, names[::count // 10], initialized)


def learn(ours: Program) -> Any:
    """Ask our server what it answers to `initialize`; this start also fills the bytecode cache."""
    with Child(ours) as child:
        child.write(INITIALIZE)
        result = parse(child.output.readline()).get("result")
        child.finish()
    if not isinstance(result, dict) or result.get("protocolVersion") != VERSION \
            or result.get("serverInfo", {}).get("name") != "bench" \
            or "tools" not in result.get("capabilities", {}):
        raise WrongAnswer(f"our server answers `initialize` by {result}")
    if not list(ours.path.parent.glob("__pycache__/mcp_ref.*.pyc")):
        raise WrongAnswer("there is no bytecode cache: starts would be measured with compiling")
    return result


# ==========================================================================================
# Messages
# ==========================================================================================

VERSION = "2025-11-25"      # a revision that still has `initialize`


def line_of(**members: Any) -> bytes:
    """Return a message as the line that goes over the pipe."""
    return json.dumps({"jsonrpc": "2.0", **members}, separators=(",", ":")).encode() + b"\n"


INITIALIZE = line_of(id=0, method="initialize", params={
    "protocolVersion": VERSION, "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"}})
READY = line_of(method="notifications/initialized")


def call(program: Program, number: int) -> bytes:
    """Return call `number`: no two have the same text, so that none can answer for another."""
    return line_of(id=number, method="tools/call", params={
        "name": program.tools[number % len(program.tools)],
        "arguments": {"text": f"text {number}"}})


def parse(line: bytes) -> dict[str, Any]:
    """Return the response in a line, if it is one to us: our ids are integers."""
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    # type(), since True == 1 and 1.0 == 1, and neither is the id that was sent.
    if not isinstance(answer, dict) or type(answer.get("id")) is not int:
        wrong(line or b"nothing at all")
    return answer


def check(answer: dict[str, Any], number: int, result: Any = None) -> None:
    """Raise WrongAnswer unless `answer` is what request `number` has to get, and no more."""
    if result is None:
        result = {"content": [{"type": "text", "text": f"text {number}"}]}
    if answer != {"jsonrpc": "2.0", "id": number, "result": result}:
        wrong(answer, f" to request {number}")


def check_any_order(lines: Iterable[bytes], numbers: range) -> None:
    """Check answers that may come in any order: one to each request, and nothing else."""
    pending = set(numbers)
    for answer in map(parse, lines):
        number = answer["id"]
        if number not in pending:
            wrong(answer, ", which is to no open request")
        pending.remove(number)
        check(answer, number)
    if pending:
        wrong(b"nothing", f" to {len(pending)} requests")


def wrong(what: Any, why: str = "") -> NoReturn:
    """Raise WrongAnswer, with the answer in it as far as it fits."""
    shown = what.decode("utf-8", "replace") if isinstance(what, bytes) else json.dumps(what)
    raise WrongAnswer(f"{shown.strip()[:300]}{why}")


# ==========================================================================================
# A child: a program that runs, and the two pipes to it
# ==========================================================================================


class Child:
    """One running server. Use it in a `with` statement: the process is ended whatever happens."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.process = subprocess.Popen(
            [sys.executable, *FLAGS, str(program.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        # Writing is not buffered, as a client's is not; reading is: one system call, many answers.
        self.input: Any = self.process.stdin
        self.output: Any = self.process.stdout
        self.writer: threading.Thread | None = None
        self.watchdog = threading.Timer(LIMIT_SECONDS, self.process.kill)
        self.watchdog.daemon = True

    def __enter__(self) -> Child:  # noqa: PYI034  Self is younger than Python 3.9
        self.watchdog.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()        # does nothing if it has ended and was waited for
        self.process.wait()             # the watchdog ends it if nothing else does
        self.watchdog.cancel()
        if self.writer is not None:
            self.writer.join()          # nobody reads what it writes any more, so it ends
        self.input.close()
        self.output.close()

    def write(self, data: bytes) -> None:
        """Write all of `data`: a pipe may take less than all at once."""
        while data:
            data = data[os.write(self.input.fileno(), data):]

    def write_in_background(self, data: bytes) -> None:
        """Write on a thread, since the pipe is full before the first answer is read."""
        def write() -> None:
            try:
                self.write(data)
            except OSError:             # the child has ended; whoever reads its answers sees it
                pass
        self.writer = threading.Thread(target=write, daemon=True)
        self.writer.start()

    def read_lines(self, count: int) -> bytes:
        """Read `count` lines, and what came along with them; they are not looked at here.

        A reader that waited in read() would be woken by every single answer, and that takes time
        from the one who writes: up to 3 microseconds, where the bare loop needs 6 for the whole
        call. It would make our ratio look better than it is. So this reader sleeps, and looks.
        """
        chunks, missing = [], count
        while missing > 0:
            time.sleep(LOOK_SECONDS)
            chunk = self.output.read1(2**16)
            if not chunk:
                wrong(b"the end", f" where {missing} more answers belong")
            chunks.append(chunk)
            missing -= chunk.count(b"\n")
        return b"".join(chunks)

    def initialize(self) -> None:
        """Do the handshake, so that the server takes calls."""
        self.write(INITIALIZE)
        check(parse(self.output.readline()), 0, self.program.initialized)
        self.write(READY)

    def trips(self, numbers: range) -> list[float]:
        """Make calls one after the other; return the seconds of each."""
        write, pipe = os.write, self.input.fileno()
        readline, clock = self.output.readline, time.perf_counter
        answers, seconds = [], []
        for line in [call(self.program, number) for number in numbers]:
            begin = clock()
            write(pipe, line)
            answer = readline()
            seconds.append(clock() - begin)
            answers.append(answer)
            if not answer:
                wrong(b"the end", " where an answer belongs, to " + line.decode().strip())
        for answer, number in zip(answers, numbers):
            check(parse(answer), number)
        return seconds

    def finish(self) -> None:
        """Close the pipe: the server ends by itself, and has nothing more to say."""
        self.input.close()
        rest = self.output.read()
        if rest:
            wrong(rest, ", which nobody asked for")
        status = self.process.wait()
        if status != 0:
            raise WrongAnswer(f"{self.program.path.name} ended with status {status}")


# ==========================================================================================
# What is measured: each function measures one program once
# ==========================================================================================


def start(program: Program, count: int) -> float:
    """Return the seconds from starting the process to its first answer: the median of `count`."""
    return median(start_once(program) for _ in range(count))


def start_once(program: Program) -> float:
    """Start a program, ask it to initialize, end it; return the seconds to the answer."""
    begin = time.perf_counter()
    with Child(program) as child:
        child.write(INITIALIZE)
        answer = child.output.readline()
        seconds = time.perf_counter() - begin
        check(parse(answer), 0, program.initialized)
        child.finish()
    return seconds


@contextlib.contextmanager
def one_processor() -> Iterator[None]:
    """Keep this thread, and the children it starts, on one processor, if the system can do that.

    Client and server never run at the same time here: each waits for the other. A call takes 10 to
    15 microseconds if both share a processor and 55 if they do not, whatever the server is, and
    which of the two happens is a whim of the scheduler. So it gets no choice: they share one, since
    the wait for another would hide what we cost.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def round_trip(program: Program, count: int) -> float:
    """Return the seconds of one call, the next being sent after its answer: the median."""
    with one_processor(), Child(program) as child:
        child.initialize()
        child.trips(range(1, WARM_UP))
        seconds = child.trips(range(WARM_UP, WARM_UP + count))
        child.finish()
    return median(seconds)


def pipelined(program: Program, count: int) -> float:
    """Return the calls per second when the client waits for no answer."""
    numbers = range(WARM_UP, WARM_UP + count)
    calls = b"".join(call(program, number) for number in numbers)
    with Child(program) as child:
        child.initialize()
        child.trips(range(1, WARM_UP))
        begin = time.perf_counter()
        child.write_in_background(calls)
        answers = child.read_lines(count)
        seconds = time.perf_counter() - begin
        child.finish()
    check_any_order(answers.splitlines(), numbers)
    return count / seconds


def memory(program: Program, count: int) -> float:
    """Return the resident bytes after `count` calls."""
    with Child(program) as child:
        child.initialize()
        child.trips(range(1, 1 + count))
        size = resident(child.process.pid)
        child.finish()
    return size


def resident(pid: int) -> int:
    """Return the bytes of memory that a process occupies right now."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise NotMeasured("resident memory is read from /proc/<pid>/status, which only Linux has")


# ==========================================================================================
# The rows
# ==========================================================================================


def milliseconds(seconds: float) -> str:
    """Show a duration of the length of a start."""
    return f"{seconds * 1e3:.1f} ms"


def microseconds(seconds: float) -> str:
    """Show a duration of the length of a call."""
    return f"{seconds * 1e6:.1f} us"


def per_second(rate: float) -> str:
    """Show a rate."""
    return f"{rate:,.0f}/s"


def megabytes(size: float) -> str:
    """Show an amount of memory."""
    return f"{size / 1e6:.1f} MB"


class Row(NamedTuple):
    """One thing that is measured on two programs."""
    title: str
    base: str               # a key of write_programs(): the program that counts as 1.0
    ours: str               # the one that is compared with it
    measure: Callable[[Program, int], float]
    size: int               # starts or calls in one round
    rounds: int
    bound: str              # "<=" or ">="
    target: float           # ratio
    others: tuple[str, str]     # ratios of the best other Python implementation, and official SDK
    show: Callable[[float], str]


# To add a row: a program in write_programs(), a function that measures it once, a line here.
ROWS = (
    #   title                               base    ours    measure     size rounds target others
    Row("start to `initialize` answered",   "bare", "ours", start,         3, 25, "<=", 2.0,
        ("3.5", "28"), milliseconds),
    Row("one `tools/call` round trip",      "bare", "ours", round_trip, 2000, 25, "<=", 2.5,
        ("3.3", "37"), microseconds),
    Row("pipelined calls",                  "bare", "ours", pipelined, 10000, 25, ">=", 0.5,
        ("0.26", "0.02"), per_second),
    Row("resident memory after one call",   "bare", "ours", memory,        1, 7, "<=", 1.6,
        ("2.1", "6.3"), megabytes),
    Row("a call with 10,000 tools, not 10", "10 tools", "10,000 tools", round_trip, 2000, 15,
        "<=", 1.1, ("-", "-"), microseconds),
)
QUICK_SHARE, QUICK_LEAST = 5, 3     # --quick: a fifth of the rounds, but three of them


def compare(row: Row, programs: dict[str, Program], rounds: int) -> list[tuple[float, float]]:
    """Measure both programs of a row in turn; return the pairs (base, ours) of all rounds."""
    pairs = []
    for number in range(rounds):
        order = (row.base, row.ours) if number % 2 == 0 else (row.ours, row.base)
        value = {name: row.measure(programs[name], row.size) for name in order}
        pairs.append((value[row.base], value[row.ours]))
    return pairs


def print_line(title: str, *columns: str) -> None:
    """Print one line of the table: `columns` are its eight columns behind the title."""
    form = "{:32} {:>10} {:>10} {:>6} {:>12} {:>7} {:>5} {:>5}  {}"
    print(form.format(title, *columns).rstrip(), flush=True)


def print_row(row: Row, pairs: list[tuple[float, float]]) -> bool:
    """Print what came out for a row; tell whether its target is met."""
    base, ours = (median(values) for values in zip(*pairs))
    ratios = [second / first for first, second in pairs]
    ratio = median(ratios)
    met = ratio <= row.target if row.bound == "<=" else ratio >= row.target
    print_line(row.title, row.show(base), row.show(ours), f"{ratio:.3f}",
               f"{min(ratios):.2f}..{max(ratios):.2f}", f"{row.bound} {row.target}", *row.others,
               "ok" if met else "MISSED")
    return met


def run_row(row: Row, programs: dict[str, Program], rounds: int) -> bool:
    """Measure and print a row; tell whether all is well with it."""
    blank = ("-", "-", "-", "-", f"{row.bound} {row.target}", *row.others)
    try:
        return print_row(row, compare(row, programs, rounds))
    except NotMeasured as reason:
        print_line(row.title, *blank, "not measured")
        print(f"    {reason}")
        return True
    except (WrongAnswer, OSError) as problem:
        print_line(row.title, *blank, "MISSED")
        print(f"    {type(problem).__name__}: {problem}")
        return False


def run_all(rows: Iterable[Row], quick: bool) -> bool:
    """Measure and print all rows; tell whether all is well."""
    print(f"{platform.python_implementation()} {platform.python_version()}, "
          f"{platform.platform()}, {os.cpu_count()} CPUs")
    print_line("", "base", "ours", "ratio", "rounds", "target", "best", "SDK", "")
    with tempfile.TemporaryDirectory(prefix="mcp_ref_benchmark_") as folder:
        try:
            programs = write_programs(Path(folder))
        except (WrongAnswer, OSError) as problem:
            print(f"MISSED, all of it: {problem}")
            return False
        met = [run_row(row, programs, max(QUICK_LEAST, row.rounds // QUICK_SHARE) if quick
                       else row.rounds) for row in rows]
    return all(met)


def main() -> int:
    """Read the command line, measure, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds: under ten seconds")
    options = parser.parse_args()
    # A polite kill unwinds the `with` statements, and so ends the children and the directory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return 0 if run_all(ROWS, options.quick) else 1


if __name__ == "__main__":
    sys.exit(main())
