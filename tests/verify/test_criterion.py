"""The user's sentence: which checks it asks for, and how it is refused where nothing can verify it."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Check, Measure
from ralph.core.errors import UsageError
from ralph.verify.criterion import Criterion, compile_criterion

ANYWHERE = Path("/nonexistent")


def compiled(text: str, root: Path = ANYWHERE) -> Criterion:
    return compile_criterion(text, 60.0, root)


def commands(text: str, root: Path = ANYWHERE) -> list[str]:
    return [check.command for check in compiled(text, root).checks]


def refusal(text: str, root: Path = ANYWHERE) -> UsageError:
    with pytest.raises(UsageError) as caught:
        compiled(text, root)
    return caught.value


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, and a PATH with some programs."""
    programs = tmp_path / "path"
    programs.mkdir()
    for name in (
        "pytest",
        "grep",
        "npm",
        "make",
        "test",
        "time",
        "find",
        "go",
        "python3",
        "node",
        "docker",
        "cargo",
        "coverage",
        "git",
        "ruff",
    ):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    root = tmp_path / "repo"
    (root / "tests").mkdir(parents=True)
    (root / "check.sh").write_text("#!/bin/sh\n")
    (root / "check.sh").chmod(0o755)
    (root / "plain.sh").write_text("exit 0\n")
    (root / "tests" / "test_a.py").write_text("def test_a(): pass\n")
    (root / "Makefile").write_text(".PHONY: test\ntest: build\n\tpytest\nbuild deploy:\n\ttrue\nX := 1\n")
    return root


class TestCommands:
    @pytest.mark.parametrize(
        "text",
        [
            "`pytest -q`",
            "`pytest -q` passes",
            "`pytest -q` pass",
            "`pytest -q` PASSES",
            "`pytest -q`passes",
            "  `pytest -q`   succeeds ",
            "`pytest -q` is green",
            "`pytest -q` exits 0",
            "`pytest -q` exits with 0",
            "`pytest -q` exits with code 0",
            "`pytest -q` returns 0",
            "`pytest -q` passes with 0 failures",
            "` pytest -q `",
            "`pytest -q`\n passes",
        ],
    )
    def test_a_command_in_backticks_must_exit_with_0(self, text: str) -> None:
        assert compiled(text) == Criterion("`pytest -q` passes", (Check("pytest -q", 60.0),))

    @pytest.mark.parametrize("words", ["prints nothing", "has no output", "is silent", "Prints Nothing"])
    def test_a_command_may_have_to_print_nothing(self, words: str) -> None:
        assert compiled(f"`gofmt -l .` {words}").checks == (Check("gofmt -l .", 60.0, silent=True),)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("`a` AND `b`", ["a", "b"]),
            ("`a` passes AND `b` exits 0 AND `c`", ["a", "b", "c"]),
            ("`a`\nAND\n`b`", ["a", "b"]),
            ("`make AND break` AND `b`", ["make AND break", "b"]),
            ("`grep ' AND ' x` passes", ["grep ' AND ' x"]),
            ("`a` AND `a`", ["a", "a"]),
            ("`a` and `b`", ["a", "b"]),
            ("`a` and `b` pass", ["a", "b"]),
            ("`a` passes, `b` passes, and `c, d`", ["a", "b", "c, d"]),
            ("`a and b` AND `c` passes and `d`", ["a and b", "c", "d"]),
        ],
    )
    def test_and_joins_commands_and_belongs_to_them_inside_backticks(self, text: str, expected: list[str]) -> None:
        assert commands(text) == expected

    @pytest.mark.parametrize(
        "command",
        ["test -f a && ! grep -q TODO a", "python -c 'import sys; sys.exit(0)'", "a | b > c", "echo $(x)", "日本"],
    )
    def test_a_command_is_kept_as_its_author_wrote_it(self, command: str) -> None:
        assert commands(f"`{command}` passes") == [command]

    @pytest.mark.parametrize(
        ("command", "note"),
        [
            ("npm test | grep pass", "its exit code is that of grep"),
            ("pytest -q || true", "always exits with 0"),
            ("pytest -q; exit 0", "always exits with 0"),
            ("a || b", ""),
            ("grep 'a|b' c", ""),
            ("pytest -q", ""),
        ],
    )
    def test_command_that_hides_failures_gets_a_note(self, command: str, note: str) -> None:
        notes = compiled(f"`{command}` passes").notes
        assert note in notes[0] if note else not notes


