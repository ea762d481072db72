"""Continue a run: with other limits or agents, or after the user adopted it."""

import getpass
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from ralph.agents import registry
from ralph.app.run_options import (
    RunOptions,
    build_agent_selection,
    parse_allowed_rules,
    parse_deadline,
    parse_globs,
    read_share,
    require_positive,
)
from ralph.app.runs import find_stopped_run, record_action
from ralph.app.start import check_cost_limit, check_read_only_agents, list_agent_notices
from ralph.app.trust import Consent, find_consent_to_resume, find_consent_to_start, refuse_without_consent
from ralph.app.views import read_facts
from ralph.core.codec import from_plain, read_json, to_json
from ralph.core.entries import AgentsChanged, GuardRulesChanged, RunAdopted
from ralph.core.errors import UsageError
from ralph.core.ids import SESSION_WORKFLOWS
from ralph.core.limits import Limits
from ralph.core.signals import Signal, SignalType
from ralph.documents.run_record import AgentSelection, RunRecord
from ralph.engine.ledger import Ledger
from ralph.store.files import storage_errors
from ralph.store.journal import Journal, read_records
from ralph.store.runs import Project, RunDir, describe_run
from ralph.store.settings import load_config
from ralph.workflows.loop import HOME as LOOPS

_LIMITS = (
    ("max_iterations", "iterations", 1),
    ("timeout", "active_seconds", 60),
    ("max_tokens", "tokens", 1),
    ("max_cost", "cost", 1),
)
"""Options that set a limit, the field of `Limits`, and how many of its units one of theirs is."""
_UNITS = {"iterations": "of its iterations", "active_seconds": "minutes", "tokens": "tokens", "cost": "US dollars"}
_AGENTS = ("agents", "agent_command", "scenario", "model")
"""Options that choose the agents."""
_JOURNALED = (*_AGENTS, "allow", "may_change")
"""Options that are journaled before the engine starts."""


@dataclass(frozen=True)
class ResumeOptions:
    """What can change when a run continues. If a field is None, empty or False, it stays as it was."""

    agents: tuple[str, ...] = ()
    agent_command: str | None = None
    scenario: str | None = None
    model: str = ""
    max_iterations: int | None = None
    timeout: float | None = None
    deadline: str | None = None
    no_deadline: bool = False
    max_cost: float | None = None
    allow_unpriced: bool = False
    max_tokens: int | None = None
    max_quota: str | None = None
    allow: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()

    @property
    def names_agent(self) -> bool:
        """Whether they choose the agents of later turns."""
        return any(getattr(self, name) for name in _AGENTS)

    @property
    def changes_run(self) -> bool:
        """Whether they change anything."""
        return any(getattr(self, one.name) for one in fields(self))

    def as_arguments(self) -> tuple[str, ...]:
        """The options on limits as a command line has them, for an engine in the background."""
        arguments = []
        for one in fields(self):
            value = getattr(self, one.name)
            name = f"--{one.name.replace('_', '-')}"
            if not value or one.name in _JOURNALED:
                continue
            arguments.append(name if value is True else f"{name}={value}")
        return tuple(arguments)


@dataclass(frozen=True)
class Resumption:
    """A run that can continue. Nothing has changed yet."""

    project: Project
    run: RunDir
    record: RunRecord
    """With the agents of the options, if they name any."""
    limits: Limits
    notices: tuple[str, ...]
    changes_agents: bool
    guard_rules: GuardRulesChanged | None = None
    """What the user lets the run do from now on."""

    def find_consents(self) -> Iterator[Consent]:
        """What the user has to agree to before the run continues. Other agents are agreed to like those of a new run."""
        yield find_consent_to_resume(self.project, self.record)
        if self.changes_agents:
            # The user agreed to the checks when the run started, or when they adopted it.
            checks = tuple(check.command for check in self.record.checks)
            yield find_consent_to_start(self.project, self.record, criteria_typed=checks, files=())


