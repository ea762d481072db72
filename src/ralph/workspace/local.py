"""Turns on this machine: a directory each, an agent process in the keeper's care, inbox and outbox in the workspace."""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ralph.agents import hook
from ralph.agents.adapter import Adapter
from ralph.agents.agent import Call
from ralph.core.codec import dump
from ralph.core.errors import AgentUnavailableError, StateError
from ralph.core.ids import turn_name
from ralph.core.stream import AgentEvent
from ralph.core.turns import OUTBOX, Turn, TurnEnd, TurnResult
from ralph.documents import contracts
from ralph.documents.agent import publishing
from ralph.documents.agent.program import PROGRAM, name_program
from ralph.documents.hats.definition import COORDINATOR
from ralph.documents.run_record import RunRecord
from ralph.documents.templates import fill_parts
from ralph.engine.turn_outcome import classify_end
from ralph.store.files import read_limited, storage, to_bytes, write_atomic
from ralph.supervisor import client
from ralph.supervisor.client import Exit, Job, Keeper, Lost
from ralph.supervisor.processes import TURN_MARK, end_marked
from ralph.workspace.agent_environment import forbid_push, write_launcher
from ralph.workspace.stream import WORDS, Account, Tail
from ralph.workspace.turn_files import (
    TurnFiles,
    copy_lent_files,
    read_documents,
    read_handed_over,
    write_drafts,
)

SHARED = ".ralph/agent"
"""Where the files are that all agents of a project share."""
_ANSWER_LIMIT = 1024 * 1024
_FENCED_JSON = re.compile(r"```json\s*\n(.*?)```", re.DOTALL)
_LISTEN = name_program(
    "The user may send you messages while you work. Run `ralph tools signals` between two steps to read them."
)
_NO_COMMAND = (
    'the agent\'s shell did not find `ralph`: it sets PATH anew. Prompts name the command as "$RALPH_BIN"; if a preset or'
    " a prompt of yours names it otherwise, write it like that"
)