class TestBareCommands:
    @pytest.mark.parametrize(
        ("text", "command"),
        [
            ("pytest", "pytest"),
            ("pytest -q", "pytest -q"),
            ("pytest -q passes", "pytest -q"),
            ("pytest passes with 0 failures", "pytest"),
            ("pytest tests", "pytest tests"),
            ("npm test passes", "npm test"),
            ("npm test", "npm test"),
            ("npm run test:unit is green", "npm run test:unit"),
            ("./check.sh", "./check.sh"),
            ("./check.sh exits 0", "./check.sh"),
            ("make test", "make test"),
            ("make deploy passes", "make deploy"),
            ("make all", "make all"),
            ("make", "make"),
            ("make lint", "make lint"),
            ("go test ./...", "go test ./..."),
            ("go build succeeds", "go build"),
            ("cargo test", "cargo test"),
            ("CI=1 pytest -q", "CI=1 pytest -q"),
            ("! pytest -q", "! pytest -q"),
            ("test -f check.sh", "test -f check.sh"),
            ("cd tests && pytest", "cd tests && pytest"),
            ("python3 -m pytest", "python3 -m pytest"),
            ("ruff check", "ruff check"),
            ("pytest -k x, -q", "pytest -k x, -q"),
            ("npm test && npm run lint", "npm test && npm run lint"),
            ("coverage report --fail-under=80", "coverage report --fail-under=80"),
            ('pytest -k "this AND that"', 'pytest -k "this AND that"'),
            ("grep -q done check.sh", "grep -q done check.sh"),
            ("! grep -rq the tests", "! grep -rq the tests"),
            ("cargo clippy --all-targets -- -D warnings passes", "cargo clippy --all-targets -- -D warnings"),
            ("test -f ready", "test -f ready"),
        ],
    )
    def test_clear_command_needs_no_backticks(self, repo: Path, text: str, command: str) -> None:
        assert compiled(text, repo).checks == (Check(command, 60.0),)

    def test_bare_commands_are_joined_by_and(self, repo: Path) -> None:
        assert commands("pytest -q passes AND npm test and ./check.sh", repo) == ["pytest -q", "npm test", "./check.sh"]

    @pytest.mark.parametrize(
        "text",
        [
            "make the tests green",
            "make it work",
            "make everything faster",
            "test coverage is good",
            "test everything",
            "time is short",
            "find all bugs",
            "find bugs",
            "go faster",
            "go and fix it",
            "python3 code is clean",
            "python3 script runs",
            "node app starts",
            "docker image builds",
            "git history is clean",
            "npm works",
            "check.sh",
            "./missing.sh",
            "flawless code",
            "pytest -q\nmore",
        ],
    )
    def test_sentences_do_not_become_commands(self, repo: Path, text: str) -> None:
        assert "`" in refusal(text, repo).todo

    @pytest.mark.parametrize(
        ("text", "rewrite"),
        [
            ("npm test works", "'`npm test` passes'"),
            ("make the tests green", "'`make test` passes'"),
            ("find all bugs", "'`make test` passes'"),
            ("docker compose up", "'`docker compose up` passes'"),
            ("'docker ps' passes", "'`docker ps` passes'"),
            ("./missing.sh is green", "'`./missing.sh` passes'"),
            ("check.sh passes", "'`./check.sh` passes'"),
        ],
    )
    def test_unclear_command_is_refused_with_a_rewrite(self, repo: Path, text: str, rewrite: str) -> None:
        assert rewrite in refusal(text, repo).todo


def measure(metric: str, comparator: str, target: float, unit: str = "") -> Measure:
    return Measure(metric, comparator, target, unit)


