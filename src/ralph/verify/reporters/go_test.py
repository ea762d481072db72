"""`go test` with a report: started in place of `go` by checks, which find it first on the PATH.

usage: go_test.py REAL_GO DIRECTORY test ARGUMENTS...

It runs `go test -json`, keeps the events in a file of DIRECTORY, and prints what `go test` prints without `-json`. Standard
library only, since it runs with the interpreter of Ralph in the environment of the check.
"""

import json
import os
import re
import subprocess
import sys
from typing import Any, TextIO

_PRINTS_NO_EVENTS = re.compile(r"--?(?:c|h|help|list|n|x|exec)(?:=.*)?$")
"""Options with which `go test` runs no tests, or starts another program that prints what it wants."""
_JSON = re.compile(r"--?json(?:=.*)?$")
_PRINTS_ALL = re.compile(r"--?(?:test\.)?(?:v|bench|fuzz)(?:=.*)?$")
_FAILED = "--- FAIL: "
_FRAME = re.compile(r"=== (?:RUN|PAUSE|CONT|NAME|ATTR)\b")


def main(arguments: list[str]) -> int:
    """Run `go test`. The exit code is its own."""
    real, directory, *rest = arguments
    options = rest[1 : rest.index("-args")] if "-args" in rest else rest[1:]
    if any(_PRINTS_NO_EVENTS.match(option) for option in options):
        os.execv(real, [real, *rest])
    wants_events = any(_JSON.match(option) for option in options)
    command = [real, *rest] if wants_events else [real, rest[0], "-json", *rest[1:]]
    printer = Printer(sys.stdout, prints_all=any(_PRINTS_ALL.match(option) for option in options))
    with (
        open(os.path.join(directory, f"go-{os.getpid()}.jsonl"), "w", encoding="utf-8") as report,
        subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", errors="replace") as process,
    ):
        for line in process.stdout or ():
            event = read_event(line)
            if event is not None and event["Action"] != "output":
                report.write(line)
            if wants_events or event is None:
                sys.stdout.write(line)
            else:
                printer.print_event(event)
            sys.stdout.flush()
        printer.print_rest()
    return process.returncode


def read_event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return event if isinstance(event, dict) and "Action" in event else None


class Printer:
    """Prints events as `go test` prints its results: all of them with -v, else what failed, and a line for each package."""

    def __init__(self, out: TextIO, *, prints_all: bool) -> None:
        self._out = out
        self._prints_all = prints_all
        self._held: dict[str, list[tuple[str, str]]] = {}
        """The output of packages that have not ended, by package: the test, and what it printed."""

    def print_event(self, event: dict[str, Any]) -> None:
        action, output = event["Action"], str(event.get("Output", ""))
        package, test = str(event.get("Package", "")), str(event.get("Test", ""))
        if action == "build-output" or (action == "output" and (self._prints_all or not package)):
            self._out.write(output)
        elif action == "output":
            self._held.setdefault(package, []).append((test, output))
        elif not test and action in ("pass", "fail", "skip"):
            self._print_package(package, passed=action != "fail")

    def print_rest(self) -> None:
        """Print what packages said that never ended."""
        for package in list(self._held):
            self._print_package(package, passed=False)

    def _print_package(self, package: str, *, passed: bool) -> None:
        held = self._held.pop(package, [])
        failed = {test for test, output in held if output.lstrip().startswith(_FAILED)}
        if self._is_unexplained(failed, passed=passed):
            for _, output in held:
                self._out.write("" if _FRAME.match(output) else output)
            return
        for test in sorted(failed):
            self._print_failed(test, [output for other, output in held if other == test])
        for test, output in held:
            is_wanted = not test or test.startswith("Benchmark")
            if is_wanted and not _FRAME.match(output) and not (passed and output == "PASS\n"):
                self._out.write(output)

    @staticmethod
    def _is_unexplained(failed: set[str], *, passed: bool) -> bool:
        """Whether a package failed and no test did: after a panic or an exit, nobody knows which test is to blame."""
        return not passed and not failed

    def _print_failed(self, test: str, outputs: list[str]) -> None:
        """Print a failed test: its line first, then what it printed, indented like the tests around it."""
        indent = "    " * test.count("/")
        ends = [output for output in outputs if output.lstrip().startswith(_FAILED)]
        for output in [*ends, *(output for output in outputs if output not in ends and not _FRAME.match(output))]:
            self._out.write(indent + output.lstrip() if output in ends else indent + output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
