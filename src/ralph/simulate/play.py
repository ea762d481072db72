"""One simulated run, from its seed: an engine after the other, until there is an outcome that nobody goes on from."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ralph.core.entries import Notice, Record, RunStarted
from ralph.core.events import RunEnded, SignalTaken, Stop, TurnEnded
from ralph.core.limits import Limits, Spent
from ralph.core.outcomes import Outcome
from ralph.core.signals import SignalType
from ralph.engine.kernel import Kernel, Start
from ralph.engine.ledger import Ledger, since_documents
from ralph.engine.ports import Observer, Workflow
from ralph.engine.roster import Roster
from ralph.engine.under_way import World
from ralph.simulate.clock import EPOCH, Endless, VirtualLoop
from ralph.simulate.game import Game
from ralph.simulate.profile import Profile
from ralph.simulate.world import Checker, PowerCut, SimulatedWorld, Slots

POLL = 300.0
"""Seconds of simulated time between two looks into the mailbox."""
ENDLESS = "endless"
GOES_ON = (Outcome.PAUSED, Outcome.INTERRUPTED)
"""Outcomes after which somebody starts the run again."""
AGENT = Roster(("simulated",))


@dataclass(frozen=True)
class Plan:
    """What is simulated."""

    game: Callable[[Profile, random.Random], Game]
    """A new game, for each run."""
    profile: Profile
    limits: Limits
    documents: dict[str, str] = field(default_factory=dict)
    """What is there before the run."""
    edits: dict[str, str] = field(default_factory=dict)
    """What of that others wrote: the run begins with taking it in."""
    slots: int = 1
    """Turns at once."""
    about: str = ""
    """What is assumed, in words."""
    name: str = ""
    """What it is of, where nobody named it."""


@dataclass(frozen=True)
class Played:
    """What came of one run."""

    seed: int
    outcome: str
    reason: str
    true: bool
    """Whether all of the work is really done."""
    spent: Spent
    hours: float
    """Until its end, with all pauses and waits."""
    engines: int
    """How many engines it took."""
    roles: dict[str, int]
    """Turns of each role, or hat."""
    refused: tuple[str, ...]
    """What the engine told of, each once."""
    taken_back: bool = False
    """Whether a person aborted it."""
    records: tuple[Record, ...] = field(default=(), repr=False)
    told: dict[int, str] = field(default_factory=dict, repr=False)
    """What each turn did."""

    @property
    def succeeded(self) -> bool:
        """Whether it ended as a success."""
        return self.outcome in (Outcome.SUCCESS, Outcome.NOTHING_TO_DO)

    @property
    def completed(self) -> bool:
        """Whether that is true."""
        return self.succeeded and self.true


def play(plan: Plan, seed: int, *, keeps: bool = False) -> Played:
    """Simulate the run of a seed; `keeps` its records, to tell it turn by turn."""
    chance = random.Random(seed)
    game = plan.game(plan.profile, chance)
    world = SimulatedWorld(game, plan.profile, chance, plan.limits, plan.edits)
    world.documents.update(plan.documents)
    engines = 0
    while True:
        engines += 1
        try:
            stop = _engine(plan, game.rules, world)
        except PowerCut:
            stop = None
        except Endless as error:
            outcome, reason = ENDLESS, str(error)
            break
        except Exception as error:
            error.add_note(f"in the simulated run of seed {seed}")
            raise
        if stop and stop.outcome not in GOES_ON:
            outcome, reason = str(stop.outcome), stop.reason
            break
        world.without_engine()
    return _played(world, game, seed, outcome, reason, engines, keeps=keeps)


def _engine(plan: Plan, rules: Workflow[Any], world: SimulatedWorld) -> Stop:
    """One engine, until its end or outcome."""
    slots = Slots(plan.slots)
    ports = World(world, world, Checker(world), world, world.clock, Observer(), world, None, world, slots)
    ledger = Ledger.of(plan.limits, world.records)
    begun = bool(world.records)
    entry = RunStarted(1, "0", "simulated", {}, resumed=begun)
    start = Start(entry, AGENT, ledger.limits, since_documents(world.records), (), resumes=begun)
    loop = VirtualLoop(world.clock)
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda loop, context: None)
    try:
        kernel = Kernel(rules, ports, ledger, start)
        kernel.look_every(POLL)
        world.state, world.leave = lambda: kernel.state, kernel.ask_leave
        return loop.run_until_complete(kernel.run())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        asyncio.set_event_loop(None)
        loop.close()


def _played(
    world: SimulatedWorld, game: Game, seed: int, outcome: str, reason: str, engines: int, *, keeps: bool
) -> Played:
    roles: dict[str, int] = {}
    refused = dict.fromkeys(game.remarks)
    spent, taken_back = Spent(), False
    for record in world.records:
        match record.entry:
            case TurnEnded() as ended:
                roles[ended.role] = roles.get(ended.role, 0) + 1
                spent = ended.spent
            case Notice(text=text):
                refused[text.splitlines()[0][:160]] = None
            case RunEnded() as ended:
                spent = ended.spent
            case SignalTaken(signal=signal):
                taken_back = taken_back or signal.type is SignalType.ABORT
    return Played(
        seed,
        outcome,
        reason,
        game.true,
        spent,
        (world.clock.now() - EPOCH) / 3600,
        engines,
        roles,
        tuple(refused),
        taken_back,
        tuple(world.records) if keeps else (),
        world.told if keeps else {},
    )
