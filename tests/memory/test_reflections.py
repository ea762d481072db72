"""The reflections on disk: in order, whatever else lies there."""

import os
from pathlib import Path

import pytest
from past import DAY, NOW, keep, keep_past, loop_id, reflection

from ralph.core.errors import UsageError
from ralph.documents.reflection import HOME
from ralph.memory.reflections import Reflections, archive


def test_iterations_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    keep(tmp_path, *(reflection(loop_id(1), number) for number in (10, 2, 1, 11, 9)))
    reflections = Reflections(tmp_path)
    assert [one.iteration for one in reflections.of(loop_id(1))] == [1, 2, 9, 10, 11]
    assert [one.iteration for one in reflections.of(loop_id(1), last=2)] == [10, 11]
    assert [one.iteration for one in reflections.of(loop_id(1), last=50)] == [1, 2, 9, 10, 11]
    assert reflections.faults == []


def test_the_newest_loop_comes_first_and_has_the_latest_reflection(tmp_path: Path) -> None:
    loops = keep_past(tmp_path)
    reflections = Reflections(tmp_path)
    assert reflections.loops() == loops[::-1]
    latest = reflections.latest()
    assert latest is not None
    assert (latest.loop, latest.iteration) == (loops[-1], 3)


def test_an_empty_project_has_no_reflections(tmp_path: Path) -> None:
    reflections = Reflections(tmp_path)
    assert (reflections.loops(), reflections.of(loop_id(1)), reflections.latest()) == ([], [], None)
    (tmp_path / HOME).mkdir(parents=True)
    (tmp_path / HOME / "loops").write_text("a file in the way")
    assert (reflections.loops(), reflections.of(loop_id(1)), reflections.faults) == ([], [], [])


def test_a_file_that_cannot_be_read_is_skipped_and_reported(tmp_path: Path) -> None:
    loop = loop_id(1)
    keep(tmp_path, *(reflection(loop, number) for number in range(1, 7)))
    place = tmp_path / HOME / "loops" / loop
    (place / "iteration-1.yaml").write_bytes(b"\xff\xfe\0")
    (place / "iteration-2.yaml").write_text("{: [")
    (place / "iteration-3.yaml").write_bytes(b"x" * 300_000)
    (place / "iteration-4.yaml").unlink()
    (place / "iteration-4.yaml").symlink_to("/etc/passwd")
    (place / "iteration-5.yaml").unlink()
    (place / "iteration-5.yaml").mkdir()
    os.mkfifo(place / "iteration-7.yaml")
    for name in ("iteration-.yaml", "iteration-08.yaml", "iteration-9.yml", "notes.txt", ".iteration-1.yaml.tmp"):
        (place / name).write_text("mine")
    reflections = Reflections(tmp_path)
    assert [one.iteration for one in reflections.of(loop)] == [6]
    assert len(reflections.faults) == 6
    assert all(f"iteration-{number}.yaml" in " ".join(reflections.faults) for number in (1, 2, 3, 4, 5, 7))


def test_directories_that_are_not_loops_are_left_alone(tmp_path: Path) -> None:
    keep(tmp_path, reflection(loop_id(1)))
    place = tmp_path / HOME / "loops"
    (place / "ralph-of-another-tool").mkdir()
    (place / loop_id(2)).symlink_to("/etc")
    assert Reflections(tmp_path).loops() == [loop_id(1)]
    with pytest.raises(UsageError):
        Reflections(tmp_path).of("../../etc")


def test_the_directory_says_whose_it_is(tmp_path: Path) -> None:
    keep(tmp_path, reflection(loop_id(1)))
    (tmp_path / HOME / "loops" / loop_id(1)).rename(tmp_path / HOME / "loops" / loop_id(2))
    assert [one.loop for one in Reflections(tmp_path).of(loop_id(2))] == [loop_id(2)]


def test_the_newest_are_read_within_a_limit_and_only_those_wanted(tmp_path: Path) -> None:
    for number in range(5):
        keep(tmp_path, *(reflection(loop_id(number), n, action=f"step {n}") for n in range(1, 5)))
    found = list(Reflections(tmp_path).newest(9, 3))
    assert [[(one.loop, one.iteration) for one in loop] for loop in found] == [
        [(loop_id(number), n) for n in (2, 3, 4)] for number in (4, 3, 2)
    ]
    chosen = list(Reflections(tmp_path).newest(100, 3, lambda text: "step 2" in text))
    assert [[one.iteration for one in loop] for loop in chosen] == [[2, 4]] * 5
    assert list(Reflections(tmp_path).newest(100, 3, lambda text: False)) == [[]] * 5


def test_the_archive_takes_all_but_the_index(tmp_path: Path) -> None:
    keep(tmp_path, reflection(loop_id(1), at=NOW - DAY))
    (tmp_path / HOME / "index.yaml").write_text("schema: 1\n")
    (tmp_path / HOME / "patterns").mkdir()
    target = archive(tmp_path, "2025-11-15T09-00-00")
    assert target == tmp_path / HOME / "archive" / "2025-11-15T09-00-00"
    assert (target / "loops" / loop_id(1) / "iteration-1.yaml").exists()
    assert (target / "patterns").is_dir()
    assert (tmp_path / HOME / "index.yaml").read_text() == "schema: 1\n"
    assert Reflections(tmp_path).loops() == []
    assert archive(tmp_path, "later") is None
