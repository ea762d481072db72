"""The queue of work that waits to be merged, as pure rules: merge, have a conflict resolved, merge again, or give up.

Any workflow whose tasks run side by side keeps one: it adds what has passed and does the work that the queue
lists. The queue reports of each task whether its work is merged, or which branch it stays on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ralph.core.check_output import excerpt_output, fence
from ralph.core.checks import Check, CheckResult
from ralph.core.codec import former_name, from_json, to_json
from ralph.core.events import Event, Merge, MergeEnded, MergeResult, TurnEnded, Work
from ralph.core.ids import WorkKey, WorkKind, find_task_of_worktree
from ralph.core.prompt import PartSpec, Place, build_prompt, fill_parts
from ralph.core.turns import TurnRequest

RESOLVER = "resolver"
_MAX_QUOTED_CHARS = 6000
_MAX_OVERTAKEN = 2
"""After others were merged this number of times during a conflict, they wait until this work is merged."""
_PARTS = {
    "resolver": PartSpec("Why there is something to resolve."),
    "the-task-of-this-work": PartSpec("What the work is for.", budget=4000, is_quoted=True),
    "what-is-here": PartSpec("What the directory holds, and what failed."),
    "what-to-do": PartSpec("What a resolver does, and does not.", Place.ANSWER),
}
_CHECKS = (
    "These must pass on the result; the engine runs them itself. If one fails and this merge is not the cause, leave it, and"
    " say so in your final message:"
)
_WHY = {
    MergeResult.CONFLICT: "The same lines were changed on both sides.",
    MergeResult.REVERTS: "As it was resolved, changes that others had merged would be lost. They must stay.",
    MergeResult.CHECKS_FAILED: "Both sides merge, but on the merged tree the checks do not pass.",
}

MERGE_FAILURES = {
    MergeResult.CONFLICT: "it changes the same lines as work that is already merged",
    MergeResult.REVERTS: "it would revert work that is already merged",
    MergeResult.CHECKS_FAILED: "the checks fail together with the work that is already merged",
}
"""Why a merge was given up, for the user and for agents."""
_FILES = {
    MergeResult.CONFLICT: "Files with conflicts",
    MergeResult.REVERTS: "Files in which changes of others would be lost",
}


@dataclass(frozen=True)
class QueuedMerge:
    """The work of a task that waits to be merged."""

    task: str
    worktree: str = field(metadata=former_name("workspace"))
    title: str
    """The task in a line, for the history."""
    text: str = ""
    """The definition of the task, for an agent that has to resolve a conflict."""
    resolver_turns: int = field(default=0, metadata=former_name("resolves"))
    """The number of resolver turns so far, with the one that was just requested."""
    failures: int = 0
    """How many of them did not resolve the conflict."""
    overtaken: int = 0
    """How often the merge failed after a resolver turn, and other work had been merged meanwhile."""
    resolving: bool = False
    last: MergeEnded | None = None
    """The result of the last try to merge it."""


@dataclass(frozen=True)
class SettledMerge:
    """Work that left the queue: merged, or given up."""

    task: str
    worktree: str
    merge: MergeEnded

    @property
    def is_merged(self) -> bool:
        """Whether it is on the branch of the run. If not, it stays on its own branch, which `merge.branch` names."""
        return self.merge.is_merged


@dataclass(frozen=True)
class Queue:
    """The work that waits to be merged, oldest first."""

    waiting: tuple[QueuedMerge, ...] = ()
    max_failed_resolutions: int = field(default=2, metadata=former_name("most_resolves"))
    """Work is given up after this number of resolver turns that did not resolve its conflict. Turns during which other work
    was merged do not count."""

    def add(self, task: str, worktree: str, title: str, text: str = "") -> "Queue":
        """The queue with one more at its end."""
        return replace(self, waiting=(*self.waiting, QueuedMerge(task=task, worktree=worktree, title=title, text=text)))

    def list_work(self, checks: Callable[[str], tuple[Check, ...]], template: str) -> tuple[Work, ...]:
        """The merges in their order, and the turns of resolvers, whose prompt is `template`.

        `checks` returns the checks of a task that must pass on the merged tree. Work that was overtaken too often is
        merged before all work behind it.
        """
        work_items: list[Work] = []
        must_wait = False
        for one in self.waiting:
            if one.resolving:
                work_items.append(_request_resolver(one, checks(one.task), template))
            elif not must_wait:
                work_items.append(Merge(str(_merge_key(one)), one.worktree, one.title, checks(one.task)))
            must_wait = must_wait or one.overtaken >= _MAX_OVERTAKEN
        return tuple(work_items)

    def accept(self, event: Event) -> tuple["Queue", SettledMerge | None]:
        """The queue after an event, and the work that left it."""
        match event:
            case MergeEnded(key=key) if one := self._find(key, _merge_key):
                failures, overtaken = one.failures, one.overtaken
                if one.resolver_turns and event.others_merged:
                    overtaken += 1
                elif one.resolver_turns:
                    failures += 1
                if event.is_merged or failures >= self.max_failed_resolutions:
                    return self._without(one), SettledMerge(one.task, one.worktree, event)
                tried = replace(one, failures=failures, overtaken=overtaken, resolver_turns=one.resolver_turns + 1)
                return self._with(one, replace(tried, resolving=True, last=_shorten_merge(event))), None
            case TurnEnded(key=key) if one := self._find(key, _resolver_key):
                return self._with(one, replace(one, resolving=False)), None
            case _:
                return self, None

    def _find(self, text: str, key_of: Callable[[QueuedMerge], WorkKey]) -> QueuedMerge | None:
        key = WorkKey.parse(text)
        return next((one for one in self.waiting if key_of(one) == key), None)

    def _without(self, gone: QueuedMerge) -> "Queue":
        return replace(self, waiting=tuple(one for one in self.waiting if one is not gone))

    def _with(self, old: QueuedMerge, new: QueuedMerge) -> "Queue":
        return replace(self, waiting=tuple(new if one is old else one for one in self.waiting))


def queue_path(run: str) -> str:
    """The document in which a run keeps its queue."""
    return f".ralph/runs/{run}/queue.json"


def render_queue(queue: Queue) -> str:
    """The document."""
    return to_json(queue)


def read_queue(text: str, path: str) -> Queue:
    """The queue in a document."""
    return from_json(Queue, text, path)


def _merge_key(one: QueuedMerge) -> WorkKey:
    return WorkKey(WorkKind.MERGE, worktree=one.worktree, attempt=one.resolver_turns + 1)


def find_merged_task(merge: MergeEnded) -> str:
    """The task whose work was merged; empty if it was no work of a task."""
    key = WorkKey.parse(merge.key)
    return find_task_of_worktree(key.worktree) if key and key.kind is WorkKind.MERGE else ""


def _resolver_key(one: QueuedMerge) -> WorkKey:
    return WorkKey(WorkKind.RESOLVE, worktree=one.worktree, attempt=one.resolver_turns)


def _request_resolver(one: QueuedMerge, checks: tuple[Check, ...], template: str) -> TurnRequest:
    last = one.last or MergeEnded("", one.worktree, MergeResult.CONFLICT)
    files = "\n".join(f"- `{path}`" for path in last.files[:100])
    details: list[str] = []
    if files:
        details.append(f"{_FILES.get(last.end, 'The files')}:\n{files}")
    if last.verdict:
        details += [_describe_failure(result) for result in last.verdict.results if not result.passed]
    if last.notice:
        details.append(last.notice)
    commands = "\n".join(f"- `{check.command or check.title}`" for check in checks)
    values = {
        "why": _WHY.get(last.end, ""),
        "task": one.text or one.title,
        "inbox": ".ralph/turn/inbox",
        "details": "\n\n".join(details),
        "checks": f"{_CHECKS}\n{commands}" if commands else "",
    }
    prompt = build_prompt(fill_parts("resolver", template, values, _PARTS))
    return TurnRequest(
        str(_resolver_key(one)), RESOLVER, prompt, task=one.task, worktree=one.worktree, merges_run_branch=True
    )


def _describe_failure(result: CheckResult) -> str:
    output = excerpt_output(result.output, _MAX_QUOTED_CHARS)[0]
    return f"$ {result.command or result.title}\n({result.reason})\n{fence(output) if output else ''}".rstrip()


def _shorten_merge(merged: MergeEnded) -> MergeEnded:
    """A merge as a document keeps it: without the output of checks that passed."""
    if merged.verdict is None:
        return merged
    failed = tuple(
        replace(r, output=excerpt_output(r.output, _MAX_QUOTED_CHARS)[0])
        for r in merged.verdict.results
        if not r.passed
    )
    return replace(merged, verdict=replace(merged.verdict, results=failed))
