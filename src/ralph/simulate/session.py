"""The roles of a session: planners who make tasks, executors who do them, reviewers who see what is wrong, or do not."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ralph.core.checks import Check, Verdict
from ralph.core.events import Merge, Merged, MergeEnd, Promote
from ralph.core.turns import Turn
from ralph.documents.session.markers import Marker
from ralph.simulate.answers import answered, deed, kind_of
from ralph.simulate.game import Deed
from ralph.simulate.profile import Profile
from ralph.simulate.truth import verdict_of
from ralph.workflows.session.rules import Session
from ralph.workflows.session.state import SessionState, Step

PLAN = "# Plan\n\n## Goal\nDo it\n\n## Success Criteria\n- it is done\n\n## Target Files\n\n## Context\n\n## Approach\n"
TASK = """\
---
id: {id}
iteration: {iteration}
type: {type}
created_at: 2026-11-16T07:00:00Z
updated_at: 2026-11-16T07:00:00Z
---
# Task: {id}

## Title
Make {id}

## Files
- {file}

## Objective
make it

## Success Criteria
- [ ] {criterion}

## Dependencies
depends_on: [{needed}]
inherited_by: []

## Notes
"""
_OVER = (Marker.DONE, Marker.CANCELLED)


@dataclass
class SessionGame:
    """One run of a session."""

    rules: Session
    profile: Profile
    chance: random.Random
    remarks: tuple[str, ...] = ()
    done: dict[str, bool] = field(default_factory=dict)
    """The tasks that were merged, and whether they are right."""
    _made: dict[str, bool] = field(default_factory=dict)
    """What was made in each workspace, and whether it is right."""
    _planned: int = 0
    _missing: int = 0
    """Tasks that are not merged, as far as was seen last."""

    @property
    def true(self) -> bool:
        """Whether every task is really done."""
        return not self._missing and all(self.done.values())

    def deed(self, turn: Turn, state: SessionState) -> Deed:
        """What the role makes of its turn."""
        self._look(state)
        request, chance, profile = turn.request, self.chance, self.profile
        fitting: dict[str, Any] = {"status": "completed", "summary": "as it was asked for"}
        other: dict[str, Any] = {**fitting, "status": "blocked", "blockers": ["it is in the way"]}
        papers: Mapping[str, str] = {}
        files, told = 0, request.key
        match request.contract.split("."):
            case ["session", "planner", mode]:
                papers = self._planning(mode, request.task, state)
            case ["session", "questioner", _]:
                text = (
                    "## Cycle 1\n\n### Question 1\n- **ID**: Q-TECH-001\n- **Priority**: High\n- **Status**: Answered\n"
                )
                papers = {request.hands_over[0].replace("*", "technical"): text}
            case ["session", "executor"]:
                files, right = self._made_in(request.workspace, repair=bool(turn.repair))
                met = right or chance.random() >= profile.notices or chance.random() < profile.lies
                fitting |= {"success_criteria_met": met, "status": "completed" if met else "failed"}
                papers, told = {"report.md": "### Report\nIt is made.\n"}, f"{told} is {'right' if right else 'wrong'}"
            case ["session", "reviewer"]:
                good = self._passes(self._made.get(request.workspace, False))
                fitting["verdict"], other = ("Qualified", "Failed")[not good], {"verdict": "Failed", "feedback": "no"}
                papers, told = {"review.md": "### Review\nSeen.\n"}, f"{told}: {fitting['verdict']}"
            case ["session", "review"]:
                good = self._passes(self.true)
                fitting["assessment"] = "Complete" if good else "Gaps Identified"
                other = {"assessment": "Gaps Identified", "gaps": ["something"]}
                papers, told = {"review.md": "# Session Review\n"}, f"{told}: {fitting['assessment']}"
            case _:
                pass
        if not request.contract:
            return Deed(told, 1)
        return deed(told, files, answered(turn, kind_of(profile, chance), chance, fitting, other, papers))

    def verdict(self, key: str, checks: Sequence[Check], workspace: str, state: SessionState) -> Verdict:
        """Whether a task, or all of it, is really done."""
        self._look(state)
        of_task = key.startswith("check:")
        holds = self._made.get(workspace, False) if of_task else key != "baseline" and self.true
        return verdict_of(checks, holds, f"{key} does not hold")

    def merged(self, work: Merge | Promote) -> Merged:
        """What comes of a merge: now and then it conflicts or breaks something; what is wrong is seen where a check looks."""
        end, place = MergeEnd.MERGED, work.workspace
        if isinstance(work, Merge) and self.chance.random() < self.profile.conflicts:
            end = self.chance.choice((MergeEnd.CONFLICT, MergeEnd.RED))
        elif isinstance(work, Merge):
            task, right = place.rpartition("/")[0], self._made.get(place, False)
            end = MergeEnd.RED if work.checks and not right else MergeEnd.MERGED
            if end is MergeEnd.MERGED:
                self._merge(task, right)
        return Merged(work.key, place, end, f"ralph/simulated/{place}", "abc", moved=self.chance.random() < 0.3)

    def _merge(self, task: str, right: bool) -> None:
        """A task is in; one that was made of what a review missed puts something right that was wrong."""
        self.done[task] = right
        if right and "critique" in task:
            self.done.update(dict.fromkeys([name for name, good in self.done.items() if not good][:1], True))

    def _look(self, state: SessionState) -> None:
        """How many tasks are not merged; those that were before this run count as right."""
        waits = [name for name in state.tasks if state.marker(name) not in _OVER]
        self._missing = len(waits) if state.tasks else 1

    def _made_in(self, workspace: str, *, repair: bool) -> tuple[int, bool]:
        """Do a task, in a workspace."""
        acts = not repair and self.chance.random() >= self.profile.loops and self.chance.random() < self.profile.acts
        if not repair:
            self._made[workspace] = acts and self.chance.random() < self.profile.right
        return int(acts), self._made.get(workspace, False)

    def _passes(self, good: bool) -> bool:
        """Whether somebody who judges lets it pass."""
        if self.chance.random() < self.profile.loops:
            return False
        if good:
            return self.chance.random() >= self.profile.doubts
        return self.chance.random() >= self.profile.notices or self.chance.random() < self.profile.lies

    def _planning(self, mode: str, parent: str, state: SessionState) -> dict[str, str]:
        """What a planner hands over."""
        number = state.metadata.iteration
        if mode in ("INITIALIZE", "UPDATE"):
            return {"plan.md": PLAN}
        if mode == "CRITIQUE_BREAKDOWN":
            return _files([f"task-critique-{state.metadata.critique_cycle}-1"], number, self.chance)
        if mode == "REBREAKDOWN_TASK":
            parent = next(name for name in state.tasks if state.of(name).step is Step.SPLIT)
            return _files([f"{parent}.{n}" for n in (1, 2)], number, self.chance)
        if mode == "REBREAKDOWN":
            return {}
        count = self.chance.randint(*self.profile.pieces)
        return _files([f"task-{n}" for n in range(1, count + 1)], number, self.chance, chained=True)


def _files(names: Sequence[str], iteration: int, chance: random.Random, *, chained: bool = False) -> dict[str, str]:
    """Task files, some of which depend on earlier ones."""
    found = {}
    for index, name in enumerate(names):
        needed = chance.sample(names[:index], min(index, chance.choice((0, 0, 1, 2)))) if chained else ()
        found[f"tasks/{name}.md"] = TASK.format(
            id=name,
            iteration=iteration,
            type=chance.choice(("Parallelizable", "Parallelizable", "Sequential")),
            file=f"src/{chance.randint(1, 6)}.py",
            criterion=f"`check {name}` passes",
            needed=", ".join(needed),
        )
    return found
