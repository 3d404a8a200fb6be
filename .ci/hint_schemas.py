#!/usr/bin/env python3
"""Check the schemas that hints become with the validators of other people.

    python3 .ci/hint_schemas.py [NODE MODULES]

Each hint in examples/api.md stands for a parameter, alone and inside a list, a dict,
an Optional, a dataclass and a TypedDict. The schema of such a function must be valid by
the meta-schema of JSON Schema 2020-12, and must accept the example of the page: by
draft 7, too, which many clients know, with the package `jsonschema`; and with ajv, as
the TypeScript SDK 1 uses it, if NODE and the folder MODULES (with ajv and ajv-formats)
are given.
"""

from __future__ import annotations

import collections
import collections.abc as abc
import dataclasses
import datetime
import decimal
import enum
import importlib
import json
import pathlib
import re
import subprocess
import sys
import typing
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import mcp_ref

ROOT = Path(__file__).resolve().parents[1]
GENERIC: Any = typing  # what is in brackets here is only known when this runs


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    """A point."""

    x: int
    y: int = 0


class Pair(typing.NamedTuple):
    a: int
    b: int


class Options(typing.TypedDict, total=False):
    deep: bool


class Price:
    """A class with a schema of its own, as in api.md."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Price) and other.cents == self.cents

    @classmethod
    def model_json_schema(cls, mode: str) -> dict[str, Any]:
        return {"type": "string", "pattern": "^[0-9]+[.][0-9]{2}$"}

    @classmethod
    def model_validate(cls, value: Any) -> Price:
        if value is None:
            raise ValueError("expected a price")
        return cls(int(value.replace(".", "")))

    def model_dump(self, **options: Any) -> str:
        return f"{self.cents // 100}.{self.cents % 100:02}"


T = typing.TypeVar("T")


@dataclasses.dataclass
class Page(typing.Generic[T]):
    items: list[T]


NAMES: dict[str, Any] = {
    **vars(typing),
    **vars(abc),
    **{"AbstractSet": abc.Set, "Color": Color, "Point": Point, "Pair": Pair},
    **{"Page": Page, "Price": Price},
    **{"Options": Options, "UserId": typing.NewType("UserId", int)},
    **{"date": datetime.date, "datetime": datetime.datetime, "time": datetime.time},
    "timezone": datetime.timezone,
    **{"UUID": uuid.UUID, "Decimal": decimal.Decimal, "deque": collections.deque},
    **{"Path": pathlib.Path, "PurePath": pathlib.PurePath},
    "keywords": mcp_ref.keywords,
}
AJV = """
const { Ajv } = require("ajv");
const formats = require("ajv-formats");
const cases = JSON.parse(require("fs").readFileSync(0));
let wrong = 0;
for (const [name, schema, example] of cases) {
  const ajv = new Ajv({
    strict: false, validateFormats: true, validateSchema: false, allErrors: true });
  (formats.default || formats)(ajv);
  let flaw = "";
  try {
    if (!ajv.compile(schema)(example)) flaw = "refuses its example";
  } catch (problem) { flaw = String(problem); }
  if (flaw) { wrong += 1; console.log(`ajv: ${name}: ${flaw}`); }
}
console.log(`ajv: ${cases.length} schemas, ${wrong} wrong`);
process.exit(wrong ? 1 : 0);
"""


def kept_by(hint: Any) -> tuple[Any, Any]:
    """Return a dataclass and a TypedDict with a member of this type."""
    kind = dataclasses.make_dataclass("Holder", [("x", hint)])
    made: Any = typing.TypedDict("made", {"x": hint})
    return kind, made


def rows() -> Iterator[list[str]]:
    """Yield the rows of the table in api.md: each hint, and the other four cells."""
    page = (ROOT / "examples" / "api.md").read_text("utf-8")
    table = page.partition("\n## Hints of parameters\n")[2].partition("\n## ")[0]
    for line in table.splitlines():
        cells = re.findall(r"`([^`]+)`", line)
        if line.startswith("| `") and len(cells) >= 5:
            for hint in cells[:-4]:
                yield [hint, *cells[-4:]]


def cases() -> list[tuple[str, Any, Any]]:
    """Return the name, the schema and the example of each function."""
    found = []
    for name, _, sent, _, _ in rows():
        hint, example = eval(name, NAMES), json.loads(sent)
        holder, typed = kept_by(hint)
        held = {"a": example}
        for words, kind, value in (
            (name, hint, example),
            (f"list[{name}]", GENERIC.List[hint], [example]),
            (f"dict[str, {name}]", GENERIC.Dict[str, hint], held),
            (f"a dataclass of {name}", holder, {"x": example}),
            (f"a TypedDict of {name}", typed, {"x": example}),
        ):
            found.append((words, schema_for(kind), {"x": value}))
        if "{" not in name:  # Python before 3.13 wants to hash what stands there
            optional = schema_for(GENERIC.Optional[hint])
            found.append((f"Optional[{name}]", optional, {"x": example}))
            found.append((f"Optional[{name}]", optional, {"x": None}))
    return found


def schema_for(hint: Any) -> Any:
    """Return the input schema of a function with such a parameter."""

    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": hint}
    server = mcp_ref.Server("hints")
    server.tool(function)
    return json.loads(json.dumps(server.tools["function"].definition["inputSchema"]))


def main(words: list[str]) -> int:
    """Check all; return the exit status."""
    jsonschema: Any = importlib.import_module("jsonschema")
    every = cases()
    wrong = 0
    for name, schema, example in every:
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
            for kind in (jsonschema.Draft202012Validator, jsonschema.Draft7Validator):
                checker = kind.FORMAT_CHECKER
                kind(schema, format_checker=checker).validate(example)
        except Exception as problem:
            wrong += 1
            print(f"jsonschema: {name}: {problem!s:.300}")
    print(f"jsonschema: {len(every)} schemas, {wrong} wrong")
    if words:
        node, modules = words
        done = subprocess.run(
            [node, "-e", AJV],
            input=json.dumps(every),
            text=True,
            cwd=Path(modules).parent,
        )
        wrong += done.returncode
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
