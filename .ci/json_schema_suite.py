#!/usr/bin/env python3
"""Count what the official JSON-Schema-Test-Suite says of the schemas of mcp_ref.py.

    python3 .ci/json_schema_suite.py SUITE/tests/draft2020-12 [MODULE.py]

The suite is a checkout of json-schema-org/JSON-Schema-Test-Suite. A schema is refused
if it has a keyword that cannot be checked; a wrong verdict is a defect, and printed.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any


def load(path: str) -> Any:
    """Import a file as a module."""
    spec = importlib.util.spec_from_file_location("measured", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(folder: str, path: str) -> int:
    """Count right and wrong verdicts, and tests of refused schemas."""
    module = load(path)
    right = wrong = refused = 0
    for file in sorted(Path(folder).glob("*.json")):
        for group in json.loads(file.read_text("utf-8")):
            try:
                schema = module.Schema(group["schema"])
            except ValueError:
                refused += len(group["tests"])
                continue
            for test in group["tests"]:
                if (schema.flaw(test["data"]) is None) == test["valid"]:
                    right += 1
                else:
                    wrong += 1
                    print("wrong:", file.stem, group["description"], test)
    print(f"right {right}, wrong {wrong}, refused {refused}")
    return int(wrong > 0 or not right)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    default = Path(__file__).resolve().parents[1] / "mcp_ref.py"
    sys.exit(main(sys.argv[1], (sys.argv[2:] or [str(default)])[0]))
