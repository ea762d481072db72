"""Damaged, contradictory or hostile sessions on disk: repaired and continued, or refused by name. Nothing is lost."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from test_session_rules import ID, Driver, seeds, session

from ralph.app.sessions import build_session_workflow, read_session_texts, repair_documents
from ralph.core.errors import RalphError, StateError
from ralph.core.events import Do, DocumentEdited, Stop
from ralph.documents.run_record import AgentSelection, AgentSpec, RunRecord
from ralph.documents.session import metadata, progress
from ralph.workflows.session.state import SessionState

NOW = 1_800_000_100.0
RECORD = RunRecord(ID, "session", "Build it", "", (), AgentSelection((AgentSpec("custom", command=("true",)),)), NOW)
JUNK = (
    "",
    "\0",
    "---\n",
    "- [?] task-1\n",
    "\ufeff",
    "depends_on: [task-1]\n",
    "x" * 3000,
    "]]]{{{:::\n",
    "- [x] task-2\n",
    "\r\n",
)


def half_done(seed: int) -> dict[str, str]:
    """The documents of a session that stopped somewhere on its way."""
    driver = Driver(session(), random.Random(seed))
    for _ in range(random.Random(seed).randint(1, 60)):
        decision = driver.rules.decide(driver.state, driver.now)
        if isinstance(decision, Stop):
            break
        driver.start(decision.work)
        driver.take(driver.answer(driver.chance.choice(decision.work)))
    return dict(driver.documents)


def damage(texts: dict[str, str], chance: random.Random) -> dict[str, str]:
    """The same with a few things wrong with it."""
    texts = dict(texts)
    for _ in range(chance.randint(1, 4)):
        path = chance.choice(sorted(texts))
        lines = texts[path].split("\n")
        at = chance.randrange(len(lines))
        match chance.randrange(9):
            case 0:
                del texts[path]
                if not texts:
                    return texts
                continue
            case 1:
                lines = lines[:at]
            case 2:
                lines[at] = chance.choice(JUNK)
            case 3:
                lines.insert(at, chance.choice(JUNK))
            case 4:
                lines[at:at] = lines
            case 5:
                other = chance.choice("/PxFC ?")
                lines = [line.replace("[ ]", f"[{other}]") if chance.random() < 0.3 else line for line in lines]
            case 6:
                lines = [line.replace("task-1", "task-7") for line in lines]
            case 7:
                lines = [line.replace(": ", ": [", 1) if chance.random() < 0.1 else line for line in lines]
            case 8:
                chance.shuffle(lines)
        texts[path] = "\n".join(lines)
    return texts


def lay(root: Path, texts: dict[str, str]) -> None:
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode("utf-8", "surrogatepass"))


def taken_up(root: Path) -> SessionState:
    """What `ralph session resume` does before the first turn."""
    repair_documents(root, RECORD, NOW)
    rules = build_session_workflow(RECORD, root)
    state = rules.load(read_session_texts(root, RECORD))
    assert isinstance(rules.decide(state, NOW), Do | Stop)
    return state


@pytest.mark.more_are_slow(10)
@pytest.mark.parametrize("seed", seeds(400, 25))
def test_damaged_sessions_are_repaired_or_refused_and_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    texts = damage(half_done(seed), chance)
    lay(tmp_path, texts)
    try:
        state = taken_up(tmp_path)
    except RalphError as error:
        assert error.what and error.where
    else:
        own = build_session_workflow(RECORD, tmp_path).settings.layout
        if own.metadata in texts:
            assert metadata.find_metadata_problems((tmp_path / own.metadata).read_text()) == []
        assert isinstance(progress.find_progress_problems(state.progress.text), list)
    kept = {path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for path, text in texts.items():
        assert not text or text.encode("utf-8", "surrogatepass") in kept, f"{path} as it was is nowhere"


@pytest.mark.more_are_slow(2)
@pytest.mark.parametrize("seed", seeds(60, 5))
def test_a_repaired_session_continues_to_its_end(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed + 1000)
    lay(tmp_path, damage(half_done(seed), chance))
    try:
        state = taken_up(tmp_path)
    except RalphError:
        return
    driver = Driver(session(), chance)
    driver.documents = read_session_texts(tmp_path, RECORD)
    driver.state = state
    driver.see = lambda before: None  # type: ignore[method-assign]
    try:
        # What the engine finds on disk and did not write is an event; from there the state is gone on from.
        driver.take(DocumentEdited(driver.rules.settings.layout.plan(1), "# Plan\n"))
        driver.run()
    except RalphError as error:
        assert error.what


@pytest.mark.parametrize("name", ["metadata.yaml", "progress.md"])
def test_a_link_is_not_written_through(tmp_path: Path, name: str) -> None:
    lay(tmp_path, half_done(3))
    target = tmp_path / "precious"
    target.write_text("precious\n")
    place = tmp_path / ".ralph-sessions" / ID / name
    place.unlink()
    place.symlink_to(target)
    with pytest.raises(StateError, match=r"not a regular file|symbolic link"):
        taken_up(tmp_path)
    assert target.read_text() == "precious\n"


@pytest.mark.parametrize("size", [40 << 20])
def test_a_huge_document_is_refused_by_name(tmp_path: Path, size: int) -> None:
    lay(tmp_path, half_done(3))
    place = tmp_path / ".ralph-sessions" / ID / "plan.md"
    with place.open("wb") as file:
        os.truncate(file.fileno(), size)
    with pytest.raises(RalphError, match=r"plan\.md"):
        taken_up(tmp_path)


def test_a_pipe_in_the_place_of_a_document_does_not_hold_anybody_up(tmp_path: Path) -> None:
    lay(tmp_path, half_done(3))
    os.mkfifo(tmp_path / ".ralph-sessions" / ID / "notes.md")
    assert taken_up(tmp_path)


def test_ids_that_would_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    texts: dict[str, Any] = half_done(5)
    where = next((path for path in texts if "/tasks/" in path), None)
    assert where
    texts[where] = texts[where].replace("id: task-1", "id: ../../../etc/passwd", 1)
    lay(tmp_path, texts)
    with pytest.raises(RalphError, match="cannot be the id of a task"):
        taken_up(tmp_path)
