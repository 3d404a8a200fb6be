"""Draw walks: what the code did with each message, as one page without a script.

walk.py records, and this draws. As a module: `draw(title, steps, sources)` returns the
page for Steps; `Source(path)` reads a file whose code is walked; `passed(events)` tells
which lines a step has passed.

On the page, a *visit* is what one call of a function did. What is folded to a line:

    a helper        it passes few statements, and neither fails, nor waits for the next
                    message, nor reaches the author
    a known visit   an earlier message, or with --new an earlier lesson, showed it all
    more turns      of a loop, if they pass nothing new
    locks, `try:`   the statements inside stand for them
"""

from __future__ import annotations

import ast
import base64
import hashlib
import html
import re
from collections import namedtuple
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import picture

SMALL = 6  # statements of a helper, which is folded to a line
SPECIFICATION = "https://modelcontextprotocol.io/specification"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Event = list[Any]  # [kind, visit, ...]: see walk.Recorder

# A message and what followed: `came` are the texts that were received, `events` what
# has been recorded.
Step = namedtuple("Step", "title said came events")


# ---- the files that are walked
class Statement:
    """A statement, or the head of one that has a body."""

    def __init__(self, node: ast.stmt, lock: str) -> None:
        body = getattr(node, "body", None)
        self.node = node
        self.lock = lock  # the innermost lock that is held here
        self.line = first_line(node)
        self.end = node.end_lineno or node.lineno
        if body and isinstance(body[0], ast.stmt):
            self.end = max(node.lineno, first_line(body[0]) - 1)

    @property
    def is_quiet(self) -> bool:
        """Whether it only holds other statements: `try:`, a lock, an endless loop."""
        endless = isinstance(self.node, ast.While) and isinstance(
            self.node.test, ast.Constant
        )
        return isinstance(self.node, ast.Try) or endless or bool(lock_of(self.node))

    @property
    def counts(self) -> bool:
        """Whether it counts as a statement: some versions of Python skip the others."""
        skipped = (ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal)
        return not self.is_quiet and not isinstance(self.node, skipped)


