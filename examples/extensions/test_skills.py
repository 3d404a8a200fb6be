"""Tests of skills.py: frontmatter, the server's half, and the host's."""

from __future__ import annotations

import hashlib
import json
import re
import time
import types
from pathlib import Path
from typing import Any

import pytest
import skills
from testing.scripts import (
    PATIENCE,
    POSIX,
    Context,
    client,
    differences,
    mcp,
    parametrize,
)

FOLDER = """a a/x~y.md a/p.png a/q.zzz a/in a/.env a/.git/z.md .h b/c big big/1.md link o.md UP many
    many/1.x many/2.x many/3.x many/4.x many/5.x no/SKILL.md no2/SKILL.md/x.md"""
STRANGERS = "a/.env o.md a/../o.md a/%2e%2e/o.md a /etc/passwd link/x many/1.x"
BAD_YAML = (
    "3 a: b\na: c|2 a: b: c|2 a: b:|2 a: [b]|3 x: 1\na: {b: c}|2 a: &b|2 a: *b|2 a: !b|2 a: 'b|"
    '2 a: "b|2 a: "\\x41"|2 a: \'b\' c|2 a: - b|2 a: -|2 a: ? b|2 a: @b|2 a: %b|2 a: `b`|2 - a|'
    "2 a|2 a:b|3 x: 1\na: >\n  b\n   c|2 a: >+\n  b|2 a: b\n  c|2   a: b\nb: c|2 \ta: b|"
    "3 a:\n  b: c\n   d: e|3 a:\n  b:\n    c: d|4 a:\n  b: c\n  - d|4 a:\n  b: 1\n  c: [2]"
)
DO_IT = "---\nname: %s\ndescription: Do it\n---\n# Body"
LINES = [
    {
        "uri": "skill://x/do/" + path,
        "size": len(raw),
        "digest": "sha256:" + hashlib.sha256(raw).hexdigest(),
    }
    for path, raw in (("SKILL.md", (DO_IT % "do").encode()), ("a.bin", b"\xff"))
]
HEADER = {"name": "do", "description": "Do it"}
ENTRY: dict[str, Any] = {
    "uri": "skill://x/do/SKILL.md",
    "frontmatter": HEADER,
    "resources": LINES,
}
NAMES = ["a.bin", "do/../a", "do/%2e%2e/a", "do/b%5C..%5Ca", "do/", "do/a//b"]
BAD_FRONTMATTER: list[Any] = [
    ("name", "x"),
    ("description", " "),
    ("description", "x" * 1025),
]
BAD_FRONTMATTER += [("description", None)]
BAD_LINES = [("size", -1), ("size", "1"), ("size", 2**24), ("digest", "sha256:00")]
BAD_LINES += [("uri", "skill://x/" + path) for path in NAMES]
CHANGES: list[dict[str, Any]] = [
    {"uri": "skill://x/other/SKILL.md"},
    {"uri": "skill://x/do/a.bin"},
    {"frontmatter": None},
    *({"frontmatter": {**HEADER, key: value}} for key, value in BAD_FRONTMATTER),
    {"resources": "dynamic"},
    {"resources": LINES[1:]},
    {"resources": [*LINES, LINES[1]]},
    {"resources": [*LINES, 3]},
    *({"resources": [LINES[0], {**LINES[1], key: value}]} for key, value in BAD_LINES),
]
BAD_ENTRIES: list[Any] = [3, *({**ENTRY, **change} for change in CHANGES)]


