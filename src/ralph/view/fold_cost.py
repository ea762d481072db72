"""The part of the fold that adds up money and tokens."""

from ralph.core.limits import Usage
from ralph.core.values import copy_with
from ralph.view.model import MAX_POINTS, CostGroup, CostPoint, CostView, Sums, TurnView

UNKNOWN = "unknown"
"""The name of the group of turns whose model or agent is not known."""
_DIGITS = 9


def add_turn_cost(cost: CostView, turn: TurnView, at: float) -> CostView:
    """The costs with those of one more turn."""
    usage = turn.usage
    total = _add(cost.total, usage)
    points, stride = cost.over_time, cost.stride
    if total.turns % stride == 0:
        tokens = total.input_tokens + total.output_tokens
        points = (*points, CostPoint(turn.number, at, total.cost or 0.0, tokens))
    if len(points) > MAX_POINTS:
        # Every second point is enough for a curve. The next turns are recorded just as sparsely.
        points, stride = points[1::2], stride * 2
    return CostView(
        total=total,
        by_role=_add_to_group(cost.by_role, turn.role, usage),
        by_agent=_add_to_group(cost.by_agent, turn.agent, usage),
        by_model=_add_to_group(cost.by_model, usage.model, usage),
        over_time=points,
        stride=stride,
    )


def _add_to_group(groups: tuple[CostGroup, ...], name: str, usage: Usage) -> tuple[CostGroup, ...]:
    name = name or UNKNOWN
    if all(group.name != name for group in groups):
        return (*groups, CostGroup(name, _add(Sums(), usage)))
    return tuple(copy_with(group, sums=_add(group.sums, usage)) if group.name == name else group for group in groups)


def _add(sums: Sums, usage: Usage) -> Sums:
    cost = sums.cost
    if usage.cost is not None:
        cost = round((cost or 0.0) + usage.cost, _DIGITS)
    return Sums(
        turns=sums.turns + 1,
        input_tokens=sums.input_tokens + usage.input_tokens,
        output_tokens=sums.output_tokens + usage.output_tokens,
        cached_tokens=sums.cached_tokens + usage.cached_tokens,
        reasoning_tokens=sums.reasoning_tokens + usage.reasoning_tokens,
        cost=cost,
        unpriced_turns=sums.unpriced_turns + (usage.cost is None),
    )


def add_sums(first: Sums, second: Sums) -> Sums:
    """What two groups of turns used together."""
    costs = [cost for cost in (first.cost, second.cost) if cost is not None]
    return Sums(
        turns=first.turns + second.turns,
        input_tokens=first.input_tokens + second.input_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
        cached_tokens=first.cached_tokens + second.cached_tokens,
        reasoning_tokens=first.reasoning_tokens + second.reasoning_tokens,
        cost=round(sum(costs), _DIGITS) if costs else None,
        unpriced_turns=first.unpriced_turns + second.unpriced_turns,
    )
