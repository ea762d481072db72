"""The queue of work that waits to be merged: its order, its resolvers, and that everything comes out of it once."""

import json
from collections import Counter
from importlib import resources
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.core.checks import Check, CheckResult, CheckStatus, Verdict
from ralph.core.errors import StateError
from ralph.core.events import ChecksEnded, Merge, MergeEnded, MergeResult, TurnEnded, Work
from ralph.core.turns import TurnEnd, TurnRequest, TurnResult
from ralph.workflows.merge_rules import RESOLVER, Queue, SettledMerge, read_queue, render_queue

CHECKS = (Check("make test"),)
TEMPLATE = (resources.files("ralph.prompts") / "resolver.md").read_text()
CONFLICT, REVERTS, RED = MergeResult.CONFLICT, MergeResult.REVERTS, MergeResult.CHECKS_FAILED


def queue_of(*tasks: str) -> Queue:
    queue = Queue()
    for task in tasks:
        queue = queue.add(task, f"{task}/1", f"title of {task}", f"text of {task}")
    return queue


def asked(queue: Queue) -> dict[str, Work]:
    return {work.key: work for work in queue.list_work(lambda _: CHECKS, TEMPLATE)}


def merged(queue: Queue, task: str, end: MergeResult, **more: object) -> tuple[Queue, SettledMerge | None]:
    """The result of the merge of a task that the queue asks for."""
    work = next(one for one in asked(queue).values() if isinstance(one, Merge) and one.worktree == f"{task}/1")
    branch = f"ralph/run/{task}/1"
    return queue.accept(MergeEnded(work.key, work.worktree, end, branch, **more))  # type: ignore[arg-type]


def resolver_of(queue: Queue, task: str) -> TurnRequest:
    return next(one for one in asked(queue).values() if isinstance(one, TurnRequest) and one.task == task)


def resolved(queue: Queue, task: str, end: TurnEnd = TurnEnd.FINISHED) -> Queue:
    request = resolver_of(queue, task)
    queue, settled = queue.accept(TurnEnded(request.key, 1, RESOLVER, 1, TurnResult(end, 0.0, 1.0)))
    assert settled is None
    return queue


def test_work_is_merged_in_the_order_in_which_it_came() -> None:
    works = list(asked(queue_of("b", "a", "c")).values())
    assert [(work.key, work.worktree, work.message) for work in works if isinstance(work, Merge)] == [
        ("merge-b-1-1", "b/1", "title of b"),
        ("merge-a-1-1", "a/1", "title of a"),
        ("merge-c-1-1", "c/1", "title of c"),
    ]
    assert all(isinstance(work, Merge) and work.checks == CHECKS for work in works)


@pytest.mark.parametrize("end", [MergeResult.MERGED, MergeResult.NOTHING])
def test_merged_work_leaves_the_queue(end: MergeResult) -> None:
    queue, settled = merged(queue_of("a", "b"), "a", end)
    assert settled
    assert (settled.task, settled.worktree, settled.is_merged) == ("a", "a/1", True)
    assert [one.task for one in queue.waiting] == ["b"]


@pytest.mark.parametrize("end", [CONFLICT, REVERTS, RED])
def test_conflicting_work_gets_a_resolver_while_others_are_merged(end: MergeResult) -> None:
    queue, settled = merged(queue_of("a", "b"), "a", end, files=("src/a b.py", "x"))
    assert settled is None
    request = resolver_of(queue, "a")
    assert (request.key, request.role, request.worktree, request.merges_run_branch) == (
        "resolve-a-1-1",
        "resolver",
        "a/1",
        True,
    )
    assert "text of a" in request.prompt.text
    assert "- `src/a b.py`" in request.prompt.text
    assert "make test" in request.prompt.text
    assert set(asked(queue)) == {"resolve-a-1-1", "merge-b-1-1"}, "it keeps its place, and holds nobody up"
    queue = resolved(queue, "a")
    assert set(asked(queue)) == {"merge-a-1-2", "merge-b-1-1"}