@parametrize(
    "text, value",
    [
        (
            "a: b c  # x\n# y\n\nb-c.d_1: http://x/#y",
            {"a": "b c", "b-c.d_1": "http://x/#y"},
        ),
        ("a: 1\nb: -2.5\nc: True", {"a": 1, "b": -2.5, "c": True}),
        ("d: null\ne:\ni: # x", {"d": None, "e": None, "i": None}),
        ("f: '1'\ng: yes", {"f": "1", "g": "yes"}),
        (
            "a: 'it''s: #x' # y\nb: \"q\\\"\\n: #\"  # z\nc: a-b, c]",
            {"a": "it's: #x", "b": 'q"\n: #', "c": "a-b, c]"},
        ),
        (
            "a: |\n  x\n    y\n\n  # z\n\nb: |- # c\n    x\n    y\nc: |\nd: e",
            {"a": "x\n  y\n\n# z\n", "b": "x\ny", "c": "", "d": "e"},
        ),
        (
            "a: >\n  x\n  y\n\n  z\n\n\n  w\nm: # c\n  a: 1\n  # c\n  b: >-\n    x\n    y\n\n  c: d\nn: o",
            {"a": "x y\nz\n\nw\n", "m": {"a": 1, "b": "x y", "c": "d"}, "n": "o"},
        ),
        *[(case[2:], int(case[0])) for case in BAD_YAML.split("|")],
    ],
)
def test_frontmatter_is_read_or_refused_with_its_line(text, value):
    for newline in ("\n", "\r\n"):
        raw = f"\ufeff---  \n{text}\n---\nbody\n---\n: x".replace(
            "\n", newline
        ).encode()
        if isinstance(value, dict):
            assert json.dumps(skills.frontmatter(raw)) == json.dumps(value)
            continue
        not_text = b"---\n\xff: b\n---\n"
        for bad in (raw, b"a: b", b"---\na: b\n", b"\n" + raw[3:], not_text):
            with pytest.raises(
                skills.SkillError, match=f"^line {value if bad == raw else 1}: "
            ):
                skills.frontmatter(bad)


def write_folder(top: Path):
    """Write the files of FOLDER; what has no suffix is a skill."""
    for path in FOLDER.split():
        name = path.rpartition("/")[2]
        file = top / path.replace("~", " ") / ("" if "." in name else "SKILL.md")
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "x" * 99 if "1.md" in path else "text" if "." in name else DO_IT % name
        file.write_bytes(text.encode())
    (top / "a" / "p.png").write_bytes(b"\xff\x00")
    (top / "link" / "x").symlink_to(top / "o.md")


def test_skills_are_served(tmp_path, monkeypatch, capsys):
    write_folder(tmp_path)
    if not (tmp_path / "link" / "x").is_symlink():
        pytest.skip("Wine reports that it has made a symbolic link, and makes none")
    monkeypatch.setattr(skills, "MAX_FILES", 5)
    monkeypatch.setattr(skills, "MAX_BYTES", 110)
    server = mcp.Server("skills")
    entries = skills.serve_skills(
        server, tmp_path, tmp_path / "b" / "c", tmp_path / "a"
    )
    assert [one["uri"][8:-9] for one in entries] == ["a", "a/in", "b/c", "c"]
    refused = re.findall(r"(\w+).SKILL.md is not served", capsys.readouterr().err)
    assert " ".join(refused) == "UP big link many no no2 a in"
    files = ["SKILL.md", "in/SKILL.md", "p.png", "q.zzz", "x%20y.md"]
    assert [one["uri"][10:] for one in entries[0]["resources"]] == files
    with client.connect(server) as host:
        assert not differences(
            {"skills": entries, "ttlMs": 0, "cacheScope": "private"},
            host.request("skills/list"),
        )
        assert (
            host.request("skills/get", {"uri": "skill://a/in/SKILL.md"})["skill"]
            == entries[1]
        )
        about = {"name": "in", "description": "Do it", "mimeType": "text/markdown"}
        assert not differences([{}, about, {}, {}], host.list_resources())
        for path, kind, member, content in (
            ("x%20y.md", "text/markdown", "text", "text"),
            ("q.zzz", "*", "text", "text"),
            ("p.png", "image/png", "blob", "/wA="),
            ("SKILL.md", "*", "text", DO_IT % "a"),
        ):
            assert not differences(
                [{"mimeType": kind, member: content}],
                host.read_resource("skill://a/" + path),
            )
        for uri in STRANGERS.split():
            for method in ("resources/read", "skills/get"):
                with pytest.raises(mcp.RpcError) as raised:
                    host.request(method, {"uri": "skill://" + uri})
                assert raised.value.code == -32602