def first_line(node: ast.stmt) -> int:
    """Return the line where a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def lock_of(node: ast.stmt) -> str:
    """Return the name of the lock that `with self._lock:` takes, or ""."""
    if isinstance(node, ast.With) and len(node.items) == 1:
        taken = node.items[0].context_expr
        if isinstance(taken, ast.Attribute):
            return taken.attr
    return ""


class Function:
    """A function of a file, or the file itself, with its statements by line."""

    def __init__(self, name: str, node: Any, section: str, is_author: bool) -> None:
        self.name = name
        self.section = section  # such as "8"; "": it is in none
        self.is_author = is_author
        self.first = first_line(node) if isinstance(node, FUNCTIONS) else 1
        self.doc = ast.get_docstring(node) or ""
        self.statements: dict[int, Statement] = {}
        self.at: dict[int, Statement] = {}  # by each of their lines
        body = node.body
        self._add(body[bool(ast.get_docstring(node, False)) :], "")

    @property
    def short(self) -> str:
        """The name without the class."""
        return self.name.rpartition(".")[2]

    def _add(self, body: list[Any], lock: str) -> None:
        for node in body:
            if not isinstance(node, ast.stmt):  # an `except:`, which has statements
                self._add(getattr(node, "body", []), lock)
                continue
            one = Statement(node, lock)
            self.statements[one.line] = one
            for line in range(one.line, one.end + 1):
                self.at[line] = one
            if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                for part in ("body", "handlers", "orelse", "finalbody"):
                    inner = getattr(node, part, [])
                    self._add(inner, lock_of(node) or lock)


class Source:
    """A file: its functions by the line where they begin, and its sections."""

    def __init__(self, path: str | Path, is_author: bool = False) -> None:
        text = Path(path).read_text("utf-8")
        self.name = Path(path).name
        self.lines = ["", *text.split("\n")]
        self.is_author = is_author
        heads = re.compile(r"# =+ (\d+)\. (.*?) =+$")
        found = [(number, heads.match(line)) for number, line in enumerate(self.lines)]
        self.heads = [(number, head[1], head[2]) for number, head in found if head]
        self.titles = {section: title for _, section, title in self.heads}
        self.functions: dict[int, Function] = {}
        tree = ast.parse(text)
        if is_author:
            self.functions[0] = Function("(the file)", tree, "", True)
        self._read(tree, "")

    def _read(self, node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
                inner = f"{name}.{child.name}".strip(".")
            if isinstance(child, FUNCTIONS):
                section = self.section_of(child.lineno)
                function = Function(inner, child, section, self.is_author)
                self.functions[function.first] = function
            self._read(child, inner)

    def section_of(self, line: int) -> str:
        """Return the number of the section in which a line stands."""
        return next((one for at, one, _ in reversed(self.heads) if at < line), "")

    def function(self, name: str, line: int) -> Function | None:
        """Return the function of a code object; None: a lambda, a comprehension."""
        if name == "<module>":
            return self.functions.get(0)
        found = self.functions.get(line)
        return found if found and found.short == name else None

    def comment_above(self, line: int) -> str:
        """Return the comment above a statement."""
        above = []
        while self.lines[line - 1].strip().startswith("#") and line > 1:
            line -= 1
            above.append(self.lines[line].strip().lstrip("# -"))
        return " ".join(reversed(above))

    def targets(self) -> dict[int, list[tuple[str, str]]]:
        """Return which attributes each line sets, as (object, attribute)."""
        found: dict[int, list[tuple[str, str]]] = {}
        for function in self.functions.values():
            for one in function.statements.values():
                assigned = getattr(one.node, "targets", [])
                assigned = assigned or [getattr(one.node, "target", None)]
                for target in assigned:
                    if isinstance(target, ast.Attribute):
                        if isinstance(target.value, ast.Name):
                            pair = (target.value.id, target.attr)
                            found.setdefault(one.line, []).append(pair)
        return found


# ---- what happened: events become visits
class Visit:
    """What one call of a function did in one step."""

    def __init__(self, ident: int, function: Function, thread: str) -> None:
        self.ident = ident
        self.function = function
        self.thread = thread
        self.parent: Visit | None = None
        self.goes_on = False  # it began with an earlier message
        self.args = ""
        self.result: str | None = None  # None: it has not returned
        self.failure = ""  # what it raised
        self.items: list[Run | Visit] = []

    def all(self) -> Iterator[Visit]:
        """Yield this visit and all below it."""
        yield self
        for one in self.items:
            if isinstance(one, Visit):
                yield from one.all()

    def runs(self) -> Iterator[Run]:
        """Yield the statements that it ran itself."""
        return (one for one in self.items if isinstance(one, Run))

    def lines(self) -> set[tuple[str, int]]:
        """Return the statements of this visit and all below it."""
        return {
            (one.function.name, run.statement.line)
            for one in self.all()
            for run in one.runs()
            if not run.statement.is_quiet
        }

    @property
    def outcome(self) -> str:
        """How it ended, in a few words."""
        if self.failure:
            return f"raises {self.failure}"
        return "" if self.result in (None, "None", "") else f"→ {self.result}"

    @property
    def is_reached(self) -> bool:
        """Whether it reached the author's code."""
        return any(one.function.is_author for one in self.all())


