"""Adapters of third parties, found by entry points: used like our own, and harmless where they are broken."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import ralph
from ralph.agents import registry, third_party
from ralph.agents.adapter import Call
from ralph.core.errors import AgentUnavailableError, UsageError
from ralph.core.limits import Usage
from ralph.core.turns import AgentEvent, Failure
from ralph.documents import config
from ralph.documents.run_record import AgentSpec
from ralph.workspace.turn_files import OutputTail

RALPH = Path(sys.executable).with_name("ralph")
NUMBERS = count()
TEMPLATE = Path(__file__).parents[2] / "examples" / "agent-plugin" / "src"
HEAD = """
from ralph.agents.adapter import Adapter

class Owl(Adapter):
    name, install, advice = "owl", "pip install owl", "run `owl login`"
    def command(self, call): return ("owl",)
    def reader(self, call, before): raise NotImplementedError
"""
BROKEN = {
    "missing": ("", "cannot be imported: ModuleNotFoundError"),
    "syntax": ("def", "cannot be imported: SyntaxError"),
    "leaving": ("import sys; sys.exit(3)", "cannot be imported: SystemExit"),
    "nothing": ("", "cannot be imported: AttributeError"),
    "function": ("def Owl(*_): return None", "it is not a subclass of ralph.agents.adapter.Adapter"),
    "other": ("class Owl: pass", "it is not a subclass of ralph.agents.adapter.Adapter"),
    "abstract": (HEAD.replace("def command", "def another"), "Owl does not define command"),
    "silent": (HEAD.replace('"pip install owl"', '""'), "Owl does not set install"),
    "alias": (HEAD.replace('"owl", "pip', '"barn-owl", "pip'), "Owl has the name barn-owl"),
    "unsaid": (HEAD + "    abilities = property(lambda self: self.moon)\n", "cannot be created: AttributeError"),
    "raising": (
        HEAD + "    def __init__(self, *_): raise ValueError('no moon')\n",
        "cannot be created: ValueError: no moon",
    ),
}


def install(place: Path, package: str, module: str, text: str | None, **entries: str) -> None:
    """A package with entry points, as pip would leave it."""
    about = place / f"{package.replace('-', '_')}-1.2.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (about / "entry_points.txt").write_text("\n".join(["[ralph.agents]", *lines, ""]))
    if text is not None:
        (place / f"{module}.py").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of packages that Python looks into."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    return place


@pytest.fixture
def owl(site: Path) -> Callable[[str | None], None]:
    """Installs a package with an agent `owl`; each has a module of its own, for modules are kept once they are imported."""
    module = f"owl_{next(NUMBERS)}"
    return lambda text: install(site, "ralph-agent-owl", module, text, owl=f"{module}:Owl")


class TestRegistry:
    """What the registry makes of installed packages."""

    def test_an_adapter_is_found_by_its_name(self, owl: Callable[[str | None], None]) -> None:
        owl(HEAD)
        assert registry.get_adapter("owl", "/opt/owl").program == "/opt/owl"
        assert registry.make_adapter(AgentSpec("owl")).name == "owl"
        assert registry.list_third_party() == {"owl": None}

    @pytest.mark.parametrize("how", BROKEN)
    def test_unusable_adapter_is_an_error_that_names_its_package(self, how: str, owl: Any) -> None:
        text, told = BROKEN[how]
        owl(None if how == "missing" else text)
        with pytest.raises(AgentUnavailableError) as error:
            registry.select_agents(config.Config(), ("owl",), None, None, Path())
        assert told in error.value.what
        assert error.value.where.startswith("ralph-agent-owl 1.2 (owl = owl_")
        assert "pip uninstall ralph-agent-owl" in error.value.todo
        assert str(registry.list_third_party()["owl"]) == str(error.value)

    def test_a_name_of_ours_stays_ours(self, site: Path) -> None:
        install(site, "impostor", "impostor", HEAD, claude="impostor:Owl", scripted="impostor:Owl")
        assert type(registry.get_adapter("claude")).__module__ == "ralph.agents.claude"
        wrong = registry.list_third_party()
        assert all("an agent that Ralph ships" in str(wrong[name]) for name in ("claude", "scripted"))
        with pytest.raises(UsageError, match="unknown agent"):
            registry.select_agents(config.parse_config("agents: [scripted]", ""), (), None, None, Path())

    def test_name_that_two_packages_claim_belongs_to_neither(
        self, site: Path, owl: Callable[[str | None], None]
    ) -> None:
        owl(HEAD)
        install(site, "another-owl", "another", HEAD, owl="another:Owl")
        with pytest.raises(AgentUnavailableError, match="2 packages claim the agent owl") as error:
            registry.get_adapter("owl")
        assert "another-owl 1.2" in error.value.where and "ralph-agent-owl 1.2" in error.value.where

    def test_error_about_an_unknown_name_lists_the_packages(self, owl: Callable[[str | None], None]) -> None:
        owl(HEAD)
        with pytest.raises(UsageError, match="unknown agent 'howl'") as error:
            registry.select_agents(config.Config(), ("howl",), None, None, Path())
        assert error.value.todo.startswith("did you mean owl? known values: claude, ")

    def test_settings_may_name_it_everywhere(
        self, owl: Callable[[str | None], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owl(HEAD)
        (tmp_path / "owl").write_text("#!/bin/sh\n")
        (tmp_path / "owl").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        text = "agents: [{agent: owl, model: snowy}]\nroles: {debugger: {agent: owl}}\nescalate: {agent: owl, model: eagle}"
        selection = registry.select_agents(config.parse_config(text, ""), (), None, None, Path())
        assert list(selection.by_label) == ["owl (snowy)", "owl", "owl (eagle)"]
        assert registry.select_agents(config.parse_config("agent: owl", ""), (), None, None, Path()).chain == (
            AgentSpec("owl"),
        )

    def test_adapter_of_a_plugin_is_used_if_it_is_the_only_one(
        self, owl: Callable[[str | None], None], site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owl(HEAD)
        install(site, "ralph-agent-dodo", "dodo", None, dodo="dodo:Dodo")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(AgentUnavailableError, match="none was found"):
            registry.select_agents(config.Config(), (), None, None, Path())
        (tmp_path / "owl").write_text("#!/bin/sh\n")
        (tmp_path / "owl").chmod(0o755)
        assert registry.select_agents(config.Config(), (), None, None, Path()).chain == (AgentSpec("owl"),)

    def test_packages_are_not_looked_at_for_agents_of_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def looked_at(**_: object) -> None:
            pytest.fail("entry points were read")

        monkeypatch.setattr(third_party, "entry_points", looked_at)
        for name in registry.ADAPTERS:
            registry.make_adapter(AgentSpec(name))
        registry.make_adapter(AgentSpec("command", ("true",)))
        registry.select_agents(config.Config(), (), "true", None, Path())


@dataclass
class Bench:
    """A project, and the command line with packages beside it."""

    place: Path

    @property
    def root(self) -> Path:
        return self.place / "project"

    def ralph(self, *args: str, without: bool = False, code: int = 0, **variables: str) -> str:
        """What a command says; `without` the packages where they are gone."""
        dropped = ("RALPH_", "GIT_", "XDG_STATE_", "PARROT_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        packages = "" if without else f"{self.place / 'site'}:{TEMPLATE}"
        own = {"PYTHONPATH": packages, "HOME": str(self.place), "PATH": f"{self.place / 'bin'}:/usr/bin:/bin"}
        own |= {"GIT_CONFIG_GLOBAL": "/dev/null", "PARROT_API_KEY": "any"}
        words = [str(RALPH), *args]
        done = subprocess.run(
            words,
            cwd=self.root,
            env={**kept, **own, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code and "Traceback" not in said, said
        return said


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """With the template installed, and its program on the PATH."""
    for name in ("project", "site", "bin"):
        (tmp_path / name).mkdir()
    install(tmp_path / "site", "ralph-agent-parrot", "", None, parrot="ralph_agent_parrot.adapter:Parrot")
    program = tmp_path / "bin" / "parrot"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={TEMPLATE} exec {sys.executable} -m ralph_agent_parrot.program "$@"\n')
    program.chmod(0o755)
    return Bench(tmp_path)


TASK = ("loop", "Write hello into hello.txt", "--until", "`grep -q hello hello.txt`", "--agent", "parrot", "--yes")
HARD = ("loop", "Write hello into hello.txt", "--until", "`test -f more.txt`", "--agent", "parrot", "--yes")


RAISES = """
from ralph_agent_parrot.adapter import Parrot, ParrotReader

