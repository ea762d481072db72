"""Notifications link to the page of the run while a web server runs."""

from functools import partial
from pathlib import Path

import pytest

from ralph import notify
from ralph.core.entries import QuestionAsked, Record
from ralph.core.signals import Question
from ralph.notify import Notifier, Service
from ralph.store.locks import Lock
from ralph.store.projects import claim_server, name_project, run_address


def sent_for_a_question(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    texts: list[str] = []
    monkeypatch.setattr(notify, "_send", lambda url, title, text: texts.append(text) is None)
    notifier = Notifier("r1", "a task", (Service("json://x"),), {}, partial(run_address, root, "r1"))
    notifier.on_record(Record(1, 0.0, QuestionAsked(Question("q1", "Per line?"))))
    notifier.close()
    [text] = texts
    return text


def test_a_notification_links_to_the_page_while_the_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "http" not in sent_for_a_question(tmp_path, monkeypatch)
    lock = claim_server("http://127.0.0.1:4711")
    assert isinstance(lock, Lock)
    try:
        page = f"http://127.0.0.1:4711/r/r1@{name_project(tmp_path)}"
        assert sent_for_a_question(tmp_path, monkeypatch).splitlines()[-1] == page
    finally:
        lock.release()
    assert "http" not in sent_for_a_question(tmp_path, monkeypatch)
