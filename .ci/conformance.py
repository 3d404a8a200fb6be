"""Run the official conformance suite against examples/everything_server.py: NODE SUITE.

Neither a failure nor a warning may come, and as many scenarios as expected have to say something:
one that throws leaves no verdict at all, and the suite's exit status knows nothing of warnings.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent
RUNS = [        # the suite's arguments, and how many scenarios count
    (["--suite", "all", "--spec-version", "2025-06-18"], 27),
    (["--suite", "all", "--spec-version", "2025-11-25"], 33),
    (["--suite", "all", "--spec-version", "2026-07-28"], 40),
    (["--requirements", "2025-11-25"], 30),
    (["--requirements", "2026-07-28"], 37),
]


def verdicts(node, suite, url, arguments):
    """Run the suite once: {scenario: its checks}, of those that count."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([node, suite, "server", "--url", url, *arguments, "-o", folder],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
                              text=True, check=False)
        found = {re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", path.parent.name):
                 json.loads(path.read_text(encoding="utf-8"))
                 for path in pathlib.Path(folder).glob("*/checks.json")}
    # The frozen sets bring scenarios that they do not score; they are named at the end.
    unscored = set(re.findall(r"^  \S ([\w-]+) \((?:extension|pending|added-after-release)\)",
                              done.stdout.partition("Not scored for ")[2], re.MULTILINE))
    return {name: checks for name, checks in found.items() if name not in unscored}, done


def main(node, suite):
    """Start the server on a free port, run it all, stop the server."""
    command = [sys.executable, str(HERE / "examples/everything_server.py"), "--http", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    bad = 0
    try:
        url = re.search(r"http://\S+", server.stderr.readline())[0]
        for arguments, expected in RUNS:
            scenarios, done = verdicts(node, suite, url, arguments)
            count = collections.Counter(
                check["status"] for checks in scenarios.values() for check in checks)
            print(*arguments, f"{len(scenarios)} of {expected} scenarios", dict(count), flush=True)
            flaws = [f"  {name}: {check['status']} {check['id']}: {check.get('errorMessage')}"
                     for name, checks in scenarios.items() for check in checks
                     if check["status"] not in ("SUCCESS", "INFO", "SKIPPED")]
            bad += len(flaws) + (len(scenarios) != expected)
            print(*flaws, *[done.stdout] * (len(scenarios) != expected), sep="\n", end="")
        assert server.poll() is None, "the server is gone"
    finally:
        server.terminate()
        said = server.communicate()[1]
        print(*[f"The server said: {said}"] * bool(bad))
    return 1 if bad or server.returncode else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
