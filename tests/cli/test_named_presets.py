"""`ralph hats list`: which there are, in which order they are found, and what is said of those that cannot be read."""

import os
from pathlib import Path

import pytest
from test_loop import Project, project  # noqa: F401 - the fixture

from ralph.store.presets import list_shipped

MINE = """\
# For our own little things.
event_loop: {starting_event: go.on}
hats: {one: {triggers: [go.on], publishes: [LOOP_COMPLETE]}}
"""


def put(place: Path, name: str, text: str = MINE) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{name}.yml"
    path.write_text(text)
    return path


def test_all_are_listed_with_when_to_use_them(project: Project) -> None:  # noqa: F811
    rows = {row["name"]: row for row in project.ralph("hats", "list", "--json").json["presets"]}
    assert list(rows) == list_shipped()
    assert all(row["use"].endswith(".") and row["hats"] >= 3 and row["origin"] == "built in" for row in rows.values())
    told = project.ralph("hats", "list").out.splitlines()
    assert len(told) == len(rows)
    assert told[0].split(maxsplit=1) == ["bug-triage", f"3 hats. {rows['bug-triage']['use']}"]


def test_presets_are_searched_in_project_user_team_ralph_and_hidden_ones_listed(project: Project) -> None:  # noqa: F811
    first, second = project.home / "team", project.home / "guild"
    project.extra |= {"RALPH_PRESETS": f"{first}{os.pathsep}{second}", "XDG_CONFIG_HOME": str(project.home / "config")}
    put(second, "tdd")
    put(second, "ours")
    put(first, "ours")
    assert project.ralph("hats", "show", "tdd", "--path").out.strip() == str(second / "tdd.yml")
    put(project.home / "config" / "ralph" / "presets", "tdd")
    own = put(project.root / ".ralph" / "presets", "tdd", MINE.replace("little", "large"))
    rows = [row for row in project.ralph("hats", "list", "--json").json["presets"] if row["name"] in ("tdd", "ours")]
    assert [(row["name"], row["origin"], row["shadowed"]) for row in rows] == [
        ("tdd", "project", False),
        ("tdd", "user", True),
        ("ours", "RALPH_PRESETS", False),
        ("ours", "RALPH_PRESETS", True),
        ("tdd", "RALPH_PRESETS", True),
        ("tdd", "built in", True),
    ]
    assert (rows[0]["use"], rows[0]["hats"]) == ("For our own large things.", 1)
    assert f"(project: {own})" in project.ralph("hats", "list").out
    assert project.ralph("hats", "show", "tdd").out == own.read_text()
    assert "coder" in project.ralph("hats", "show", "builtin:tdd").out
    assert project.ralph("hats", "show", "builtin:tdd", "--path").out.strip() == "builtin:tdd"
    assert project.ralph("hats", "show", "tdd", "--json").json["path"] == str(own)


def test_a_run_takes_the_same_one_and_says_that_it_hides_another(project: Project) -> None:  # noqa: F811
    own = put(project.root / ".ralph" / "presets", "docs", f"{MINE.strip()}\n")
    (project.root / "docs").mkdir()
    agent = ["--agent-command", project.agent('"$RALPH_BIN" emit LOOP_COMPLETE'), "--yes", "-p", "Go"]
    done = project.ralph("run", "-H", "docs", *agent)
    assert done.code == 0, done.said
    assert f"docs is {own}; builtin:docs is the one that Ralph ships" in done.said
    planned = project.ralph("run", "-c", "builtin:docs", *agent, "--dry-run")
    assert "You are the hat Outliner" in planned.out and str(own) not in planned.said


def test_unreadable_preset_is_listed_as_unreadable(project: Project) -> None:  # noqa: F811
    put(project.root / ".ralph" / "presets", "broken", "hats: [\n")
    assert "broken" in (told := project.ralph("hats", "list").out) and "cannot be read: not readable as YAML" in told
    assert project.ralph("run", "-H", "broken", "-p", "x", "--agent-command", "cat", "--yes").code == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show"], "Missing argument 'PRESET'"),
        (["shw", "tdd"], "No such command 'shw'"),
        (["show", "tddd"], "did you mean tdd?"),
        (["show", ""], "the name of the preset is empty"),
        (["show", "gone/mine.yml"], "it cannot be read"),
        (["show", "builtin:nothing-like-it"], "the presets are bug-triage, code-assist"),
    ],
)
def test_unknown_preset_error_lists_known_ones(project: Project, words: list[str], told: str) -> None:  # noqa: F811
    done = project.ralph("hats", *words)
    assert (done.code, told in done.err) == (2, True), done.said


