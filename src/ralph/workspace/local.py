"""Runs turns on this machine: a directory and a supervised agent process for each, inbox and outbox in the workspace.

The environment of an agent has the `ralph` of this run first on its path, and settings that keep it from pushing.
"""

import errno
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ralph
from ralph.agents import live_messages
from ralph.agents.adapter import Adapter, Call
from ralph.agents.failures import describe_stderr, is_settings_error
from ralph.core.check_output import fence
from ralph.core.codec import dump
from ralph.core.errors import AgentUnavailableError, StateError
from ralph.core.ids import turn_name
from ralph.core.limits import Usage
from ralph.core.prompt import PROGRAM, Place, Prompt, PromptPart, build_prompt, fill_parts, measure_parts
from ralph.core.turns import OUTBOX, AgentEvent, Turn, TurnEnd, TurnRequest, TurnResult, classify_end
from ralph.documents import answers
from ralph.documents.agent.events import NO_PUBLISHING, PUBLISH_RULES_VARIABLE, REFUSED_EVENTS, REFUSED_EXIT
from ralph.documents.answers import build_repair_prompt, describe_earlier_turns, with_rejection
from ralph.documents.hats.definition import COORDINATOR
from ralph.documents.run_record import RunRecord
from ralph.documents.signals import POLL_FOR_MESSAGES
from ralph.store.files import is_inside, read_limited, storage_errors, to_bytes, write_atomic
from ralph.supervisor import client
from ralph.supervisor.client import JobExit, JobRequest, KeeperClient, KeeperLost
from ralph.supervisor.processes import TURN_MARK, end_marked
from ralph.workspace.isolation import Isolation, TurnPlace
from ralph.workspace.turn_files import (
    MAX_ARGUMENT,
    MESSAGES,
    OutputSummary,
    OutputTail,
    TurnFiles,
    copy_files_into_inbox,
    read_documents,
    read_outbox,
    write_drafts,
)

SHARED_DIRECTORY = ".ralph/agent"
"""The directory of the files that all agents of a project share."""
_ANSWER_LIMIT = 1024 * 1024
_INSTRUCTIONS_LIMIT = 256 * 1024
_FENCED_JSON = re.compile(r"```json\s*\n(.*?)```", re.DOTALL)
_NO_COMMAND = (
    'the agent\'s shell did not find `ralph`, because the shell resets PATH. Prompts call it as "$RALPH_BIN"; use that name'
    " in your own presets and prompts too"
)


def remove_shared_link(workspace: Path) -> None:
    """Remove what turns needed in a directory below the root, so that the user's directory is as before."""
    link = workspace / SHARED_DIRECTORY
    if link.is_symlink() and [path.name for path in link.parent.iterdir()] == [link.name]:
        link.unlink()
        link.parent.rmdir()


@dataclass
class EarlyMessages:
    """Messages to turns whose directory does not exist yet, because their worktree is still set up.

    They stay in memory until then: whatever is in the place of a new turn is moved away. If the engine dies before, the
    journal has the signals, and the engine that adopts the turn sends them again.
    """

    begun: set[int] = field(default_factory=set)
    """The new turns that have their directory, by number."""
    texts: dict[int, dict[str, str]] = field(default_factory=dict)
    """The messages by turn and name."""


