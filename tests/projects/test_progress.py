"""A loop that fixes one error a turn goes on to the end, with the real mypy, ruff, go and tsc; one that stands still does not."""

import json
from collections.abc import Callable

import pytest
from playground import Playground, Step, answer, needs, patch, put, run
from test_typescript_project import TSCONFIG, installed

PYTHON = "".join(f'v{n}: int = "{n}"\n' for n in range(9))
IMPORTS = "".join(f"import {name}\n" for name in ["os", "sys", "json", "re", "math", "time", "enum", "abc", "io"])
TYPESCRIPT = "".join(f'export const v{n}: number = "{n}";\n' for n in range(9))
GO = """\
package words

func Say(n int) string {
\treturn map[int]string{}[n]
}
"""
GO_TEST = """\
package words

import "testing"

func TestSay(t *testing.T) {
\tfor n := 0; n < 9; n++ {
\t\tif Say(n) == "" {
\t\t\tt.Errorf("Say(%d) says nothing", n)
\t\t}
\t}
}
"""
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")


def fix_each(change: Callable[[int], Step]) -> list[list[Step]]:
    return [[change(n), answer(f"Fixed {n}.")] for n in range(9)]


def write_mypy(_: Playground) -> tuple[str, dict[str, str], list[list[Step]]]:
    return "`mypy a.py` passes", {"a.py": PYTHON}, fix_each(lambda n: patch("a.py", f'= "{n}"', f"= {n}"))


def write_ruff(_: Playground) -> tuple[str, dict[str, str], list[list[Step]]]:
    lines = IMPORTS.splitlines(keepends=True)
    return (
        "`ruff check --no-cache .` passes",
        {"a.py": IMPORTS, "ruff.toml": 'lint.select = ["F"]\n'},
        fix_each(lambda n: put("a.py", "".join(lines[n + 1 :]))),
    )


def write_go(_: Playground) -> tuple[str, dict[str, str], list[list[Step]]]:
    needs("go")

    def words(n: int) -> Step:
        pairs = ", ".join(f'{i}: "{word}"' for i, word in enumerate(WORDS[: n + 1]))
        return put("words.go", GO.replace("{}", f"{{{pairs}}}"))

    files = {"go.mod": "module example.org/words\n\ngo 1.21\n", "words.go": GO, "words_test.go": GO_TEST}
    return "`go test ./...` passes", files, fix_each(words)


def write_tsc(project: Playground) -> tuple[str, dict[str, str], list[list[Step]]]:
    (project.root / "node_modules").symlink_to(installed())
    files = {"tsconfig.json": json.dumps(TSCONFIG), ".gitignore": "node_modules\n", "src/a.ts": TYPESCRIPT}
    turns = fix_each(lambda n: patch("src/a.ts", f'= "{n}"', f"= {n}"))
    return "`node_modules/.bin/tsc --noEmit` passes", files, turns


@pytest.mark.slow
@pytest.mark.xdist_group("typescript-project")
@pytest.mark.parametrize("write", [write_mypy, write_ruff, write_go, write_tsc], ids=["mypy", "ruff", "go", "tsc"])
def test_one_error_less_every_turn_is_progress(
    project: Playground, write: Callable[[Playground], tuple[str, dict[str, str], list[list[Step]]]]
) -> None:
    project.extra = {"GOCACHE": str(project.home / "go"), "GOFLAGS": "-mod=mod"}
    until, files, turns = write(project)
    project.write(files)
    project.commit_all()
    done = project.loop("Fix the errors", until, turns, "--max-iterations", "9")
    assert done.code == 0, done.said
    assert "Iterations: 9" in done.out
    assert "Stuck" not in done.out
    prompts = [project.prompt(number) for number in range(1, 10)]
    assert not any("Another approach" in prompt or "You are a debugger" in prompt for prompt in prompts)


@pytest.mark.slow
def test_new_errors_are_progress_until_the_limit(project: Playground) -> None:
    """Behind one error the next one shows; whether the agent only swaps them, nobody can tell."""
    names = ["os", "sys", "json", "re", "math", "time", "enum", "abc", "io", "ast", "bz2", "cmd"]
    project.write({"a.py": "import this\n", "ruff.toml": 'lint.select = ["F"]\n'})
    project.commit_all()
    turns = [[put("a.py", f"import {name}\n"), answer(f"Use {name}.")] for name in names]
    done = project.loop("Fix it", "`ruff check --no-cache .` passes", turns, "--max-iterations", "12")
    assert done.code == 3, done.said
    assert "Stuck" not in done.out