@parametrize("size, fits", [(60_000, True), (66_000, False)])
@parametrize("line", ["k{}: x\n", "# x{}\n"])
def test_frontmatter_has_an_end_in_bytes(size, fits, line):
    count = size // len(line.format(10_000))
    lines = "".join(map(line.format, range(10_000, 10_000 + count)))
    raw = f"---\n{lines}---\n{'text' * 99_999}".encode()
    if fits:
        assert isinstance(skills.frontmatter(raw), dict)
    else:
        with pytest.raises(skills.SkillError, match="at most"):
            skills.frontmatter(raw)


def test_frontmatter_takes_no_time_whatever_a_server_writes():
    start, spaces = time.monotonic(), " " * 30_000  # quadratic: a minute
    assert skills.frontmatter(f"---\na: x{spaces}y{spaces}\n---".encode()) == {
        "a": f"x{spaces}y"
    }
    assert time.monotonic() - start < PATIENCE


@parametrize("page", [{"skills": 3}, {"skills": [], "x": "x" * 100, "nextCursor": ""}])
def test_a_list_of_skills_has_an_end(page, monkeypatch):
    monkeypatch.setattr(skills, "MAX_LIST_BYTES", 1000)
    server = mcp.Server("endless")
    server.method("skills/list", extension=skills.EXTENSION)(lambda params: page)
    with client.connect(server) as connected, pytest.raises(client.Malformed):
        skills.Skills(connected, "docs", bool).list_skills()


def test_a_list_of_skills_may_have_numbers_that_we_would_not_send():
    page = {"skills": [], "x": float("inf")}
    peer = types.SimpleNamespace(capabilities={"extensions": {skills.EXTENSION: {}}})
    peer.request = lambda method, params: page
    assert skills.Skills(peer, "docs", bool).list_skills() == []


def test_skills_need_a_folder(tmp_path):
    with pytest.raises(ValueError, match="folder"):
        skills.serve_skills(mcp.Server("s"), tmp_path / "nowhere")


def test_a_host_needs_a_server_with_skills():
    with (
        client.connect(mcp.Server("none")) as connected,
        pytest.raises(client.ServerLacks, match="docs"),
    ):
        skills.Skills(connected, "docs", bool).list_skills()


def test_a_host_uses_only_what_was_approved_and_verified():
    server, asked, said, text = mcp.Server("played"), [], [True], DO_IT % "do"
    contents = {"SKILL.md": {"text": text}, "a.bin": {"blob": "/w=="}}
    entries = [ENTRY, *BAD_ENTRIES]

    @server.method("skills/list", extension=skills.EXTENSION)
    def pages(params):
        n = int(params.get("cursor") or 0)
        return {
            "skills": entries[n : n + 9],
            "nextCursor": str(n + 9) if entries[n + 9 :] else None,
        }

    @server.resource("skill://{+path}")
    def read(path: str, ctx: Context):
        asked.append(path)
        return {"uri": ctx.params["uri"], **contents[path[5:]]}

    with client.connect(server) as connected:
        host = skills.Skills(
            connected, "docs", lambda skill: said.append(skill.uri) or said[0]
        )
        (skill,) = host.list_skills()
        assert len(host.refused) == len(BAD_ENTRIES) and not asked
        for path, why in (("a.bin", "not approved"), ("b", "not a file")):
            with pytest.raises(skills.SkillError, match=why):
                host.read(skill, path)
            assert host.load(skill) == text and host.read(skill, "a.bin") == b"\xff"
        assert said == [True, skill.uri]  # asked once
        for path, wrong in (
            ("SKILL.md", {"text": text + "!"}),
            ("a.bin", {"blob": "/g=="}),
            ("SKILL.md", {"text": "x" * len(text)}),
            ("a.bin", {"blob": "/"}),
        ):
            with (
                pytest.raises(skills.SkillError),
                pytest.MonkeyPatch.context() as patch,
            ):
                patch.setitem(contents, path, wrong)
                host.read(skill, path)
        for answer, change, why in (
            (True, {"frontmatter": {**HEADER, "x": 1}}, "frontmatter"),
            (False, {"resources": LINES[:1]}, "docs"),
        ):
            entries[0], said[0] = {**ENTRY, **change}, answer
            with pytest.raises(skills.SkillError, match=why):
                host.load(*host.list_skills())