class TestMeasures:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("coverage from `c` >= 80%", measure("coverage", ">=", 80, "%")),
            ("coverage from `c` >= 80", measure("coverage", ">=", 80, "%")),
            ("coverage from `c`>=80.5 %", measure("coverage", ">=", 80.5, "%")),
            ("coverage of `c` is at least 80%", measure("coverage", ">=", 80, "%")),
            ("test coverage in `c` above 80%", measure("coverage", ">", 80, "%")),
            ("Coverage by `c` over 80%", measure("coverage", ">", 80, "%")),
            ("coverage >= 80% from `c`", measure("coverage", ">=", 80, "%")),
            ("at least 80% coverage from `c`", measure("coverage", ">=", 80, "%")),
            (">80% code coverage from `c`", measure("coverage", ">", 80, "%")),
            ("coverage from `c` above 80 percent", measure("coverage", ">", 80, "%")),
            ("coverage from `c` ≥ 80%", measure("coverage", ">=", 80, "%")),
            ("tests from `c` >= 100", measure("tests", ">=", 100)),
            ("passing tests from `c` at least 1000000", measure("tests", ">=", 1000000)),
            ("failures from `c` == 0", measure("failures", "==", 0)),
            ("failing tests from `c` = 0", measure("failures", "==", 0)),
            ("errors from `c` at most 3", measure("errors", "<=", 3)),
            ("warnings from `c` below 3", measure("warnings", "<", 3)),
            ("warnings from `c` under 3", measure("warnings", "<", 3)),
            ("skipped tests from `c` < 3", measure("skipped", "<", 3)),
            (r"/score: (\d+\.?\d*)/ from `c` >= 8", measure(r"/score: (\d+\.?\d*)/", ">=", 8)),
            (r"/a AND (\d+)/ from `c` <= -1.5", measure(r"/a AND (\d+)/", "<=", -1.5)),
            (r"/a\/(\d+)/ from `c` < 8%", measure(r"/a\/(\d+)/", "<", 8, "%")),
        ],
    )
    def test_a_number_that_a_command_prints(self, text: str, expected: Measure) -> None:
        assert compiled(text).checks == (Check("c", 60.0, measure=expected),)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("coverage 80%", ">= 80%"),
            ("80% coverage", ">= 80%"),
            ("coverage is good", ">= 80%"),
            ("coverage from `c` 80%", "`c`"),
            ("coverage from `c` >= 120%", "from 0% to 100%"),
            ("coverage from `c` > 100", "from 0% to 100%"),
            ("coverage from `c` >= 80.1234567", "six digits"),
            ("tests from `c` >= 80%", "count"),
            ("errors == 0", "which command"),
            (r"/score: (\d+)/ >= 8", "which command"),
            (r"/score: \d+/ from `c` >= 8", "parentheses"),
            (r"/score: (\d+/ from `c` >= 8", "not a valid regular expression"),
            (r"/[[a](\d)/ from `c` >= 8", "not a valid regular expression"),
        ],
    )
    def test_inexact_measure_is_refused(self, text: str, said: str) -> None:
        assert said in str(refusal(text))

    def test_a_command_is_found_in_the_repository(self, repo: Path) -> None:
        (repo / "pyproject.toml").write_text('[dependency-groups]\ndev = ["pytest", "pytest-cov"]\n')
        found = compiled("coverage >= 80%", repo)
        assert found.text == "coverage from `pytest -q --cov=.` >= 80%"
        assert found.notes == (
            "`coverage >= 80%` means coverage from `pytest -q --cov=.` >= 80% (pytest-cov is named in pyproject.toml)",
        )
        assert compiled("tests >= 10", repo).text == "tests from `make test` >= 10"
        assert "no command" in refusal("coverage >= 80%").what

    def test_a_fraction_is_pointed_out(self) -> None:
        assert "80%" in compiled("coverage from `c` >= 0.8").notes[0]


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("file README.md exists", Check(timeout=60.0, path="README.md")),
            ("file ./docs//guide exists", Check(timeout=60.0, path="docs/guide")),
            ("README.md exists", Check(timeout=60.0, path="README.md")),
            ("Makefile exists", Check(timeout=60.0, path="Makefile")),
            ("`a.txt` exists", Check(timeout=60.0, path="a.txt")),
            ("app/[id]/page.tsx exists", Check(timeout=60.0, path="app/[id]/page.tsx")),
            ("README.md contains /install AND use/", Check(timeout=60.0, path="README.md", pattern="install AND use")),
            ("out/report.md cites lines that exist", Check(timeout=60.0, path="out/report.md", cites=True)),
            ("file notes contains /a/", Check(timeout=60.0, path="notes", pattern="a")),
            (r"a.py contains /x\/y/", Check(timeout=60.0, path="a.py", pattern=r"x\/y")),
            ('a.py contains "x/y (AND) z"', Check(timeout=60.0, path="a.py", pattern=r"x\/y\ \(AND\)\ z")),
        ],
    )
    def test_a_file_is_there_or_contains_something(self, text: str, expected: Check) -> None:
        assert compiled(text).checks == (expected,)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("file /etc/passwd exists", "out of the workspace"),
            ("file ../x exists", "out of the workspace"),
            ("file a/../../x exists", "out of the workspace"),
            ("file ~/x exists", "out of the workspace"),
            ("file . exists", "out of the workspace"),
            ("file src/ exists", "`test -d src` passes"),
            ("file *.md exists", "characters"),
            ("documentation exists", "file documentation exists"),
            ("file exists", "name the file"),
            ("output contains /x/", "grep -q"),
            ("a.md contains /(/", "not a valid regular expression"),
            ("a.md contains words", """'a.md contains "words"'"""),
            ("a.md does not contain TODO", "`! grep -q TODO a.md` passes"),
        ],
    )
    def test_file_outside_the_workspace_is_refused(self, text: str, said: str) -> None:
        assert said in str(refusal(text))


