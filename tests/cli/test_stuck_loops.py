"""Loops with checks that print one error or one number at a time: an agent that gets on is not stuck."""

import pytest
from test_loop import Project, project  # noqa: F401 - the fixture

COUNT = 'n=$(($(cat "$HOME/turns" 2>/dev/null || echo 0) + 1)); echo $n > "$HOME/turns"; '
SCRIPT = """\
def step(number):
    if number == 1: return int("x")
    if number == 2: return {}["key"]
    if number == 3: return 1 / 0
    if number == 4: return None.strip()
    if number == 5: assert number > 9
    if number == 6: assert number > 10
    if number == 7: return [][3]
for number in range(DONE + 1, 8):
    step(number)
"""


def loop(project: Project, agent: str, check: str, turns: int) -> tuple[int, int]:  # noqa: F811
    """The exit code, and how many iterations there were."""
    done = project.work(f"{COUNT}{agent}", "--max-iterations", str(turns), until=f"`{check}`")
    return done.code, len(project.journal("turn.ended"))


@pytest.mark.slow
def test_another_exception_each_turn_is_progress(project: Project) -> None:  # noqa: F811
    (project.root / "r.py").write_text(f"DONE = 0\n{SCRIPT}")
    agent = 'sed -i "s/^DONE = .*/DONE = $n/" r.py'
    # Without a judge, because the check executes the file that the agent changes.
    done = project.work(f"{COUNT}{agent}", "--max-iterations", "10", "--no-clean-room", until="`python3 r.py`")
    assert (done.code, len(project.journal("turn.ended"))) == (0, 7)


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize(
    ("check", "turns"),
    [
        ('left=$((8 - $(cat n))); echo "$left words left"; test $left -eq 0', 8),
        ('echo "score: $(($(cat n) * 12 + 10))%"; test $(cat n) -eq 7', 7),
    ],
    ids=["words left", "score"],
)
def test_a_number_that_gets_better_each_turn_is_progress(project: Project, check: str, turns: int) -> None:  # noqa: F811
    (project.root / "n").write_text("0\n")
    (project.root / "check.sh").write_text(check)
    assert loop(project, "echo $n > n", "sh check.sh", 10) == (0, turns)


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize(
    "check",
    [
        "! awk '/TODO/ {print \"missing semicolon\"}' a.py | grep .",
        "! grep -n TODO a.py",
        '! awk \'/TODO/ {print FILENAME " line " NR ": leftover todo"}\' a.py | grep .',
        '! awk \'/TODO/ {print "| " NR + 50 " | E501 | line too long |"}\' a.py | grep .',
    ],
    ids=["the same complaint", "grep -n", "a script", "a table"],
)
def test_fewer_lines_each_turn_are_progress(project: Project, check: str) -> None:  # noqa: F811
    (project.root / "a.py").write_text("x = 1  # TODO\n" * 9)
    assert loop(project, "sed -i 1d a.py", check, 12) == (0, 9)


def test_the_best_iteration_is_the_one_with_the_fewest_lines(project: Project) -> None:  # noqa: F811
    (project.root / "a.py").write_text("x = 1  # TODO\n" * 9)
    agent = 'case $n in 1|2) sed -i 1d a.py;; *) echo "x = 1  # TODO" >> a.py;; esac'
    assert loop(project, agent, "! grep -n TODO a.py", 4)[0] == 3
    restored = project.ralph("restore", "best", "--force")
    assert (restored.code, (project.root / "a.py").read_text()) == (0, "x = 1  # TODO\n" * 7), restored.out


@pytest.mark.more_are_slow(1)
@pytest.mark.parametrize(
    "line",
    [
        'echo "ticket $(($(wc -l < "$HOME/tickets"))) of the queue"',
        'echo "random $(od -An -N2 -tu2 /dev/urandom)"',
        "date +%s.%N",
    ],
    ids=["a counter", "a random number", "the time"],
)
def test_number_that_changes_by_itself_is_not_progress(project: Project, line: str) -> None:  # noqa: F811
    (project.root / "check.sh").write_text(f'echo >> "$HOME/tickets"\n{line}\nfalse\n')
    code, turns = loop(project, "echo $n > work.txt", "sh check.sh", 10)
    assert (code, turns) == (4, 4), "three turns without progress, and one with another approach"


def test_a_resumed_loop_knows_the_numbers_it_has_seen(project: Project) -> None:  # noqa: F811
    (project.root / "n").write_text("0\n")
    (project.root / "check.sh").write_text('echo "$((8 - $(cat n))) words left"; test $(cat n) -eq 8')
    assert loop(project, "echo $n > n", "sh check.sh", 2) == (3, 2)
    done = project.ralph("resume", "--max-iterations", "10", "--yes")
    assert (done.code, len(project.journal("turn.ended"))) == (0, 8)


@pytest.mark.slow
def test_the_best_iteration_is_the_last_one_that_moved_the_number(project: Project) -> None:  # noqa: F811
    (project.root / "n").write_text("9\n")
    (project.root / "check.sh").write_text('echo "$(cat n) words left"; false')
    assert loop(project, "case $n in 1) echo 7;; 2) echo 4;; *) echo 8;; esac > n", "sh check.sh", 4)[0] == 3
    restored = project.ralph("restore", "best", "--force")
    assert (restored.code, (project.root / "n").read_text()) == (0, "4\n"), restored.out


def test_an_agent_that_adds_an_error_each_turn_is_stuck_and_the_start_was_best(project: Project) -> None:  # noqa: F811
    """Every failure set is new, but there are more and more failures."""
    (project.root / "errors.txt").write_text("a.py:1: error: name\n")
    check = "`cat errors.txt; n=$(wc -l < errors.txt); echo Found $n errors; test $n = 0`"
    add = 'n=$(wc -l < errors.txt); echo "a.py:$n$n: error: kind $n" >> errors.txt'
    done = project.work(add, until=check)
    assert done.code == 4, done.said
    assert "No progress in 3 iterations." in done.out
    name = project.run.name
    assert f"ralph restore best {name}   (the state before the run was the best: " in done.out
    assert "none: the state before the run was better" in project.ralph("report").out
    restored = project.ralph("restore", "best")
    assert restored.code == 0, restored.said
    assert "as they were before the run" in restored.out
    assert (project.root / "errors.txt").read_text() == "a.py:1: error: name\n"