def test_resolver_prompt_says_why_and_what_failed() -> None:
    failed = CheckResult(
        "`make test` passes", CheckStatus.FAILED, 1.0, 1, "exit code 1", "E: boom", command="make test"
    )
    passed = CheckResult("`lint` passes", CheckStatus.PASSED, 1.0, 0, output="long and fine", command="lint")
    queue, _ = merged(queue_of("a"), "a", RED, verdict=Verdict((passed, failed)), notice="a notice")
    prompt = resolver_of(queue, "a").prompt.text
    assert "the checks do not pass" in prompt
    assert "$ make test\n(exit code 1)\n```\nE: boom\n```" in prompt
    assert "a notice" in prompt
    assert "long and fine" not in prompt
    again, _ = merged(resolved(queue, "a"), "a", REVERTS, files=("lost.py",))
    assert "would be lost" in resolver_of(again, "a").prompt.text
    assert "boom" not in resolver_of(again, "a").prompt.text, "the last try counts"


def test_a_resolver_that_failed_is_followed_by_a_merge_all_the_same() -> None:
    queue, _ = merged(queue_of("a"), "a", CONFLICT)
    for end in (TurnEnd.FAILED, TurnEnd.WALL, TurnEnd.CUT):
        assert set(asked(resolved(queue, "a", end))) == {"merge-a-1-2"}


def test_after_two_resolvers_in_vain_the_work_is_left_on_its_branch() -> None:
    queue, _ = merged(queue_of("a"), "a", CONFLICT)
    queue, settled = merged(resolved(queue, "a"), "a", RED)
    assert settled is None
    queue, settled = merged(resolved(queue, "a"), "a", CONFLICT)
    assert settled
    assert not settled.is_merged
    assert settled.merge.branch == "ralph/run/a/1"
    assert queue.waiting == ()


def test_overtaken_merge_does_not_count_as_a_failure_and_others_wait_in_the_end() -> None:
    queue, _ = merged(queue_of("a", "b", "c", "d"), "a", CONFLICT, others_merged=True)
    for task in ("b", "c"):
        queue, _ = merged(resolved(queue, "a"), "a", CONFLICT, others_merged=True)
        queue, settled = merged(queue, task, MergeResult.MERGED) if task == "b" else (queue, None)
        assert task != "b" or settled
    one = queue.waiting[0]
    assert (one.task, one.failures, one.overtaken, one.resolver_turns) == ("a", 0, 2, 3)
    assert set(asked(queue)) == {"resolve-a-1-3"}, "nothing is merged before it now"
    queue = resolved(queue, "a")
    assert set(asked(queue)) == {"merge-a-1-4"}
    queue, settled = merged(queue, "a", MergeResult.MERGED)
    assert settled
    assert set(asked(queue)) == {"merge-c-1-1", "merge-d-1-1"}


def test_unexpected_events_do_not_change_the_queue() -> None:
    queue, _ = merged(queue_of("a", "b"), "a", CONFLICT)
    strangers = [
        MergeEnded("merge-a-1-1", "a/1", MergeResult.MERGED),
        MergeEnded("merge-z-1-1", "z/1", MergeResult.MERGED),
        TurnEnded("resolve-a-1-2", 1, RESOLVER, 1, TurnResult(TurnEnd.FINISHED, 0.0, 1.0)),
        ChecksEnded("merge-b-1-1", Verdict(())),
    ]
    for event in strangers:
        assert queue.accept(event) == (queue, None)


def test_names_of_tasks_cannot_be_confused_with_attempts() -> None:
    queue = Queue().add("a", "a/1", "").add("a", "a/11", "").add("a-1", "a-1/1", "").add("a-1-1", "a-1-1/1", "")
    first = set(asked(queue))
    assert len(first) == 4
    for workspace in ("a/1", "a-1/1"):
        key = next(work.key for work in asked(queue).values() if work.worktree == workspace)  # type: ignore[union-attr]
        queue, _ = queue.accept(MergeEnded(key, workspace, CONFLICT))
        queue = resolved(queue, workspace.split("/")[0])
    assert len(set(asked(queue)) | first) == 6, "no key comes twice"