def find_run_to_resume(project: Project, wanted: str | None) -> RunDir:
    """The named run, or the one that stopped last, or the only one that is alive."""
    if chosen := find_stopped_run(project, wanted):
        return chosen
    runs = project.runs()
    if not runs:
        todo = "start one: ralph loop \"TASK\" --until '`COMMAND` passes'"
        raise UsageError("there is nothing to resume: there is no run yet", where=str(project.root), todo=todo)
    raise UsageError(
        "there is nothing to resume: every run has ended",
        where=f"the latest is {describe_run(runs[-1])}",
        todo="start a new one",
    )


def find_run_to_accept(project: Project, wanted: str | None) -> RunDir:
    """The named run, or the one that stopped last. Whether it has work to accept is checked later."""
    if chosen := find_stopped_run(project, wanted):
        return chosen
    runs = project.runs()
    where = f"the latest run is {describe_run(runs[-1])}" if runs else str(project.root)
    raise UsageError(
        "there is nothing to accept: no run has stopped", where=where, todo="`ralph status` lists all runs"
    )


def withdraw_pause(run: RunDir, options: ResumeOptions, guidance: str) -> str:
    """End a pause of a live run. Returns the name of the signal."""
    if options.changes_run:
        what = f"run {run.id} is running: you cannot change its limits and agents now"
        raise UsageError(what, todo="pause it first (`ralph pause`), or omit the options")
    run.refuse_doubtful()
    return run.mailbox.post(Signal("", SignalType.RESUME, guidance)).name


def plan_resume(project: Project, run: RunDir, options: ResumeOptions, *, guidance: str = "") -> Resumption:
    """Find out with what a run continues, or why it cannot. Changes nothing."""
    outcome = run.outcome()
    if outcome and not outcome.resumable:
        of_session = run.record().workflow in SESSION_WORKFLOWS
        todo = f"`ralph session feedback {run.id}` starts another iteration" if of_session else "start a new one"
        raise UsageError(f"run {run.id} is over: {outcome}", where=str(run.path), todo=todo)
    return plan_next_iteration(project, run, options, guidance=guidance)


def plan_next_iteration(project: Project, run: RunDir, options: ResumeOptions, *, guidance: str = "") -> Resumption:
    """The same for a session, which continues after its end if the user gave feedback."""
    run.refuse_untrusted()
    limits = _choose_limits(run, options, guidance)
    record = run.record()
    if options.names_agent:
        record = replace(record, agents=_reselect_agents(project, run, options))
    notices = tuple(check_cost_limit(project, record, limits))
    if options.names_agent:
        notices += (*check_read_only_agents(project, record), *list_agent_notices(record, limits))
    directory = record.directory
    rules = GuardRulesChanged(
        allowed=parse_allowed_rules(options.allow),
        may_change=parse_globs("--may-change", options.may_change, directory),
    )
    notices += tuple(f"the guard rule {rule} is off from now on: {reason}" for rule, reason in rules.allowed.items())
    notices += tuple(
        f"tests and settings of checks that match {glob} may change from now on" for glob in rules.may_change
    )
    return Resumption(
        project=project,
        run=run,
        record=record,
        limits=limits,
        notices=notices,
        changes_agents=options.names_agent,
        guard_rules=rules if rules != GuardRulesChanged() else None,
    )


def plan_acceptance(project: Project, run: RunDir, because: str, by: str = "") -> Resumption:
    """Let the user accept work that passes its checks and that Ralph could not prove. Changes nothing.

    `by` says who accepts it; by default it is the user of this computer.
    """
    if not because.strip():
        raise UsageError("the reason is empty", where="--because", todo="say why the work is right")
    planned = plan_resume(project, run, ResumeOptions())
    rules = GuardRulesChanged(accepted=_accept_last_verdict(project, run, because, by or getpass.getuser()))
    return replace(planned, guard_rules=rules)