MISREAD = [
    "con",
    "nul.txt",
    "a/COM1.md",
    "a:b",
    "a.",
    "a ",
    "a*b",
    "a|b",
    "<a>",
    "a /b",
]
MISREAD += ["\x1b[2Ja", "a\u202etxt.exe", "a\nb", "x" * 256, "lpt²", 'a"b', "a?"]


@parametrize("path", MISREAD, ids=ascii)
def test_names_that_some_system_misreads_are_refused(path, tmp_path, capsys):
    """On both sides: a server does not serve them, a host does not take them."""
    from urllib.parse import quote

    with pytest.raises(skills.SkillError, match="not a name on every system") as caught:
        other = {**LINES[1], "uri": "skill://x/do/" + quote(path)}
        skills.Skill({**ENTRY, "resources": [LINES[0], other]})
    assert str(caught.value).isprintable()
    if not POSIX or len(path) > 255:
        return
    file = tmp_path / "do" / path
    file.parent.mkdir(parents=True)
    file.write_text("x")
    (tmp_path / "do" / "SKILL.md").write_text(DO_IT % "do")
    assert skills.serve_skills(mcp.Server("s"), tmp_path) == []
    assert "not a name on every system" in capsys.readouterr().err


@parametrize("name", ["con", "nul", "com1"])
def test_a_skill_is_not_named_like_a_device(name):
    uri = f"skill://x/{name}/SKILL.md"
    lines = [{**LINES[0], "uri": uri}]
    entry = {"uri": uri, "frontmatter": {**HEADER, "name": name}, "resources": lines}
    with pytest.raises(skills.SkillError, match="not a name on every system"):
        skills.Skill(entry)


def test_what_a_user_is_shown_of_a_skill_is_printable():
    strange = "skill://\x1b[2J/do/"
    lines = [{**one, "uri": strange + one["uri"][13:]} for one in LINES]
    with pytest.raises(skills.SkillError, match="printable"):
        skills.Skill({**ENTRY, "uri": strange + "SKILL.md", "resources": lines})


@parametrize(
    "first, second",
    [
        ("a.bin", "A.BIN"),
        ("caf%C3%A9", "cafe%CC%81"),  # macOS takes these for one name
        ("%C3%89/x", "e%CC%81/x"),
    ],
)
def test_files_that_have_one_name_on_some_system_are_refused(first, second):
    names = [LINES[0]["uri"][13:], first, second]
    lines = [{**LINES[0], "uri": "skill://x/do/" + name} for name in names]
    lines[0] = LINES[0]
    with pytest.raises(skills.SkillError, match="one name"):
        skills.Skill({**ENTRY, "resources": lines})


def test_a_skill_whose_files_have_one_name_is_not_served(tmp_path, capsys):
    folder = tmp_path / "do"
    folder.mkdir()
    (folder / "SKILL.md").write_text(DO_IT % "do")
    for name in ("caf\u00e9", "cafe\u0301"):
        (folder / name).write_text("x")
    if len(list(folder.iterdir())) < 3:
        pytest.skip("this system takes them for one")
    assert skills.serve_skills(mcp.Server("s"), tmp_path) == []
    assert "one name" in capsys.readouterr().err


def test_the_reasons_that_are_kept_are_bounded():
    server = mcp.Server("refused")
    wide = {"name": "x" * 10_000, "description": "d"}
    entries = [{**ENTRY, "frontmatter": wide}] * 200
    page = {"skills": entries}
    server.method("skills/list", extension=skills.EXTENSION)(lambda params: page)
    with client.connect(server) as connected:
        host = skills.Skills(connected, "docs", bool)
        for _ in range(2):
            assert host.list_skills() == []
            assert len(host.refused) == skills.MAX_REFUSED
            assert max(map(len, host.refused)) < 500


@parametrize("path", ["a.txt", "Ünï/日本.md", "a b.c", "consul.md", "com10", "x" * 255])
def test_other_names_are_taken(path):
    skills.check_path(path)
