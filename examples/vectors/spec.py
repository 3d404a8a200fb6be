"""Look rules up in a checkout of the specification, and count those that are shown.

A vector names its rule by page, heading, and some words of its sentence (`says`). Here
the sentence is found in each revision, so that a report can print it. All rule
sentences, those with MUST, SHOULD, REQUIRED ..., are counted by page.
"""

from __future__ import annotations

import difflib
import pathlib
import re

from patterns import Json

WORD = re.compile(r"\b(MUST|SHALL|SHOULD|REQUIRED|RECOMMENDED)\b")
NOT_COUNTED = {"schema", "changelog"}  # made from schema.ts; says what other pages say
ALIKE = 0.75  # how much two sentences must share to be one rule
# Where a page of the newest revision stood before, if not under its own path.
FORMER = {
    "basic/versioning": ["basic/lifecycle"],
    "basic/patterns/cancellation": ["basic/utilities/cancellation", "basic/lifecycle"],
    "basic/patterns/progress": ["basic/utilities/progress"],
    "basic/patterns/subscriptions": ["server/resources"],
    "basic/transports/index": ["basic/transports"],
    "basic/transports/stdio": ["basic/transports"],
    "basic/transports/streamable-http": ["basic/transports"],
    "basic/authorization/index": ["basic/authorization"],
    "basic/authorization/authorization-server-discovery": ["basic/authorization"],
    "basic/authorization/client-registration": ["basic/authorization"],
    "basic/authorization/security-considerations": ["basic/authorization"],
    "basic/index": ["basic/index", "basic/messages"],
}
Place = tuple[str, str]  # a heading, and a sentence below it


def plain(text: str) -> str:
    """Take markup and line breaks out of a sentence."""
    text = re.sub(r"\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return " ".join(re.sub(r"[*_`]|<[^>]*>", "", text).split())


def read_sentences(text: str) -> list[tuple[str, str]]:
    """Find all sentences of a page with their headings; an item of a list comes with
    the words before the list."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    found, heading, before, depth = [], "(intro)", "", -1
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) )|\n(?=#)", text):
        if title := re.match(r"\s*#+ (.*)", block):
            heading, before, depth = plain(title[1]), "", -1
            continue
        item = re.match(r"\n*( *)(?:[-*]|\d+\.) ", block)
        indent = len(item[1]) if item else -1
        words = plain(block[item.end() if item else 0 :])
        head = f"{before} " if indent > depth and before else ""
        for sentence in re.split(r"(?<=\.) (?=[A-Z])", words):
            found.append((heading, head + sentence))
        if words.endswith(":"):
            before, depth = words, indent
    return found


def is_rule(text: str) -> bool:
    """Say whether a sentence has a rule word, and is not about such words."""
    return bool(WORD.search(text)) and "key words" not in text


class Index:
    """The pages of all revisions of a checkout, as sentences."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder = folder / "docs" / "specification"
        dates = [path.name for path in folder.glob("20*-*")]
        self.revisions = sorted(dates, reverse=True)
        if not self.revisions:
            raise SystemExit(f"{folder} has no revisions of the specification")
        self.pages: dict[tuple[str, str], list[Place]] = {}
        self.headings: dict[tuple[str, str], set[str]] = {}
        for revision in self.revisions:
            for path in sorted((folder / revision).rglob("*.mdx")):
                name = path.relative_to(folder / revision).with_suffix("").as_posix()
                text = path.read_text("utf-8")
                titles = re.findall(r"(?m)^#+ (.*)", text)
                self.pages[revision, name] = read_sentences(text)
                self.headings[revision, name] = {plain(one) for one in titles}

    # ---- the place of a vector

    def find(self, vector: Json, revision: str) -> tuple[str, Place] | None:
        """Find the page and the sentence that have the words of a vector, best under
        its heading."""
        clause = vector.get("places", {}).get(revision, vector["clause"])
        page, _, heading = re.sub(r"^\[.*?\] ", "", clause).partition(" §")
        says = vector.get("says", [])
        for words in [says] if isinstance(says, str) else says:
            some = [
                (title != plain(heading), name, (title, text))
                for name in [page, *FORMER.get(page, [])]
                for title, text in self.pages.get((revision, name), [])
                if words in text
            ]
            if some:
                return min(some)[1:]
        return None

    def sentences(self, vectors: list[Json]) -> dict[tuple[str, str], str]:
        """Find the sentence of each vector's rule in each of its revisions; where a
        revision lacks it, in the next one that has it."""
        found = {}
        for vector in vectors:
            last = ""
            for revision in self.revisions:
                if place := self.find(vector, revision):
                    page, (heading, sentence) = place
                    last = f"{sentence} ({revision} {page} §{heading})"
                if last and revision in vector["revisions"]:
                    found[vector["id"], revision] = last
        return found

    def faults(self, vectors: list[Json]) -> list[str]:
        """Find the vectors whose clause or sentence is not in all of their revisions,
        or in none."""
        known, found = self.sentences(vectors), []
        for vector in vectors:
            name = vector["id"]
            if "says" in vector and (name, vector["revisions"][-1]) not in known:
                found.append(f"NO SENTENCE {name}: {vector['says']}")
            for revision in vector["revisions"]:
                clause = vector.get("places", {}).get(revision, vector["clause"])
                clause = re.sub(r"^\[.*?\] ", "", clause)
                if not self._has(revision, clause):
                    found.append(f"NO HEADING {name} {revision}: {clause}")
        return found

    def _has(self, revision: str, clause: str) -> bool:
        """Say whether a page of a revision, or what it was before, has a heading."""
        page, _, heading = clause.partition(" §")
        if page.startswith("schema.ts"):
            return True
        for name in [page, *FORMER.get(page, [])]:
            titles = self.headings.get((revision, name))
            if titles is not None:
                title = name == "basic/messages" and heading == "Messages"
                if not heading or title or plain(heading) in titles:
                    return True
        return False

    # ---- all rules

    def rules(self, revision: str) -> list[tuple[str, Place]]:
        """List the rule sentences of a revision, with their pages."""
        return [
            (page, place)
            for (date, page), places in self.pages.items()
            for place in places
            if date == revision and page not in NOT_COUNTED and is_rule(place[1])
        ]

    def report(self, vectors: list[Json]) -> int:
        """Print how many rules of each page a vector shows; those that are new in the
        newest revision and that none shows; and faults: 1 if there is one."""
        total = [0, 0]
        for revision in self.revisions:
            said = {self.find(one, revision) for one in vectors}
            rules = self.rules(revision)
            for page in dict.fromkeys(page for page, _ in rules):
                here = [rule for rule in rules if rule[0] == page]
                shown = len(said & set(here))
                print(f"{revision} {page:55}{len(here):5} rules,{shown:4} shown")
                total = [total[0] + len(here), total[1] + shown]
        print(f"{total[0]} rules of {len(self.revisions)} revisions, {total[1]} shown")
        for page, (heading, sentence) in self.news(vectors):
            print(f"NEW {page} §{heading}: {sentence}")
        faults = self.faults(vectors)
        print(*faults, sep="\n")
        return int(bool(faults))

    def news(self, vectors: list[Json]) -> list[tuple[str, Place]]:
        """List the rules of the newest revision that the one before does not have, and
        that no vector shows."""
        newest, before = self.revisions[:2]
        said = {self.find(one, newest) for one in vectors}
        older = [sentence for _, (_, sentence) in self.rules(before)]
        return [
            rule
            for rule in self.rules(newest)
            if rule not in said
            and not difflib.get_close_matches(rule[1][1], older, 1, ALIKE)
        ]