def accept_work(planned: Resumption, because: str, by: str = "") -> str:
    """Journal what the user accepts. Returns the id by which the view shows it. The run ends when it is resumed."""
    prepare_resume(planned)
    result = f"accepted the work: {' '.join(because.split())}"
    return record_action(planned.project, planned.run, "accept", result, by)


def _accept_last_verdict(project: Project, run: RunDir, because: str, who: str) -> dict[str, str]:
    """The snapshot that the user accepts, with who, when and why. There must be passing checks that could not be proven."""
    snapshot = read_facts(project, run).unproven_snapshot
    if not snapshot:
        what = f"run {run.id} has no work that waits to be accepted"
        raise UsageError(what, where=str(run.path), todo=f"see what it did: `ralph report {run.id}`")
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z")
    return {snapshot: f"{who}, {when}: {' '.join(because.split())}"}


def prepare_resume(resumption: Resumption, guidance: str = "") -> str:
    """Journal what the user changed, and leave the guidance for the next turn. Returns the name of its signal, if any."""
    for consent in resumption.find_consents():
        refuse_without_consent(consent)
    if resumption.changes_agents:
        change_agents(resumption.run, resumption.record.agents)
    if resumption.guard_rules:
        _append_entry(resumption.run, resumption.guard_rules)
    if not guidance:
        return ""
    return resumption.run.mailbox.post(Signal("", SignalType.RESUME, guidance)).name


def _choose_limits(run: RunDir, options: ResumeOptions, guidance: str) -> Limits:
    """The limits of a run from now on. A new limit that is already used up is refused."""
    record = run.record()
    ledger = _load_ledger(run)
    changed = _read_changed_limits(options)
    if "iterations" in changed and record.workflow in SESSION_WORKFLOWS:
        what = f"run {run.id} is a session: your feedback starts each iteration"
        raise UsageError(what, todo="omit --max-iterations")
    for option, name, unit in _LIMITS:
        spent = getattr(ledger.spent, name)
        if name in changed and changed[name] <= spent:
            given = f"--{option.replace('_', '-')} {changed[name] / unit:g}"
            used = f"{spent / unit:.4g} {_UNITS[name]}"
            what = f"run {run.id} has already used {used}: {given} is too low"
            raise UsageError(what, where=str(run.path), todo="use a larger number")
    # An engine in the background finds the guidance in the mailbox.
    is_guided = bool(guidance) or any(signal.has_message_for_agents for signal in run.mailbox.list_waiting())
    limits = replace(ledger.extend_limits(is_guided=is_guided), **changed)
    if limits.deadline is not None and limits.deadline <= time.time():
        tomorrow = datetime.fromtimestamp(time.time() + 86_400).strftime("%Y-%m-%dT07:00")
        when = datetime.fromtimestamp(limits.deadline).strftime("%Y-%m-%d %H:%M")
        todo = f"`ralph resume {run.id} --no-deadline`, or give a later one: --deadline {tomorrow}"
        raise UsageError(f"the deadline of run {run.id} has passed: {when}", where=str(run.path), todo=todo)
    return limits


def _load_ledger(run: RunDir) -> Ledger:
    """The counters and limits with which the next engine continues.

    This is the state of the engine and not a view: every line is verified, and one that is not right is an error.
    """
    journal = run.path / "journal.jsonl"
    return Ledger.of(run.record().limits, read_records(journal) if journal.exists() else [])


def _read_changed_limits(options: ResumeOptions) -> dict[str, Any]:
    """The limits that the options set, by their names in `Limits`."""
    if options.deadline and options.no_deadline:
        raise UsageError("--deadline and --no-deadline contradict each other", todo="use only one of them")
    changed: dict[str, Any] = {}
    for option, name, unit in _LIMITS:
        value = require_positive(f"--{option.replace('_', '-')}", getattr(options, option), None)
        if value is not None:
            changed[name] = value * unit
    if options.deadline:
        changed["deadline"] = parse_deadline(options.deadline)
    if options.no_deadline:
        changed["deadline"] = None
    if options.allow_unpriced:
        changed["allow_unpriced"] = True
    if options.max_quota is not None:
        changed["quota"] = read_share(options.max_quota)
    return changed