@dataclass(frozen=True)
class LocalTurns:
    """Runs the turns of one run in one workspace, one at a time.

    For each worktree of a task, `Workspaces` makes a copy that shares `early`: a message can come before the turn is set up.
    """

    run_dir: Path
    record: RunRecord
    root: Path
    workspace: Path
    files: TurnFiles
    keeper: KeeperClient
    agents: Mapping[str, Adapter]
    """The agents of the run, by label."""
    templates: Mapping[str, str]
    """The prompts of turns that continue another: `repair` and `continue`."""
    environment: Mapping[str, str]
    hidden: tuple[str, ...] = ()
    """Secrets that must not be written anywhere."""
    isolation: Isolation | None = None
    """Puts its turns into the sandbox."""
    early: EarlyMessages = field(default_factory=EarlyMessages)

    async def run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        """Start a turn, or take over one that is in progress or has ended; return its result."""
        began = time.time()
        if turn.request.is_withdrawn and not self.is_prepared(turn):
            # The earlier engine died before it could start the agent, and nothing has its prompt.
            return TurnResult(TurnEnd.INTERRUPTED, began, time.time(), error="the engine died before the turn began")
        try:
            return await self._run(turn, watch)
        except AgentUnavailableError as error:
            end_marked(TURN_MARK, self._process_mark(turn))
            return TurnResult(TurnEnd.UNAVAILABLE, began, time.time(), error=f"{error.what}; {error.todo}")

    async def _run(self, turn: Turn, watch: Callable[[AgentEvent], None]) -> TurnResult:
        directory, agent = self._directory(turn), self.agents[turn.agent]
        call = self._build_call(turn)
        planted = self._move_planted(directory) if turn.is_new else []
        if not self.is_prepared(turn):
            self._prepare(turn, directory, agent, call)
        self.early.begun.add(turn.number)
        for name, text in self.early.texts.pop(turn.number, {}).items():
            self._write_message(directory / MESSAGES, name, text)
        tail = OutputTail(directory, agent.reader(call, turn.used_before), watch, turn.number)
        try:
            ended = await self.keeper.run(self._build_job(turn, directory, agent, call), tail.poll)
        except KeeperLost:
            end_marked(TURN_MARK, self._process_mark(turn))
            started_at, seen_at = _find_lifetime(directory)
            ended = JobExit("interrupted", started_at, seen_at, error="its keeper died with it")
        sandbox_notices = self.isolation.finish_turn(directory, self.environment, agent) if self.isolation else []
        notices = [*planted, *sandbox_notices]
        tail.poll_denied_hosts()
        summary = tail.finish() if ended.has_output("stdout") else tail.summary
        self.files.collect_outbox(directory)
        handed, left = read_outbox(directory / "outbox", turn.request)
        answer, errors = self._read_answer(turn, directory, summary.text, handed)
        end = _classify_and_explain_exit(agent, ended, summary, _read_tail(directory / "stderr"))
        ended_with_refusal = ended.code == REFUSED_EXIT and not agent.announces_end
        if handed.get(REFUSED_EVENTS) and end is TurnEnd.FAILED and ended_with_refusal:
            # The last command of a script was a `ralph emit` that was refused. Its exit code is no failure of the agent.
            end = TurnEnd.FINISHED
        if end is not TurnEnd.FINISHED:
            # Refused events alone are no result of a failed turn.
            handed.pop(REFUSED_EVENTS, None)
        error = ""
        if end is not TurnEnd.FINISHED:
            error = _add_advice(self._describe_error(ended, summary, directory), end, agent)
        return TurnResult(
            end=end,
            started_at=ended.started_at,
            ended_at=ended.ended_at,
            code=ended.code,
            signal=ended.signal,
            usage=_price_refused_turn(agent, end, summary),
            text=summary.text,
            error=error,
            answer=answer,
            answer_errors=errors,
            resets_at=summary.resets_at,
            survivors=ended.survivors,
            agent_session=summary.session,
            denied=tuple(summary.denied),
            left=left,
            documents=handed,
            received=tail.poll_received(),
            quota=summary.quota,
            warnings=(*summary.warnings, *notices, *((_NO_COMMAND,) if summary.missed_command else ())),
        )

    def _move_planted(self, directory: Path) -> list[str]:
        """Move away what is in the place of a turn that has not started: it would pass for the result of the turn."""
        if not os.path.lexists(directory):
            return []
        with storage_errors(directory):
            aside = directory.with_name(f"refused-{os.urandom(4).hex()}")
            directory.rename(aside)
        return [f"something other than Ralph made the directory of this turn; it was not used, and is now {aside}"]

    def is_prepared(self, turn: Turn) -> bool:
        """Whether the directory of the turn is complete, so that a keeper may have the turn, or had it."""
        return (self._directory(turn) / "turn.json").exists()

    async def stop(self, turn: Turn, reason: str) -> None:
        """Ask the turn's keeper to end it."""
        await client.stop(self._directory(turn), reason)

    async def send_message(self, turn: Turn, name: str, text: str) -> None:
        """Write a message for the agent, or for `ralph tools signals`, once for each name."""
        messages = self._directory(turn) / MESSAGES
        if (messages / name).parent != messages or name.startswith(".") or not name:
            raise StateError("a message cannot have this name", where=repr(name), todo="use a plain file name")
        if turn.is_new and turn.number not in self.early.begun:
            self.early.texts.setdefault(turn.number, {})[name] = text
        else:
            self._write_message(messages, name, text)

    def _write_message(self, messages: Path, name: str, text: str) -> None:
        path = messages / f"{name}{live_messages.WAITING}"
        # In this order: a message that the agent receives in between is in one of the two.
        if not path.exists() and name not in dict(live_messages.list_received(str(messages))):
            with storage_errors(messages):
                messages.mkdir(parents=True, exist_ok=True)
            write_atomic(path, to_bytes(text))

    def _directory(self, turn: Turn) -> Path:
        return self.run_dir / "turns" / turn_name(turn.number, turn.request.role)

    def _process_mark(self, turn: Turn) -> str:
        return f"{self.record.id}/{turn.number:05d}"

    def _build_call(self, turn: Turn) -> Call:
        """What the turn asks of its agent. A session is continued only if the agent can do that."""
        spec, agent = self.record.agents.by_label[turn.agent], self.agents[turn.agent]
        return Call(
            workspace=self.workspace,
            model=spec.model,
            arguments=spec.arguments,
            budget=turn.budget,
            most_steps=self.record.most_steps,
            session=turn.agent_session if agent.abilities.resume else "",
            without_tools=spec.without_tools,
            prompt=self._directory(turn) / "prompt.md",
            permissions=spec.permissions,
            ralph=str(write_launcher(self.run_dir)),
        )

    def _prepare(self, turn: Turn, directory: Path, agent: Adapter, call: Call) -> None:
        """Write the turn's directory and files. `turn.json` comes last: without it, everything is written again."""
        request = turn.request
        with storage_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            schema = (
                {"result.schema.json": answers.render_schema(request.answer_schema)} if request.answer_schema else {}
            )
            self._link_shared_files()
            self.files.fill_inbox({**request.inbox, **schema}, directory)
            copy_files_into_inbox(self.root, self.files.inbox, request.copied_files)
            continued = self._read_continued_documents(turn)
            write_drafts(self.files.outbox, {**request.drafts, **continued})
            prompt = self._build_prompt(turn, has_documents=bool(continued))
            text = to_bytes(prompt.text)
            (directory / "prompt.md").write_bytes(text)
            if len(text) > MAX_ARGUMENT:
                # Programs that get their prompt as an argument read it here. In the sandbox, the inbox is read-only for them.
                (self.files.inbox / "prompt.md").write_bytes(text)
            if (own := agent.find_own_directory(call)) is not None:
                own.mkdir(parents=True, exist_ok=True)
            about = {
                "schema": 1,
                "turn": turn.number,
                "attempt": turn.attempt,
                "key": request.key,
                "role": request.role,
                "agent": turn.agent,
                "command": list(agent.command(call)),
                "session": turn.agent_session,
                "repair": list(turn.errors_to_repair),
                "budget": turn.budget,
                "wall": request.wall or self.record.turn_limits.wall,
                "idle": self.record.turn_limits.idle,
                "parts": [vars(part) for part in measure_parts(prompt)],
                # The agent's shell may drop variables; its tools look them up here by RALPH_TURN.
                "environment": self._list_own_variables(turn),
            }
            (directory / "turn.json").write_bytes(to_bytes(dump(about) + "\n"))

    def _link_shared_files(self) -> None:
        """In a worktree or below the root, link the files that agents share, so that their usual path works there."""
        link, shared = self.workspace / SHARED_DIRECTORY, self.root / SHARED_DIRECTORY
        if not os.path.lexists(link):
            shared.mkdir(parents=True, exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
        # At the root of the project, this is the directory that was just made.
        if not os.path.lexists(link):
            link.symlink_to(shared)

    def _list_hat_variables(self, request: TurnRequest) -> dict[str, str]:
        """The variables for the tools of a hat: whether it may ask the user, and what it may publish."""
        hats = self.record.hats
        if hats is None:
            return {}
        hat = hats.hat(request.role)
        # A turn that resolves a conflict has no hat, and may publish nothing.
        is_of_hat = hat or request.role == COORDINATOR
        rules = hats.list_publish_rules(request.role, request.gate_blockers) if is_of_hat else NO_PUBLISHING
        silent = {"RALPH_MAY_ASK": "no"} if hat and not hat.may_ask else {}
        return {PUBLISH_RULES_VARIABLE: dump(rules), **silent}

    def _read_continued_documents(self, turn: Turn) -> dict[str, str]:
        """The documents of the turn that this one continues. They are put into the outbox again.

        The events of a hat that starts its turn anew are left out: it publishes them again.
        """
        request, remembers = turn.request, self.agents[turn.agent].abilities.resume
        if not turn.continued_turn or not (
            turn.errors_to_repair or turn.rejected or remembers or request.answer_schema
        ):
            return {}
        before = self._directory(replace(turn, number=turn.continued_turn)) / "outbox"
        return read_documents(before, (*turn.request.outputs, *turn.request.drafts))

    def _build_prompt(self, turn: Turn, *, has_documents: bool = False) -> Prompt:
        """The whole prompt: the request, the messages of the user, and how the agent receives more of them."""
        agent, call = self.agents[turn.agent], self._build_call(turn)
        must_poll = agent.can_run_ralph(call) and not agent.can_receive_messages(call)
        prompt = self._choose_prompt(turn).with_parts(
            describe_directory(self.record.directory),
            PromptPart("messages", turn.guidance, "What the user said.", Place.MESSAGES),
        )
        if not turn.errors_to_repair and not self._continues_session(turn):
            prompt = prompt.with_parts(*self._add_instructions(agent))
            if turn.earlier:
                part = describe_earlier_turns(turn.earlier, turn.request, has_documents=has_documents)
                prompt = prompt.with_parts(part)
        if must_poll:
            prompt = prompt.with_parts(POLL_FOR_MESSAGES)
        if turn.request.answer_schema and not agent.can_change_files(call, {**os.environ, **agent.variables}):
            prompt = prompt.with_parts(answers.ANSWER_IN_MESSAGE)
        if self.record.hats and (agent.is_restricted(call) or not agent.abilities.commands):
            from ralph.workflows.hats.events import PUBLISH_IN_MESSAGE  # other workflows need no hats

            prompt = prompt.with_parts(PUBLISH_IN_MESSAGE)
        if not agent.needs_path_of_ralph(call):
            return prompt
        program = shlex.quote(call.ralph)
        return Prompt(tuple(replace(part, text=part.text.replace(PROGRAM, program)) for part in prompt.parts))

    def _add_instructions(self, agent: Adapter) -> Iterator[PromptPart]:
        """The project's instructions that this agent does not read by itself. A conversation that continues has them."""
        for name in self.record.instructions:
            path = self.workspace / name
            if not path.is_file() or agent.reads_instructions(name, self.workspace):
                continue
            text = f"{name} is a link that leads out of the project, so it is left out."
            if is_inside(path, self.root) or is_inside(path, self.workspace):
                text = fence(read_limited(path, _INSTRUCTIONS_LIMIT, follow=True).decode(errors="replace").strip())
            yield PromptPart(
                f"instructions-{name}",
                text,
                "The project's instructions, which this agent does not read by itself.",
                Place.RUN,
                heading=f"# The project's instructions ({name})",
            )

    def _choose_prompt(self, turn: Turn) -> Prompt:
        """The request of the turn, without the messages of the user."""
        if self._continues_session(turn) and not turn.errors_to_repair:
            return build_prompt(fill_parts("continue", self.templates["continue"], {"outbox": OUTBOX}))
        if turn.errors_to_repair:
            return build_repair_prompt(self.templates["repair"], turn.request, turn.errors_to_repair)
        return with_rejection(turn.request.prompt, turn.rejected)

    def _continues_session(self, turn: Turn) -> bool:
        """Whether the agent remembers what it did so far."""
        return bool(turn.agent_session) and self.agents[turn.agent].abilities.resume

    def _build_job(self, turn: Turn, directory: Path, agent: Adapter, call: Call) -> JobRequest:
        limits, spec = self.record.turn_limits, self.record.agents.by_label[turn.agent]
        job = JobRequest(
            dir=directory,
            argv=tuple(agent.command(call)),
            env={**self._build_environment(turn), **agent.environment(call), **spec.environment},
            cwd=self.workspace,
            stdin=directory / "prompt.md",
            wall=turn.request.wall or limits.wall,
            idle=limits.idle,
            grace=limits.grace,
            secrets=self.hidden,
        )
        if self.isolation is None:
            return job
        place = TurnPlace(directory, self.files.outbox, directory / MESSAGES, agent.find_own_directory(call))
        return self.isolation.isolate_turn(job, place, agent)

    def _build_environment(self, turn: Turn) -> dict[str, str]:
        program = write_launcher(self.run_dir)
        path = self.environment.get("PATH", os.defpath)
        return {
            **self.environment,
            "PATH": f"{program.parent}{os.pathsep}{path}",
            "RALPH_BIN": str(program),
            TURN_MARK: self._process_mark(turn),
            **self._list_own_variables(turn),
            **({} if self.record.push else forbid_push(self.environment)),
        }

    def _list_own_variables(self, turn: Turn) -> dict[str, str]:
        """The variables that tell the agent's tools about its turn."""
        return {
            "RALPH_RUN": self.record.id,
            "RALPH_ROLE": turn.request.role,
            "RALPH_TASK": turn.request.task,
            "RALPH_HAT": turn.request.role if self.record.hats else "",
            "RALPH_ATTEMPT": str(turn.request.task_attempt or turn.attempt),
            "RALPH_INBOX": str(self.files.inbox),
            "RALPH_OUTBOX": str(self.files.outbox),
            "RALPH_MESSAGES": str(self._directory(turn) / MESSAGES),
            "RALPH_EVENTS_FILE": str(self.files.outbox / "events.jsonl"),
            "RALPH_WORKSPACE_ROOT": str(self.root),
            **self._list_hat_variables(turn.request),
        }

    def _describe_error(self, ended: JobExit, summary: OutputSummary, directory: Path) -> str:
        how = f"killed by signal {ended.signal}" if ended.signal else f"exit code {ended.code}"
        if ended.reason != "exit":
            limits = {
                "idle": "it reached the limit of time without output",
                "wall": "it reached its time limit",
                "cut": "the run reached a limit",
                "exec": "its program could not be started",
            }
            how = limits.get(ended.reason, ended.reason)
        elif ended.code == 0:
            how = "the agent stopped without saying that it had finished"
        detail = (
            summary.error or ended.error or " / ".join(describe_stderr(_read_tail(directory / "stderr"))[-3:])[:600]
        )
        if os.strerror(errno.EMFILE) in detail:
            detail += "; allow more open files with `ulimit -n 4096`, then resume the run"
        return f"{how}: {detail}" if detail else how

    def _read_answer(
        self, turn: Turn, directory: Path, text: str, handed: Mapping[str, str]
    ) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
        """The answer, and the errors in it or in the documents that belong to it."""
        answer, errors = self._read_result(turn, directory, text)
        if answer is not None and not errors:
            errors = answers.find_answer_faults(turn.request.answer_schema, answer, handed, turn.request.inbox)
            answer = answers.complete_answer(answer, handed)
        return answer, errors

    def _read_result(self, turn: Turn, directory: Path, text: str) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
        """The validated `result.json`, or the last JSON block of the final message; and the errors in it."""
        schema = turn.request.answer_schema
        if not schema:
            return None, ()
        try:
            data = read_limited(directory / "outbox" / "result.json", _ANSWER_LIMIT)
            if data.strip():
                return answers.parse_answer(schema, data.decode(errors="replace"))
        except FileNotFoundError:
            pass
        except (StateError, OSError) as error:
            return None, (f"result.json cannot be read: {error}",)
        blocks = _FENCED_JSON.findall(text)
        answer, errors = answers.parse_answer(schema, blocks[-1]) if blocks else (None, ("there is no result.json",))
        required = turn.request.answer_required or bool(turn.errors_to_repair)
        return answer, errors if required else ()


def describe_directory(directory: str) -> PromptPart:
    """Where the agent stands, if that is not the top of the project."""
    text = (
        f"You work in `{directory}`, a directory of a larger repository. Your commands and the checks start there. Lists of"
        " changed files, and patterns of files that you may change, start at the top of the repository."
    )
    return PromptPart(
        name="directory",
        text="" if directory == "." else text,
        purpose="The directory of the repository.",
        heading="# Your directory",
    )


def _classify_and_explain_exit(agent: Adapter, ended: JobExit, summary: OutputSummary, stderr: str) -> TurnEnd:
    """How the turn ended. Adds the reason to the summary if only the exit code or `stderr` contains it."""
    classify = partial(
        classify_end,
        reason=ended.reason,
        code=ended.code,
        said_finished=summary.finished,
        announces_end=agent.announces_end,
    )
    end = classify(failure=summary.failure)
    if end is TurnEnd.IDLE and summary.limit_waited_for:
        summary.error = f"it waited for the end of a limit: {summary.limit_waited_for}"
        summary.resets_at = agent.find_wait_end(stderr) or summary.resets_at
        return TurnEnd.LIMITED
    if end is TurnEnd.FAILED and summary.failure is None and (found := agent.failure(ended.code, stderr)):
        summary.failure, summary.error = found[0], summary.error or found[1]
        end = classify(failure=summary.failure)
    return end


def _add_advice(error: str, end: TurnEnd, agent: Adapter) -> str:
    """The error, with what to do if only the user can do something."""
    if end is not TurnEnd.UNAVAILABLE or not agent.advice:
        return error
    if is_settings_error(error):
        return f"{error}; correct the settings or the arguments of {agent.name}"
    return f"{error}; {agent.advice}"


def _find_lifetime(directory: Path) -> tuple[float, float]:
    """When a lost turn started, and when it last wrote something."""
    files = [directory / name for name in ("pid", "stdout", "stderr")]
    times = [file.stat().st_mtime for file in files if file.exists()]
    if not times:
        return time.time(), time.time()
    return times[0], max(times)


def _read_tail(path: Path) -> str:
    """The end of a file. A backtrace of many lines can follow the error."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 16_000))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


_REFUSED_PROTOCOL = "ralph-does-not-let-agents-push::"
_LOCAL_PREFIXES = ("/", "./", "../", "file://")
"""Git uses the longest matching prefix: these are rewritten to themselves, all others to a protocol that does not exist."""
_SSH_WITHOUT_PUSH = (
    'ralph_ssh() { case "$*" in *git-receive-pack*) echo "ralph: agents may not push" >&2; exit 1;; esac; '
    'ssh=$(git config core.sshCommand); eval "exec ${SSH_BEFORE_RALPH:-${ssh:-ssh}} \\"\\$@\\""; }; ralph_ssh'
)


def _price_refused_turn(agent: Adapter, end: TurnEnd, summary: OutputSummary) -> Usage:
    """What a turn used. A turn in which no model answered cost nothing, and its price is not unknown.

    An answer without a tool ends a turn. So there was none if the provider refused, and no tool was used before.
    """
    is_refused = end in (TurnEnd.UNAVAILABLE, TurnEnd.LIMITED, TurnEnd.OVERLOADED)
    no_answer = is_refused or (end is TurnEnd.FAILED and not summary.text)
    used = summary.usage
    if not agent.announces_end or not no_answer or summary.used_tools or used.tokens or used.cost is not None:
        return used
    return replace(used, cost=0.0, unpriced=None)


def write_launcher(run_dir: Path) -> Path:
    """Write the `ralph` of the run: a script that is first on the path of its turns, so that they start no other version."""
    path = run_dir / "bin" / "ralph"
    source = str(Path(ralph.__file__).parents[1])
    code = f"import sys; sys.path.append({source!r}); from ralph.__main__ import main; main()"
    # Agents call it often, so its modules are compiled once, even if the project sets PYTHONDONTWRITEBYTECODE.
    start = f'unset PYTHONDONTWRITEBYTECODE\nexec {shlex.join([sys.executable, "-P", "-c", code])} "$@"'
    # The tools find their run by this variable, which a shell of the agent may have dropped.
    text = to_bytes(f"#!/bin/sh\nexport RALPH_BIN={shlex.quote(str(path))}\n{start}\n")
    with storage_errors(path):
        if not path.is_file() or path.read_bytes() != text:
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, text, mode=0o755, durable=False)
    return path


def forbid_push(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that keep an agent from pushing to other machines, by git's own settings.

    Fetching still works, and so does pushing to a repository on this machine. This prevents accidents and is no sandbox:
    a program can remove the settings from its environment.
    """
    rules = {_REFUSED_PROTOCOL: "", **{local: local for local in _LOCAL_PREFIXES}}
    start = _count_settings(environment)
    guard = {
        "GIT_CONFIG_COUNT": str(start + len(rules)),
        "GIT_SSH_COMMAND": _SSH_WITHOUT_PUSH,
        "GIT_SSH_VARIANT": "ssh",
        "SSH_BEFORE_RALPH": environment.get("GIT_SSH_COMMAND", ""),
    }
    for number, (base, prefix) in enumerate(rules.items(), start):
        guard[f"GIT_CONFIG_KEY_{number}"] = f"url.{base}.pushInsteadOf"
        guard[f"GIT_CONFIG_VALUE_{number}"] = prefix
    return guard


def _count_settings(environment: Mapping[str, str]) -> int:
    try:
        return max(0, int(environment.get("GIT_CONFIG_COUNT", "0")))
    except ValueError:
        return 0