class Run:
    """One run of a statement: what it changed."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self.changes: dict[str, str] = {}


class Story:
    """Makes visits of events; it knows the visits that earlier steps have begun."""

    def __init__(self, sources: list[Source]) -> None:
        self.sources = sources
        self.begun: dict[int, tuple[Function, str, int]] = {}
        self.done: set[tuple[int, Any]] = set()  # lines and calls, by visit
        self.idle: set[int] = set()  # visits that a loop has made before

    def read(self, events: Iterable[Event]) -> list[Visit]:
        """Return the outermost visits of a step, thread by thread. A thread comes when
        it does something new: until then, it may wait in a loop for another thread."""
        visits: dict[int, Visit] = {}
        threads: dict[str, list[Visit]] = {}
        order: list[str] = []
        for kind, ident, *rest in events:
            if kind == "call":
                file, name, line, thread, parent = rest[:5]
                function = self.sources[file].function(name, line)
                if function is None:
                    continue
                self.begun[ident] = (function, thread, parent)
                visit = self._visit(ident, visits, threads)
                visit.goes_on = False
                visit.args = rest[5]
            elif ident in self.begun:
                self._add(self._visit(ident, visits, threads), kind, rest)
            if ident in self.begun and not self._repeats(kind, ident, rest[0]):
                order.append(self.begun[ident][1])
        names = dict.fromkeys([*order, *threads])
        return [visit for name in names for visit in threads.get(name, ())]

    def _repeats(self, kind: str, ident: int, line: Any) -> bool:
        """Tell whether an event is a further turn of a loop."""
        function, _, parent = self.begun[ident]
        key: tuple[int, Any] = (ident, line)
        if kind == "call":
            key = parent, function.name
            if parent in self.idle or (parent and key in self.done):
                self.idle.add(ident)
        is_known = ident in self.idle or (kind == "line" and key in self.done)
        self.done.add(key)
        return is_known

    def _visit(
        self, ident: int, visits: dict[int, Visit], threads: dict[str, list[Visit]]
    ) -> Visit:
        if ident not in visits:
            function, thread, parent = self.begun[ident]
            visit = visits[ident] = Visit(ident, function, thread)
            visit.goes_on = True
            if parent in self.begun:
                visit.parent = self._visit(parent, visits, threads)
                visit.parent.items.append(visit)
            else:
                threads.setdefault(thread, []).append(visit)
        return visits[ident]

    def _add(self, visit: Visit, kind: str, rest: list[Any]) -> None:
        last = next(
            (one for one in reversed(visit.items) if isinstance(one, Run)), None
        )
        if kind == "line":
            line, changes = rest
            if last:
                last.changes.update(changes)
            statement = visit.function.at.get(line)
            same = last and last.statement is statement and visit.items[-1] is last
            if statement and not same:
                visit.items.append(Run(statement))
        elif kind == "return":
            visit.result, changes, visit.failure = rest
            if last:
                last.changes.update(changes)


def passed(visits: list[Visit]) -> set[tuple[str, int]]:
    """Return the statements of the module that visits have passed."""
    return {
        (one.function.name, run.statement.line)
        for root in visits
        for one in root.all()
        for run in one.runs()
        if not one.function.is_author and run.statement.counts
    }


def way_of(visits: list[Visit]) -> list[Visit]:
    """Return the functions that carry a message: those above the author's code, or
    above what has failed or answered; then those that send."""
    every = [one for root in visits for one in root.all()]
    author = [one for one in every if one.function.is_author and not one.goes_on]
    failed = [one for one in every if one.failure and not one.goes_on]
    serving = [one for one in every if one.function.short.startswith("serve_")]
    goals = author[:1] or serving[:1] or failed[:1]
    goals += [one for one in every if one.function.short == "decode"][:1]
    goals += [one for one in every if one.function.short in ("_write", "_send")][-1:]
    wanted: set[int] = set()
    for goal in goals:
        above: Visit | None = goal
        while above:
            wanted.add(above.ident)
            above = above.parent
    return [one for one in every if one.ident in wanted and not one.goes_on]


def chain_of(visits: list[Visit]) -> list[Visit]:
    """Return the functions that lead from a message to its effect: its way, or for what
    reaches no function of the author, such as a notification, the longest way below
    `handle`."""
    way = way_of(visits)
    every = [one for root in visits for one in root.all()]
    handling = [one for one in every if one.function.short == "handle"]
    if any(one.is_reached for one in way) or not handling:
        return way
    last = max(handling[0].all(), key=lambda one: len(above(one)))
    return [one for one in above(last) if not one.goes_on]


def above(visit: Visit) -> list[Visit]:
    """Return a visit and its callers, the outermost first."""
    return [*(above(visit.parent) if visit.parent else []), visit]


def refusal(visits: list[Visit]) -> tuple[Visit, int] | None:
    """Return the visit of the module that failed first, and at which line."""
    every = [one for root in visits for one in root.all()]
    failed = [one for one in every if one.failure and not one.function.is_author]
    for one in failed:
        below = [inner for inner in one.all() if inner.failure]
        if below == [one]:  # the others only pass it on
            lines = [run.statement.line for run in one.runs()]
            return one, lines[-1]
    return None


# ---- what is shown: visits become blocks of rows
class Row:
    """A statement on the page."""

    def __init__(self, run: Run, is_shown: bool) -> None:
        self.statement = run.statement
        self.changes = run.changes
        self.is_shown = is_shown
        self.runs = 1
        self.notes: list[str] = []  # the branch taken, how often it ran
        self.calls: list[str] = []  # the folded visits that it made


class Block:
    """Rows of one visit, up to the next visit that is not folded."""

    def __init__(self, visit: Visit, is_back: bool) -> None:
        self.visit = visit
        self.is_back = is_back
        self.rows: list[Row] = []

    @property
    def crumbs(self) -> list[str]:
        """The functions that have called this one, the outermost first."""
        names: list[str] = []
        outer = self.visit.parent
        while outer:
            names.insert(0, outer.function.short)
            outer = outer.parent
        return names


def branch_of(visit: Visit, number: int) -> str:
    """Return which way the `if` went that is item `number` of a visit."""
    run = visit.items[number]
    if not isinstance(run, Run) or not isinstance(run.statement.node, ast.If):
        return ""
    later = (one for one in visit.items[number + 1 :] if isinstance(one, Run))
    after = next(later, None)
    body = run.statement.node.body
    inside = after and first_line(body[0]) <= after.statement.line <= (
        body[-1].end_lineno or 0
    )
    return "true" if inside else "false"


def line_of(visit: Visit) -> str:
    """Return a folded visit as one line."""
    args, outcome = (
        text if len(text) < 60 else text[:57] + "..."
        for text in (visit.args, visit.outcome)
    )
    return f"{visit.function.short}({args}) {outcome}".strip()


class Folding:
    """Decides what is shown; it knows what has been shown before."""

    def __init__(self, known: set[tuple[str, int]]) -> None:
        self.known = known
        self.helped: set[tuple[str, int]] = set()  # statements of helpers
        self.way: set[int] = set()  # visits that are no helpers
        self.blocks: list[Block] = []

    def is_folded(self, visit: Visit) -> bool:
        """Tell whether a visit becomes one line."""
        if visit.is_reached:
            return False
        lines = visit.lines()
        if lines <= self.known | self.helped:
            return True
        is_small = len(lines) <= SMALL and visit.ident not in self.way
        waits = visit.result is None  # the statement that it waits at is worth a row
        if not is_small or visit.failure or visit.goes_on or waits:
            return False
        self.helped |= lines
        return True

    def is_new(self, visit: Visit, run: Run) -> bool:
        """Tell whether a statement is shown."""
        key = (visit.function.name, run.statement.line)
        return visit.function.is_author or key not in self.known

    def show(self, visit: Visit) -> None:
        """Add the blocks of a visit."""
        block = Block(visit, False)
        self.blocks.append(block)
        rows: dict[int, Row] = {}
        last: Row | None = None
        shown: set[tuple[str, int]] = set()
        for number, one in enumerate(visit.items):
            if isinstance(one, Visit):
                last = last or Row(Run(Statement(ast.Pass(lineno=0), "")), False)
                if self.is_folded(one):
                    last.calls.append(line_of(one))
                    if one.failure:  # else it is not seen why an `except:` runs
                        last.is_shown = last.statement.line > 0
                    continue
                last.is_shown = last.statement.line > 0
                self.show(one)
                block = Block(visit, True)
                self.blocks.append(block)
            elif one.statement.line in rows:
                last = rows[one.statement.line]
                last.runs += 1
            elif not one.statement.is_quiet:
                last = rows[one.statement.line] = Row(one, self.is_new(visit, one))
                if branch := branch_of(visit, number):
                    last.notes.append(branch)
                shown.add((visit.function.name, one.statement.line))
                block.rows.append(last)
        self.known |= shown


# ---- drawing
STYLE = """
:root { color-scheme: light dark; overflow-wrap: anywhere; --edge: #8886; --mark: #b70 }
* { box-sizing: border-box }
body { font: 15px/1.4 system-ui, sans-serif; max-width: 80rem; margin: 1rem auto;
  padding: 0 .7rem }
h1 { font-size: 1.2rem } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem }
a { color: inherit }
pre, code { font: .8rem/1.45 ui-monospace, monospace; margin: 0;
  white-space: pre-wrap }
