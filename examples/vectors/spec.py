"""Look rules up in a checkout of the specification, and count them.

Every rule word (MUST, SHOULD NOT, REQUIRED ...) of every page of every revision must
have a row in CLAUSES.md. In the newest revision the n-th bold word of a page has the
n-th row of its section that is not `text` or `plain`. A word of an older revision has
the row of the same sentence in a newer one, or else a row of its own, under the date of
the revision or of a later one before the newest.
"""

from __future__ import annotations

import difflib
import pathlib
import re
from dataclasses import dataclass

from patterns import Json

WORD = re.compile(
    r"(\*\*)?\b(MUST\s+NOT|MUST|SHALL\s+NOT|SHALL|SHOULD\s+NOT|SHOULD|REQUIRED"
    r"|NOT\s+RECOMMENDED|RECOMMENDED)\b"
)
SCHEMA = "schema.ts"
NOT_COUNTED = {"schema", "changelog"}  # made from schema.ts; says what other pages say
ALIKE = 0.72  # how much two sentences must share to be one rule
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


@dataclass
class Row:
    """A row of CLAUSES.md."""

    section: str
    heading: str
    level: str
    rule: str
    shown: str


@dataclass
class Word:
    """A rule word: where it stands, and what keeps and shows its rule."""

    revision: str
    page: str
    heading: str
    level: str
    bold: bool
    sentence: str
    row: Row | None = None


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


