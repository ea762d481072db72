"""Every setting and every shared option reaches the record of a run, whatever its workflow; or it is refused by name."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from test_loop import Done, Project, make_project

from ralph.cli.main import cli
from ralph.documents.config import Config, SettingsSection

AGENT = ("--agent-command", "true")
STARTS = {
    "loop": ("loop", "the task", "--until", "`true` passes"),
    "session": ("session", "new", "Build it"),
    "classic": ("session", "new", "Build it", "--classic"),
    "hats": ("run", "-H", "hats.yml", "-p", "Look at it", "--check", "`true` passes", "--unchecked"),
}
SESSIONS = ("session", "classic")
PRESET = """
event_loop: {starting_event: work.start}
hats:
  builder: {name: Builder, description: Builds., triggers: [work.start], publishes: [LOOP_COMPLETE], instructions: Build.}
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    for project in make_project(tmp_path):
        (project.root / "hats.yml").write_text(PRESET)
        yield project


def plan(project: Project, workflow: str, *options: str, agent: tuple[str, ...] = AGENT) -> Done:
    return project.ralph(*STARTS[workflow], *agent, "--dry-run", "--json", *options)


def settings(project: Project, workflow: str, *options: str, agent: tuple[str, ...] = AGENT) -> dict[str, Any]:
    done = plan(project, workflow, *options, agent=agent)
    assert done.code == 0, done.said
    found = done.json["settings"]
    assert found["workflow"] == workflow
    return dict(found)


def at(found: Any, path: str) -> Any:
    """What is under a path like `agents.chain.0.model`."""
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


SETTINGS: dict[str, tuple[str, str, Any]] = {
    "agents": ("agents: [claude, codex]", "agents.chain.1.kind", "codex"),
    "escalate": ("escalate: {agent: codex, after: 4}", "agents.escalate_after", 4),
    "prices": ("prices: {m: [1, 2, 3]}", "prices.m", [1.0, 2.0, 3.0]),
    "max_steps": ("max_steps: 7", "most_steps", 7),
    "limits.iterations": ("limits: {iterations: 4}", "limits.iterations", 4),
    "limits.minutes": ("limits: {minutes: 5}", "limits.active_seconds", 300.0),
    "limits.cost": ("limits: {cost: 3, allow_unpriced: true}", "limits.cost", 3.0),
    "limits.allow_unpriced": ("limits: {cost: 3, allow_unpriced: true}", "limits.allow_unpriced", True),
    "limits.tokens": ("limits: {tokens: 99}", "limits.tokens", 99),
    "limits.quota": ("limits: {quota: 75%}", "limits.quota", 0.75),
    "instructions": ("instructions: [AGENTS.md]", "instructions", ["AGENTS.md"]),
    "turn.minutes": ("turn: {minutes: 2}", "turn_limits.wall", 120.0),
    "turn.idle_minutes": ("turn: {idle_minutes: 1}", "turn_limits.idle", 60.0),
    "turn.grace_seconds": ("turn: {grace_seconds: 9}", "turn_limits.grace", 9.0),
    "check_timeout": ("check_timeout: 33", "check_seconds", 33.0),
    "snapshots": ("snapshots: false", "snapshots", False),
    "push": ("push: true", "push", True),
    "workspace.setup": ("workspace: {setup: [make]}", "tree_settings.setup", ["make"]),
    "workspace.copy": ("workspace: {copy: [.env]}", "tree_settings.copy", [".env"]),
    "workspace.share": ("workspace: {share: [cache]}", "tree_settings.share", ["cache"]),
    "workspace.disk_gib": ("workspace: {disk_gib: 2}", "tree_settings.most_bytes", 2 << 30),
    "workspace.setup_minutes": ("workspace: {setup_minutes: 3}", "tree_settings.setup_seconds", 180.0),
    "clean_room.setup": ("clean_room: {setup: [npm ci]}", "room.setup", ["npm ci"]),
    "clean_room.keep": ("clean_room: {keep: [.env]}\nworkspace: {copy: [.npmrc]}", "room.keep", [".env", ".npmrc"]),
    "clean_room.services": ("clean_room: {services: [make up]}", "room.services", ["make up"]),
    "clean_room.timeout": ("clean_room: {timeout: 90}", "room.setup_seconds", 90.0),
    "slots.run": ("slots: {run: 5}", "slots.run", 5),
    "slots.machine": ("slots: {machine: 6}", "slots.machine", 6),
    "slots.agents": ("slots: {agents: {claude: 2}}", "slots.agents.claude", 2),
    "land": ("land: push", "land", "push"),
    "agent": ("agent: {agent: claude, model: opus}", "agents.chain.0.model", "opus"),
    "agent_command": ("agent_command: cat", "agents.chain.0.command", ["cat"]),
    "roles": ("roles: {executor: codex}", "agents.roles.executor.0.kind", "codex"),
}
"""By its key: the setting in ralph.yml, where the record has it, and as what."""
OF_ONE_WORKFLOW = ("loop.", "session.")
"""Sections that say by their name which workflow they are for; tests of that workflow try them."""
NOT_OF_A_RUN = ("permissions", "sandbox", "pool", "retention.", "notify", "scenario")
"""Settings that have no effect in a repository, that are read when needed, or (the scenario) are the agent of most tests."""


