"""Every preset through the real command line, on a small project: real git, real agents, real tools, real checks."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_loop import Done, Project, make_project

from ralph.core.errors import UsageError
from ralph.store.presets import list_shipped, load_preset
from ralph.tools import main as tools
from ralph.tools import messages
from ralph.tools.arguments import Command, ToolError

pytestmark = pytest.mark.slow
"""Each plays a whole preset with many turns."""

AGENT = Path(__file__).with_name("preset_agent.py")
SHOP = """\
import tax_old

def total(prices):
    return sum(prices) + tax_old.tax(sum(prices))


def average(prices):
    return sum(prices) / len(prices)
"""
FILES = {
    "shop.py": SHOP,
    "bill.py": "import tax_old\n\n\ndef bill(prices):\n    return [tax_old.tax(price) for price in prices]\n",
    "tax.py": "def tax(price):\n    return price // 10\n",
    "tax_old.py": "def tax(price):\n    return price // 10\n",
    "requirements.txt": "alpha==1\nbeta==1\n",
    "test_shop.py": "import unittest\n\nimport bill\nimport shop\n\n\nclass Tests(unittest.TestCase):\n"
    "    def test_total(self):\n"
    "        self.assertEqual((shop.total([10]), bill.bill([10])), (11, [1]))\n",
    ".gitignore": "__pycache__/\n",
}
PAGES = {"docs": {"docs/first.md", "docs/second.md"}}
OTHERS = [name for name in list_shipped() if name != "code-assist"]
"""code-assist has tests of its own in test_hats.py."""
BRIEFLY = [name if name == "debug" else pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    for made in make_project(tmp_path):
        for name, text in FILES.items():
            (made.root / name).write_text(text)
        made.git("add", "-A")
        made.git("commit", "-qm", "a shop")
        yield made


def begin(project: Project, preset: str, *args: str, **script: Any) -> Done:
    path = project.home / "script.json"
    path.write_text(json.dumps(script))
    (project.home / "preset").write_text(preset)
    project.extra["SCRIPT"] = str(path)
    agent = ["--agent-command", shlex.join([sys.executable, "-S", "-E", str(AGENT)]), "--yes"]
    return project.ralph("run", "-H", f"builtin:{preset}", "-p", "See to averages", *agent, *args)


def turns(project: Project) -> list[str]:
    return (project.home / "turns").read_text().splitlines()


def written(hats: str, start: str, topics: str) -> list[str]:
    """Two pieces of work, the first doubted once; the last word is refused once, for all that the engine found."""
    first, worker, judge = hats.split()
    begins, done, doubt, left = topics.split()
    rounds = [f"{worker} {topic}" for topic in (begins, doubt, left)]
    return [
        f"{first} {start}",
        *(turn for one in rounds for turn in (one, f"{judge} {done}")),
        f"{judge} {done}",
    ]


EXPECTED = {
    "debug": [
        *("investigator debug.start", "investigator bug.unseen", "fixer bug.reproduced", "fixer fix.rejected"),
        *("sceptic fix.ready", "fixer fix.rejected", "sceptic fix.ready"),
    ],
    "tdd": [
        *("tester tdd.start", "coder test.red", "coder code.red", "refactorer test.green", "tester behaviour.done"),
        *("coder test.red", "refactorer test.green", "tester behaviour.missing"),
        *("tester test.passes", "coder test.red", "refactorer test.green"),
    ],
    "spec-driven": [
        *("specifier spec.start", "specifier spec.untested", "builder spec.ready", "verifier criterion.built"),
        *(
            "builder criterion.next",
            "verifier criterion.built",
            "builder criterion.rejected",
            "verifier criterion.built",
        ),
    ],
    "migration": [
        *("surveyor migration.start", "surveyor survey.unmarked", "migrator survey.ready", "inspector slice.moved"),
        *("migrator slices.left", "surveyor slice.blocked", "migrator survey.ready", "inspector slice.moved"),
        *("migrator slices.left", "inspector slice.moved"),
    ],
    "dependency-upgrade": [
        *("surveyor upgrade.start", "surveyor plan.unmarked"),
        *("upgrader plan.ready", "inspector upgrade.impossible", "upgrader upgrade.rejected", "inspector upgrade.made"),
        *(
            "upgrader upgrades.left",
            "inspector upgrade.impossible",
            "upgrader upgrade.rejected",
            "inspector upgrade.made",
        ),
    ],
    "review": written("scout reviewer sceptic", "review.start", "areas.ready area.reviewed area.doubtful review.left"),
    "research": written(
        "planner researcher examiner", "research.start", "questions.ready answer.ready answer.doubtful research.left"
    ),
    "bug-triage": written(
        "collector triager assessor", "triage.start", "reports.ready report.triaged report.doubtful triage.left"
    ),
    "docs": written("outliner writer reader", "docs.start", "outline.ready page.written page.unclear pages.left"),
}
"""The turns of a run: who, about what. The engine sends back what it did not see; a critic sends back what is not right."""


@pytest.mark.parametrize("preset", BRIEFLY)
def test_a_preset_goes_from_its_first_event_to_verified_work(project: Project, preset: str) -> None:
    done = begin(project, preset)
    assert (done.code, "all checks pass" in done.out) == (0, True), done.said
    assert turns(project) == EXPECTED[preset]
    [log] = (project.root / ".ralph").glob("events-*.jsonl")
    seen = {json.loads(line)["topic"] for line in log.read_text().splitlines()}
    asked = load_preset(project.root, (), f"builtin:{preset}").preset
    published = {topic for hat in asked.hats.values() for topic in hat.publishes}
    rare = {"cause.wrong", "test.wrong", "spec.unclear", "slice.rejected", asked.event_loop.cancellation_promise}
    assert published - seen <= rare, "every topic is published in the run, but for these"
    called = [json.loads(line) for line in (project.home / "calls").read_text().splitlines()]
    for words in commands_of(preset):
        own = words[1:4] if words[1] == "tools" else words[1:2]
        assert any(call[: len(own)] == own for call in called) or own == ["tools", "task", "fail"], words
    if asked.event_loop.scope:
        last = project.ralph("prompt", "--json").json["prompt"]
        assert "notes.txt was changed, and only" in last, "what it left behind had to go"
        changed = {line[3:] for line in project.git("status", "--porcelain", "-uall").splitlines()}
        assert {path for path in changed if not path.startswith(".agents/")} == PAGES.get(preset, set())


def test_failed_upgrade_is_not_a_success_and_the_rest_stays(project: Project) -> None:
    done = begin(project, "dependency-upgrade", stuck="beta")
    assert (done.code, 'cancelled by inspector: {"which":"beta"}' in done.out) == (8, True), done.said
    assert (project.root / "requirements.txt").read_text() == "alpha==2\nbeta==1\n"
    tasks = [json.loads(line) for line in (project.root / ".ralph/agent/tasks.jsonl").read_text().splitlines()]
    assert [task["status"] for task in tasks] == ["closed", "failed"]


@pytest.mark.parametrize("preset", BRIEFLY)
def test_lying_agent_does_not_succeed(project: Project, preset: str) -> None:
    done = begin(project, preset, "--max-iterations", "14", lies=True)
    assert done.code in (3, 4), done.said
    assert project.git("status", "--porcelain") == "", "it did nothing"


def commands_of(preset: str) -> list[list[str]]:
    """The words of every command that a preset's instructions name."""
    hats = load_preset(Path("/"), (), f"builtin:{preset}").preset.hats.values()
    found = [one for hat in hats for one in re.findall(r"`(ralph [^`]+)`", " ".join(hat.instructions.split()))]
    return [shlex.split(one.replace("--confidence N", "--confidence 70")) for one in found]