def read_page(path: pathlib.Path, revision: str, page: str) -> list[Word]:
    """Find the rule words of a page, each with its heading and its sentence."""
    text = path.read_text("utf-8")
    text = re.sub(r"(?ms)^ *```.*?^ *```", lambda m: "\n" * m[0].count("\n"), text)
    words, heading = [], "(intro)"
    # A block is a paragraph, an item of a list or a row of a table.
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) )|\n(?=#)", text):
        if found := re.match(r"\s*#+ (.*)", block):
            heading = plain(found[1])
            continue
        if "key words" in block or "capitalized" in block:
            continue
        for one in WORD.finditer(block):
            before = block.rfind(". ", 0, one.start())
            begin = before + 2 if before >= 0 else 0
            end = block.find(". ", one.end())
            sentence = plain(block[begin : end if end > 0 else len(block)])
            level, bold = " ".join(one[2].split()), bool(one[1])
            words.append(
                Word(revision, page, heading, level, bold, sentence.strip("-*| \n"))
            )
    return words


def read_schema(path: pathlib.Path, revision: str) -> list[Word]:
    """Find the rule words in the comments of schema.ts, each with what it is on."""
    words = []
    for comment, name in re.findall(
        r"(?s)/\*\*(.*?)\*/\s*(?:export )?([^\n]*)", path.read_text("utf-8")
    ):
        heading = plain(re.split(r"[?:={<]| extends", name)[0].replace('"', ""))
        lines = (line.strip().lstrip("*").strip() for line in comment.split("\n"))
        for sentence in re.split(r"(?<=\.) ", plain(" ".join(lines))):
            for one in WORD.finditer(sentence):
                level = " ".join(one[2].split())
                place = (revision, SCHEMA, heading, level, True)
                words.append(Word(*place, sentence.strip("- ")))
    return words


def read_rows(path: pathlib.Path) -> dict[str, list[Row]]:
    """Read the tables of CLAUSES.md, by page; of older revisions with the date."""
    found: dict[str, list[Row]] = {}
    for section in path.read_text("utf-8").split("\n## ")[1:]:
        name = section.partition("\n")[0].rpartition(":")[0]
        for line in re.findall(r"(?m)^\| (?!§)(.*) \|$", section):
            heading, level, _, rule, _, shown = (" " + line).split(" | ")
            heading = heading.strip() or found[name][-1].heading
            row = Row(name, plain(heading), level.strip(), rule, shown)
            if shown.startswith("as above") and found.get(name):
                row.shown = found[name][-1].shown + shown[len("as above") :]
            found.setdefault(name, []).append(row)
    return found


class Index:
    """All rule words of a checkout, each with its row."""

    def __init__(self, folder: pathlib.Path, clauses: pathlib.Path) -> None:
        self.folder = folder / "docs" / "specification"
        self.rows = read_rows(clauses)
        dates = [path.name for path in self.folder.glob("20*-*")]
        self.revisions = sorted(dates, reverse=True)
        if not self.revisions:
            raise SystemExit(f"{self.folder} has no revisions of the specification")
        self.pages: dict[tuple[str, str], list[Word]] = {}
        self.texts: dict[tuple[str, str], str] = {}
        self.schemas: dict[str, list[Word]] = {}
        for revision in self.revisions:
            for path in sorted((self.folder / revision).rglob("*.mdx")):
                page = (
                    path.relative_to(self.folder / revision).with_suffix("").as_posix()
                )
                self.texts[revision, page] = path.read_text("utf-8")
                if page not in NOT_COUNTED:
                    self.pages[revision, page] = read_page(path, revision, page)
            schema = folder / "schema" / revision / SCHEMA
            self.schemas[revision] = read_schema(schema, revision)
        self._index_newest()
        for newer, older in zip(self.revisions, self.revisions[1:]):
            self._index_older(newer, older)
        for revision, words in self.schemas.items():
            self._index_schema(revision, words)
            self.pages[revision, SCHEMA] = words

    def _index_newest(self) -> None:
        """Give each word of the newest revision the row at its place."""
        newest = self.revisions[0]
        for (revision, page), words in self.pages.items():
            if revision != newest:
                continue
            rows = self.rows.get(page, [])
            for bold in (True, False):
                self._pair([word for word in words if word.bold == bold], rows)

    def _pair(self, words: list[Word], rows: list[Row]) -> None:
        """Pair words and rows in order; where levels differ, find the next one."""
        labels = [word.level + ("" if word.bold else " (plain)") for word in words]
        levels = [row.level for row in rows]
        if any(word.bold for word in words):
            rows = [row for row in rows if WORD.fullmatch(row.level)]
            levels = [row.level for row in rows]
        matcher = difflib.SequenceMatcher(None, labels, levels, False)
        for one, other, size in matcher.get_matching_blocks():
            for n in range(size):
                words[one + n].row = rows[other + n]

    def _index_older(self, newer: str, older: str) -> None:
        """Give each word of a revision the row of its sentence in the next one."""
        known = [word for (date, _), words in self.pages.items() for word in words]
        known = [word for word in known if word.revision == newer and word.row]
        left: list[Word] = []
        for (date, page), words in self.pages.items():
            if date == older:
                for word in words:
                    word.row = self._find_twin(word, known)
                left += [word for word in words if word.row is None]
        self._index_own(left, older)

    def _find_twin(self, word: Word, known: list[Word]) -> Row | None:
        """Find the row of the sentence that says the same in a newer revision."""
        best, found = ALIKE, None
        for other in known:
            if not self._related(word.page, other.page):
                continue
            if word.level.rstrip(" NOT")[:4] != other.level.rstrip(" NOT")[:4]:
                continue
            matcher = difflib.SequenceMatcher(
                None, word.sentence, other.sentence, False
            )
            if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
                ratio = matcher.ratio()
                if ratio > best:
                    best, found = ratio, other.row
        return found

    def _related(self, page: str, newer: str) -> bool:
        """Say whether an older page became a newer one."""
        return page in (newer, SCHEMA) or page in FORMER.get(newer, [])

    def _index_own(self, words: list[Word], revision: str) -> None:
        """Give the words that are left the rows of their own revision's sections."""
        for page in dict.fromkeys(word.page for word in words):
            mine = [word for word in words if word.page == page]
            for date in self.revisions[1:]:
                rows = self.rows.get(f"[{date}] {page}", [])
                if date < revision or not rows:
                    continue
                for heading in dict.fromkeys(word.heading for word in mine):
                    here = [w for w in mine if w.heading == heading and not w.row]
                    places = [row for row in rows if row.heading == heading]
                    self._pair([word for word in here if word.bold], places)
                    self._pair([word for word in here if not word.bold], places)
                for word in mine:
                    word.row = word.row or self._find_any(word, rows)

    def _index_schema(self, revision: str, words: list[Word]) -> None:
        """Give the words of schema.ts the rows of the same sentences on pages, or else
        rows of its own."""
        known = [word for (date, _), page in self.pages.items() for word in page]
        known = [word for word in known if word.revision == revision and word.row]
        own = [*self.rows.get(SCHEMA, [])]
        for date in self.revisions[1:]:
            own += self.rows.get(f"[{date}] {SCHEMA}", [])
        for word in words:
            found = [
                r for r in own if (r.heading, r.level) == (word.heading, word.level)
            ]
            word.row = found[0] if found else self._find_twin(word, known)

    def _find_any(self, word: Word, rows: list[Row]) -> Row | None:
        """Find a row for a word that stands in another order than the rows."""
        whole = [row for row in rows if row.level == "all"]
        level = word.level + ("" if word.bold else " (plain)")
        alike = [row for row in rows if row.level == level]
        here = [row for row in alike if row.heading == word.heading]
        return (whole + here + [None])[0]

    # ---- what it is for

    def sentences(self, vectors: list[Json]) -> dict[tuple[str, str], str]:
        """Find the sentence of each vector's rule in each of its revisions; where a
        revision lacks it, in the next one that has it."""
        found = {}
        for vector in vectors:
            last = ""
            for revision in reversed(vector["revisions"]):
                last = self.sentence(vector, revision) or last
                if last:
                    found[vector["id"], revision] = last
        return found

    def sentence(self, vector: Json, revision: str) -> str:
        """Find the sentence that has the words of `says`, on the vector's page."""
        clause = vector.get("places", {}).get(revision, vector["clause"])
        page, _, heading = re.sub(r"^\[.*?\] ", "", clause).partition(" §")
        says = vector.get("says", [])
        for words in [says] if isinstance(says, str) else says:
            some = [
                (other != plain(heading), text, f"({revision} {name} §{other})")
                for name in [page, *FORMER.get(page, [])]
                for other, text in read_sentences(self.texts.get((revision, name), ""))
                if words in text
            ]
            if some:
                return " ".join(min(some)[1:])
        return ""

    def missing_sentences(self, vectors: list[Json]) -> list[str]:
        """Find the vectors whose words are on no page of their revisions."""
        known = self.sentences(vectors)
        newest = [(one["id"], one["revisions"][-1]) for one in vectors if "says" in one]
        return [
            f"{name} {revision}"
            for name, revision in newest
            if (name, revision) not in known
        ]

    def missing_headings(self, vectors: list[Json]) -> list[str]:
        """Find the vectors whose clause is not in all of their revisions."""
        found = []
        for vector in vectors:
            for revision in vector["revisions"]:
                clause = vector.get("places", {}).get(revision, vector["clause"])
                clause = re.sub(r"^\[.*?\] ", "", clause)
                if not self._has(revision, clause):
                    found.append(f"{vector['id']} {revision}: {clause}")
        return found

    def _has(self, revision: str, clause: str) -> bool:
        """Say whether a page of a revision, or what it was before, has a heading."""
        page, _, heading = clause.partition(" §")
        if page.startswith("schema.ts"):
            return True
        for name in [page, *FORMER.get(page, [])]:
            text = self.texts.get((revision, name))
            if text is not None:
                headings = [plain(one) for one in re.findall(r"(?m)^#+ (.*)", text)]
                title = name == "basic/messages" and heading == "Messages"
                if not heading or title or plain(heading) in headings:
                    return True
        return False

    def report(self, vectors: list[Json]) -> int:
        """Print what each page has, and each word without a row; 1 if there is one."""
        ids = {vector["id"] for vector in vectors}
        lost: list[Word] = []
        print(f"{'rule words of':58} words   row vector  test  none")
        for (revision, page), words in self.pages.items():
            if not words:
                continue
            rows = [word.row for word in words if word.row]
            shown = [set(re.findall("`(.*?)`", row.shown)) for row in rows]
            vector = sum(bool(names & ids) for names in shown)
            test = sum(bool(names) and not names & ids for names in shown)
            name = f"{revision} {page}"
            counts = (len(words), len(rows), vector, test, len(rows) - vector - test)
            print(f"{name:58}", *(f"{count:5}" for count in counts))
            lost += [word for word in words if word.row is None]
        total = sum(map(len, self.pages.values()))
        print(f"{total} words, {len(lost)} without a row")
        for word in lost:
            mark = "" if word.bold else " (plain)"
            print(
                f"NO ROW {word.revision} {word.page} §{word.heading} {word.level}{mark}"
            )
            print(f"       {word.sentence}")
        wrong = self.missing_headings(vectors)
        for line in wrong:
            print("NO HEADING", line)
        for line in self.missing_sentences(vectors):
            print("NO SENTENCE", line)
            wrong.append(line)
        return int(bool(lost or wrong))
