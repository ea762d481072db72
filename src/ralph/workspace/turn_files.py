"""The files of a turn: inbox and outbox in the workspace, and the output that its keeper writes.

Inbox and outbox are in the workspace because agents refuse paths outside of it. The output is read in events as it grows.
Directories that did not change are left for the next turn: a quick turn would spend most of its time on making and
removing them.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from ralph.agents import live_messages
from ralph.agents.adapter import Reader
from ralph.agents.failures import classify_failure
from ralph.core.codec import dump, to_plain
from ralph.core.errors import StateError
from ralph.core.limits import Quota, Usage
from ralph.core.prompt import NOT_FOUND
from ralph.core.redaction import Redactor
from ralph.core.turns import INBOX, OUTBOX, AgentEvent, EventKind, Failure, TurnRequest
from ralph.store.files import read_limited, storage_errors, to_bytes, to_text
from ralph.store.journal import read_raw
from ralph.supervisor.network_proxy import read_denied

COPY_LIMIT = 20 * 1024 * 1024
"""Bytes of a file that is copied into an inbox."""
MAX_ARGUMENT = 120_000
"""Bytes of a prompt that fit into one argument (`prompt_argument.sh`). Linux allows 131,072."""
_REDACTED_LIMIT = 64 * 1024 * 1024
_DOCUMENT_LIMIT, _MAX_DOCUMENTS, _MAX_TEXT = 1024 * 1024, 20_000, 64 * 1024 * 1024
_MAX_NAMES = 200
"""How many ignored documents are named."""


class TurnFiles:
    """Where the turns of one workspace find their inbox and leave their outbox."""

    def __init__(self, workspace: Path, secrets: tuple[str, ...]) -> None:
        self.inbox, self.outbox = workspace / INBOX, workspace / OUTBOX
        self._home = self.inbox.parent
        self._secrets = secrets
        self._inbox_texts: Mapping[str, str] | None = None
        """What the inbox was filled with."""
        self._inbox_entries: object = None

    def fill_inbox(self, texts: Mapping[str, str], aside: Path) -> None:
        """Write the inbox of a turn and empty the outbox. Other files there are moved into the directory `aside`."""
        if self._inbox_texts == texts and self._inbox_entries == _list_entries(self.inbox) and self._is_clean():
            return
        with storage_errors(self._home):
            self.remove(aside)
            self.inbox.mkdir(parents=True)
            self.outbox.mkdir()
            for name, text in texts.items():
                (self.inbox / name).parent.mkdir(parents=True, exist_ok=True)
                (self.inbox / name).write_bytes(to_bytes(text))
        self._inbox_texts, self._inbox_entries = texts, _list_entries(self.inbox)

    def collect_outbox(self, directory: Path) -> None:
        """Move what a turn left in the outbox into its directory, without secrets; links are not followed."""
        if self._is_clean():
            return
        with storage_errors(directory):
            if _list_entries(self.outbox) and not self._home.is_symlink() and not (directory / "outbox").exists():
                shutil.move(self.outbox, directory / "outbox")
                self._redact(directory / "outbox")
                self.outbox.mkdir()
            if not self._is_clean():
                self.remove(directory)

    def remove(self, aside: Path) -> None:
        """Remove inbox and outbox; anything else that is there is moved aside."""
        self._inbox_texts = None
        if self._home.is_symlink():
            self._home.unlink()
        elif self._is_clean():
            shutil.rmtree(self._home)
        elif os.path.lexists(self._home):
            target = aside / f"left-in-turn-files-{os.urandom(2).hex()}"
            shutil.move(self._home, target)
            self._redact(target)

    def _is_clean(self) -> bool:
        """Whether there is nothing but the inbox and an empty outbox."""
        names = [entry[0] for entry in _list_entries(self._home) or ()]
        return names == ["inbox", "outbox"] and _list_entries(self.outbox) == []

    def _redact(self, path: Path) -> None:
        """Remove secrets from a file, or from all files of a directory, that an agent left. Links are not followed."""
        redactor = Redactor(self._secrets)
        if path.is_file():
            _redact_file(path, redactor)
        for directory, _, names in os.walk(path):
            for name in names:
                _redact_file(Path(directory, name), redactor)


def _redact_file(path: Path, redactor: Redactor) -> None:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _REDACTED_LIMIT:
        return
    data = path.read_bytes()
    clean = redactor.data(data)
    if clean != data:
        path.write_bytes(clean)


def copy_files_into_inbox(root: Path, inbox: Path, copied_files: Mapping[str, str]) -> None:
    """Copy files, and the files of directories, into the inbox; links, and large files of a directory, are left out."""
    for name, source in copied_files.items():
        lent = root / source
        if lent.is_file() and not lent.is_symlink():
            _copy_ends(lent, inbox / name)
            continue
        for path in sorted(lent.glob("*")):
            target = inbox / name / path.name
            if path.is_file() and not path.is_symlink() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.stat().st_size <= COPY_LIMIT:
                    shutil.copyfile(path, target)


def _copy_ends(path: Path, target: Path) -> None:
    """Copy a file; of one that is too large, its beginning and its end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    size = path.stat().st_size
    if size <= COPY_LIMIT:
        shutil.copyfile(path, target)
        return
    with path.open("rb") as file:
        head = file.read(COPY_LIMIT // 2)
        file.seek(size - COPY_LIMIT // 2)
        tail = file.read()
    target.write_bytes(head + f"\n... {size - COPY_LIMIT} bytes left out\n".encode() + tail)


def write_drafts(outbox: Path, texts: Mapping[str, str]) -> None:
    """Write documents into the outbox for the turn to work on."""
    for name, text in texts.items():
        (outbox / name).parent.mkdir(parents=True, exist_ok=True)
        (outbox / name).write_bytes(to_bytes(text))


def read_outbox(outbox: Path, request: TurnRequest) -> tuple[dict[str, str], tuple[str, ...]]:
    """The documents that a turn hands over, and the names of those that are ignored.

    Not taken are drafts that are not the turn's own, links, and what is too large or too many.
    """
    documents, left = _read_matching(outbox, request.outputs)
    roots = {name.partition("/")[0] for name in request.drafts}
    drafts, too_much = _read_matching(outbox, tuple(f"{root}/**/*" for root in sorted(roots)))
    left += too_much
    for name, text in drafts.items():
        if request.drafts.get(name) == text:
            continue
        pattern, target = next((one for one in request.draft_outputs if PurePosixPath(name).match(one[0])), ("", ""))
        if not pattern:
            left.append(name)
            continue
        if target.endswith("/"):
            # The parts of the path that matched a `*` are the path below the target.
            parts = sum("*" in part for part in pattern.split("/"))
            target += "/".join(name.split("/")[-parts:])
        documents.setdefault(target, text)
    return documents, tuple(left[:_MAX_NAMES])


def read_documents(outbox: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    """The documents in an outbox that match, as text."""
    return _read_matching(outbox, patterns)[0]


def _read_matching(outbox: Path, patterns: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Those documents, and the names of what is left out: links, and what is too large or too many."""
    found: dict[str, str] = {}
    left, room = [], _MAX_TEXT
    paths: set[Path] = set()
    for pattern in patterns:
        paths.update(path for path in outbox.glob(pattern) if not path.is_dir())
    for path in sorted(paths):
        name = path.relative_to(outbox).as_posix()
        text = _read_inside(path, outbox) if len(found) < _MAX_DOCUMENTS else None
        if text is None or len(text) > room:
            left.append(name)
        else:
            found[name] = text
            room -= len(text)
    return found, left


def _read_inside(path: Path, outbox: Path) -> str | None:
    try:
        return to_text(_read_bytes(path)) if path.resolve().is_relative_to(outbox.resolve()) else None
    except (StateError, OSError):
        return None


def _read_bytes(path: Path) -> bytes:
    """The bytes of a document. JSON Lines that are too large are cut off, and a last line reports that."""
    if path.suffix != ".jsonl" or path.stat().st_size <= _DOCUMENT_LIMIT:
        return read_limited(path, _DOCUMENT_LIMIT)
    with path.open("rb") as file:
        data = file.read(_DOCUMENT_LIMIT)
    left = path.stat().st_size - _DOCUMENT_LIMIT
    return data[: data.rfind(b"\n") + 1] + f"the file is too large: {left} bytes of it were not read\n".encode()


def _list_entries(directory: Path) -> list[tuple[str, int, int, int]] | None:
    """The entries of a directory with inode, size and time; None if it is no directory, or a link."""
    if directory.is_symlink():
        return None
    try:
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return None
    return sorted((name, status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found)


_CHUNK = 1 << 20
LINE_LIMIT = 1 << 20
"""A longer line is read in pieces. No event of an agent is that long, but garbage can be."""
LOG_LIMIT, LOGGED_TEXT = 4 << 20, 2000
"""Bytes of the event log of a turn, and characters of one text in it."""
MAX_TEXT, MAX_DENIALS = 4000, 20
MESSAGES = "messages"
"""The directory of a turn in which messages of the user wait for its agent."""
PROGRESS = "progress.jsonl"
"""The file of a run in which `ralph tools interact progress` writes."""


@dataclass
class OutputSummary:
    """What an agent reported in all."""

    usage: Usage = field(default_factory=Usage)
    text: str = ""
    error: str = ""
    resets_at: float | None = None
    limited: bool = False
    finished: bool = False
    """Whether it reported that it finished without an error."""
    session: str = ""
    failure: Failure | None = None
    """Why it failed, if it reported that."""
    denied: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    quota: Quota | None = None
    """How much of its subscription is used, if it reported that."""
    limit_waited_for: str = ""
    """Why it tries again, if a limit of its provider is the reason and nothing came after that."""
    missed_command: bool = False
    """Whether its shell did not find `ralph`."""
    used_tools: bool = False
    """Whether its model answered, and asked for a tool."""

    def take(self, event: AgentEvent) -> None:
        """Add one event."""
        is_limit_retry = event.kind is EventKind.RETRY and classify_failure(event.text) is Failure.LIMIT
        self.limit_waited_for = event.text if is_limit_retry else ""
        match event.kind:
            case EventKind.USAGE:
                self.usage += event.usage
            case EventKind.TEXT:
                self.text = f"{self.text}\n{event.text}"[-MAX_TEXT:].lstrip()
            case EventKind.LIMIT:
                self.limited, self.resets_at, self.error = True, event.resets_at or self.resets_at, event.text
                self.failure = Failure.LIMIT
            case EventKind.ERROR:
                self.error, self.failure = event.text, event.failure or self.failure
            case EventKind.RESULT:
                self._take_result(event)
            case EventKind.QUOTA:
                self.quota = event.quota
            case EventKind.SESSION:
                self.session = event.session
            case EventKind.DENIED:
                self.denied = [*self.denied, event.text][-MAX_DENIALS:]
            case EventKind.WARNING if event.text not in self.warnings:
                self.warnings = [*self.warnings, event.text][-MAX_DENIALS:]
            case EventKind.TOOL:
                self.used_tools = True
            case EventKind.TOOL_RESULT:
                self.missed_command = self.missed_command or bool(NOT_FOUND.search(event.text))
            case _:
                pass

    def _take_result(self, event: AgentEvent) -> None:
        """Add the event that ends a turn."""
        self.finished = not event.is_error
        if self.usage.tokens and self.usage.cost is None and self.usage.unpriced is None:
            self.usage = replace(self.usage, unpriced="")
        self.text = event.text or self.text
        self.error = event.text if event.is_error and not self.error else self.error
        self.failure = event.failure or self.failure


class EventLog:
    """The normalized events of a turn, beside its raw output. The file is capped, and nothing depends on it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[str] = []
        self._room = LOG_LIMIT
        self._begun = False

    def append(self, event: AgentEvent) -> None:
        """Add an event, if there is room."""
        if self._room <= 0:
            return
        plain = to_plain(replace(event, text=event.text[:LOGGED_TEXT]))
        line = dump({**plain, "at": round(time.time(), 3)}) + "\n"
        self._room -= len(line)
        if self._room <= 0:
            line = '{"kind": "error", "text": "there are more events than Ralph logs"}\n'
        self._lines.append(line)
        if len(self._lines) >= 100:
            self.flush()

    def flush(self) -> None:
        """Write the new events. A turn that another engine takes over is read, and logged, from its beginning."""
        if not self._lines:
            return
        with contextlib.suppress(OSError), self._path.open("a" if self._begun else "w", errors="replace") as file:
            file.writelines(self._lines)
        self._lines, self._begun = [], True


class OutputTail:
    """Follows the output file of a turn, and what its agent reports to the user; passes on the events, each once."""

    def __init__(self, directory: Path, reader: Reader, watch: Callable[[AgentEvent], None], turn: int = 0) -> None:
        self._path = directory / "stdout"
        self._turn = turn
        self._progress = directory.parent.parent / PROGRESS
        self._progress_offset = 0
        self._messages = str(directory / MESSAGES)
        self._reader = reader
        self._watch = watch
        self._offset = 0
        self._rest = b""
        self._log = EventLog(directory / "events.jsonl")
        self._received: list[str] = []
        self._directory = directory
        self._denied_hosts = 0
        self.summary = OutputSummary()

    def poll(self) -> None:
        """Read what was added since the last time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while chunk := file.read(_CHUNK):
                    self._offset += len(chunk)
                    self._split_lines(chunk)
        except FileNotFoundError:
            return
        self.poll_received()
        self._poll_progress()
        self.poll_denied_hosts()
        self._log.flush()

    def poll_denied_hosts(self) -> None:
        """Pass on which hosts the proxy of the sandbox refused to the agent."""
        hosts = read_denied(str(self._directory))
        for host in hosts[self._denied_hosts :]:
            text = f"{host}, turn {self._turn} (network). To allow it for this run: ralph allow {host}"
            self._handle(AgentEvent(EventKind.DENIED, text))
        self._denied_hosts = len(hosts)

    def _poll_progress(self) -> None:
        """Pass on what the agent reported with `ralph tools interact progress`. All turns of a run share the file."""
        with contextlib.suppress(OSError, StateError):
            for behind, line in read_raw(self._progress, self._progress_offset):
                self._progress_offset = behind
                if line.get("turn") == self._turn and (message := line.get("message")):
                    self._handle(AgentEvent(EventKind.PROGRESS, str(message)))

    def poll_received(self) -> tuple[str, ...]:
        """The names of the user's messages that the agent has received; an event is passed on for each new one."""
        for name, means in live_messages.list_received(self._messages):
            if name not in self._received:
                self._received.append(name)
                self._handle(AgentEvent(EventKind.RECEIVED, name, means=means))
        return tuple(self._received)

    def finish(self) -> OutputSummary:
        """Read to the end, a last line without its newline included."""
        self.poll()
        if self._rest:
            self._read_line(self._rest)
            self._rest = b""
        self._log.flush()
        return self.summary

    def _split_lines(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._read_line(line)
        while len(self._rest) > LINE_LIMIT:
            self._read_line(self._rest[:LINE_LIMIT])
            self._rest = self._rest[LINE_LIMIT:]

    def _read_line(self, line: bytes) -> None:
        for event in self._reader.read(line):
            self._handle(event)

    def _handle(self, event: AgentEvent) -> None:
        self.summary.take(event)
        self._log.append(event)
        self._watch(event)