class TestPhrases:
    def test_phrase_becomes_a_command_and_a_note_says_why(self, repo: Path) -> None:
        (repo / "pyproject.toml").write_text("[tool.mypy]\nstrict = true\n")
        (repo / "src").mkdir()
        found = compiled("all tests pass and no type errors", repo)
        assert found.text == "`make test` passes AND `mypy src` passes"
        assert found.notes == (
            "`all tests pass` means `make test` passes (Makefile has the target `test`)",
            "`no type errors` means `mypy src` passes (mypy is configured in pyproject.toml)",
        )

    def test_phrase_without_a_matching_tool_is_refused(self) -> None:
        error = refusal("tests pass")
        assert "pytest" in error.what
        assert "Makefile" in error.what
        assert "`COMMAND` passes" in error.todo

    def test_a_vague_one_is_refused_with_what_this_repository_can_verify(self, repo: Path) -> None:
        (repo / "ruff.toml").write_text("")
        assert "`make test` passes AND `ruff check` passes" in refusal("the code is clean", repo).todo
        assert "`make test` passes" in refusal("feature is done", repo).todo
        assert "`make test` passes" in refusal("app works", repo).todo
        todo = refusal("no errors", repo).todo
        assert "'tests pass' (runs `make test`), 'no lint errors' (runs `ruff check`)" in todo


