"""The files in a work tree that Ralph's own output goes to, as in `ralph loop ... > run.log` or `... | tee run.log`.

They are no work of an agent: snapshots leave them as they are.
"""

import contextlib
import functools
import json
import os
import stat
from pathlib import Path

from ralph.git.command import disk
from ralph.store.files import write_atomic

_RECORD = "output-files.json"


def list_output_files(top: Path, home: Path, *, records: bool) -> tuple[str, ...]:
    """The output files in a tree: those of this process, and those of the engines of the run in `home`.

    `records` says that this process is such an engine.
    """
    record = home / _RECORD
    with disk(record):
        known = set(json.loads(record.read_bytes())) if record.exists() else set()
        found = known | {str(path) for path in _find_output_files() if path.is_relative_to(top)}
        if records and found != known:
            write_atomic(record, json.dumps(sorted(found)).encode())
    inside = (Path(name) for name in found if Path(name).is_relative_to(top))
    return tuple(sorted(path.relative_to(top).as_posix() for path in inside))


@functools.cache
def _find_output_files() -> frozenset[Path]:
    """The files that this process writes its output to, by itself or through pipes to other programs."""
    files: set[Path] = set()
    pipes: set[str] = set()
    pending = [Path("/proc/self/fd/1"), Path("/proc/self/fd/2")]
    while pending:
        end = pending.pop()
        with contextlib.suppress(OSError):
            mode, target = end.stat().st_mode, str(end.readlink())
            if stat.S_ISREG(mode):
                files.add(Path(target))
            elif stat.S_ISFIFO(mode) and target not in pipes:
                pipes.add(target)
                pending += _list_outputs_of_readers(target)
    return frozenset(files)


def _list_outputs_of_readers(pipe: str) -> list[Path]:
    """What the programs that read from a pipe write to: their open files and pipes."""
    found: list[Path] = []
    for process in Path("/proc").glob("[0-9]*"):
        # Another user's process, or one that has just ended, cannot be read.
        with contextlib.suppress(OSError):
            ends = list((process / "fd").iterdir())
            if process.name != str(os.getpid()) and any(_reads(end, pipe) for end in ends):
                found += [end for end in ends if _is_open_for(end, os.O_WRONLY)]
    return found


def _reads(end: Path, pipe: str) -> bool:
    return os.readlink(end) == pipe and _is_open_for(end, os.O_RDONLY)


def _is_open_for(end: Path, access: int) -> bool:
    """Whether a descriptor was opened only for reading, or only for writing."""
    lines = (end.parent.parent / "fdinfo" / end.name).read_text().splitlines()
    flags = next(line.split()[1] for line in lines if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE == access
