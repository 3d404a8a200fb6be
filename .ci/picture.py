#!/usr/bin/env python3
"""Draw hostile traces with examples/10_picture.py, and read the pages as an HTML parser and, where
there is one, as Chromium does: `python3 .ci/picture.py`. Exits with a status of 1 at a failure."""
from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TEXTS = ["<script>alert(1)</script>", "\"'><img src=//evil>", "</pre></style>&amp;", "\ud800\0",
         "\u202eabc", "{title}", "{0.__class__}", "x" * 5000, "}-->", "a\u2028b"]
TAGS = "html meta title style h1 h2 p ul ol li a br i b span div details summary small pre u"
ATTRIBUTES = {"lang", "charset", "name", "content", "http-equiv", "class", "id", "title", "href"}
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def draw(path: Path, records: list[Any]) -> str:
    """Write records (or lines) as a trace; return the page that is made of it."""
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    path.write_text("\n".join(lines), "utf-8")
    done = subprocess.run([sys.executable, EXAMPLES / "10_picture.py", path], text=True,
                          capture_output=True, check=False, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def said(way: str, message: Any, on: Any = "stdio") -> dict[str, Any]:
    """Make a record of a trace."""
    return {"time": "2026-11-22T09:12:01.123Z", "way": way, "on": on, "message": message}


class Page(html.parser.HTMLParser):
    """The arrows of a page: the arrows that each links to, by number. It fails at other markup."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.arrows: dict[int, set[int]] = {}
        self.number = -1
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        assert tag in TAGS.split() and not values.keys() - ATTRIBUTES, (tag, values)
        if "id" in values:
            self.number = int(str(values["id"])[1:])
            assert self.number not in self.arrows, "an arrow is drawn twice"
            self.arrows[self.number] = set()
        elif "href" in values:
            found = re.fullmatch(r"#m(\d+)", str(values["href"]))
            assert found, values
            self.arrows.get(self.number, set()).add(int(found[1]))


def some(lot: random.Random, depth: int = 0) -> Any:
    """Make a JSON value with markup in it."""
    kind = lot.randrange(6 if depth < 3 else 3)
    if kind < 2:
        return lot.choice(TEXTS)
    if kind == 2:
        return lot.choice([0, None, True, 1e300])
    names = [*TEXTS, "_meta", "name", "content", "requestState", "requestId", "text"]
    items = [some(lot, depth + 1) for _ in range(2)]
    return items if kind == 3 else dict(zip(lot.sample(names, 2), items))


def check_fuzz(folder: Path) -> None:
    """Each message is there once, each pair is linked, and nothing becomes markup."""
    lot = random.Random(5)
    for _ in range(20):
        records = []
        for number in range(0, 40, 2):
            ident, on = lot.choice(TEXTS) + str(number), lot.choice(["stdio", 1, *TEXTS])
            request = {"id": ident, "method": lot.choice(TEXTS), "params": some(lot)}
            answer = {"id": ident, lot.choice(["result", "error"]): some(lot)}
            records += [said(">", request, on), said("<", answer, on)]
        page = Page(draw(folder / "t", [*records, 5, "x", [], {}, some(lot), {"way": ">"}]))
        assert set(range(40)) <= page.arrows.keys()
        for number in range(0, 40, 2):
            assert number + 1 in page.arrows[number] and number in page.arrows[number + 1]


def check_browser(folder: Path) -> None:
    """Chromium applies the style, and nothing of a trace runs."""
    page = draw(folder / "t", [said(">", {"id": 1, "method": "<script>document.title=1</script>"})])
    style = re.findall("(?s)<style>(.*?)</style>", page)[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in page, "the policy does not allow the style"
    if not CHROMIUM:
        print("picture: Chromium is not on this machine: not tried")
        return
    (folder / "t.html").write_text(page, "utf-8")
    flags = ["--no-sandbox", "--no-first-run", "--disable-gpu", "--disable-sync", "--disable-quic",
             "--disable-background-networking", "--disable-component-update"]
    done = subprocess.run(
        [CHROMIUM, "--headless", *flags, "--enable-logging=stderr", "--dump-dom",
         f"--user-data-dir={folder / 'profile'}", (folder / "t.html").as_uri()],
        capture_output=True, text=True, check=False, timeout=90)
    assert "&lt;script&gt;" in done.stdout and "Content Security Policy" not in done.stderr
    print("picture: Chromium shows it")


def main() -> None:
    """Run all checks."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        check_fuzz(Path(name))
        many = draw(Path(name, "t"), [said(">", {"id": 1, "method": "ping"})] * 100_000)
        assert "are left out" in many and len(many) < 4_000_000
        check_browser(Path(name))
    print("picture: 20 hostile traces, 100,000 messages: fine")


if __name__ == "__main__":
    main()