@pytest.mark.slow
def test_the_prompt_says_how_many_failures_are_left_and_best_is_the_fewest(project: Playground) -> None:
    project.write({"a.py": PYTHON})
    project.commit_all()
    turns = [
        [patch("a.py", '= "0"', "= 0"), patch("a.py", '= "1"', "= 1"), answer("Fixed two.")],
        [patch("a.py", "v0: int = 0", 'v0: int = "0"'), answer("Broke one.")],
        [put("a.py", "def f(:\n"), answer("Broke the syntax.")],
    ]
    done = project.loop("Fix the types", "`mypy a.py` passes", turns, "--max-iterations", "3")
    assert done.code == 3, done.said
    assert (
        "Failures in the output of the checks: 9 before the first iteration, 8 after the previous one, lowest so far 7."
        in project.prompt(3)
    )
    assert project.ralph("restore", "best").code == 0
    assert project.read("a.py").count('"') == 14, "iteration 1 left seven errors; a syntax error hides the others"


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize(
    ("turns", "made"),
    [
        ([[answer("Thinking.")]], 4),
        ([[put("a.txt", "a\n"), answer("A.")], [put("a.txt", "b\n"), answer("B.")]] * 5, 6),
        ([[run("date +%s%N >> log.txt"), answer("Looked.")]], 4),
    ],
    ids=["nothing changes", "back and forth", "noise"],
)
def test_no_progress_ends_after_one_pivot(project: Playground, turns: list[list[Step]], made: int) -> None:
    noise = "import os,random,time\nprint('error:', hex(random.getrandbits(64)), time.ctime(), os.getpid())\n"
    noise += "text = open('a.txt').read()\nprint('error: it has', text)\nraise SystemExit(1)\n"
    project.write({"check.py": noise, "a.txt": "first\n"})
    project.commit_all()
    done = project.loop("Fix it", "`python3 check.py` passes", turns, "--max-iterations", "12")
    assert done.code == 4, done.said
    assert len(project.journal("turn.ended")) == made
    assert "Another approach" in project.prompt(made)
    assert sum("Another approach" in project.prompt(number) for number in range(1, made + 1)) == 1


@pytest.mark.slow
def test_errors_behind_the_limit_of_go_are_progress_when_they_are_fixed(project: Playground) -> None:
    """Go prints ten errors of a package. An agent that begins at the end of the file changes none of them."""
    needs("go")
    project.extra = {"GOCACHE": str(project.home / "go"), "GOFLAGS": "-mod=mod"}
    lines = [f"var v{n:02} int = missing{n}\n" for n in range(16)]

    def fix_from(first: int) -> Step:
        return put("a.go", "package a\n\n" + "".join(lines[:first]) + f"var fixed = {first}\n")

    project.write({"go.mod": "module example.org/a\n\ngo 1.21\n", "a.go": "package a\n\n" + "".join(lines)})
    project.commit_all()
    turns = [[fix_from(n), answer(f"{n} are left.")] for n in range(15, 10, -1)] + [[fix_from(0), answer("Done.")]]
    done = project.loop("Fix the errors", "`go build ./...` passes", turns, "--max-iterations", "6")
    assert done.code == 0, done.said
    assert "Stuck" not in done.out


UNITTESTS = "import unittest\nimport a\n\n\nclass TestSteps(unittest.TestCase):\n" + "".join(
    f"    def test_{n}(self) -> None:\n        self.assertEqual(a.VALUES[{n}], {n})\n\n" for n in range(9)
)


@pytest.mark.parametrize("command", ["python3 -B -m unittest -f", pytest.param("pytest -x -q", marks=pytest.mark.slow)])
def test_a_tool_that_stops_at_the_first_failing_test_shows_progress(project: Playground, command: str) -> None:
    project.write({"a.py": f"VALUES = {[-1] * 9}\n", "test_a.py": UNITTESTS})
    project.commit_all()
    turns = fix_each(lambda n: put("a.py", f"VALUES = {[*range(n + 1), *[-1] * (8 - n)]}\n"))
    done = project.loop("Fix the values", f"`{command}` passes", turns, "--max-iterations", "9")
    assert done.code == 0, done.said
    assert "Iterations: 9" in done.out
    assert "Stuck" not in done.out


BROKEN = "def f(:\n"


NUMBERED_FILES = {
    "letters before": ("for f in step*.py; do python3 -B $f || exit 1; done", "step{}.py"),
    "directory, absolute": ("for f in $PWD/p*/x.py; do python3 -B $f || exit 1; done", "p{}/x.py"),
}
MORE_NUMBERED_FILES = {
    "hyphen, absolute": ("for f in step-*.py; do python3 -B $PWD/$f || exit 1; done", "step-{}.py"),
    "colon": ("for f in mod*.py; do python3 -B $f 2>/dev/null || { echo $f:1: error; exit 1; }; done", "mod{}.py"),
    "number alone": ("for f in [0-9]*.py; do python3 -B $f || exit 1; done", "{}.py"),
    "directory": ("for f in p*/x.py; do python3 -B $f || exit 1; done", "p{}/x.py"),
}


@pytest.mark.parametrize(
    "case", [*NUMBERED_FILES, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE_NUMBERED_FILES)]
)
@pytest.mark.slow
def test_files_that_differ_by_a_digit_are_different_places(project: Playground, case: str) -> None:
    command, name = {**NUMBERED_FILES, **MORE_NUMBERED_FILES}[case]
    project.write({name.format(n): BROKEN for n in range(6)})
    project.commit_all()
    turns = [[put(name.format(n), "x = 1\n"), answer(f"Fixed {n}.")] for n in range(6)]
    done = project.loop("Fix the syntax", f"`{command}` passes", turns, "--max-iterations", "6")
    assert done.code == 0, done.said
    assert "Stuck" not in done.out
