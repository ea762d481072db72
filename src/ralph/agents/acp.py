"""Any agent that speaks the Agent Client Protocol, behind a bridge of ours that turns it into a stream."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ralph.agents.acp_steering import PROGRAMS
from ralph.agents.adapter import Adapter
from ralph.agents.agent import FULL_AUTO, PERMISSIONS, Abilities, Call
from ralph.agents.prices import Prices, cost_of
from ralph.agents.programs import EventLines
from ralph.agents.stream_lines import parse
from ralph.core.limits import Usage
from ralph.core.stream import AgentEvent, Kind

_MODES = {level: ("--permissions", level) if level != FULL_AUTO else () for level in PERMISSIONS}
"""The bridge chooses the agent's mode; which modes it has is known only when it has spoken."""


class Acp(Adapter):
    """An agent by the words that start it. Whether it tells tokens or money is known only when it has spoken."""

    install = "pip install 'ralph-engine[acp]'"
    abilities = Abilities(resume=True, session=True, tool_limits=True)

    permission_modes = _MODES

    def __init__(self, name: str, words: tuple[str, ...], prices: Prices | None = None) -> None:
        self.name = name
        self.advice = f"see to it that `{' '.join(words)}` works for you: it must be signed in, or find its key"
        super().__init__(words[0], prices)
        self.words = words
        names = [Path(part).name for part in words]
        self.behind = _hooked(names)
        """The adapter of the same program by its own stream, where its hooks work here too."""
        if self.behind:
            self.ralph_command = self.behind.ralph_command
        steers = any(name in PROGRAMS for name in names)
        self.abilities = replace(Acp.abilities, live_input=steers, hooks=self.behind is not None)

    def command(self, call: Call) -> tuple[str, ...]:
        """The bridge, and behind it the agent."""
        return (
            *(sys.executable, "-P", "-m", "ralph.agents.acp_bridge"),
            *(("--model", call.model) if call.model else ()),
            *(("--session", call.session) if call.session else ()),
            *(part for tool in call.without_tools for part in ("--without-tool", tool)),
            *self.permission_words(call),
            "--",
            *self.words,
            *self.hook_words,
            *call.arguments,
        )

    def environment(self, call: Call) -> Mapping[str, str]:
        """Where our hooks are."""
        return self.hook_variables

    def ready(self, environment: Mapping[str, str]) -> str:
        """Lay our hooks as for the same program by its own stream."""
        if self.behind is None:
            return ""
        notice = self.behind.ready(environment)
        self.hook_words, self.hook_variables = self.behind.hook_words, self.behind.hook_variables
        return notice

    def sign_in(self, environment: Mapping[str, str], home: Path) -> tuple[bool | None, str]:
        """Only the agent itself knows, and says so when it is asked to work."""
        return None, "the agent says so when it is asked to work"

    def reader(self, call: Call, before: Usage) -> "AcpReader":
        """Who reads what the bridge tells."""
        return AcpReader(self.prices, before.cost or 0.0)


def _hooked(names: Iterable[str]) -> Adapter | None:
    from ralph.agents.copilot import Copilot
    from ralph.agents.qwen import Qwen

    kinds: dict[str, type[Adapter]] = {"copilot": Copilot, "qwen": Qwen}
    return next((kinds[name]() for name in names if name in kinds), None)


class AcpReader(EventLines):
    """Reads events in Ralph's own form; where they tell tokens of a model and no money, that is reckoned."""

    def __init__(self, prices: Prices, earlier: float) -> None:
        self.prices = prices
        self.earlier = earlier
        """US dollars that the conversation cost before."""
        self.tells = False
        """Whether it has told what it uses."""

    def read(self, line: bytes) -> Iterable[AgentEvent]:
        """The event in a line."""
        events = [self._priced(event, line) for event in super().read(line)]
        if not self.tells and any(event.kind is Kind.RESULT for event in events):
            return [AgentEvent(Kind.USAGE, usage=Usage(unpriced="")), *events]
        return events

    def _priced(self, event: AgentEvent, line: bytes) -> AgentEvent:
        used = event.usage
        if event.kind is not Kind.USAGE:
            return event
        self.tells = True
        data, cost = parse(line), used.cost
        if cost is None:
            cached = data.count("cached_tokens")
            cost = cost_of(data.word("model"), used.input_tokens, cached, used.output_tokens, self.prices)
        elif data.get("whole_cost") is True and cost >= self.earlier:
            cost -= self.earlier
        return replace(event, usage=replace(used, cost=cost))
