"""Bring transcripts up to date, when the server has learned to say something in another way.

    $ python3 examples/transcripts/rewrite.py examples/transcripts/03_call_a_tool.md
    03_call_a_tool.md: as it was

It replays them, and writes what came in the place of the `<` lines that differ. Look at what it did
before you believe it: the text around them is yours.
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import replay

WIDTH = 92                  # of a line; GitHub shows that much without a scroll bar


def flat(value: Any) -> str:
    """Return a JSON value as it is on the wire."""
    return json.dumps(value, separators=(",", ":"))


def laid_out(said: str, before: str) -> list[str]:
    """Return what was said on as many lines as it needs; `before` is how the first one begins."""
    message = said.removeprefix("data: ")           # of an event
    before += said[:len(said) - len(message)]
    try:
        value = json.loads(message)
    except ValueError:
        value = None
    if not isinstance(value, (dict, list)) or flat(value) != message:
        return [(before + message).rstrip()]
    lines = [before]
    place(value, "", lines, 4)
    return lines


def place(value: Any, after: str, lines: list[str], indent: int) -> None:
    """Add a value, and what comes after it, to the last line; what does not fit goes below."""
    if len(lines[-1]) + len(flat(value) + after) <= WIDTH or not isinstance(value, (dict, list)) \
            or not value:
        lines[-1] += flat(value) + after
        return
    members = [(flat(name) + ":", member) for name, member in value.items()] \
        if isinstance(value, dict) else [("", member) for member in value]
    lines[-1] += "{" if isinstance(value, dict) else "["
    closing = ("}" if isinstance(value, dict) else "]") + after
    broken = False
    for number, (name, member) in enumerate(members):
        last = number == len(members) - 1
        end = closing if last else ","
        fits = len(lines[-1] + name + flat(member) + end) <= WIDTH
        if number and (broken or not fits):
            lines.append(" " * indent)
        count = len(lines)
        lines[-1] += name
        place(member, end, lines, indent + 2)
        broken = len(lines) > count


def rewritten(path: Path) -> tuple[str, str]:
    """Return the transcript with what the server says today, and a word on it."""
    lesson, instead, left = replay.read(path), {}, []   # type: Any, dict[int, list[str]], list[int]

    def tell(step: Any, said: str, problem: str) -> None:
        if problem and (left or replay.NAME.search(step.said) or said == replay.NOTHING):
            left.append(step.number)        # what it should be, or what follows, cannot be known
        elif problem and step.number:
            instead[step.number] = laid_out(said, f"{step.connection}{step.way} ")
    for steps in lesson.conversations:
        replay.hold(steps, replay.Http() if replay.is_http(steps) else replay.Process(), tell)
    lines: list[str] = []
    skipping = False
    for number, line in enumerate(lesson.source.splitlines(), 1):
        skipping = number in instead or skipping and line.startswith(" ")
        lines.extend(instead.get(number, []) if skipping else [line])
    word = f"mend line {left[0]} by hand, then try again" if left else \
        f"lines written anew: {len(instead)}" if instead else "as it was"
    return "\n".join(lines) + "\n", word


def main(arguments: list[str]) -> None:
    """Rewrite the files that are named."""
    for path in map(Path, arguments):
        source, word = rewritten(path)
        print(f"{path.name}: {word}")
        path.write_text(source, encoding="utf-8")


if __name__ == "__main__":
    if not sys.argv[1:] or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    main(sys.argv[1:])
