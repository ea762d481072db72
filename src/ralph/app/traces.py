"""Traces: what a run does as OpenTelemetry spans, if the user asks for them with RALPH_TRACES.

A trace has a span for the run, for each iteration or task, for each turn and for each check. All ids come from the id of
the run, so an engine that resumes a run continues its trace.
"""

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ralph import __version__
from ralph.core.checks import CheckStatus
from ralph.core.entries import ChecksStarted, Record, RunStarted
from ralph.core.errors import UsageError
from ralph.core.events import ChecksEnded, RunEnded, TaskChanged, TaskState, TurnEnded, TurnStarted
from ralph.core.turns import TurnEnd
from ralph.documents.run_record import RunRecord
from ralph.engine.ports import Observer
from ralph.view.work import iteration_of, task_of

SETTING = "RALPH_TRACES"
CLOSE_SECONDS = 5.0
"""How long the end of a run waits for spans that are not sent yet."""
_TEXT_CHARS = 200
_OVER = (TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED)


@dataclass(frozen=True)
class Span:
    """A span that has ended. Its key is unique in its trace."""

    name: str
    key: str
    parent: str
    """The key of its parent; empty for the run."""
    start: float
    end: float
    is_error: bool = False
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)


class SpanBuilder:
    """Builds the spans of a run from its journal records, each when it has ended."""

    def __init__(self, run: RunRecord) -> None:
        self._run = run
        self._key, self._start = "run", 0.0
        self._groups: dict[str, float] = {}
        """The iterations and tasks in progress, with the time when each began."""
        self._checks: dict[str, float] = {}

    def build(self, record: Record) -> list[Span]:
        """The spans that end with a record."""
        match record.entry:
            case RunStarted():
                # Every engine that works on the run has a span of its own, because the run may wait for days in between.
                self._key, self._start = f"run-{record.seq}", record.at
                return []
            case TurnStarted(key=key):
                self._groups.setdefault(self._group_of(key), record.at)
                return []
            case TurnEnded() as entry:
                return list(self._end_turn(entry))
            case ChecksStarted(key=key):
                self._checks[key] = record.at
                return []
            case ChecksEnded() as entry:
                return list(self._end_checks(entry, record.at))
            case TaskChanged(task=task, state=state) if state in _OVER:
                facts = {"ralph.task.title": record.entry.title[:_TEXT_CHARS], "ralph.task.state": state.value}
                return list(self._end_group(f"task {task}", record.at, state is not TaskState.DONE, facts))
            case RunEnded() as entry:
                return list(self._end_run(entry, record.at))
        return []

    def _group_of(self, key: str) -> str:
        """The iteration or task that some work belongs to; empty if it belongs to the whole run."""
        if task := task_of(self._run.workflow, key):
            return f"task {task}"
        iteration = iteration_of(self._run.workflow, key)
        return f"iteration {iteration}" if iteration else ""

    def _parent_of(self, key: str) -> str:
        group = self._group_of(key)
        return f"{self._key} {group}" if group else self._key

    def _end_turn(self, entry: TurnEnded) -> Iterator[Span]:
        result, usage = entry.result, entry.result.usage
        facts: dict[str, str | int | float | bool] = {
            "ralph.turn": entry.turn,
            "ralph.role": entry.role,
            "ralph.attempt": entry.attempt,
            "ralph.turn.end": result.end.value,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": entry.role,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
        if usage.model:
            facts["gen_ai.response.model"] = usage.model
        if usage.cost is not None:
            facts["ralph.cost.usd"] = usage.cost
        if result.error:
            facts["error.message"] = result.error[:_TEXT_CHARS]
        yield Span(
            name=f"turn {entry.turn} {entry.role}",
            key=f"turn-{entry.turn}",
            parent=self._parent_of(entry.key),
            start=result.started_at,
            end=result.ended_at,
            is_error=result.end is not TurnEnd.FINISHED,
            attributes=facts,
        )

    def _end_checks(self, entry: ChecksEnded, at: float) -> Iterator[Span]:
        start = self._checks.pop(entry.key, at - sum(one.seconds for one in entry.verdict.results))
        for number, one in enumerate(entry.verdict.results, 1):
            facts: dict[str, str | int | float | bool] = {
                "ralph.check.title": one.title[:_TEXT_CHARS],
                "ralph.check.command": one.command[:_TEXT_CHARS],
                "ralph.check.status": one.status.value,
                "ralph.check.flaky": one.flaky,
            }
            if one.code is not None:
                facts["process.exit.code"] = one.code
            end = start + one.seconds
            yield Span(
                name=f"check {one.title[:_TEXT_CHARS]}",
                key=f"{self._key} checks {entry.key} {at} {number}",
                parent=self._parent_of(entry.key),
                start=start,
                end=end,
                is_error=one.status is not CheckStatus.PASSED,
                attributes=facts,
            )
            start = end
        group = self._group_of(entry.key)
        if group.startswith("iteration"):
            yield from self._end_group(group, at, not entry.verdict.passed, {})

    def _end_group(
        self, group: str, at: float, is_error: bool, facts: Mapping[str, str | int | float | bool]
    ) -> Iterator[Span]:
        start = self._groups.pop(group, None)
        if start is not None:
            yield Span(
                name=group,
                key=f"{self._key} {group}",
                parent=self._key,
                start=start,
                end=at,
                is_error=is_error,
                attributes=facts,
            )

    def _end_run(self, entry: RunEnded, at: float) -> Iterator[Span]:
        for group in [group for group in self._groups if group]:
            yield from self._end_group(group, at, False, {})
        self._groups.clear()
        yield Span(
            name=f"run {self._run.workflow}",
            key=self._key,
            parent="",
            start=self._start or at,
            end=at,
            is_error=not entry.outcome.succeeded,
            attributes={
                "ralph.run.id": self._run.id,
                "ralph.workflow": self._run.workflow,
                "ralph.task": self._run.task[:_TEXT_CHARS],
                "ralph.outcome": entry.outcome.value,
                "ralph.turns": entry.spent.turns,
                "ralph.iterations": entry.spent.iterations,
                "ralph.cost.usd": entry.spent.cost,
            },
        )


class TraceExporter(Observer):
    """Gives the spans of a run to an exporter of the OpenTelemetry SDK, in a thread of the SDK."""

    def __init__(self, run: RunRecord, exporter: Any) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._builder = SpanBuilder(run)
        self._run = run.id
        self._resource = Resource.create({"service.name": "ralph", "service.version": __version__})
        self._processor = BatchSpanProcessor(exporter)

    def on_record(self, record: Record) -> None:
        """Export the spans that end with a record."""
        for span in self._builder.build(record):
            self._processor.on_end(self._convert(span))

    def close(self) -> None:
        """Send what was not sent yet. A collector that does not answer does not hold up the end of a run for long."""
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def _convert(self, span: Span) -> Any:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.status import Status, StatusCode

        return ReadableSpan(
            name=span.name,
            context=self._context_of(span.key),
            parent=self._context_of(span.parent) if span.parent else None,
            resource=self._resource,
            attributes=dict(span.attributes),
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR if span.is_error else StatusCode.OK),
            start_time=int(span.start * 1e9),
            end_time=int(span.end * 1e9),
        )

    def _context_of(self, key: str) -> Any:
        from opentelemetry.trace import SpanContext, TraceFlags

        trace = hashlib.sha256(self._run.encode()).digest()
        span = hashlib.sha256(f"{self._run} {key}".encode()).digest()
        return SpanContext(
            trace_id=int.from_bytes(trace[:16], "big"),
            span_id=int.from_bytes(span[:8], "big"),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )


def open_traces(run: RunRecord, environment: Mapping[str, str] = os.environ) -> TraceExporter | None:
    """The exporter that RALPH_TRACES asks for: `otlp`, or `file:PATH` for JSON Lines. None if it asks for none."""
    wanted = environment.get(SETTING, "").strip()
    if not wanted or wanted == "off":
        return None
    kind, _, place = wanted.partition(":")
    if kind not in ("otlp", "file") or (kind == "file") != bool(place):
        todo = "use `otlp`, `file:PATH` or `off`; OTEL_EXPORTER_OTLP_ENDPOINT names the collector"
        raise UsageError(f"{SETTING} has the unknown value {wanted!r}", where=SETTING, todo=todo)
    try:
        exporter = _open_file_exporter(Path(place)) if kind == "file" else _open_otlp_exporter()
        return TraceExporter(run, exporter)
    except ImportError as error:
        todo = "install it with `pip install 'ralph-engine[otel]'`, or unset the variable"
        raise UsageError(f"{SETTING} needs OpenTelemetry, which is not installed", where=SETTING, todo=todo) from error


def _open_otlp_exporter() -> Any:
    import logging

    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    # A collector that is not there is reported again and again, in the middle of what the user reads.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    logging.getLogger("opentelemetry").propagate = False
    return OTLPSpanExporter()


def _open_file_exporter(path: Path) -> Any:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write traces: {error.strerror}", where=str(path), todo="name another file") from error
    return ConsoleSpanExporter(out=file, formatter=lambda span: f"{span.to_json(indent=None)}\n")
