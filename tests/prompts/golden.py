"""Prompts as agents read them, one case for each situation, kept as files under `golden/`.

Every module `*_cases.py` of this directory has a function `cases()`. To add prompts, add a case there, run `make prompts`, and
read the new file as an agent would: what am I to do, what do I write, where, what counts as done, what must I not do?
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ralph.core.prompt import Place, Prompt, PromptPart
from ralph.core.signals import DatedSignal, Signal, SignalType
from ralph.core.turns import Change, EarlierTurn, FileStat, TurnEnd, TurnRequest
from ralph.documents.answers import describe_earlier_turns
from ralph.documents.signals import Messages, render_guidance
from ralph.store.settings import load_prompt

GOLDEN = Path(__file__).with_name("golden")
NOWHERE = Path("/nonexistent")
NOW = 1_800_000_000.0
PEER_TOKENS = 3200
"""The fixed part of a prompt of the peer that we compare with."""


@dataclass(frozen=True)
class Case:
    """One prompt, with what is there when the agent reads it."""

    name: str
    """Where its file is, without the ending: `loop/first-iteration`."""
    prompt: Prompt
    inbox: frozenset[str] = frozenset()
    """The files in the inbox."""
    paths: frozenset[str] = frozenset()
    """The files and directories of the workspace that the prompt may name, those that the agent is to write included."""
    fixed: frozenset[str] = frozenset()
    """The parts that are the same for every task."""

    @property
    def path(self) -> Path:
        return GOLDEN / f"{self.name}.md"


def collect() -> list[Case]:
    """All cases, by name."""
    found: dict[str, Case] = {}
    for module in sorted(Path(__file__).parent.glob("*_cases.py")):
        for case in importlib.import_module(module.stem).cases():
            assert case.name not in found, f"two cases are called {case.name}"
            found[case.name] = case
    return sorted(found.values(), key=lambda case: case.name)


def inbox_of(request: TurnRequest) -> frozenset[str]:
    """The files that a turn finds in its inbox."""
    form = {"result.schema.json"} if request.answer_schema else set()
    return frozenset({*request.inbox, *request.copied_files, *form})


def with_messages(request: TurnRequest, *messages: tuple[SignalType, str], in_force: tuple[str, ...] = ()) -> Prompt:
    """The prompt of a turn with messages of the user, as the agent gets it."""
    told = Messages(
        new=list(_received(*messages)), in_force=list(_received(*((SignalType.STEER, one) for one in in_force)))
    )
    guidance = render_guidance(load_prompt("steering", NOWHERE), told, writes_result=bool(request.answer_schema))
    return request.prompt.with_parts(PromptPart("messages", guidance.text, "What the user said.", Place.MESSAGES))


def after_steer(request: TurnRequest, message: str, *stats: FileStat, has_documents: bool = False) -> Prompt:
    """The prompt of a turn that goes on for an agent without a memory, because a message came too late for turn 7."""
    change = Change("sha", len(stats), stats=stats)
    earlier = (EarlierTurn(7, TurnEnd.STEERED, change),)
    part = describe_earlier_turns(earlier, request, has_documents=has_documents)
    return with_messages(request, (SignalType.STEER, message)).with_parts(part)


def _received(*messages: tuple[SignalType, str]) -> Iterator[DatedSignal]:
    for number, (kind, text) in enumerate(messages):
        yield DatedSignal(Signal(f"{number}.yaml", kind, text), NOW + 60 * number)
