"""Patterns: what a vector says about a message, and how it is matched.

A plain value must be equal; in an object, names in `$` are operators. README.md has the
table. Both runners use this module: run.py is for servers, clients/run_client.py for
clients.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
LIMIT = 16 << 20  # bytes of a line or a body

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "nothing"})()
TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


class BadVector(Exception):
    """A vector is not written in this format."""


class Missing(Exception):
    """A saved value is used that nothing has saved: the vector does not apply."""


def show(value: Any, width: int = 400) -> str:
    """Write a value for a person."""
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= width else text[:width] + "..."


def is_a(value: Any, kinds: str) -> bool:
    """Say whether a value has one of some JSON types; true is not a number."""
    if isinstance(value, bool):
        return "boolean" in kinds.split("|")
    return any(isinstance(value, TYPES[kind]) for kind in kinds.split("|"))


def is_answer(message: Json) -> bool:
    """Say whether a message answers a request."""
    return "method" not in message and ("result" in message or "error" in message)


def inside(value: Any, path: str) -> Any:
    """Find the member a.b.c of a value."""
    for name in filter(None, path.split(".")):
        value = value.get(name, ABSENT) if isinstance(value, dict) else ABSENT
    return value


def same(one: Any, other: Any) -> bool:
    """Compare as JSON: the order of members is free, 1 is 1.0, but true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same(one[name], other[name]) for name in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def same_items(one: list[Any], other: Any) -> bool:
    """Compare arrays whose order is free."""
    left = list(other) if isinstance(other, list) else []
    for item in one:
        place = next((n for n, twin in enumerate(left) if same(item, twin)), None)
        if place is None:
            return False
        del left[place]
    return isinstance(other, list) and not left


def conforms(value: Any, schema: Any) -> bool:
    """Check a value against the plainest keywords of JSON Schema; ignore the others."""
    if not isinstance(schema, dict):
        return schema is not False
    kinds = schema.get("type", list(TYPES))
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if not is_a(value, "|".join(kinds)):
        return False
    if not any(same(value, one) for one in schema.get("enum", [value])):
        return False
    if "const" in schema and not same(value, schema["const"]):
        return False
    if isinstance(value, list):
        return all(conforms(item, schema.get("items", True)) for item in value)
    if not isinstance(value, dict):
        return True
    known = schema.get("properties", {})
    if (
        schema.get("additionalProperties") is False
        and "patternProperties" not in schema
    ):
        if set(value) - set(known):
            return False
    return set(schema.get("required", [])) <= set(value) and all(
        conforms(value[name], known[name]) for name in set(known) & set(value)
    )


def fits(pattern: Any, value: Any, saved: Json) -> bool:
    """Say whether a value matches; what the pattern saves stays saved if it does."""
    trial = dict(saved)
    good = not mismatch(pattern, value, trial)
    if good:
        saved.update(trial)
    return good


def match_within(limits: list[Any], value: Any) -> bool:
    """Say whether a number lies within two limits; null is no limit."""
    low, high = limits
    return (low is None or low <= value) and (high is None or value <= high)


def match_save(name: str, value: Any, saved: Json) -> bool:
    """Save what is there."""
    if value is not ABSENT:
        saved[name] = value
    return value is not ABSENT


def match_some(pattern: Any, value: Any, saved: Json) -> bool:
    """Say whether at least one item, or one value of an object, matches."""
    items = value.values() if isinstance(value, dict) else value
    return any(fits(pattern, one, saved) for one in items)


def match_where(patterns: list[Any], items: list[Any], saved: Json) -> bool:
    """Match the second pattern with the items that match the first."""
    which, wanted = patterns
    return fits(wanted, [one for one in items if fits(which, one, dict(saved))], saved)


def match_after(patterns: list[Any], items: list[Any], saved: Json) -> bool:
    """Match the second pattern with what follows the first item of the first one."""
    which, wanted = patterns
    rest = itertools.dropwhile(lambda one: not fits(which, one, dict(saved)), items)
    return fits(wanted, list(rest)[1:], saved)


def match_rising(path: str, items: list[Any], saved: Json) -> bool:
    """Say whether a member is a number in each item, and rises."""
    values = [inside(item, path) for item in items]
    numbers = all(is_a(value, "number") for value in values)
    return numbers and all(one < two for one, two in zip(values, values[1:]))


def match_unique(path: str, items: list[Any], saved: Json) -> bool:
    """Say whether a member is different in each item."""
    values = [inside(item, path) for item in items]
    return not any(same(*pair) for pair in itertools.combinations(values, 2))


def match_apart(operand: list[str], items: list[Any], saved: Json) -> bool:
    """Say whether no item has what an item of the saved array has, at this path."""
    name, path = operand
    known = [inside(item, path) for item in saved.get(name, ())]
    values = [inside(item, path) for item in items]
    return not any(same(one, other) for one in known for other in values)


def is_nowhere(name: str, value: Any) -> bool:
    """Say whether no object in a value, however deep, has a member of this name."""
    if isinstance(value, dict):
        parts = list(value.values())
        return name not in value and all(is_nowhere(name, one) for one in parts)
    return not isinstance(value, list) or all(is_nowhere(name, one) for one in value)


def match_differ(path: str, value: Json, saved: Json) -> bool:
    """Say whether a member, where it is there, differs in more than case."""
    values = [inside(item, path) for item in value.values()]
    words = [one.lower() for one in values if isinstance(one, str)]
    return len(set(words)) == len(words)