class TestRefusals:
    @pytest.mark.parametrize("text", ["", "   ", "\n"])
    def test_an_empty_criterion_is_refused(self, text: str) -> None:
        assert "empty" in refusal(text).what

    @pytest.mark.parametrize(
        "text",
        [
            "the code is clean",
            "feature is done",
            "no errors",
            "``",
            "` `",
            "`a",
            "a`",
            "`a` `b`",
            "`a` fails",
            "`a` exits 1",
            "`a` exits 00",
            "`a` is clean",
            "`a` has no errors",
            "`a` AND",
            "AND `a`",
            "`a` AND AND `b`",
            "`a` and",
            "`a` passes quickly",
            "please run `a`",
            "`a` OR `b`",
        ],
    )
    def test_sentence_that_cannot_be_run_is_refused_with_the_form_to_use(self, text: str) -> None:
        error = refusal(text)
        assert "`" in error.todo
        assert error.where == "--until"
        assert error.outcome.exit_code == 2

    @pytest.mark.parametrize(
        ("text", "todo"),
        [
            ("`a` fails", "`! a` passes"),
            ("`a` exits 1", "`! a` passes"),
            ("`a` is clean", "`a` prints nothing"),
            ("`a` OR `b`", "||"),
            ("`a` is nice", "`a` passes"),
        ],
    )
    def test_the_rewrite_fits(self, text: str, todo: str) -> None:
        assert todo in refusal(text).todo

    def test_text_that_does_not_begin_with_a_program_is_not_a_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        assert "flawless" not in refusal("flawless code").todo

    def test_output_that_the_shell_put_there_is_recognised(self) -> None:
        assert "single quotes" in refusal("3 passed in 0.1s\nall good").todo

    def test_a_long_criterion_is_not_quoted_whole(self) -> None:
        assert len(refusal("word " * 5000).what) < 200

    def test_one_invalid_part_refuses_the_whole_criterion(self) -> None:
        assert "it is nice" in refusal("`a` passes AND it is nice").what
        assert "it is nice" in refusal("`a` passes and it is nice").what

    def test_null_byte_does_not_join_criteria(self) -> None:
        refusal("`a`\0`b`")


plain = st.text(alphabet=st.characters(exclude_characters="`\0", exclude_categories=["Cs"]), min_size=1, max_size=30)
command = plain.map(str.strip).filter(bool)
number = st.floats(-1000, 1000).map(lambda value: float(f"{value:g}"))
comparator = st.sampled_from([">=", ">", "<=", "<", "=="])
checks = st.one_of(
    st.builds(Check, command, st.just(60.0), st.booleans()),
    st.builds(
        Check,
        command,
        st.just(60.0),
        measure=st.builds(
            Measure, st.sampled_from([r"/a AND (\d+)/", r"/x\/ (.)/", "errors", "tests"]), comparator, number
        ),
    ),
    st.builds(
        Check,
        command,
        st.just(60.0),
        measure=st.builds(Measure, st.just("coverage"), st.just(">="), st.integers(0, 100).map(float), st.just("%")),
    ),
    st.builds(
        Check,
        timeout=st.just(60.0),
        path=st.from_regex(r"[A-Za-z0-9_.-]{3,9}(/[a-z.]{3,9})?", fullmatch=True).filter(
            lambda p: p.lower() not in ("output", "code", "file", "stdout", "stderr")
        ),
        pattern=st.sampled_from(["", "a AND b", r"\/", "(x|y)+", "contains /"[:8]]),
    ),
)


@settings(deadline=None)
@given(st.lists(command, min_size=1, max_size=4))
def test_whatever_stands_in_backticks_is_the_command(parts: list[str]) -> None:
    assert commands(" AND ".join(f"`{part}` passes" for part in parts)) == parts


@settings(deadline=None, max_examples=300)
@given(st.lists(checks, min_size=1, max_size=4))
def test_titles_compile_to_the_same_checks(expected: list[Check]) -> None:
    text = " AND ".join(check.title for check in expected)
    found = compiled(text)
    assert found.checks == tuple(expected)
    assert found.text == text


vocabulary = st.sampled_from(
    [
        "`",
        "`a`",
        " AND ",
        " and ",
        " ",
        "passes",
        "coverage",
        "from",
        ">=",
        "80%",
        "/x (.)/",
        "/",
        '"',
        "file",
        "exists",
        "contains",
        "a.py",
        "../",
        "tests",
        "pass",
        "no",
        "lint",
        "errors",
        "make",
        "test",
        "-q",
        "is",
        "\n",
        "OR",
        "\\",
        "(",
        "[[",
        "prints nothing",
        "5",
        "e9",
        "~",
        "=",
        "not",
    ]
)