class Deaf(ParrotReader):
    def events(self, data):
        yield from super().events(data)
        if data.get("type") == "says":
            {does}

class Owl(Parrot):
    name = "owl"
    def reader(self, call, before): return Deaf()
    def failure(self, code, stderr): raise OSError("no moon")
    def prepare(self, environment): raise OSError("no moon")
    def can_receive_messages(self, call): raise OSError("no moon")
    def sign_in(self, environment, home): raise OSError("no moon")
    def environment(self, call): return None
"""


class TestFaults:
    """What an adapter raises is told as its package's fault, and never ends the engine."""

    @pytest.mark.parametrize("does", ("raise KeyError('type')", "yield 'done'"))
    def test_a_reader_that_fails_makes_the_turn_a_failure(
        self, does: str, owl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(str(TEMPLATE))
        owl(RAISES.replace("{does}", does))
        recorded = TEMPLATE.parent / "tests" / "streams" / "parrot.jsonl"
        (tmp_path / "stdout").write_bytes(recorded.read_bytes())
        told: list[AgentEvent] = []
        account = OutputTail(
            tmp_path, registry.get_adapter("owl").reader(Call(tmp_path), Usage()), told.append
        ).finish()
        assert (account.finished, account.failure) == (False, Failure.AGENT)
        assert account.error.startswith("the adapter of owl (ralph-agent-owl 1.2) fails in read(): ")
        assert told[-1].text == account.error and told[0].session

    def test_other_failures_are_tolerated_or_reported(
        self, owl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(str(TEMPLATE))
        owl(RAISES.replace("{does}", "pass"))
        agent, call = registry.get_adapter("owl"), Call(tmp_path)
        assert agent.command(call)[0] == "owl" and agent.abilities.resume
        told = "the adapter of owl (ralph-agent-owl 1.2) fails in {}(): OSError: no moon"
        assert agent.failure(1, "") == (Failure.AGENT, told.format("failure"))
        assert (agent.can_receive_messages(call), agent.prepare({})) == (False, told.format("prepare"))
        assert agent.sign_in({}, tmp_path) == (False, told.format("sign_in"))
        with pytest.raises(AgentUnavailableError, match="fails in environment"):
            agent.environment(call)

    def test_one_that_cannot_start_a_turn_ends_the_run_with_its_name(self, bench: Bench) -> None:
        install(bench.place / "site", "ralph-agent-owl", "owl", RAISES.replace("{does}", "pass"), owl="owl:Owl")
        (bench.place / "bin" / "owl").symlink_to(bench.place / "bin" / "parrot")
        said = bench.ralph(*TASK[:-2], "owl", "--yes", code=6)
        assert "the adapter of owl (ralph-agent-owl 1.2) fails in environment(): TypeError" in said
        assert "update or fix that package, or name another agent" in said
        done = bench.ralph(*TASK[:-2], "owl", "--agent", "parrot", "--yes")
        assert "turn 2: implementer (parrot)" in done, "the next agent takes over"


class TestCommandLine:
    """The template as a new user would use it."""

    def test_a_loop_with_its_receipt(self, bench: Bench) -> None:
        bench.ralph(*TASK, "--model", "grey")
        assert (bench.root / "hello.txt").read_text() == "hello\n"
        receipt = json.loads(bench.ralph("cost", "--json"))
        assert receipt["by_agent"]["parrot (grey)"]["output_tokens"] == 30

    def test_without_a_key_it_says_what_to_do(self, bench: Bench) -> None:
        assert "run `parrot login`, or set PARROT_API_KEY" in bench.ralph(*TASK, PARROT_API_KEY="", code=6)

    def test_the_doctor_knows_it(self, bench: Bench) -> None:
        assert "ok   agent      parrot: parrot 0.1.0, not tested, signed in (PARROT_API_KEY)" in bench.ralph("doctor")

    @pytest.mark.slow
    def test_broken_package_is_a_bad_line_and_affects_no_other(self, bench: Bench) -> None:
        install(bench.place / "site", "ralph-agent-dodo", "dodo", "import extinct", dodo="dodo:Dodo")
        install(bench.place / "site", "impostor", "", None, codex="dodo:Dodo")
        said = bench.ralph("doctor", code=2)
        assert "BAD  agent      dodo: the adapter of dodo cannot be imported: ModuleNotFoundError" in said
        assert "ralph-agent-dodo 1.2" in said and "next: update or fix that package" in said
        assert "BAD  agent      codex: an installed package claims codex" in said
        bench.ralph("--help")
        bench.ralph("status")
        bench.ralph(*TASK)

    @pytest.mark.slow
    def test_resume_names_a_plugin_that_is_no_longer_installed(self, bench: Bench) -> None:
        bench.ralph(*HARD, "--max-iterations", "1", code=3)
        said = bench.ralph("resume", "--max-iterations", "3", without=True, code=6)
        assert "no installed package has an adapter for parrot" in said
        assert "install the package that had it" in said
        (bench.root / "more.txt").touch()
        bench.ralph("resume", "--max-iterations", "3")

    @pytest.mark.slow
    def test_a_run_can_be_ended_though_it_is_gone(self, bench: Bench) -> None:
        bench.ralph(*HARD, "--max-iterations", "1", code=3)
        bench.ralph("abort", without=True)
        bench.ralph("cost", without=True)


@pytest.mark.slow
def test_an_adapter_of_a_third_party_passes_a_strict_type_check(tmp_path: Path) -> None:
    """Ralph ships its types (`py.typed`): without them, mypy takes everything that comes from it for Any."""
    assert Path(ralph.__file__).with_name("py.typed").exists()
    checked = [str(TEMPLATE), str(TEMPLATE.parent / "tests")]
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", *checked]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
