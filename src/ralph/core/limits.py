"""What a run may spend, what it has spent, and which limit that reaches."""

import math
from dataclasses import replace
from datetime import datetime

from ralph.core.outcomes import Outcome
from ralph.core.text import count, format_dollars
from ralph.core.values import value


@value
class Usage:
    """What one turn used, as far as its agent reports it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """US dollars; None if the agent does not report a cost."""
    unpriced: str | None = None
    """The model whose tokens have no known price, empty if the agent did not name it; None if all have a price."""
    cached_tokens: int = 0
    """Those of the tokens in that came from a cache."""
    reasoning_tokens: int = 0
    """Those of the tokens out that were thoughts."""
    model: str = ""
    """The model, or models, that the agent named."""

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        cost = None if self.cost is None and other.cost is None else (self.cost or 0.0) + (other.cost or 0.0)
        unpriced = other.unpriced if self.unpriced is None else self.unpriced
        models = dict.fromkeys(name for name in (*self.model.split(", "), *other.model.split(", ")) if name)
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=cost,
            unpriced=unpriced,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            model=", ".join(models),
        )


@value
class Quota:
    """How much of a subscription is used, as its provider reports it."""

    share: float
    """From 0 to 1; of several windows, the one that is used most."""
    window: str = ""
    """What it is a share of, for example `five-hour`."""
    resets_at: float | None = None
    """When that window ends, in seconds since the epoch."""

    def __str__(self) -> str:
        window = f"{self.window} quota" if self.window else "quota"
        until = f", which resets at {datetime.fromtimestamp(self.resets_at):%Y-%m-%d %H:%M}" if self.resets_at else ""
        return f"{self.share:.0%} of its {window}{until}"


@value
class Spent:
    """The counters of a run; they carry on over every resume."""

    iterations: int = 0
    turns: int = 0
    active_seconds: float = 0.0
    """Time in which the run worked; pauses and waits for a rate limit are not in it."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced_turns: int = 0
    """Turns whose agent reported no cost: `cost` is then a lower bound."""
    unpriced: str | None = None
    """The first model whose tokens had no known price, as in `Usage`."""

    @property
    def cost_is_unknown(self) -> bool:
        """Whether there were turns without a price, and no other turn cost anything."""
        return self.unpriced_turns > 0 and not self.cost

    def with_turn(self, usage: Usage, *, is_iteration: bool) -> "Spent":
        """The counters after one more turn."""
        return replace(
            self,
            turns=self.turns + 1,
            iterations=self.iterations + is_iteration,
            input_tokens=self.input_tokens + usage.input_tokens,
            output_tokens=self.output_tokens + usage.output_tokens,
            cost=round(self.cost + (usage.cost or 0.0), 9),
            unpriced_turns=self.unpriced_turns + (usage.cost is None),
            unpriced=usage.unpriced if self.unpriced is None else self.unpriced,
        )

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens


def describe_cost(spent: Spent) -> str:
    """The money spent, honest about turns whose price is not known."""
    if spent.cost_is_unknown:
        if spent.unpriced is None:
            return "unknown (the agent reported no cost)"
        return "unknown (Ralph knows no price for this agent)"
    known = format_dollars(spent.cost)
    if spent.unpriced_turns:
        return f"at least {known}, {count(spent.unpriced_turns, 'turn')} without a price"
    return known


@value
class Limits:
    """The allowances of a run; None is no limit."""

    iterations: int | None = 10
    active_seconds: float | None = 3600.0
    deadline: float | None = None
    """A moment (seconds since the epoch), not a duration."""
    tokens: int | None = None
    cost: float | None = None
    allow_unpriced: bool = False
    """Whether to continue although the limit on cost cannot hold, because a price is not known."""

    quota: float | None = None
    """The share of an agent's subscription, from 0 to 1, at which the run stops using that agent."""

    def is_over_quota(self, quota: Quota | None, now: float) -> bool:
        """Whether an agent whose provider reported this may not be used now."""
        if self.quota is None or quota is None or quota.share < self.quota:
            return False
        return quota.resets_at is None or now < quota.resets_at

    def find_reached(self, spent: Spent, now: float, *, running: Usage | None = None) -> Outcome | None:
        """The limit that is reached, if any. Iterations are checked separately.

        `running` is what the turns in progress have used so far.
        """
        used = running or Usage()
        if self.deadline is not None and now >= self.deadline:
            return Outcome.LIMIT_DEADLINE
        if self.active_seconds is not None and spent.active_seconds >= self.active_seconds:
            return Outcome.LIMIT_TIME
        if self.cost is not None and spent.cost + (used.cost or 0.0) >= self.cost:
            return Outcome.LIMIT_COST
        if self.cost is not None and not self.allow_unpriced and (spent.unpriced, used.unpriced) != (None, None):
            return Outcome.COST_UNKNOWN
        if self.tokens is not None and spent.tokens + used.tokens >= self.tokens:
            return Outcome.LIMIT_TOKENS
        return None

    def is_out_of_iterations(self, spent: Spent, in_progress: int = 0) -> bool:
        """Whether no further iteration may begin; the last allowed one is always finished and judged."""
        return self.iterations is not None and spent.iterations + in_progress >= self.iterations

    def may_reserve(self, spent: Spent, reserved: float, estimate: float) -> bool:
        """Whether the money for one more turn is there beside what is reserved for running ones."""
        return self.cost is None or spent.cost + reserved + estimate <= self.cost

    def compute_remaining_cost(self, spent: Spent, reserved: float = 0.0) -> float | None:
        """The money a new turn may use."""
        return None if self.cost is None else max(0.0, self.cost - spent.cost - reserved)

    def extend(self, reached: Outcome, spent: Spent, granted: "Limits") -> "Limits":
        """These limits with the allowance that was reached granted again."""
        name = _ALLOWANCES.get(reached)
        if name is None:
            return self
        total = getattr(spent, name) + (getattr(granted, name) or 0)
        if name == "active_seconds":
            total = 60 * _round_up(total / 60)
        if name == "cost":
            total = _round_up(total)
        return replace(self, **{name: total})