@settings(deadline=None, max_examples=400)
@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(vocabulary, max_size=12).map("".join),
        st.lists(vocabulary, max_size=12).map(" ".join),
    )
)
def test_every_text_is_compiled_or_refused(text: str) -> None:
    try:
        found = compiled(text)
    except UsageError as error:
        assert error.todo
        return
    assert found.checks
    assert all(bool(check.command) != bool(check.path) and "`" not in check.command for check in found.checks)
    assert compiled(found.text).checks == found.checks


@settings(deadline=None, max_examples=100)
@given(text=st.lists(vocabulary, max_size=12).map(" ".join))
def test_and_so_it_is_in_a_repository(repo: Path, text: str) -> None:
    try:
        found = compiled(text, repo)
    except UsageError:
        return
    assert compiled(found.text, repo).checks == found.checks


def test_long_texts_are_refused_in_no_time() -> None:
    for unit in (
        "/",
        " /a",
        '"',
        "`a",
        "and ",
        " AND ",
        "coverage from ",
        "a contains /",
        "( ",
        "\\/ ",
        "a" * 300 + " ",
        "make " + "b" * 300,
    ):
        refusal(unit * (60_000 // len(unit)))


class TestWithoutBackticks:
    """A command needs no backticks if it is one beyond doubt; otherwise the refusal is what to write."""

    @pytest.mark.parametrize(
        ("text", "title"),
        [
            ("coverage from pytest --cov=calc >= 80%", "coverage from `pytest --cov=calc` >= 80%"),
            ("coverage >= 80% from pytest --cov=calc", "coverage from `pytest --cov=calc` >= 80%"),
            ("coverage from pytest --cov=calc is at least 80 percent", "coverage from `pytest --cov=calc` >= 80%"),
            ("errors from ruff check . == 0", "errors from `ruff check .` == 0"),
            ("failures from pytest -q = 0", "failures from `pytest -q` == 0"),
            ("git status --porcelain prints nothing", "`git status --porcelain` prints nothing"),
            ("ruff check . has no output", "`ruff check .` prints nothing"),
        ],
    )
    def test_criterion_without_backticks_means_the_same_as_with_them(self, repo: Path, text: str, title: str) -> None:
        assert compiled(text, repo).text == title
        assert compiled(title, repo).text == title

    @pytest.mark.parametrize(
        ("text", "rewrite"),
        [
            ("pytest --cov=calc >= 80%", "'coverage from `pytest --cov=calc` >= 80%'"),
            ("git rev-list --count HEAD > 3", "from `git rev-list --count HEAD` > 3'"),
            ("errors from mypy . == 0", "'errors from `mypy .` == 0'"),
            ("mypy . has 0 errors", "'`mypy .` passes'"),
            ("`mypy .` has 0 errors", "'`mypy .` passes'"),
            ("`x.py` prints hello", "'`python3 x.py | grep -q hello` passes'"),
            ("python3 x.py prints hello", "'`python3 x.py | grep -q hello` passes'"),
            ("python3 x.py prints hello world", """'`python3 x.py | grep -q "hello world"` passes'"""),
            ("errors from mypy x.py is 0", "'errors from `mypy x.py` == 0'"),
            ("errors from `mypy x.py` is 0", "'errors from `mypy x.py` == 0'"),
            ("coverage from pytest --cov is 80 percent", "'coverage from `pytest --cov` == 80%'"),
            ("80% coverage", ">= 80%'"),
            ("coverage of about 65.5 percent", "'coverage from `pytest --cov` >= 65.5%'"),
            ("./plain.sh passes", "'`sh ./plain.sh` passes'"),
            ("pytest -q passes in under 10 seconds", "'`timeout 10 pytest -q` passes'"),
            ("`pytest -q` takes less than 5 seconds", "'`timeout 5 pytest -q` passes'"),
            ("pytest finishes within 2 minutes", "'`timeout 120 pytest` passes'"),
            ("pytest -q passes 3 times in a row", "'`pytest -q` passes' --confirm 3"),
            ("number of lines in out.txt >= 5", "'`test $(wc -l < out.txt) -ge 5` passes'"),
            ("size of out.bin is at most 100 bytes", "'`test $(wc -c < out.bin) -le 100` passes'"),
            ("the score of the page >= 90", r"'/(\d+)/ from `COMMAND` >= 90'"),
            ("wc -l out.txt is at least 5", r"write --until '/(\d+)/ from `wc -l out.txt` >= 5'"),
            ("ruff check . is clean", "'`ruff check .` passes'"),
            ("go vet is happy", "'`go vet` passes'"),
            ("grep -rn TODO src has no matches", "'`! grep -rn TODO src` passes'"),
            ("grep -q TODO a.py finds nothing", "'`! grep -q TODO a.py` passes'"),
            ("eslint . --max-warnings 0", "'`eslint . --max-warnings 0` passes'"),
            ("pytest -k not slow", "'`pytest -k not slow` passes'"),
            ("0 failures from pytest -q", "'failures from `pytest -q` == 0'"),
            ("less than 3 warnings from mypy .", "'warnings from `mypy .` < 3'"),
            ("pytest -q --cov=app has at least 80% coverage", "'coverage from `pytest -q --cov=app` >= 80%'"),
            ("the file out.txt contains two words", """'out.txt contains "two words"'"""),
            ("there is a file out.txt", "'file out.txt exists'"),
            ("pytest fails", "'`! pytest` passes'"),
            ("tests fail", "'`! make test` passes'"),
            ("`false` does not pass", "'`! false` passes'"),
            ("not `pytest -q`", "'`! pytest -q` passes'"),
            ("bash -c 'exit 1' fails", """! bash -c '"'"'exit 1'"'"'` passes'"""),
            ("`pytest -q` does not fail", "write --until '`pytest -q` passes'"),
            ("pytest doesn't fail", "write --until '`pytest` passes'"),
            ("the tests never fail", "write --until '`make test` passes'"),
            ("pytest exit code is 0", "write --until '`pytest` passes'"),
            ("`pytest` exits with 2", "'`! pytest` passes'"),
            ("exit code 0", "say which command: --until '`COMMAND` passes'"),
            ("mypy . <= 3 errors", "'errors from `mypy .` <= 3'"),
            ("`mypy .` has fewer than 3 errors", "'errors from `mypy .` < 3'"),
            ("npm run build succeeds without warnings", "'warnings from `npm run build` == 0'"),
            ("zero failures", "write --until 'tests pass' (runs `make test`)"),
            ("no warnings", "'warnings from `COMMAND` == 0'"),
            ("tests pass AND", "write --until 'tests pass'"),
            ("tests pass and", "write --until 'tests pass'"),
            ("tests pass,", "write --until 'tests pass'"),
            ("tests pass. it builds.", "write --until 'tests pass AND it builds'"),
            ("tests pass; `ruff check` passes", "write --until 'tests pass AND `ruff check` passes'"),
            ("make sure all tests pass", "write --until 'all tests pass'"),
            ("run pytest -q and check that it passes", "write --until 'pytest -q'"),
            ("`pytest -q` passes or `make test` passes", "'`pytest -q || make test` passes'"),
            ("`pytest -q passes`", "write --until '`pytest -q` passes'"),
            ("`pytest -q passes", "a backtick is missing: write --until '`pytest -q` passes'"),
            ("at least 12 tests pass", "'tests from `make test` >= 12'"),
            ("the README mentions how to install it", """'README.md contains "how to install it"'"""),
            ("no TODOs in src", "'`! git grep -n TODO -- src` passes'"),
            ("check.sh passes", "'`./check.sh` passes'"),
            ("tests/test_a.py passes", "'`pytest tests/test_a.py` passes'"),
            ("make nosuch passes", "no target 'nosuch'; it has: build, deploy, test"),
            ("los tests pasan", "for example --until '`make test` passes'"),
            ("les tests passent", "for example --until '`make test` passes'"),
            ("no more than 3 warnings from ruff check .", "'warnings from `ruff check .` <= 3'"),
            ("`npm test` is failing", "'`! npm test` passes'"),
            ("`python3 app.py` == hello", """'`test "$(python3 app.py)" = hello` passes'"""),
            ("output of `python3 app.py` is hello", """'`test "$(python3 app.py)" = hello` passes'"""),
            ("`echo hi` contains hi", "'`echo hi | grep -q hi` passes'"),
            ("`./bench.sh` >= 8", r"'/(\d+)/ from `./bench.sh` >= 8'"),
            ("./bench.sh prints at least 8", r"'/(\d+)/ from `./bench.sh` >= 8'"),
            ("score from ./bench.sh >= 8", r"'/score\D*(\d+)/ from `./bench.sh` >= 8'"),
            ("latency < 100ms", r"'/(\d+)/ from `COMMAND` < 100'"),
            ("done.txt is created", "'file done.txt exists'"),
            ("there is a done.txt", "'file done.txt exists'"),
            ("localhost:3000 returns 200", "'`curl -fsS -o /dev/null localhost:3000` passes'"),
            ("rspec is green", "'`rspec` passes'"),
            ("bundle exec rspec passes", "'`bundle exec rspec` passes'"),
            ("eslint has less than 5 warnings", "'warnings from `eslint` < 5'"),
            ("add(2, 3) == 5", "from MODULE import add; assert add(2, 3) == 5"),
            ("curl localhost:80 returns 200", "'`curl -fsS -o /dev/null localhost:80` passes'"),
        ],
    )
    def test_unclear_sentence_is_refused_with_a_rewrite(self, repo: Path, text: str, rewrite: str) -> None:
        assert rewrite in refusal(text, repo).todo


@pytest.mark.parametrize("text", ["everything is fine", "tests are good", "build output is clean"])
def test_a_sentence_about_nothing_that_runs_gets_what_this_repository_has(repo: Path, text: str) -> None:
    assert "write a command that shows it, for example --until '`make test` passes" in refusal(text, repo).todo


@pytest.mark.parametrize("text", ["ruff check . is clean", "mypy . has 0 errors", "`mypy .` is clean"])
def test_a_tool_that_always_prints_something_is_not_to_print_nothing(repo: Path, text: str) -> None:
    assert "prints nothing" not in refusal(text, repo).todo


@pytest.mark.parametrize(
    "text",
    [
        "python3 -c 'print(1)' prints it's done",
        "pytest -q passes in under 10 seconds",
        "number of lines in out.txt >= 5",
        "ruff check . is clean",
        "`sh -c 'exit 1'` prints \"a $b\"",
        "sh -c 'x y' has 0 errors",
        "file a.txt does not contain it's",
        "`grep -c 'a b' f` is good",
        "python3 -c 'print(2)' > 3",
    ],
)
def test_a_rewrite_can_be_pasted(repo: Path, text: str) -> None:
    todo = refusal(text, repo).todo
    option = todo[todo.index("--until ") :]
    lexer = shlex.shlex(option, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    assert lexer.get_token() == "--until"
    criterion = (lexer.get_token() or "").rstrip(",;")
    assert compiled(criterion, repo).text


@pytest.fixture
def typed_repo(repo: Path) -> Path:
    """A repository with mypy, which checks only a part of it."""
    program = repo.parent / "path" / "mypy"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (repo / "pyproject.toml").write_text('[tool.mypy]\nfiles = ["calc"]\n')
    return repo


def test_a_command_with_arguments_is_not_replaced_by_that_of_the_repository(typed_repo: Path) -> None:
    assert commands("mypy . passes", typed_repo) == ["mypy ."]
    assert commands("mypy passes", typed_repo) == ["mypy"]


@pytest.mark.parametrize("text", ["mypy x.py fails", "mypy . fail"])
def test_a_bare_command_that_must_fail_is_refused_with_the_rewrite(typed_repo: Path, text: str) -> None:
    command = text.rpartition(" ")[0]
    assert f"'`! {command}` passes'" in refusal(text, typed_repo).todo