def test_the_queue_survives_its_document() -> None:
    name = "src/\udcff \n\"'.py"
    failed = CheckResult("t", CheckStatus.FAILED, 1.0, 1, "exit code 1", f"E {'x' * 97}\n" * 100, command="make")
    queue, _ = merged(queue_of("a", "b"), "a", RED, files=(name,), verdict=Verdict((failed,)), others_merged=True)
    text = render_queue(queue)
    text.encode()
    back = read_queue(text, "queue.json")
    assert back == queue
    assert back.list_work(lambda _: CHECKS, TEMPLATE) == queue.list_work(lambda _: CHECKS, TEMPLATE)
    assert read_queue("{}", "queue.json") == Queue()
    kept = json.loads(text)["waiting"][0]["last"]["verdict"]["results"][0]["output"]
    assert len(kept) == 59 * 100 + len("... 41 lines left out"), "6,000 characters at most, in whole lines"
    for broken in ("", "[", "[]", '{"waiting": 3}', "[" * 100_000):
        with pytest.raises(StateError):
            read_queue(broken, "queue.json")


class Branch:
    """The branch of a run as a merge sees it: others may have been merged since a workspace took it in."""

    def __init__(self) -> None:
        self.merges = 0
        self.taken_in: dict[str, int] = {}

    def merge(self, work: Merge, end: MergeResult) -> MergeEnded:
        others_merged = self.taken_in.get(work.worktree) != self.merges
        if end is MergeResult.MERGED:
            self.merges += 1
        told = end in (CONFLICT, RED) and others_merged
        return MergeEnded(work.key, work.worktree, end, f"ralph/run/{work.worktree}", others_merged=told)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 8), st.randoms(use_true_random=True))
def test_every_task_is_settled_exactly_once_whatever_the_merges_say(tasks: int, chance: Random) -> None:
    coming, queue, branch = [f"t{number}" for number in range(tasks)], Queue(), Branch()
    every = Counter(coming)
    in_progress: dict[str, Work] = {}
    settled: list[SettledMerge] = []
    turns: Counter[str] = Counter()
    while coming or queue.waiting:
        if coming and (chance.random() < 0.3 or not queue.waiting):
            task = coming.pop(0)
            queue = queue.add(task, f"{task}/1", task)
        for key, work in asked(read_queue(render_queue(queue), "")).items():
            if key not in in_progress and isinstance(work, TurnRequest):
                turns[work.task] += 1
                branch.taken_in[work.worktree] = branch.merges
            in_progress.setdefault(key, work)
        # One merge is made at a time, in the order in which they were asked for.
        merges = [work for work in in_progress.values() if isinstance(work, Merge)][:1]
        work = chance.choice([*merges, *(work for work in in_progress.values() if isinstance(work, TurnRequest))])
        del in_progress[work.key]
        if isinstance(work, Merge):
            ends = [MergeResult.MERGED, MergeResult.NOTHING, CONFLICT, CONFLICT, REVERTS, RED]
            queue, done = queue.accept(branch.merge(work, chance.choice(ends)))
            settled += [done] if done else []
        else:
            queue, done = queue.accept(TurnEnded(work.key, 1, RESOLVER, 1, TurnResult(TurnEnd.FINISHED, 0.0, 1.0)))
            assert done is None
    assert Counter(one.task for one in settled) == every
    assert all(one.is_merged or one.merge.branch == f"ralph/run/{one.worktree}" for one in settled)
    assert all(count <= queue.max_failed_resolutions + tasks + 1 for count in turns.values()), (
        "and nobody resolves for ever"
    )
