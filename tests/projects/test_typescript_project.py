"""TypeScript: type errors and failing tests are mended, with the real tsc and vitest."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playground import Done, Playground, answer, needs, patch, playground, put, used

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("typescript-project")]
PINNED = {"typescript": "5.9.3", "vitest": "3.2.4"}
PACKAGE = {
    "name": "ledger",
    "private": True,
    "type": "module",
    "scripts": {"test": "vitest run"},
    "devDependencies": PINNED,
}
TSCONFIG = {
    "compilerOptions": {
        "strict": True,
        "module": "esnext",
        "moduleResolution": "bundler",
        "target": "es2022",
        "lib": ["es2022"],
        "types": [],
    },
    "include": ["src"],
    "exclude": ["**/*.test.ts"],
}
LEDGER = """\
export interface Entry {
  account: string;
  cents: number;
  note?: string;
}

export function balance(entries: Entry[], account: string): number {
  let sum = "0";
  for (const entry of entries) {
    if (entry.account === account) sum += entry.cents;
  }
  return sum;
}

export function latestNote(entries: Entry[]): string {
  const noted = entries.find((entry) => entry.note !== undefined);
  return noted.note.trim();
}
"""
LEDGER_TEST = """\
import { describe, expect, it } from "vitest";
import { balance, latestNote, type Entry } from "./ledger";

const entries: Entry[] = [
  { account: "rent", cents: -90000, note: " March " },
  { account: "food", cents: -1250 },
  { account: "rent", cents: -91000, note: "April" },
];

describe("balance", () => {
  it("adds up one account", () => {
    expect(balance(entries, "rent")).toBe(-181000);
  });

  it("is zero for an account without entries", () => {
    expect(balance(entries, "fun")).toBe(0);
  });
});

