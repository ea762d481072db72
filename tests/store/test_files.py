"""Writing in one step and reading with care, on real files, full disks and read-only ones."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ralph.core.errors import StateError, StorageError
from ralph.core.outcomes import Outcome
from ralph.store import files
from ralph.store.files import read_limited, remove, write_all, write_atomic

# Written out: a test that imports what it checks cannot fail.
READ_LIMIT = 8388608


def failing(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """System calls of which one kind fails with an error number."""

    def call(called: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if called is function:
            raise OSError(number, os.strerror(number))
        return called(*args, **kwargs)

    return call


def names_in(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    place = tmp_path / "tiny"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


class TestWriting:
    def test_a_file_holds_what_was_written_and_nothing_else_is_left(self, tmp_path: Path) -> None:
        write_atomic(tmp_path / "a.json", b"one")
        write_atomic(tmp_path / "a.json", b"two")
        assert (tmp_path / "a.json").read_bytes() == b"two"
        assert names_in(tmp_path) == ["a.json"]

    def test_an_empty_file_can_be_written(self, tmp_path: Path) -> None:
        write_atomic(tmp_path / "a", b"")
        assert (tmp_path / "a").read_bytes() == b""

    def test_file_has_the_requested_mode(self, tmp_path: Path) -> None:
        write_atomic(tmp_path / "secret", b"x", mode=0o600)
        assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600

    def test_a_link_is_replaced_and_not_written_through(self, tmp_path: Path) -> None:
        (tmp_path / "precious").write_text("mine")
        (tmp_path / "link").symlink_to("precious")
        write_atomic(tmp_path / "link", b"ralph's")
        assert (tmp_path / "precious").read_text() == "mine"
        assert not (tmp_path / "link").is_symlink()

    def test_a_reader_sees_the_old_or_the_new_and_never_a_part(self, tmp_path: Path, monkeypatch: Any) -> None:
        path, seen = tmp_path / "a", []
        path.write_bytes(b"old" * 1000)

        def looking(function: Callable[..., Any], *args: Any) -> Any:
            seen.append(path.read_bytes())
            return function(*args)

        monkeypatch.setattr(files, "_syscall", looking)
        write_atomic(path, b"new" * 2000)
        assert {*seen, path.read_bytes()} == {b"old" * 1000, b"new" * 2000}

    def test_the_bytes_are_on_the_disk_before_the_name_and_the_name_before_it_returns(
        self, tmp_path: Path, monkeypatch: Any
    ) -> None:
        calls = []

        def noting(function: Callable[..., Any], *args: Any) -> Any:
            calls.append(function.__name__)
            return function(*args)

        monkeypatch.setattr(files, "_syscall", noting)
        write_atomic(tmp_path / "a", b"x")
        assert calls == ["open", "write", "fsync", "rename", "fsync"]

    def test_a_write_that_takes_only_a_part_is_continued(self, tmp_path: Path, monkeypatch: Any) -> None:
        def short(function: Callable[..., Any], *args: Any) -> Any:
            return os.write(args[0], args[1][:3]) if function is os.write else function(*args)

        monkeypatch.setattr(files, "_syscall", short)
        write_atomic(tmp_path / "a", b"abcdefgh")
        assert (tmp_path / "a").read_bytes() == b"abcdefgh"

    def test_write_all_writes_every_byte_of_a_large_piece(self, tmp_path: Path) -> None:
        descriptor = os.open(tmp_path / "a", os.O_CREAT | os.O_WRONLY)
        write_all(descriptor, b"x" * 3_000_000)
        os.close(descriptor)
        assert (tmp_path / "a").stat().st_size == 3_000_000

    def test_removing_a_missing_file_is_not_an_error(self, tmp_path: Path) -> None:
        remove(tmp_path / "a")
        (tmp_path / "a").touch()
        remove(tmp_path / "a")
        assert names_in(tmp_path) == []

    def test_a_name_as_long_as_the_file_system_allows_can_be_written(self, tmp_path: Path) -> None:
        name = "n" * 255
        write_atomic(tmp_path / name, b"x")
        assert names_in(tmp_path) == [name]


class TestDisksThatFail:
    @pytest.mark.parametrize("step", [os.open, os.write, os.fsync, os.rename], ids=lambda step: step.__name__)
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
    def test_a_full_or_read_only_disk_leaves_the_old_bytes_and_no_litter(
        self, tmp_path: Path, monkeypatch: Any, step: Callable[..., Any], number: int
    ) -> None:
        (tmp_path / "a").write_bytes(b"old")
        monkeypatch.setattr(files, "_syscall", failing(step, number))
        with pytest.raises(StorageError) as caught:
            write_atomic(tmp_path / "a", b"new")
        assert caught.value.where == str(tmp_path / "a")
        assert caught.value.outcome is Outcome.PAUSED
        assert (tmp_path / "a").read_bytes() == b"old"
        assert names_in(tmp_path) == ["a"]

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
    @pytest.mark.parametrize("step", [os.write, os.fsync, os.rename], ids=lambda step: step.__name__)
    def test_a_write_that_fails_leaves_no_descriptor_open(
        self, tmp_path: Path, monkeypatch: Any, step: Callable[..., Any]
    ) -> None:
        monkeypatch.setattr(files, "_syscall", failing(step, errno.ENOSPC))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            with pytest.raises(StorageError):
                write_atomic(tmp_path / "a", b"new")
        assert len(os.listdir("/proc/self/fd")) == before

    def test_a_directory_that_is_closed_to_us_says_how_to_open_it(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr(files, "_syscall", failing(os.open, errno.EACCES))
        with pytest.raises(StorageError, match="permission denied") as caught:
            write_atomic(tmp_path / "a", b"new")
        assert "chmod" in caught.value.todo

    def test_other_errors_are_not_called_a_full_disk(self, tmp_path: Path) -> None:
        with pytest.raises((FileNotFoundError, StateError)):
            write_atomic(tmp_path / "nowhere" / "a", b"new")

    def test_a_disk_that_is_really_full_leaves_the_old_bytes_and_no_litter(self, tiny_disk: Path) -> None:
        write_atomic(tiny_disk / "a", b"old")
        with pytest.raises(StorageError, match="No space left"):
            write_atomic(tiny_disk / "a", b"x" * 200_000)
        assert (tiny_disk / "a").read_bytes() == b"old"
        assert names_in(tiny_disk) == ["a"]
        write_atomic(tiny_disk / "a", b"new")

    def test_a_disk_that_is_really_read_only_is_a_storage_error(self, tiny_disk: Path) -> None:
        write_atomic(tiny_disk / "a", b"old")
        subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
        with pytest.raises(StorageError, match="Read-only"):
            write_atomic(tiny_disk / "a", b"new")
        with pytest.raises(StorageError, match="Read-only"):
            remove(tiny_disk / "a")
        assert (tiny_disk / "a").read_bytes() == b"old"


class TestReading:
    def test_a_file_up_to_the_limit_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x" * 10)
        assert read_limited(tmp_path / "a", 10) == b"x" * 10

    def test_a_larger_one_is_refused_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x" * 11)
        with pytest.raises(StateError, match="larger than") as caught:
            read_limited(tmp_path / "a", 10)
        assert caught.value.where == str(tmp_path / "a")

    def test_a_huge_sparse_file_is_refused_without_reading_it_whole(self, tmp_path: Path) -> None:
        with (tmp_path / "a").open("wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(StateError, match=f"{READ_LIMIT // 1024} KiB"):
            read_limited(tmp_path / "a")

    def test_links_are_followed_only_if_that_is_meant(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x")
        (tmp_path / "link").symlink_to("a")
        assert read_limited(tmp_path / "link", follow=True) == b"x"
        with pytest.raises(StateError, match="not a regular file"):
            read_limited(tmp_path / "link")

    def test_a_link_in_a_circle_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("link")
        with pytest.raises(StateError):
            read_limited(tmp_path / "link")

    def test_a_pipe_is_refused_without_waiting_for_a_writer(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StateError, match="not a regular file"):
            read_limited(tmp_path / "pipe")

    @pytest.mark.parametrize("special", ["/dev/zero", "/"])
    def test_devices_and_directories_are_refused(self, special: str) -> None:
        with pytest.raises(StateError, match="not a regular file"):
            read_limited(Path(special))

    def test_a_missing_file_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            read_limited(tmp_path / "a")