def test_init_takes_any_of_them_and_writes_nothing_that_could_not_be_read(project: Project) -> None:  # noqa: F811
    home = project.root / ".ralph" / "presets"
    put(home, "mine")
    put(home, "parts", "hats:\n  one:\n    import: one.yml\n")
    (home / "one.yml").write_text("triggers: [go.on]\n")
    assert "mine" in project.ralph("init", "--list-presets").out.split()
    assert project.ralph("init", "--preset", "mine", "-b", "codex").code == 0
    assert (project.root / "ralph.yml").read_text() == f'{MINE}\ncli:\n  backend: "codex"\n'
    (project.root / "ralph.yml").unlink()
    assert project.ralph("init", "--preset", ".ralph/presets/mine.yml").code == 0
    assert (project.root / "ralph.yml").read_text() == MINE == project.ralph("hats", "show", "ralph.yml").out
    (project.root / "ralph.yml").unlink()
    refused = project.ralph("init", "--preset", "parts")
    assert (refused.code, "`import: one.yml`: it cannot be read" in refused.err) == (2, True), refused.said
    assert not (project.root / "ralph.yml").exists()


class TestImports:
    """Hats that are kept in files of their own."""

    def shared(self, project: Project, text: str, hat: str = "import: ../hats/critic.yml") -> Path:  # noqa: F811
        (project.root / "hats").mkdir(exist_ok=True)
        (project.root / "hats" / "critic.yml").write_text(text)
        lines = f"event_loop: {{starting_event: go.on}}\nhats:\n  critic:\n    triggers: [go.on]\n    {hat}\n"
        return put(project.root / "presets", "ours", lines)

    def test_hat_is_imported_from_a_file_beside_the_preset(self, project: Project) -> None:  # noqa: F811
        path = self.shared(
            project, "name: Critic\ntriggers: [other.one]\npublishes: [LOOP_COMPLETE]\ninstructions: Be strict.\n"
        )
        (project.root / "deep").mkdir()
        agent = project.agent('"$RALPH_BIN" emit LOOP_COMPLETE')
        for cwd, name in ((project.root, "presets/ours.yml"), (project.root / "deep", "../presets/ours.yml")):
            done = project.ralph("run", "-H", name, "-p", "Go", "--agent-command", agent, "--yes", cwd=cwd)
            assert done.code == 0, done.said
        page = project.ralph("prompt", project.runs[0].name, "--json").json["prompt"]
        assert "You are the hat Critic." in page and "Be strict." in page and path.is_file()

    @pytest.mark.parametrize(
        ("text", "hat", "where", "what"),
        [
            ("", "import: ../hats/none.yml", "presets/ours.yml, line 5", "`import: ../hats/none.yml`: it cannot be read"),
            ("name: A\nimport: critic.yml\n", "import: ../hats/critic.yml", "critic.yml, line 2, by presets/ours.yml, line 5",
             "an imported hat may not have `import`"),
            ("hats: {a: {}}\n", "import: ../hats/critic.yml", "../hats/critic.yml, line 1", "may not have `hats`"),
            ("name: A\npublishes: ['no topic']\n", "import: ../hats/critic.yml", "../hats/critic.yml", "line 2: `publishes.0`"),
            ("name: [\n", "import: ../hats/critic.yml", "presets/ours.yml, line 5", "not readable as YAML"),
            ("", "import: ours.yml", "ours.yml, line 2", "an imported hat may not have"),
        ],
    )  # fmt: skip
    def test_faults_have_their_file_and_line(
        self,
        project: Project,  # noqa: F811
        text: str,
        hat: str,
        where: str,
        what: str,
    ) -> None:
        self.shared(project, text, hat)
        done = project.ralph("run", "-H", "presets/ours.yml", "-p", "Go", "--agent-command", "cat", "--yes")
        assert (done.code, what in done.err, where in done.err) == (2, True, True), done.said

    def test_unknown_keys_of_the_imported_file_are_warned_of_by_its_name(self, project: Project) -> None:  # noqa: F811
        self.shared(project, "name: Critic\ninstruction: Be strict.\npublishes: [LOOP_COMPLETE]\n")
        done = project.ralph(
            "run", "-H", "presets/ours.yml", "-p", "Go", "--agent-command", "cat", "--yes", "--dry-run", "--unchecked"
        )
        assert "../hats/critic.yml, line 2: `instruction` is not a setting; did you mean `instructions`?" in done.said


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("presets",), ("hats", "list")),
        (("presets", "show", "tdd"), ("hats", "show", "tdd")),
        (("queue",), ("land", "--queue")),
    ],
)
def test_old_name_does_the_same_and_names_the_new_one(
    project: Project,  # noqa: F811
    old: tuple[str, ...],
    new: tuple[str, ...],
) -> None:
    before, now = project.ralph(*old), project.ralph(*new)
    assert (before.code, before.out) == (now.code, now.out) == (0, now.out)
    assert f"`ralph {old[0]}` is now `ralph {new[0]} {new[1]}`" in before.err
    assert now.err == ""
