"""Notifications for users who are away, through any service that apprise knows.

They are sent in the background. A service that fails is reported once and neither delays nor ends the run. Addresses are
secret: they are in no journal, no log and no message.
"""

import contextlib
import importlib.util
import logging
import queue
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ralph.core.entries import QuestionAsked, Record
from ralph.core.errors import UsageError
from ralph.core.events import RunEnded, TurnEnded
from ralph.core.outcomes import Outcome
from ralph.core.redaction import Redactor, find_secrets
from ralph.core.turns import TurnEnd
from ralph.engine.ports import Observer

EVENTS = ("done", "stuck", "question", "limit", "failed")
"""The kinds of notifications."""
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")
_LAST_WAIT = 20.0
"""Seconds for which the end of a run waits for the last notification."""
_NEEDS_YOU = frozenset((Outcome.STUCK, Outcome.BLOCKED, Outcome.AWAITING_GUIDANCE))
_NEEDS_YOU |= frozenset((Outcome.AWAITING_FEEDBACK, Outcome.AWAITING_APPROVAL))
_YOUR_OWN = frozenset((Outcome.PAUSED, Outcome.ABORTED, Outcome.INTERRUPTED))
"""Ends that the user asked for."""


@dataclass(frozen=True)
class Service:
    """One service, and the kinds of notifications that it gets."""

    url: str
    events: tuple[str, ...] = EVENTS

    @property
    def name(self) -> str:
        """The name that users see: its kind, without the secret address."""
        return self.url.partition(":")[0]


def services_for(wanted: Iterable[tuple[str, tuple[str, ...]]], environment: Mapping[str, str]) -> tuple[Service, ...]:
    """The services of the settings, with variables in their addresses replaced."""
    found = tuple(Service(_expand_variables(url, environment), events) for url, events in wanted)
    if found and importlib.util.find_spec("apprise") is None:
        todo = "pip install 'ralph-engine[notify]', or take `notify:` out of ralph.yml"
        raise UsageError("`notify` needs apprise, which is not installed", where="ralph.yml", todo=todo)
    for number, service in enumerate(found, 1):
        if not _is_known_address(service.url):
            todo = "write it as the documentation of apprise shows: SERVICE://DETAILS"
            raise UsageError(f"apprise does not support address {number} of `notify`", where="ralph.yml", todo=todo)
    return found


class Notifier(Observer):
    """Observes a run and notifies the services that want to know."""

    def __init__(
        self,
        run: str,
        task: str,
        services: Sequence[Service],
        environment: Mapping[str, str],
        find_page: Callable[[], str] = lambda: "",
    ) -> None:
        """`find_page` returns the address of the run's page, or an empty text if no web server runs."""
        self._find_page = find_page
        self._run, self._task, self._services = run, " ".join(task.split())[:80], services
        self._redactor = Redactor((*find_secrets(environment), *(service.url for service in services)))
        self._waiting: queue.Queue[tuple[str, str, str] | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._failed: set[str] = set()
        self._limit = 0.0
        self.notice: Callable[[str], object] = lambda text: None
        """Called with a notice if a service fails, from another thread."""

    def on_record(self, record: Record) -> None:
        """Send a notification if the record is worth one."""
        if found := self._news(record):
            kind, title, text = found
            if page := self._find_page():
                text += f"\n{page}"
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="notify", daemon=True)
                self._thread.start()
            self._waiting.put((kind, self._redactor.text(title), self._redactor.text(text)))

    def close(self) -> None:
        """Wait up to 20 seconds for what is still being sent."""
        if self._thread:
            self._waiting.put(None)
            self._thread.join(_LAST_WAIT)

    def _news(self, record: Record) -> tuple[str, str, str] | None:
        match record.entry:
            case RunEnded(outcome=outcome, reason=reason) if outcome not in _YOUR_OWN:
                text = f"{self._task}\n{reason}\nralph status {self._run}"
                return kind_of(outcome), f"Ralph: {outcome}", text
            case QuestionAsked(question=asked):
                options = f"\n{' | '.join(asked.options)}" if asked.options else ""
                text = f'{asked.question}{options}\nralph answer {asked.id} "..." --run {self._run}'
                return "question", f"Ralph asks: {self._task}", text
            case TurnEnded(result=result, retry_at=at) if (
                result.end is TurnEnd.LIMITED and at and at > self._limit + 60
            ):
                self._limit = at
                return (
                    "limit",
                    f"Ralph waits: {self._task}",
                    f"The provider's limit was reached.\nralph status {self._run}",
                )
            case _:
                return None

    def _send_all(self) -> None:
        while (message := self._waiting.get()) is not None:
            kind, title, text = message
            for number, service in enumerate(self._services, 1):
                if kind in service.events and not _send(service.url, title, text):
                    self._fail(f"notification {number} ({service.name}) could not be sent")

    def _fail(self, said: str) -> None:
        if said not in self._failed:
            self._failed.add(said)
            with contextlib.suppress(RuntimeError):  # the engine is gone
                self.notice(said)


def kind_of(outcome: Outcome) -> str:
    """The kind of notification for an outcome."""
    if outcome.succeeded:
        return "done"
    if outcome in _NEEDS_YOU:
        return "stuck"
    return "limit" if outcome.value.startswith("limit-") else "failed"


def _expand_variables(url: str, environment: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environment:
            raise UsageError(f"`notify` uses ${name}, which is not set", where="ralph.yml", todo=f"export {name}=...")
        return environment[name]

    return _VARIABLE.sub(value, url)


def _is_known_address(url: str) -> bool:
    _silence_apprise()
    import apprise

    return bool(apprise.Apprise().add(url))


def _send(url: str, title: str, text: str) -> bool:
    _silence_apprise()
    import apprise

    try:
        service = apprise.Apprise()
        return bool(service.add(url) and service.notify(body=text, title=title))
    except Exception:  # noqa: BLE001 - the code of a hundred services: whatever goes wrong in it is a failure to send
        return False


def _silence_apprise() -> None:
    """Silence apprise, whose log may contain addresses."""
    logger = logging.getLogger("apprise")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
