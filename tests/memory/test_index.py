"""`index.yaml`: one entry a loop, whoever writes at the same time and whatever was there before."""

import subprocess
import sys
from pathlib import Path

import pytest
from past import keep_past, loop_id

from ralph.core.codec import format_time
from ralph.core.errors import LockedError
from ralph.documents.reflection import HOME, load
from ralph.memory import learning, reflections
from ralph.memory.learning import LoopEntry, read_entry, read_index, rebuild_entries, update_entry
from ralph.store import locks

# Written out: a test that imports what it checks cannot fail.
MOST = 500

WRITER = """
import sys
from pathlib import Path
from ralph.memory.learning import LoopEntry, update_entry
root, who = Path(sys.argv[1]), int(sys.argv[2])
for number in range(15):
    name = f"2511{who:02d}-1000{number:02d}-aaaa"
    update_entry(root, LoopEntry(name, task=f"task {number}", updated=f"2025-{who}-{number:02d}"))
"""


def path(root: Path) -> Path:
    return root / HOME / "index.yaml"


def test_a_loop_has_one_entry_which_is_replaced(tmp_path: Path) -> None:
    update_entry(tmp_path, LoopEntry("a", task='first: \n "task"', outcome="running", updated="1"))
    update_entry(tmp_path, LoopEntry("b", updated="2"))
    update_entry(tmp_path, LoopEntry("a", task="first", outcome="success", iterations=3, updated="3"))
    assert read_index(tmp_path) == [
        LoopEntry("a", task="first", outcome="success", iterations=3, updated="3"),
        LoopEntry("b", updated="2"),
    ]
    data = load(path(tmp_path).read_text(), "index.yaml")
    assert set(data) == {"schema", "updated", "loops"}
    assert set(data["loops"][0]) == set(LoopEntry.__dataclass_fields__)
    assert not list((tmp_path / HOME).glob("*.broken"))


def test_a_missing_index_is_made_from_the_reflections(tmp_path: Path) -> None:
    loops = keep_past(tmp_path)
    own = read_entry(tmp_path, loops[0], "limit")
    assert own is not None
    update_entry(tmp_path, own)
    entries = read_index(tmp_path)
    assert [entry.loop_id for entry in entries] == loops[::-1]
    assert (entries[-1].outcome, entries[-1].iterations, entries[-1].reflections) == ("limit", 3, 3)
    assert entries[-1].last_lesson == "Convert every parsed date to UTC before it is compared; this passed"
    assert read_entry(tmp_path, loop_id(900)) is None


@pytest.mark.parametrize(
    "content",
    [
        b"loops: [",
        b"\xff\0",
        b"schema: 7\nloops: []\n",
        b"version: 1\ntasks: []\n",
        b"schema: 1\nloops: 3\n",
        b"schema: 1\nloops:\n  - task: without an id\n",
        b"x" * (5 * 1024 * 1024),
    ],
    ids=["broken", "binary", "newer", "foreign", "no-list", "no-id", "huge"],
)
def test_an_index_that_cannot_be_used_is_set_aside_and_made_anew(tmp_path: Path, content: bytes) -> None:
    loops = keep_past(tmp_path)
    path(tmp_path).write_bytes(content)
    update_entry(tmp_path, LoopEntry(loop_id(99), updated=format_time(4e9)))
    assert [entry.loop_id for entry in read_index(tmp_path)] == [loop_id(99), *loops[::-1]]
    assert (tmp_path / HOME / "index.yaml.broken").read_bytes() == content


def test_index_edited_by_hand_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / HOME).mkdir(parents=True)
    path(tmp_path).write_text(
        "# mine\nschema: 1\nloops:\n  - {loop_id: a, task: mine, updated: 2025-11-15}\n  - loop_id: b\n"
    )
    update_entry(tmp_path, LoopEntry("c", updated="3"))
    assert [entry.loop_id for entry in read_index(tmp_path)] == ["c", "a", "b"]
    assert not list((tmp_path / HOME).glob("*.broken"))


def test_index_keeps_only_the_newest_loops(tmp_path: Path) -> None:
    entries = [LoopEntry(f"loop-{number}", updated=f"{number:05d}") for number in range(MOST + 5)]
    rows = [dict(vars(entry)) for entry in entries]
    reflections.write_yaml(path(tmp_path), {"schema": 1, "updated": "", "loops": rows})
    update_entry(tmp_path, LoopEntry("new", updated="99999"))
    kept = [entry.loop_id for entry in read_index(tmp_path)]
    assert (len(kept), kept[0], kept[-1]) == (MOST, "new", "loop-6")


def test_two_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(who)]) for who in (10, 11)]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    assert len({entry.loop_id for entry in read_index(tmp_path)}) == 30
    assert [file.name for file in (tmp_path / HOME).iterdir() if file.suffix != ".yaml"] == [".lock"]


def test_a_writer_that_does_not_let_go_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflections, "LOCK_SECONDS", 0.0)
    held = locks.acquire(tmp_path / HOME / ".lock", {"pid": 4711})
    assert isinstance(held, locks.Lock)
    with pytest.raises(LockedError, match="4711"):
        update_entry(tmp_path, LoopEntry("a"))
    held.release()
    update_entry(tmp_path, LoopEntry("a"))


def test_rebuilding_passes_over_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loops = keep_past(tmp_path)
    for file in (tmp_path / HOME / "loops" / loops[3]).iterdir():
        file.write_text("{")
    assert len(rebuild_entries(tmp_path)) == len(loops) - 1
    monkeypatch.setattr(learning, "MAX_LOOPS", 5)
    assert [entry.loop_id for entry in rebuild_entries(tmp_path)] == loops[:-6:-1]