@dataclass(frozen=True)
class LocalTurns:
    """Runs the turns of one run in one workspace, one at a time."""

    run_dir: Path
    record: RunRecord
    root: Path
    workspace: Path
    files: TurnFiles
    keeper: Keeper
    agents: Mapping[str, Adapter]
    """Who may do a turn, by label."""
    templates: Mapping[str, str]
    """The prompts of turns that go on with another: `repair` and `continue`."""
    environment: Mapping[str, str]
    hidden: tuple[str, ...] = ()
    """Secrets that must not be written anywhere."""

    async def run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        """Start a turn, or take over one that is under way or has ended, and return what came of it."""
        began = time.time()
        try:
            return await self._run(turn, watch)
        except AgentUnavailableError as error:
            end_marked(TURN_MARK, self._mark(turn))
            return TurnResult(TurnEnd.UNAVAILABLE, began, time.time(), error=f"{error.what}; {error.todo}")

    async def _run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        directory, agent = self._directory(turn), self.agents[turn.agent]
        call = self._call(turn)
        if not self.has_begun(turn):
            self._prepare(turn, directory, agent, call)
        tail = Tail(directory, agent.reader(call, turn.before), watch)
        try:
            ended = await self.keeper.run(self._job(turn, directory, agent, call), tail.poll)
        except Lost:
            end_marked(TURN_MARK, self._mark(turn))
            started_at, seen_at = _find_lifetime(directory)
            ended = Exit("interrupted", started_at, seen_at, error="its keeper died with it")
        account = tail.finish() if ended.printed("stdout") else tail.account
        self.files.collect_outbox(directory)
        handed, left = read_handed_over(directory / "outbox", turn.request)
        answer, errors = self._answer(turn, directory, account.text, handed)
        end = _classify_exit(agent, ended, account, _read_end(directory / "stderr"))
        error = ""
        if end is not TurnEnd.FINISHED:
            error = _add_advice(self._describe_error(ended, account, directory), end, agent)
        return TurnResult(
            end=end,
            started_at=ended.started_at,
            ended_at=ended.ended_at,
            code=ended.code,
            signal=ended.signal,
            usage=account.usage,
            text=account.text,
            error=error,
            answer=answer,
            answer_errors=errors,
            resets_at=account.resets_at,
            survivors=ended.survivors,
            session=account.session,
            denied=tuple(account.denied),
            left=left,
            papers=handed,
            heard=tail.heard(),
            warnings=(*account.warnings, *((_NO_COMMAND,) if account.missed_command else ())),
        )

    def has_begun(self, turn: Turn) -> bool:
        """Whether a keeper has the turn, or had it."""
        return (self._directory(turn) / "turn.json").exists()

    async def stop(self, turn: Turn, reason: str) -> None:
        """Ask the turn's keeper to end it."""
        await client.stop(self._directory(turn), reason)

    async def tell(self, turn: Turn, name: str, text: str) -> bool:
        """Leave words where the agent hears them, or finds them by `ralph tools signals`; no name is left twice."""
        words = self._directory(turn) / WORDS
        place = words / f"{name}{hook.WAITING}"
        if place.parent != words or name.startswith(".") or not name:
            raise StateError("words cannot be called so", where=repr(name), todo="give them a plain file name")
        # Looked for in this order, words that are taken in meanwhile are seen.
        if not place.exists() and name not in dict(hook.heard(str(words))):
            with storage(words):
                words.mkdir(parents=True, exist_ok=True)
            write_atomic(place, to_bytes(text))
        return self.agents[turn.agent].hears(self._call(turn))

    def _directory(self, turn: Turn) -> Path:
        return self.run_dir / "turns" / turn_name(turn.number, turn.request.role)

    def _mark(self, turn: Turn) -> str:
        return f"{self.record.id}/{turn.number:05d}"

    def _call(self, turn: Turn) -> Call:
        """What the turn asks of its agent; a conversation is only gone on with where the agent can."""
        spec, agent = self.record.crew.everyone[turn.agent], self.agents[turn.agent]
        return Call(
            workspace=self.workspace,
            model=spec.model,
            arguments=spec.arguments,
            budget=turn.budget,
            most_steps=self.record.most_steps,
            session=turn.session if agent.abilities.resume else "",
            without_tools=spec.without_tools,
            prompt=self._directory(turn) / "prompt.md",
            permissions=spec.permissions,
        )

    def _prepare(self, turn: Turn, directory: Path, agent: Adapter, call: Call) -> None:
        """Lay out the turn's directory and files; `turn.json` comes last, so that half a layout is done again."""
        request = turn.request
        with storage(directory):
            directory.mkdir(parents=True, exist_ok=True)
            form = {"result.schema.json": contracts.schema(request.contract)} if request.contract else {}
            self.files.fill_inbox({**request.inbox, **form}, directory)
            self._share()
            copy_lent_files(self.root, self.files.inbox, request.lends)
            write_drafts(self.files.outbox, {**request.drafts, **self._to_mend(turn)})
            (directory / "prompt.md").write_bytes(to_bytes(self._prompt(turn)))
            about = {
                "schema": 1,
                "turn": turn.number,
                "attempt": turn.attempt,
                "key": request.key,
                "role": request.role,
                "agent": turn.agent,
                "command": list(agent.command(call)),
                "session": turn.session,
                "repair": list(turn.repair),
                "budget": turn.budget,
                "wall": request.wall or self.record.turn_limits.wall,
                "idle": self.record.turn_limits.idle,
            }
            (directory / "turn.json").write_bytes(to_bytes(dump(about) + "\n"))

    def _share(self) -> None:
        """In a worktree, a link to what the agents of the project share: they read and write it by its usual path."""
        place, shared = self.workspace / SHARED, self.root / SHARED
        if not os.path.lexists(place):
            shared.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(place):
            place.symlink_to(shared)

    def _of_hat(self, role: str) -> dict[str, str]:
        """What the tools of a hat have to know: whether it may ask a person, and what it may publish."""
        hats = self.record.hats
        if hats is None:
            return {}
        hat = hats.hat(role)
        # Whoever resolves a conflict wears no hat, and nobody takes what it would publish.
        rules = hats.publishing(role) if hat or role == COORDINATOR else publishing.NOTHING
        silent = {"RALPH_MAY_ASK": "no"} if hat and not hat.may_ask else {}
        return {publishing.RULES: dump(rules), **silent}

    def _to_mend(self, turn: Turn) -> dict[str, str]:
        """The documents of the turn that this one goes on with: they lie in the outbox again."""
        if not turn.mends or not (turn.repair or self.agents[turn.agent].abilities.resume):
            return {}
        before = self._directory(replace(turn, number=turn.mends)) / "outbox"
        return read_documents(before, (*turn.request.hands_over, *turn.request.drafts))

    def _prompt(self, turn: Turn) -> str:
        agent = self.agents[turn.agent]
        listens = agent.abilities.commands and not agent.hears(self._call(turn))
        body, closing = self._asked(turn)
        parts = [body, turn.guidance, _LISTEN if listens else "", closing]
        prompt = "\n\n".join(part.rstrip() for part in parts if part) + "\n"
        return prompt.replace(PROGRAM, agent.ralph_command)

    def _asked(self, turn: Turn) -> tuple[str, str]:
        """What the turn is asked for, before and after the messages of the user."""
        goes_on = turn.session and self.agents[turn.agent].abilities.resume
        if goes_on and not turn.repair:
            return fill_parts("continue", self.templates["continue"], {"outbox": OUTBOX})
        if not turn.repair:
            return turn.request.prompt, turn.request.closing
        values = {
            "errors": "\n".join(f"- {error}" for error in turn.repair),
            "outbox": OUTBOX,
            "schema": contracts.schema(turn.request.contract),
        }
        return fill_parts("repair", self.templates["repair"], values)

    def _job(self, turn: Turn, directory: Path, agent: Adapter, call: Call) -> Job:
        limits, spec = self.record.turn_limits, self.record.crew.everyone[turn.agent]
        return Job(
            directory,
            tuple(agent.command(call)),
            {**self._environment(turn), **agent.environment(call), **spec.environment},
            self.workspace,
            stdin=directory / "prompt.md",
            wall=turn.request.wall or limits.wall,
            idle=limits.idle,
            grace=limits.grace,
            secrets=self.hidden,
        )

    def _environment(self, turn: Turn) -> dict[str, str]:
        program = write_launcher(self.run_dir)
        path = self.environment.get("PATH", os.defpath)
        return {
            **self.environment,
            "PATH": f"{program.parent}{os.pathsep}{path}",
            "RALPH_BIN": str(program),
            "RALPH_RUN": self.record.id,
            TURN_MARK: self._mark(turn),
            "RALPH_ROLE": turn.request.role,
            "RALPH_TASK": turn.request.task,
            "RALPH_HAT": turn.request.role if self.record.hats else "",
            "RALPH_ATTEMPT": str(turn.attempt),
            "RALPH_INBOX": str(self.files.inbox),
            "RALPH_OUTBOX": str(self.files.outbox),
            "RALPH_WORDS": str(self._directory(turn) / WORDS),
            "RALPH_EVENTS_FILE": str(self.files.outbox / "events.jsonl"),
            "RALPH_WORKSPACE_ROOT": str(self.root),
            **self._of_hat(turn.request.role),
            **({} if self.record.push else forbid_push(self.environment)),
        }

    def _describe_error(self, ended: Exit, account: Account, directory: Path) -> str:
        how = f"killed by signal {ended.signal}" if ended.signal else f"exit code {ended.code}"
        if ended.reason != "exit":
            how = {"idle": "no output for too long", "wall": "ran too long"}.get(ended.reason, ended.reason)
        elif ended.code == 0:
            how = "the agent stopped without saying that it had finished"
        detail = account.error or ended.error or _read_end(directory / "stderr")
        return f"{how}: {detail}" if detail else how

    def _answer(
        self, turn: Turn, directory: Path, text: str, handed: Mapping[str, str]
    ) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
        """The answer and what is wrong with it, or with the documents that go with it."""
        answer, errors = self._result(turn, directory, text)
        if answer is not None and not errors:
            errors = contracts.faults(turn.request.contract, answer, handed, turn.request.inbox)
        return answer, errors

    def _result(self, turn: Turn, directory: Path, text: str) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
        """The validated `result.json`, or the last JSON block of the final message, or what is wrong with it."""
        contract = turn.request.contract
        if not contract:
            return None, ()
        try:
            data = read_limited(directory / "outbox" / "result.json", _ANSWER_LIMIT)
            if data.strip():
                return contracts.validate(contract, data.decode(errors="replace"))
        except FileNotFoundError:
            pass
        except (StateError, OSError) as error:
            return None, (f"result.json cannot be read: {error}",)
        blocks = _FENCED_JSON.findall(text)
        answer, errors = contracts.validate(contract, blocks[-1]) if blocks else (None, ("there is no result.json",))
        required = turn.request.answer_required or bool(turn.repair)
        return answer, errors if required else ()


def _classify_exit(agent: Adapter, ended: Exit, account: Account, stderr: str) -> TurnEnd:
    """How the turn ended; if its output does not say why it failed, its exit code and `stderr` may."""
    classify = partial(
        classify_end,
        reason=ended.reason,
        code=ended.code,
        said_finished=account.finished,
        announces_end=agent.announces_end,
    )
    end = classify(failure=account.failure)
    if end is TurnEnd.FAILED and account.failure is None and (found := agent.failure(ended.code, stderr)):
        account.failure, account.error = found[0], account.error or found[1]
        end = classify(failure=account.failure)
    return end


def _add_advice(error: str, end: TurnEnd, agent: Adapter) -> str:
    """The error, with what the user can do if only the user can."""
    return f"{error}; {agent.advice}" if end is TurnEnd.UNAVAILABLE and agent.advice else error


def _find_lifetime(directory: Path) -> tuple[float, float]:
    """When a lost turn started, and when there was the last sign of it."""
    times = [(directory / name).stat().st_mtime for name in ("pid", "stdout", "stderr") if (directory / name).exists()]
    return (times[0], max(times)) if times else (time.time(), time.time())


def _read_end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 2000))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return ""
    return " / ".join(line.strip() for line in lines[-3:])[:600]