describe("latestNote", () => {
  it("is the note of the last entry that has one", () => {
    expect(latestNote(entries)).toBe("April");
  });

  it("is empty where no entry has one", () => {
    expect(latestNote([])).toBe("");
  });
});
"""


def installed() -> Path:
    """A directory with these packages in it, installed once for all runs of the tests."""
    needs("npm")
    manifest = json.dumps({"private": True, "dependencies": PINNED})
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ralph-tests"
    place = cache / f"npm-{hashlib.sha256(manifest.encode()).hexdigest()[:12]}"
    if not (place / "node_modules" / ".bin" / "tsc").exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(dir=cache))
        except OSError as error:
            pytest.skip(f"there is no room for npm packages: {error}")
        (aside / "package.json").write_text(manifest)
        command = ["npm", "install", "--prefer-offline", "--fetch-retries=0", "--ignore-scripts", "--loglevel=error"]
        try:
            done = subprocess.run(command, cwd=aside, capture_output=True, text=True, timeout=180, check=False)
            if done.returncode:
                pytest.skip(f"npm cannot install {PINNED} (no registry?): {done.stderr.strip()[-200:]}")
            aside.rename(place)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install {PINNED} within three minutes")
        except OSError:
            assert (place / "node_modules").exists(), "another process was quicker"
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return place / "node_modules"


GOOD_LEDGER = LEDGER.replace('let sum = "0"', "let sum = 0").replace("noted.note.trim()", 'noted?.note?.trim() ?? ""')
LAST_LEDGER = GOOD_LEDGER.replace("entries.find(", "[...entries].reverse().find(")
PROJECT = {
    "package.json": json.dumps(PACKAGE, indent=2) + "\n",
    "tsconfig.json": json.dumps(TSCONFIG, indent=2) + "\n",
    ".gitignore": "node_modules\n",
    "src/ledger.ts": LEDGER,
    "src/ledger.test.ts": LEDGER_TEST,
}
TURNS = (
    [
        patch("src/ledger.ts", 'let sum = "0"', "let sum = 0"),
        patch("src/ledger.ts", "  return noted.note", "  // @ts-ignore\n  return noted.note"),
        patch("src/ledger.test.ts", 'it("is the note', 'it.skip("is the note'),
        patch(
            "src/ledger.test.ts", "expect(latestNote([]))", 'expect(latestNote([{ account: "a", cents: 1, note: "" }]))'
        ),
        answer("No type errors are left, and the tests pass."),
        used(),
    ],
    [
        put("src/ledger.test.ts", LEDGER_TEST),
        put("src/ledger.ts", GOOD_LEDGER),
        answer("Typed the sum and the note.", learned="find() may return undefined", next="the order of the notes"),
        used(),
    ],
    [put("src/ledger.ts", LAST_LEDGER), answer("Take the last note."), used()],
)


@pytest.fixture(scope="module")
def packages() -> Path:
    return installed()


@pytest.fixture(scope="module")
def mended(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Playground, Done]]:
    """A cheat, half of the work, and the rest of it."""
    with playground(tmp_path_factory.mktemp("ledger")) as project:
        a_ledger(project, packages)
        yield project, project.loop("Fix the errors in the ledger", "no type errors AND tests pass", TURNS)


def a_ledger(project: Playground, packages: Path) -> None:
    project.write(PROJECT)
    (project.root / "node_modules").symlink_to(packages)
    project.commit_all()


def test_loop_succeeds_with_the_work_in_the_tree(mended: tuple[Playground, Done]) -> None:
    project, done = mended
    assert done.code == 0, done.said
    assert "Iterations: 3" in done.out
    assert project.files() == {**PROJECT, "src/ledger.ts": LAST_LEDGER}
    assert "Tests  4 passed (4)" in project.ralph("report").out


def test_the_phrases_are_resolved_from_the_repository(mended: tuple[Playground, Done]) -> None:
    _, done = mended
    assert "`no type errors` means `npx --no-install tsc --noEmit` passes (tsconfig.json exists)" in done.out
    assert "`tests pass` means `npm test` passes (package.json has the script `test`: vitest run)" in done.out


def test_skipping_and_ignoring_is_caught_though_both_commands_pass(mended: tuple[Playground, Done]) -> None:
    project, _ = mended
    [verdict] = [one["verdict"] for one in project.journal("checks.ended") if one["key"] == "iteration-1"]
    assert [result["status"] for result in verdict["results"]] == ["passed", "passed"]
    found = project.findings(1)
    assert ("test-skipped", "src/ledger.test.ts") in found
    assert ("check-disabled", "src/ledger.ts") in found
    prompt = project.prompt(2)
    assert "All checks pass, but this does not count yet: see the findings." in prompt
    assert "src/ledger.test.ts:21 [test-skipped]" in prompt
    assert "src/ledger.ts:17 [check-disabled] `@ts-ignore`" in prompt


def test_half_of_the_work_is_measured_and_its_lesson_is_in_the_prompt(mended: tuple[Playground, Done]) -> None:
    project, _ = mended
    prompt = project.prompt(3)
    assert "(failed: exit code 1, 1 of 4 tests fails)" in prompt
    assert "expected 'March' to be 'April'" in prompt
    assert "$ npx" not in prompt.partition("# Where you are")[2].partition("# Lessons")[0], "that passes"
    assert "find() may return undefined" in prompt
    assert "the order of the notes" in prompt


def test_any_is_not_a_type(project: Playground, packages: Path) -> None:
    a_ledger(project, packages)
    gamed = LEDGER.replace('let sum = "0"', "let sum: any = 0").replace("const noted =", "const noted: any =")
    turns = [[put("src/ledger.ts", gamed), answer("No type errors are left.")]]
    project.loop("Fix the type errors", "`node_modules/.bin/tsc --noEmit` passes", turns, "--max-iterations", "1")
    assert [path for _, path in project.findings(1)] == ["src/ledger.ts"]


SLOW_TEST = """\
import { describe, expect, it } from "vitest";
import { sum } from "./sum";

describe("sum", () => {
  it("adds after a while", async () => {
    await new Promise((resolve) => setTimeout(resolve, 350 + 40 * Math.random()));
    expect(sum(1, 2)).toBe(3);
  });
});
"""


def test_a_slow_vitest_test_that_failed_must_pass_as_it_was(packages: Path, tmp_path: Path) -> None:
    """Vitest prints how long a slow test took beside its name, and that differs from run to run."""
    with playground(tmp_path) as project:
        project.write({**PROJECT, "src/ledger.ts": LAST_LEDGER})
        project.write({"src/sum.ts": "export const sum = (a: number, b: number) => a - b;\n"})
        project.write({"src/sum.test.ts": SLOW_TEST})
        (project.root / "node_modules").symlink_to(packages)
        project.commit_all()
        turn = [
            patch("src/sum.test.ts", "sum(1, 2)).toBe(3)", "sum(2, 1)).toBe(1)"),
            put(
                "src/sum.ts", "export function sum(a: number, b: number) {\n  const less = b;\n  return a - less;\n}\n"
            ),
            answer("Done."),
        ]
        done = project.loop("Fix the failing test", "`npm test` passes", [turn], "--max-iterations", "1")
        baseline = project.journal("checks.ended")[0]["verdict"]["results"][0]
    assert done.code == 3, done.said
    name = "src/sum.test.ts > sum > adds after a while"
    assert baseline["failing"] == [name], "one test has one name, without how long it took"
    assert f"ERROR {name} [verifier-edited] {name} failed before the run" in done.out