.block { display: grid; grid-template-columns: 12rem minmax(0, 1fr);
  border-top: 1px solid var(--edge); padding: .3rem 0; gap: 0 1rem }
.row { display: grid; grid-template-columns: 2.6rem minmax(0, 3fr) minmax(0, 2fr);
  gap: 0 .6rem; padding: .1rem 0 }
.row > i { font: .7rem/1.6 ui-monospace, monospace; text-align: right; opacity: .55 }
.who b { font: bold .8rem ui-monospace, monospace }
.who small { display: block }
small, .gap, .values, .doc, .why, .fold { font-size: .8rem }
.gap, .fold, small { opacity: .75 }
.gap { padding-left: 3.2rem; margin: 0 }
.doc { margin: 0 0 .4rem 3.2rem; white-space: pre-line }
.why { font-style: italic; margin: .2rem 0 0 }
.values { border-left: 2px solid var(--edge); padding-left: .5rem }
.values p, .fold { margin: 0 }
.values b { color: color-mix(in srgb, #06f 70%, CanvasText); font-weight: 600 }
.failed { color: color-mix(in srgb, #e00 70%, CanvasText) }
.author { background: #fc02; border-left: 4px solid var(--mark); padding-left: .5rem }
.same { opacity: .45 }
.thread { border-top: 2px dashed var(--mark); margin: .6rem 0 0; font-size: .8rem;
  color: color-mix(in srgb, var(--mark) 80%, CanvasText) }
details { margin: .2rem 0 .6rem } summary { cursor: pointer }
details pre { padding: .3rem .6rem; background: #8881 }
.two { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 1.5rem }
.two .block, .two .row { grid-template-columns: minmax(0, 1fr) }
.two .row > i { display: none } .two .gap, .two .doc { padding: 0; margin: 0 }
@media (max-width: 50rem) {
  .block, .two { grid-template-columns: minmax(0, 1fr) }
  .row { grid-template-columns: 2rem minmax(0, 1fr) }
  .row > .values { grid-column: 2 }
  .gap, .doc { padding-left: 2.6rem; margin-left: 0 } }
@media print { .row, .who { break-inside: avoid } body { max-width: none } }
"""
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; style-src 'sha256-{hash}'">
<title>{title}</title><style>{style}</style>
<h1>{title}</h1>
{body}
"""
INTRO = """<p>What the code did with each message, in the order in which it ran: the
function, its statements, and what they changed or returned. <b>⋯ 3</b> stands for
statements that did not run, <b>· 3</b> for those that were shown before. The code of
the server's author is marked. A line such as <code>is_id(1) → True</code> is a call that
is not shown."""
PAGES = r"(?:\[(\d{4}-\d\d-\d\d)\] )?\b((?:basic|client|server)/[a-z/_-]+[a-z])"
HEADING = r"(?: (§[A-Z][\w-]*(?: [\w-]+| \([\w ]+\))*))?"


def linked(prose: str, newest: str) -> str:
    """Return prose as HTML, with links to the pages of the specification."""

    def link(found: re.Match[str]) -> str:
        page = "" if found[2].endswith("/index") else found[2]
        slug = re.sub(r"[^\w -]", "", found[3] or "").strip().lower().replace(" ", "-")
        place = f"{found[1] or newest}/{page or found[2][:-6]}" + f"#{slug}" * bool(
            slug
        )
        return f'<a href="{SPECIFICATION}/{place}">{found[0]}</a>'

    text = re.sub(PAGES + HEADING, link, html.escape(prose, False))
    return re.sub("`([^`\\n]+)`", r"<code>\1</code>", text)


def code_of(source: Source, function: Function, statement: Statement) -> str:
    """Return the text of a statement, as far left as its function begins."""
    lines = source.lines[statement.line : statement.end + 1]
    while lines[-1].strip()[:1] in ("", "#"):  # they are above the next statement
        lines.pop()
    body = source.lines[min(function.statements, default=1)]
    indent = len(body) - len(body.lstrip())
    return "\n".join(line[indent:] for line in lines)


def draw_values(row: Row, visit: Visit, is_last: bool) -> str:
    """Return what a statement changed, decided, called and returned."""
    said = [f"<p>{html.escape(note)}" for note in row.notes]
    if row.runs > 1 and isinstance(row.statement.node, (ast.For, ast.While)):
        said.append(f"<p>{row.runs - 1} turn" + "s" * (row.runs > 2))
    said += [f"<p><code>{html.escape(one)}</code>" for one in row.calls[:4]]
    if len(row.calls) > 4:
        said.append(f"<p>⋯ {len(row.calls) - 4} more calls")
    for name, value in row.changes.items():
        said.append(f"<p><b>{html.escape(name)}</b> = {html.escape(value)}")
    if is_last and visit.outcome:
        kind = ' class="failed"' if visit.failure else ""
        said.append(f"<p{kind}>{html.escape(visit.outcome)}")
    return f'<div class="values">{"".join(said)}</div>' if said else "<span></span>"


def gap(visit: Visit, after: int, before: int, hidden: int) -> str:
    """Return what stands for the statements between two rows."""
    ran = {run.statement.line for run in visit.runs()}
    left = [
        one
        for one in visit.function.statements.values()
        if after < one.line < before and one.line not in ran and not one.is_quiet
    ]
    parts = [f"⋯ {len(left)}"] * bool(left) + [f"· {hidden}"] * bool(hidden)
    return f'<p class="gap">{" ".join(parts)}' if parts else ""


class Drawing:
    """Draws walks; `common` are statements that are grey, `known` are not shown."""

    def __init__(
        self,
        sources: list[Source],
        known: Iterable[tuple[str, int]] = (),
        common: Iterable[tuple[str, int]] = (),
        newest: str = "latest",
    ) -> None:
        self.sources = sources
        self.story = Story(sources)
        self.folding = Folding(set(known))
        self.common = set(common)
        self.newest = newest
        self.explained: set[str] = set()

    def source_of(self, function: Function) -> Source:
        """Return the file of a function."""
        return next(one for one in self.sources if function in one.functions.values())

    def step(self, number: int | str, step: Step) -> str:
        """Return the part of the page for a step."""
        visits = self.story.read(step.events)
        folding = self.folding
        folding.way = {one.ident for one in way_of(visits)}
        drawn = []
        anchors: set[str] = set()
        thread = ""
        for root in visits:
            if root.thread != thread:
                thread = root.thread
                drawn.append(f'<p class="thread">thread {html.escape(thread)}')
            if folding.is_folded(root):
                line = f'<p class="fold"><code>{html.escape(line_of(root))}</code>'
                drawn += [line] * (drawn[-1] != line)
                continue
            folding.blocks = []
            folding.show(root)
            for one in folding.blocks:
                if self.has_rows(one):
                    anchor = f"s{number}-{one.visit.ident}" * (not one.is_back)
                    anchors.add(anchor)
                    drawn.append(self.block(one, anchor))
                else:  # what it called, such as what sends the response
                    drawn += self.folds(one)
        talk = "".join(
            f"<pre>{html.escape(f'{way} {text}')}</pre>"
            for way, text in [(">", step.said), *(("<", one) for one in step.came)]
            if text
        )
        return (
            f'<h2 id="s{number}">{number}. {html.escape(step.title)}</h2>'
            f"<details><summary>What was said</summary>{talk}</details>"
            + self.chain(f"s{number}", chain_of(visits), anchors)
            + "\n".join(drawn)
        )

    def chain(self, step: str, way: list[Visit], anchors: set[str]) -> str:
        """Return functions as links to their blocks."""
        links = []
        for one in way:
            anchor, name = f"{step}-{one.ident}", html.escape(one.function.short)
            is_there = anchor in anchors
            links.append(f'<a href="#{anchor}">{name}</a>' if is_there else name)
        return f'<p class="gap">{" › ".join(links)}' if links else ""

    def folds(self, block: Block) -> list[str]:
        """Return the calls of a block that has nothing else to show."""
        calls = [call for row in block.rows for call in row.calls]
        return [f'<p class="fold"><code>{html.escape(one)}</code>' for one in calls]

    def has_rows(self, block: Block) -> bool:
        """Tell whether a block has something to show."""
        return any(row.is_shown for row in block.rows)

    def block(self, block: Block, anchor: str) -> str:
        """Return a block; `anchor`: its id, or ""."""
        visit, function = block.visit, block.visit.function
        source = self.source_of(function)
        name = re.sub(r"(?<=[._])(?=\w)", "<wbr>", html.escape(function.name))
        names = " › ".join(block.crumbs[-6:])
        title = source.titles.get(function.section, "") or source.name
        where = f"§{function.section} {title}" if function.section else title
        what = "back in " if block.is_back else "on in " if visit.goes_on else ""
        ident = f' id="{anchor}"' if anchor else ""
        parts = [
            f'<div class="block{" author" * function.is_author}"{ident}>'
            '<div class="who">'
            f"{what}<b>{name}</b><small>{html.escape(where)}</small>"
            f"<small>{html.escape(names)}</small></div><div>"
        ]
        is_first = not block.is_back and function.name not in self.explained
        if is_first and function.doc and not function.is_author:
            self.explained.add(function.name)
            parts.append(f'<p class="doc">{linked(function.doc, self.newest)}')
        if not block.is_back and visit.args:
            parts.append(f'<p class="gap">({html.escape(visit.args)})')
        parts += self.rows(block, source)
        return "".join([*parts, "</div></div>"])

    def rows(self, block: Block, source: Source) -> Iterator[str]:
        """Yield the rows of a block, and what stands for those between them."""
        visit = block.visit
        last = next((one for one in reversed([*visit.runs()])), None)
        after, hidden = 10**9, 0
        for row in block.rows:
            line = row.statement.line
            if not row.is_shown:
                hidden += 1
                continue
            yield gap(visit, after, line, hidden)
            hidden, after = 0, line
            is_last = last is not None and last.statement is row.statement
            why = source.comment_above(line)
            same = (visit.function.name, line) in self.common
            yield (
                f'<div class="row{" same" * same}"><i>{line}</i><div>'
                + (f'<p class="why">{linked(why, self.newest)}' if why else "")
                + f"<pre>{html.escape(code_of(source, visit.function, row.statement))}"
                f"</pre></div>{draw_values(row, visit, is_last)}</div>"
            )
        if hidden:
            yield gap(visit, 10**9, 0, hidden)


def page_of(title: str, body: str) -> str:
    """Return a whole page."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    text = PAGE.format(hash=digest, title=html.escape(title), style=STYLE, body=body)
    return re.sub(picture.HIDDEN, "\ufffd", text)


def draw(title: str, steps: list[Step], drawing: Drawing, intro: str = INTRO) -> str:
    """Return the page of a walk."""
    parts = [drawing.step(number, one) for number, one in enumerate(steps, 1)]
    links = " · ".join(
        f'<a href="#s{number}">{number}. {html.escape(one.title)}</a>'
        for number, one in enumerate(steps, 1)
    )
    return page_of(title, f"{intro}<p>{links}\n" + "\n".join(parts))


def compare(title: str, walks: list[tuple[str, list[Step], Drawing]]) -> str:
    """Return two walks side by side: the statements that both have are grey."""
    both = set.intersection(
        *(
            set().union(
                *(passed(Story(one.sources).read(step.events)) for step in steps)
            )
            for _, steps, one in walks
        )
    )
    columns = []
    for side, (name, steps, drawing) in zip("ab", walks):
        drawing.common = both
        parts = [drawing.step(f"{at}{side}", one) for at, one in enumerate(steps, 1)]
        columns.append(f"<div><h2>{html.escape(name)}</h2>{''.join(parts)}</div>")
    grey = "<p>Statements that both walks pass are grey.</p>"
    return page_of(title, f'{INTRO}{grey}<div class="two">{"".join(columns)}</div>')