@pytest.mark.parametrize("preset", list_shipped())
class TestInstructions:
    def test_every_command_exists_and_is_accepted(self, preset: str) -> None:
        for words in commands_of(preset):
            if words[1] == "emit":
                known, rest = [messages.EMIT], words[1:]
            else:
                assert words[1] == "tools", words
                known, rest = list(tools.commands(words[2])), words[3:]
            [command] = [one for one in known if one.name == rest[0]]
            parsed = Command(command.name, command.about, lambda given: 0, *command.arguments[:-1])
            assert parsed.run("ralph", rest[1:]) == 0

    def test_payloads_are_json_with_the_fields_of_their_topic(self, preset: str) -> None:
        loaded = load_preset(Path("/"), (), f"builtin:{preset}").preset
        for hat in loaded.hats.values():
            for text in re.findall(r"--json '(\{.*?\})'", " ".join(hat.instructions.split())):
                needed = [set(loaded.events[t].requires) for t in hat.publishes if t in loaded.events]
                assert any(one and one <= json.loads(text).keys() for one in needed), text

    def test_topics_that_instructions_name_are_the_hats_own(self, preset: str) -> None:
        loaded = load_preset(Path("/"), (), f"builtin:{preset}").preset
        known = {topic for hat in loaded.hats.values() for topic in (*hat.triggers, *hat.publishes)}
        for id, hat in loaded.hats.items():
            named = set(re.findall(r"`([a-z]+\.[a-z]+)`", hat.instructions)) - {"context.md", "plan.md", "progress.md"}
            assert named <= {*hat.triggers, *hat.publishes}, (id, named - {*hat.triggers, *hat.publishes})
            assert {*hat.publishes} & known

    def test_its_fixed_text_is_small(self, preset: str) -> None:
        loaded = load_preset(Path("/"), (), f"builtin:{preset}").preset
        for id, hat in loaded.hats.items():
            assert len(hat.instructions) < 4 * 650, f"{id} is told too much"

    def test_hats_stay_in_scope_and_have_an_end(self, preset: str) -> None:
        loaded = load_preset(Path("/"), (), f"builtin:{preset}").preset
        assert loaded.event_loop.enforce_hat_scope and loaded.event_loop.required_events and loaded.event_loop.checks
        asking = [hat for hat in loaded.hats.values() if hat.may_ask]
        assert all(loaded.event_loop.starting_event in hat.triggers for hat in asking), (
            "only who begins may ask a person"
        )


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    with pytest.raises(ToolError):
        tools.commands("task")[0].run("ralph", ["--nonsense"])
    with pytest.raises(UsageError):
        load_preset(Path("/"), (), "builtin:nothing")


@pytest.mark.parametrize("preset", list_shipped())
def test_nothing_is_wrong_with_a_preset_by_its_rules(project: Project, preset: str) -> None:
    done = project.ralph("hats", "check", f"builtin:{preset}")
    assert (done.code, "no problems" in done.out) == (0, True), done.said