# To add an operator: its name, the types of values it is for ("": any, also nothing),
# and a function of the operand, the value and what is saved.
Rule = Callable[[Any, Any, Json], bool]
OPERATORS: dict[str, tuple[str, Rule]] = {
    "$absent": ("", lambda o, v, s: v is ABSENT),
    "$optional": ("", lambda o, v, s: v is ABSENT or fits(o, v, s)),
    "$any": ("", lambda o, v, s: any(fits(pattern, v, s) for pattern in o)),
    "$all": ("", lambda o, v, s: all(fits(pattern, v, s) for pattern in o)),
    "$not": ("", lambda o, v, s: not fits(o, v, dict(s))),
    "$type": ("", lambda o, v, s: is_a(v, o)),
    "$use": ("", lambda o, v, s: o in s and same(v, s[o])),
    "$save": ("", match_save),
    "$sameItems": ("array", lambda o, v, s: o in s and same_items(v, s[o])),
    "$fits": ("", lambda o, v, s: v is not ABSENT and o in s and conforms(v, s[o])),
    "$match": ("string", lambda o, v, s: bool(re.search(o, v))),
    "$range": ("number", lambda o, v, s: match_within(o, v)),
    "$size": ("string|array|object", lambda o, v, s: match_within(o, len(v))),
    "$values": ("object", lambda o, v, s: all(fits(o, one, s) for one in v.values())),
    "$names": ("object", lambda o, v, s: all(fits(o, name, s) for name in v)),
    "$each": ("array", lambda o, v, s: all(fits(o, one, dict(s)) for one in v)),
    "$some": ("array|object", match_some),
    "$first": ("array", lambda o, v, s: fits(o, v[0] if v else ABSENT, s)),
    "$where": ("array", match_where),
    "$after": ("array", match_after),
    "$rising": ("array", match_rising),
    "$unique": ("array", match_unique),
    "$apart": ("array", match_apart),
    "$differ": ("object", match_differ),
    "$nowhere": ("", lambda o, v, s: is_nowhere(o, v)),
}
SENT_OPERATORS = {"$use", "$optional", "$repeat", "$unit", "$altered"}
HOLD_PATTERNS = {"$optional", "$not", "$values", "$names", "$each", "$some", "$first"}
HOLD_LISTS = {"$any", "$all", "$where", "$after"}


def mismatch(pattern: Any, value: Any, saved: Json, at: str = "") -> str:
    """Say where and why a value does not match, or nothing; may save values."""
    members: list[tuple[str, Any, Any]] = []
    if isinstance(pattern, dict) and any(name.startswith("$") for name in pattern):
        good = True
        for name, operand in pattern.items():
            kinds, rule = OPERATORS[name]
            good = good and (not kinds or is_a(value, kinds))
            good = good and rule(operand, value, saved)
    elif isinstance(pattern, dict) and isinstance(value, dict):
        good = True
        for name, wanted in pattern.items():
            place = f"{at}.{name}".lstrip(".")
            members.append((place, wanted, value.get(name, ABSENT)))
    elif isinstance(pattern, list) and isinstance(value, list):
        good = len(pattern) == len(value)
        members = [(f"{at}[{n}]", *pair) for n, pair in enumerate(zip(pattern, value))]
    else:
        good = same(pattern, value)

    if not good:
        return f"{at or 'it'} should be {show(pattern)}, not {show(value)}"
    for place, wanted, item in members:
        if why := mismatch(wanted, item, saved, place):
            return why
    return ""


def check_pattern(pattern: Any) -> None:
    """Raise BadVector unless each operator of a pattern is known."""
    if isinstance(pattern, list):
        for item in pattern:
            check_pattern(item)
    elif isinstance(pattern, dict) and any(name[:1] == "$" for name in pattern):
        for name, operand in pattern.items():
            if name not in OPERATORS:
                raise BadVector(f"unknown operator {name} in {show(pattern)}")
            if name in HOLD_PATTERNS | HOLD_LISTS:
                check_pattern(operand)
            elif name == "$match":
                re.compile(operand)
    elif isinstance(pattern, dict):
        for item in pattern.values():
            check_pattern(item)


def filled(value: Any, saved: Json) -> Any:
    """Put saved values where a vector uses them, and texts that it describes; leave out
    what is optional."""
    if isinstance(value, list):
        return [filled(item, saved) for item in value]
    if not isinstance(value, dict):
        return value
    if "$use" in value:
        if value["$use"] not in saved:
            raise Missing(value["$use"])
        return saved[value["$use"]]
    if "$repeat" in value:
        text, times = value["$repeat"]
        return text * times
    if "$unit" in value:
        return chr(value["$unit"])
    if "$altered" in value:
        text = filled({"$use": value["$altered"]}, saved)
        place = max(len(text) - 5, 0)
        other = "1" if text[place : place + 1] == "0" else "0"
        return text[:place] + other + text[place + 1 :]

    found = {}
    for name, item in value.items():
        optional = isinstance(item, dict) and "$optional" in item
        if not optional or item["$use"] in saved:
            found[name] = filled(item, saved)
    return found


def check_sent(value: Any) -> None:
    """Raise BadVector unless a runner knows all operators in what is sent."""
    if isinstance(value, list):
        for item in value:
            check_sent(item)
    elif isinstance(value, dict):
        names = {name for name in value if name[:1] == "$"}
        if names and (names - SENT_OPERATORS or names != set(value)):
            known = "$ref" in names or "$schema" in names or "$defs" in names
            if not known:
                raise BadVector(f"unknown operator in what is sent: {show(value)}")
        for item in value.values():
            check_sent(item)


def patterns_of(steps: list[Json], names: set[str]) -> Iterator[Any]:
    """Find the patterns of steps: the members with these names."""
    for step in steps:
        for name in names & set(step):
            yield step[name]