def leaves(model: type[SettingsSection], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, SettingsSection):
            yield from leaves(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{field.alias or name}"


def test_every_setting_is_in_the_table() -> None:
    untold = [key for key in leaves(Config) if not key.startswith((*OF_ONE_WORKFLOW, *NOT_OF_A_RUN))]
    assert sorted(untold) == sorted(SETTINGS)


@pytest.fixture
def agents(project: Project) -> Path:
    """Programs by the names of agents, which are never started."""
    place = project.home / "bin"
    place.mkdir()
    for name in ("claude", "codex"):
        (place / name).write_text("#!/bin/sh\nexit 1\n")
        (place / name).chmod(0o755)
    project.extra = {"PATH": f"{place}:{os.environ['PATH']}"}
    return place


@pytest.mark.parametrize("workflow", STARTS)
@pytest.mark.parametrize("key", SETTINGS)
@pytest.mark.usefixtures("agents")
def test_setting_is_in_the_record(project: Project, workflow: str, key: str) -> None:
    text, path, value = SETTINGS[key]
    (project.root / "ralph.yml").write_text(f"{text}\n")
    agent = () if key in ("agent", "agents", "agent_command") else AGENT
    if workflow in SESSIONS and key == "limits.iterations":
        notes = plan(project, workflow).json["notes"]
        assert any("`limits.iterations` has no effect in a session" in note for note in notes), notes
        return
    assert at(settings(project, workflow, agent=agent), path) == value


OPTIONS: dict[str, tuple[tuple[str, ...], str, Any]] = {
    "--agent": (("--agent", "claude", "--agent", "codex"), "agents.chain.1.kind", "codex"),
    "--agent-command": (("--agent-command", "cat -u"), "agents.chain.0.command", ["cat", "-u"]),
    "--agent-acp": (("--agent-acp", "claude acp"), "agents.chain.0.command", ["claude", "acp"]),
    "--scenario": (("--scenario", "play.yaml"), "agents.chain.0.kind", "scripted"),
    "--model": (("--agent", "claude", "--model", "opus"), "agents.chain.0.model", "opus"),
    "--agent-arg": (("--agent", "claude", "--agent-arg", "--debug"), "agents.chain.0.arguments", ["--debug"]),
    "--no-sub-agents": (
        ("--agent", "claude", "--no-sub-agents"),
        "agents.chain.0.without_tools",
        ["sub-agents"],
    ),
    "--max-iterations": (("--max-iterations", "4"), "limits.iterations", 4),
    "--timeout": (("--timeout", "2"), "limits.active_seconds", 120.0),
    "--deadline": (("--deadline", "2100-01-01T00:00+00:00"), "limits.deadline", 4102444800.0),
    "--max-cost": (("--agent", "claude", "--max-cost", "2"), "limits.cost", 2.0),
    "--allow-unpriced": (("--max-cost", "2", "--allow-unpriced"), "limits.allow_unpriced", True),
    "--max-tokens": (("--max-tokens", "77"), "limits.tokens", 77),
    "--max-quota": (("--max-quota", "75%"), "limits.quota", 0.75),
    "--turn-timeout": (("--turn-timeout", "3"), "turn_limits.wall", 180.0),
    "--idle-timeout": (("--idle-timeout", "4"), "turn_limits.idle", 240.0),
    "--check-timeout": (("--check-timeout", "5"), "check_seconds", 5.0),
    "--parallel": (("--parallel", "6"), "slots.run", 6),
    "--allow": (("--allow", "test-skipped=a database"), "allowed", {"test-skipped": "a database"}),
    "--may-change": (("--may-change", "tests/**"), "may_change", ["tests/**"]),
    "--require": (("--require", "proven"), "require", "proven"),
    "--judge": (("--judge", "claude"), "agents.roles.judge.0.kind", "claude"),
    "--no-clean-room": (("--no-clean-room",), "clean_room", False),
    "--no-snapshots": (("--no-snapshots",), "snapshots", False),
    "--sandbox": (("--sandbox", "off"), "sandbox", "off"),
    "--pool": (("--pool", "local"), "pool.kind", "local"),
    "--land": (("--worktree", "--land", "push"), "land", "push"),
    "--worktree": (("--worktree",), "snapshots", True),
}
"""By its name: how the option is given, where the record has it, and as what."""
OTHER_OPTIONS = ("--detach", "--dry-run", "--yes", "--json", "--dir")
"""Options that are not in the record, and --dir, which `test_subdirectory.py` tests."""
REFUSED = {
    ("loop", "--parallel"): "a loop runs one turn at a time",
    ("classic", "--parallel"): "a classic session runs one task at a time",
    ("session", "--max-iterations"): "not for sessions",
    ("classic", "--max-iterations"): "not for sessions",
    ("session", "--worktree"): "already has its own worktree",
    ("session", "--land"): "already has its own worktree",
    ("session", "--require"): "--require proven has no effect on a session without checks",
    ("classic", "--require"): "--require proven has no effect on a session without checks",
    ("session", "--judge"): "the judge of a session is its reviewer",
    ("classic", "--judge"): "the judge of a session is its reviewer",
}


def options_of(*names: str) -> set[str]:
    found: Any = cli
    for name in names:
        found = found.get_command(click.Context(found), name)
    return {param.opts[-1] for param in found.params if isinstance(param, click.Option)}


def test_every_shared_option_is_in_the_table() -> None:
    shared = options_of("loop") & options_of("session", "new") & options_of("run")
    assert shared == {*OPTIONS, *OTHER_OPTIONS}


def test_foreign_session_takes_the_same_options() -> None:
    assert options_of("session", "resume") >= {*OPTIONS, *OTHER_OPTIONS}


@pytest.mark.parametrize("workflow", STARTS)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.usefixtures("agents")
def test_option_is_in_the_record_or_is_refused(project: Project, workflow: str, name: str) -> None:
    (project.root / "play.yaml").write_text("turns: [{steps: [{say: hello}]}]\n")
    given, path, value = OPTIONS[name]
    agent = () if {"--agent", "--agent-command", "--agent-acp", "--scenario"} & {*given} else AGENT
    if says := REFUSED.get((workflow, name)):
        done = plan(project, workflow, *given, agent=agent)
        assert done.code == 2
        assert says in done.out
        return
    assert at(settings(project, workflow, *given, agent=agent), path) == value


@pytest.mark.parametrize("workflow", SESSIONS)
def test_session_has_no_limits_of_its_own(project: Project, workflow: str) -> None:
    limits = settings(project, workflow)["limits"]
    assert (limits["iterations"], limits["active_seconds"]) == (None, None)


@pytest.mark.parametrize(
    ("workflow", "guess"),
    [
        ("loop", "known values: debugger, implementer, judge, reflector, test-engineer"),
        ("session", "did you mean `executor`?"),
        ("classic", "did you mean `executor`?"),
        ("hats", "known values: builder, judge, ralph, resolver"),
    ],
)
def test_role_that_no_turn_has_is_named_with_a_role_of_this_workflow(
    project: Project, workflow: str, guess: str
) -> None:
    (project.root / "ralph.yml").write_text("roles: {exekutor: {model: large}, executor: {model: large}}\n")
    notes = [note for note in plan(project, workflow).json["notes"] if note.startswith("`roles.")]
    assert notes == [f"`roles.exekutor` has no effect: no turn has this role; {guess}"]


@pytest.mark.parametrize("workflow", STARTS)
def test_model_is_refused_for_an_agent_without_an_option_for_it(project: Project, workflow: str) -> None:
    done = plan(project, workflow, "--model", "large")
    assert (done.code, "has no option for the model" in done.said, "omit --model" in done.said) == (2, True, True)


def test_model_in_the_settings_of_an_agent_without_an_option_for_it_is_not_shown(project: Project) -> None:
    (project.root / "ralph.yml").write_text("roles: {judge: {model: large}}\n")
    notes = plan(project, "loop").json["notes"]
    assert any(note.endswith("has no option for the model: `model: large` has no effect") for note in notes), notes
    assert not any("(large)" in note for note in notes), notes


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--allow", "test-skiped=x"), "test-skipped"),
        (("--allow", "test-skipped"), "--allow 'test-skipped=the reason'"),
        (("--allow", "test-skipped= "), "--allow 'test-skipped=the reason'"),
    ],
)
@pytest.mark.parametrize("workflow", STARTS)
def test_rule_is_not_lifted_without_a_name_and_a_reason(
    project: Project, workflow: str, given: tuple[str, ...], says: str
) -> None:
    done = plan(project, workflow, *given)
    assert done.code == 2
    assert says in done.out


def test_settings_of_the_user_that_only_hats_read_are_named(project: Project) -> None:
    place = project.home / ".config" / "ralph" / "ralph.yml"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("slots: {machine: 2}\n")
    named = [
        workflow for workflow in STARTS if any(str(place) in note for note in plan(project, workflow).json["notes"])
    ]
    assert named == [workflow for workflow in STARTS if workflow != "hats"]
    assert settings(project, "hats")["slots"]["machine"] == 2
