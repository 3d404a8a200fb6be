"""Skills: folders of instructions for a model, served as resources and verified by the
host.

Both roles of the extension `io.modelcontextprotocol/skills`. A skill is a folder with a
SKILL.md: instructions, below a header that says when to use them. A server offers each
file as a resource and each skill as an *entry*: the header, and the size and digest of
every file. A host fetches a file only when it is needed, and uses it only if it matches
its entry.

    serve_skills(server, "folder")      # a server: the skills below a folder

    skills = Skills(client, "docs", approve=ask)    # a host: one for each server
    skill, *others = skills.list_skills()
    text = skills.load(skill)                       # its SKILL.md, verified
    skills.read(skill, "references/errors.md")      # another of its files, verified

Files are read once, at startup: no request reaches the file system. Names that begin
with a dot are skipped; symbolic links are refused. A skill with an error is not served
at all; stderr says why. Known limits: changes need a restart; the host refuses
`"resources": "dynamic"`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import mimetypes
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import normalize
from urllib.parse import quote, unquote

# in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]

from mcp_client import MAX_LIST_BYTES, Client, Malformed, ServerLacks, size_of

from mcp_ref import Context, NotFound, RpcError, Server

Message = dict[str, Any]

EXTENSION = "io.modelcontextprotocol/skills"
SKILL = "SKILL.md"
MAX_FILES, MAX_BYTES = 512, 16 * 2**20  # limits of one skill: ext-skills §Limits
MAX_HEADER = 2**16  # bytes of the frontmatter; a MiB takes up to 10 s to parse
MAX_PAGES = 1000  # pages of one skills/list
MAX_REFUSED = 100  # reasons kept of one list


class SkillError(Exception):
    """The skill cannot be served, or must not be used."""


# ---- frontmatter
# ---------------------------------------------------------------------------
#
# A part of YAML is accepted: `key: value`, one nested level, quotes, | and > blocks,
# and comments.

# Of a line without spaces at its end: no pattern here tries a long run of them twice.
PAIR = re.compile(r"([\w.-]+):(?: +(.*))?")
BLOCK = re.compile(r"([|>])(-?)(?: +#.*)?")
QUOTED = re.compile(r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*')(?: +#.*)?")
OTHER = re.compile(r"[\[\]{},&*!|>%@`\"']|[-?:](?: |$)|.*:(?: |$)")


def frontmatter(raw: bytes) -> Message:
    """Parse the frontmatter of a SKILL.md; SkillError, with the line number, if it is
    invalid."""
    head = raw[:MAX_HEADER].decode("utf-8-sig", "replace")
    lines = head.replace("\r\n", "\n").split("\n")
    rows = [at for at, line in enumerate(lines) if line.rstrip(" ") == "---"]
    if rows[:1] != [0] or not rows[1:] or "\ufffd" in "".join(lines[: rows[1]]):
        raise SkillError(
            f"line 1: expected frontmatter in UTF-8 between two lines '---', "
            f"at most {MAX_HEADER} bytes"
        )
    return _mapping(lines[1 : rows[1]], 2)


def _mapping(lines: list[str], first: int, nested: bool = False) -> Message:
    """Parse `key: value` lines, each with the indented lines below it. `first`: a line
    number."""
    found: Message = {}
    starts: list[int] = []
    for at, line in enumerate(lines):
        if re.match(" *[^ #]", line) and (line[0] != " " or not starts):
            starts.append(at)
    for at, end in zip(starts, [*starts[1:], len(lines)]):
        pair = PAIR.fullmatch(lines[at].rstrip(" "))
        if pair is None or pair[1] in found:
            raise SkillError(
                f"line {first + at}: expected 'key: value', with unique keys"
            )
        value, below = pair[2] or "", textwrap.dedent("\n".join(lines[at + 1 : end]))
        block = BLOCK.fullmatch(value)
        if block:
            found[pair[1]] = _block(below.rstrip(), block, first + at)
        elif not re.search("(?m)^ *[^ #\n]", below):
            found[pair[1]] = _scalar(value, first + at)
        elif nested or re.match("[^#]", value):
            raise SkillError(
                f"line {first + at}: unexpected indented lines below this value"
            )
        else:
            found[pair[1]] = _mapping(below.split("\n"), first + at + 1, True)
    return found


def _block(text: str, header: Any, at: int) -> str:
    """Return the text of a block: unchanged below |, folded below >."""
    if header[1] == ">" and re.search("(?m)^ ", text):
        raise SkillError(
            f"line {at}: the lines below > must have the same indentation; or use |"
        )
    if header[1] == ">":
        text = re.sub(r"(?<=.)\n(\n*)", lambda newlines: newlines[1] or " ", text)
    return text if header[2] or not text else text + "\n"


def _scalar(text: str, at: int) -> Any:
    """Return the value of a one-line scalar: YAML 1.2 §10.3.2 Tag Resolution."""
    quoted = QUOTED.fullmatch(text)
    if quoted and text[0] == "'":
        return quoted[1][1:-1].replace("''", "'")
    plain = quoted[1] if quoted else re.split("(?:^| )#", text)[0].rstrip(" ")
    if not quoted and OTHER.match(plain):
        raise SkillError(f"line {at}: unsupported YAML; put the value in quotes")
    try:
        return json.loads(plain if quoted else plain.lower() or "null")
    except ValueError:
        if quoted:
            raise SkillError(
                f"line {at}: double quotes allow only JSON's escapes"
            ) from None
        return plain


def check_header(header: Any, folder: str) -> None:
    """Raise SkillError unless name and description are valid: agentskills
    §Frontmatter."""
    header = header if isinstance(header, dict) else {}
    name, text = header.get("name"), header.get("description")
    if name != folder or not re.fullmatch("(?=.{1,64}$)[a-z0-9]+(-[a-z0-9]+)*", folder):
        raise SkillError(
            f"name must match the folder and use a-z, 0-9 and hyphens; found {name!r}"
        )
    check_path(folder)
    if not isinstance(text, str) or not text.strip() or len(text) > 1024:
        raise SkillError("description must be a string of 1 to 1024 characters")


# ---- the server
# ----------------------------------------------------------------------------


def serve_skills(server: Server, *folders: Any) -> list[Message]:
    """Read the skills in or below some folders, and serve them; return their entries.

    A skill's URI is its path relative to the folder; a folder that is itself a skill
    has its name.
    """
    files: dict[str, bytes] = {}
    entries: dict[str, Message] = {}
    for folder in (Path(one).absolute() for one in folders):
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder")
        base = folder.parent if Path(folder, SKILL).exists() else folder
        for path in _visible(folder, SKILL):
            try:
                entry, own = _read(path.parent, base)
                if entry["uri"] in entries:
                    raise SkillError("another folder has a skill with this URI")
            except (SkillError, OSError) as problem:
                print(f"skills: {path} is not served: {problem}", file=sys.stderr)
            else:
                files.update(own)
                entries[entry["uri"]] = entry
                _list_resource(server, entry, own[entry["uri"]])
    hints: Message = {"ttlMs": 0, "cacheScope": "private"}

    @server.method("skills/list", extension=EXTENSION)
    def list_skills(params: Message) -> Message:
        return {"skills": list(entries.values()), **hints}

    @server.method("skills/get", extension=EXTENSION)
    def get_skill(params: Message) -> Message:
        if str(params.get("uri")) not in entries:
            raise RpcError(-32602, "Unknown skill: expected a URI from skills/list")
        return {"skill": entries[params["uri"]], **hints}

    @server.resource(
        "skill://{+path}", name="skill-file", description="A file of a skill"
    )
    def skill_file(path: str, ctx: Context) -> Message:
        if ctx.params["uri"] not in files:
            raise NotFound
        return _contents(ctx.params["uri"], files[ctx.params["uri"]])

    return list(entries.values())


def _visible(folder: Path, pattern: str) -> list[Path]:
    """Find paths at any depth, without hidden ones; links are not followed."""
    return [
        path
        for path in sorted(folder.rglob(pattern), key=Path.as_posix)
        if not any(part[0] == "." for part in path.relative_to(folder).parts)
    ]


def _read(top: Path, base: Path) -> tuple[Message, dict[str, bytes]]:
    """Read a skill: its entry (ext-skills §Skill Entries), and all of its files by
    URI."""
    files: dict[str, bytes] = {}
    size = 0
    for path in _visible(top, "*"):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise SkillError(f"{path} must be a regular file or folder")
        if path.is_file():
            check_path(path.relative_to(top).as_posix())
            size += path.stat().st_size
            check_limits(len(files) + 1, size)
            files[_uri(path.relative_to(base))] = path.read_bytes()
    check_unique([unquote(uri) for uri in files])
    main = _uri(Path(top, SKILL).relative_to(base))
    header = frontmatter(files.get(main, b""))
    check_header(header, top.name)
    lines = [
        {"uri": uri, "digest": _digest(raw), "size": len(raw)}
        for uri, raw in files.items()
    ]
    return {"uri": main, "frontmatter": header, "resources": lines}, files


def _uri(path: Path) -> str:
    return "skill://" + quote(path.as_posix())


def _digest(raw: bytes) -> str:
    return "sha256:" + hashlib.sha256(raw).hexdigest()


# Windows keeps these for devices, whatever their extension; ends a name before dots and
# spaces at its end; and has other meanings for some characters.
DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)")


def check_path(path: str) -> None:
    """Raise SkillError for a name that some system would misread: Windows, or the
    terminal on which a user is asked."""
    for name in path.split("/"):
        if (
            DEVICE.fullmatch(name.partition(".")[0].rstrip(" "))
            or not name.isprintable()  # control characters, and those that turn text
            or re.search(r'[<>:"|?*\\]|[. ]$', name)
            or len(name) > 255
        ):
            raise SkillError(f"{ascii(name)[:100]} is not a name on every system")


def check_unique(paths: list[str]) -> None:
    """Raise SkillError if some system would take two for one: it ignores case, or how
    accents are written."""
    folded = {normalize("NFC", normalize("NFD", path).casefold()) for path in paths}
    if len(folded) < len(paths):
        raise SkillError("two of its files have one name on some systems")


def check_limits(files: int, size: int) -> None:
    if files > MAX_FILES or size > MAX_BYTES:
        raise SkillError(
            f"a skill may have at most {MAX_FILES} files and {MAX_BYTES} bytes"
        )


def _list_resource(server: Server, entry: Message, raw: bytes) -> None:
    """Add a SKILL.md to resources/list: ext-skills §Resource Metadata."""
    header = entry["frontmatter"]

    @server.resource(
        entry["uri"],
        name=header["name"],
        description=header["description"],
        mime_type="text/markdown",
    )
    def skill_md() -> Message:
        return _contents(entry["uri"], raw)


def _contents(uri: str, raw: bytes) -> Message:
    """Make contents: text only if it is UTF-8, because the host must get the same
    bytes."""
    kind = "text/markdown" if uri.endswith(".md") else mimetypes.guess_type(uri)[0]
    contents = {"uri": uri, "mimeType": kind or "application/octet-stream"}
    try:
        return {**contents, "text": raw.decode()}
    except UnicodeDecodeError:
        return {**contents, "blob": base64.b64encode(raw).decode()}


# ---- the host
# ------------------------------------------------------------------------------


class Skill:
    """A valid entry: `uri`, `frontmatter`, and `files` by path. No file has been
    fetched.

    Frontmatter fields that request permissions, such as allowed-tools, are for the user
    to grant.
    """

    def __init__(self, entry: Any) -> None:
        lines = entry.get("resources") if isinstance(entry, dict) else None
        if not isinstance(lines, list):
            raise SkillError('resources must be an array; "dynamic" cannot be verified')
        self.uri, self.frontmatter = str(entry.get("uri")), entry.get("frontmatter")
        self.root = self.uri.rpartition("/")[0]
        check_header(self.frontmatter, unquote(self.root.rpartition("/")[2]))
        self.files = {self._path(line): line for line in lines}
        self.digests = {path: line["digest"] for path, line in self.files.items()}
        check_unique(list(self.files))
        if not unquote(self.uri).isprintable():  # it is shown to a user
            raise SkillError(f"{ascii(self.uri)[:200]} is not a printable URI")
        check_limits(len(lines), sum(line["size"] for line in lines))
        if self.files.get(SKILL, {}).get("uri") != self.uri or len(self.files) < len(
            lines
        ):
            raise SkillError(f"resources must list {SKILL}, and each file only once")

    def _path(self, line: Any) -> str:
        """Check one of the entry's resources; return the file's path: ext-skills
        §Resources."""
        line = line if isinstance(line, dict) else {}
        uri, size = str(line.get("uri")), line.get("size")
        path = unquote(uri[len(self.root) + 1 :])
        if (
            not uri.startswith(self.root + "/")
            or {"", ".", ".."} & set(re.split(r"[/\\]", path))
            or not re.fullmatch("sha256:[0-9a-f]{64}", str(line.get("digest")))
            or type(size) is not int
            or size < 0
        ):
            raise SkillError(
                f"{uri!r:.200} must be in the skill's folder, with digest and size"
            )
        check_path(path)
        return path


class Skills:
    """The skills of one server, for a host.

    `label` is the host's name for the server; label and URI together identify a skill.
    `approve(skill)` asks the user, again if the files have changed. `approved` can be
    saved as JSON. list_skills() omits invalid entries; `refused` says why, of the first
    ones.
    """

    def __init__(
        self, client: Client, label: str, approve: Callable[[Skill], bool]
    ) -> None:
        self.client, self.label, self.approve = client, label, approve
        self.approved: dict[str, dict[str, str]] = {}
        self.refused: list[str] = []

    def list_skills(self) -> list[Skill]:
        """Fetch all entries, and no files: ext-skills §Lazy Retrieval."""
        if EXTENSION not in (self.client.capabilities.get("extensions") or {}):
            raise ServerLacks(f"{self.label} does not declare {EXTENSION}")
        found: dict[str, Skill] = {}
        params: Message = {}
        size = 0
        self.refused = []
        for _ in range(MAX_PAGES):
            page = self.client.request("skills/list", params)
            size += size_of(page)
            if size > MAX_LIST_BYTES or not isinstance(page.get("skills"), list):
                raise Malformed(f"{self.label} sent an invalid list of skills")
            for entry in page["skills"]:
                try:
                    skill = Skill(entry)
                    found[skill.uri] = skill
                except SkillError as problem:
                    self.refused += [f"{entry!r:.200}: {problem!s:.200}"]
                    del self.refused[MAX_REFUSED:]
            params = {"cursor": page.get("nextCursor")}
            if params["cursor"] is None:
                break
        return [*found.values()]

    def load(self, skill: Skill) -> str:
        """Get approval for a skill, fetch and verify its SKILL.md, return the text."""
        if self.approved.get(skill.uri) != skill.digests:
            if not self.approve(skill):
                raise SkillError(f"{skill.uri} of {self.label} was not approved")
            self.approved[skill.uri] = skill.digests
        raw = self.read(skill, SKILL)
        # ext-skills §Frontmatter Verification
        if frontmatter(raw) != skill.frontmatter:
            raise SkillError(
                f"{skill.uri}: the frontmatter differs from that in its entry"
            )
        return raw.decode(errors="replace")

    def read(self, skill: Skill, path: str) -> bytes:
        """Return a file of an approved skill, by its path in the skill's folder.

        ext-skills §Verification on Read: a file that differs from its entry is refused.
        """
        if self.approved.get(skill.uri) != skill.digests:
            raise SkillError(f"{skill.uri} was not approved: call load() first")
        if path not in skill.files:
            raise SkillError(f"{path!r} is not a file of {skill.uri}")
        file = skill.files[path]
        contents = self.client.read_resource(file["uri"])
        raw = _raw(contents[0]) if len(contents) == 1 else b""
        if len(raw) != file["size"] or _digest(raw) != file["digest"]:
            raise SkillError(
                f"{file['uri']} differs from its entry: call list_skills() again"
            )
        return raw


def _raw(contents: Message) -> bytes:
    """Decode contents to bytes."""
    try:
        if "text" in contents:
            return str(contents["text"]).encode()
        return base64.b64decode(str(contents.get("blob")), validate=True)
    except ValueError:
        raise SkillError("contents must be text or base64") from None
