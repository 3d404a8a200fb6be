#!/usr/bin/env python3
"""List the checks of the official conformance suite, each with the vectors that
correspond to it."""

from __future__ import annotations

import json
from pathlib import Path

found: dict[str, list[str]] = {}
for path in sorted(Path(__file__).resolve().parents[1].rglob("*.json")):
    file = json.loads(path.read_text("utf-8"))
    for vector in file["vectors"] if "vectors" in file else []:
        for check in vector.get("checks", []):
            found.setdefault(check, []).append(vector["id"])
for check in sorted(found):
    print(f"{check}:", *found[check])