def _reselect_agents(project: Project, run: RunDir, options: ResumeOptions) -> AgentSelection:
    """The agents from now on: those that the options name, or those of the run with another model."""
    chosen = RunOptions(**{name: getattr(options, name) for name in _AGENTS})
    if chosen.name_an_agent:
        return build_agent_selection(project, load_config(project.settings_dir), chosen)
    record = run.record()
    agents = with_user_changes(record, _load_ledger(run)).agents
    first, *rest = agents.chain
    return replace(agents, chain=(registry.choose_model(first, chosen.model or ""), *rest))


def _append_entry(run: RunDir, entry: GuardRulesChanged) -> None:
    lock = run.lock()
    try:
        journal, _ = Journal.open(run.path / "journal.jsonl")
        journal.append(time.time(), entry)
    finally:
        lock.release()


def with_user_changes(record: RunRecord, ledger: Ledger) -> RunRecord:
    """The record with what the user chose since. That is journaled, since `run.json` stays as it was."""
    record = replace(
        record,
        allowed={**record.allowed, **ledger.allowed},
        may_change=(*record.may_change, *ledger.may_change),
        accepted=ledger.accepted,
    )
    if not ledger.agents_json:
        return record
    where = "journal.jsonl: agents.changed"
    return replace(
        record, agents=from_plain(AgentSelection, read_json(ledger.agents_json, where, "start a new run"), where)
    )


def change_agents(run: RunDir, agents: AgentSelection) -> None:
    """Change the agents of a run from now on.

    An open turn belongs to the agent that started it, so it has to end first.
    """
    lock = run.lock()
    try:
        journal, records = Journal.open(run.path / "journal.jsonl")
        ledger = Ledger.of(run.record().limits, records)
        if any(pending.open_turn for pending in ledger.pending.values()):
            todo = f"`ralph resume {run.id}` first, then pause it, or abort it"
            raise UsageError(f"a turn of run {run.id} has not ended, and its agent cannot be changed", todo=todo)
        journal.append(time.time(), AgentsChanged(agents=to_json(agents), label=agents.chain[0].label))
    finally:
        lock.release()


def list_programs(record: RunRecord) -> Iterator[tuple[str, str]]:
    """What a run starts: what it is for, and its command."""
    for label, spec in record.agents.by_label.items():
        words = " ".join((label, *spec.arguments))
        variables = "".join(f"{name}={value} " for name, value in spec.environment.items())
        yield "agent", f"{variables}{words}" + (f" (scenario {spec.scenario})" if spec.scenario else "")
    for check in record.checks:
        yield "check", check.command or check.title
    for command in record.tree_settings.setup:
        yield "setup", command


def adopt_run(project: Project, run: RunDir, reason: str, at: datetime) -> str:
    """Let the user take over a run that Ralph cannot verify: cloned, changed, or of an older version.

    What it claims is moved to a directory of its own. Returns how the run continues.
    """
    lock = run.lock()
    try:
        goes_on, aside = run.adopt(at)
        documents = project.root / LOOPS / "loops" / run.id
        if not goes_on and documents.is_dir():
            with storage_errors(documents):
                os.rename(documents, aside / "loop")
        journal, _ = Journal.open(run.path / "journal.jsonl")
        journal.append(at.timestamp(), RunAdopted(reason, aside.name, goes_on))
    finally:
        lock.release()
    if goes_on:
        return f"adopted: it continues from the last line that Ralph wrote; the lines after that are in {aside}"
    return (
        f"adopted: it starts over with the files as they are; its claims about earlier turns and checks are in {aside}"
    )
