"""A loop that fixes one error a turn goes on to the end, with the real mypy, ruff, go and tsc; one that stands still does not."""

import json
from collections.abc import Callable

import pytest
from playground import Playground, Step, answer, needs, patch, put, run
from test_typescript_project import TSCONFIG, installed

pytestmark = pytest.mark.xdist_group("progress")
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
    assert "Failures: 9 before the first iteration, 8 now, 7 at best." in project.prompt(3)
    assert project.ralph("restore", "best").code == 0
    assert project.read("a.py").count('"') == 14, "iteration 1 left seven errors; a syntax error hides the others"


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