@value
class Raise:
    """How a run that ended on a limit can continue."""

    option: str
    """What to give to `ralph resume`."""
    grants: str
    """What that grants."""


def list_options_to_continue(
    reached: Outcome, limits: Limits, spent: Spent, allowance: Limits | None = None
) -> tuple[Raise, ...]:
    """The options of `ralph resume` that raise the limit that was reached, the first being the usual one.

    That one grants what `ralph resume` without options grants: the allowance with which the run was started.
    """
    raised = limits.extend(reached, spent, allowance or limits)
    match reached:
        case Outcome.LIMIT_ITERATIONS:
            more = (raised.iterations or 0) - spent.iterations
            return (Raise(f"--max-iterations {raised.iterations}", count(more, "more iteration")),)
        case Outcome.LIMIT_TIME:
            minutes = (raised.active_seconds or 0.0) / 60
            return (Raise(f"--timeout {minutes:g}", _describe_more_minutes(raised, spent)),)
        case Outcome.LIMIT_COST:
            total = raised.cost or 0.0
            return (Raise(f"--max-cost {total:g}", f"${total - spent.cost:.2f} more"),)
        case Outcome.COST_UNKNOWN:
            return (
                Raise("--allow-unpriced", "Ralph then does not enforce the cost limit; or start again with `prices:`"),
            )
        case Outcome.LIMIT_TOKENS:
            more = (raised.tokens or 0) - spent.tokens
            return (Raise(f"--max-tokens {raised.tokens}", f"{more} more tokens"),)
        case Outcome.LIMIT_QUOTA:
            return (Raise("--max-quota 100%", "the whole subscription; after its reset, omit the option"),)
        case Outcome.LIMIT_DEADLINE:
            later = datetime.fromtimestamp((limits.deadline or 0.0) + DAY).strftime("%Y-%m-%dT%H:%M")
            return (Raise("--no-deadline", "without a deadline"), Raise(f"--deadline {later}", "one more day"))
        case _:
            return ()


def describe_grants(before: Limits, after: Limits, spent: Spent) -> list[str]:
    """What new limits allow from now on, and in all."""
    grants = []
    if after.iterations != before.iterations and after.iterations is not None:
        more = count(after.iterations - spent.iterations, "more iteration")
        grants.append(f"{more}, {after.iterations} in all")
    if after.active_seconds != before.active_seconds and after.active_seconds is not None:
        grants.append(f"{_describe_more_minutes(after, spent)}, {after.active_seconds / 60:.4g} in all")
    if after.cost != before.cost and after.cost is not None:
        grants.append(f"${after.cost - spent.cost:.2f} more, ${after.cost:g} in all")
    if after.tokens != before.tokens and after.tokens is not None:
        grants.append(f"{after.tokens - spent.tokens} more tokens, {after.tokens} in all")
    if after.deadline != before.deadline:
        when = datetime.fromtimestamp(after.deadline or 0.0).strftime("%Y-%m-%d %H:%M")
        grants.append(f"the deadline is {when}" if after.deadline is not None else "no deadline")
    if after.quota != before.quota and after.quota is not None:
        grants.append(f"{after.quota:.0%} of the agent's subscription")
    if after.allow_unpriced and not before.allow_unpriced:
        grants.append("the cost limit is not enforced for turns without a price")
    return grants


def _describe_more_minutes(limits: Limits, spent: Spent) -> str:
    minutes = f"{((limits.active_seconds or 0.0) - spent.active_seconds) / 60:.2g}"
    return f"{minutes} more {'minute' if minutes == '1' else 'minutes'} of active time"


def suggest_option_to_continue(ended: Outcome, limits: Limits, spent: Spent, allowance: Limits | None = None) -> Raise:
    """What to add to `ralph resume` if the run ended for another reason and has no iteration left; empty if it has.

    The option is also empty if `ralph resume` grants the iterations without being asked.
    """
    if not limits.is_out_of_iterations(spent):
        return Raise("", "")
    more = list_options_to_continue(Outcome.LIMIT_ITERATIONS, limits, spent, allowance)[0]
    return replace(more, option="") if ended.needs_turn else more


def _round_up(number: float) -> float:
    return math.ceil(round(number * 100, 6)) / 100


DAY = 86400.0
_ALLOWANCES = {
    Outcome.LIMIT_ITERATIONS: "iterations",
    Outcome.LIMIT_TIME: "active_seconds",
    Outcome.LIMIT_COST: "cost",
    Outcome.LIMIT_TOKENS: "tokens",
}
