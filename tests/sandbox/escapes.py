"""A program that tries to get out of the sandbox, and reports for each attempt whether it was refused.

It uses only the standard library, and runs as root and as an ordinary user. `escapes.py '{"home": ..., ...}'` prints JSON.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable

given = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
MS_REMOUNT, MS_BIND, MNT_DETACH = 32, 4096, 2


def write(path: str) -> None:
    with open(path, "a") as file:
        file.write("x")


def mount(source: bytes, target: bytes, flags: int) -> None:
    if libc.mount(source, target, b"none", flags, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")


def unmount(target: bytes) -> None:
    if libc.umount2(target, MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "umount")


def connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.decode(errors="replace"))


def read_any(path: str) -> None:
    names = os.listdir(path)
    if not names:
        raise OSError("empty")


ATTEMPTS: dict[str, Callable[[], object]] = {
    "write into the home directory": lambda: write(f"{given['home']}/escaped"),
    "write beside the workspace": lambda: write(f"{given['beside']}/escaped"),
    "write into /etc": lambda: write("/etc/escaped"),
    "write into /usr": lambda: write("/usr/escaped"),
    "read the ssh keys": lambda: read_any(f"{given['home']}/.ssh"),
    "read the state of Ralph": lambda: read_any(given["state"]),
    "see a process outside": lambda: os.stat(f"/proc/{given['pid']}"),
    "signal a process outside": lambda: os.kill(given["pid"], 0),
    "change a setting of the kernel": lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
    "remount the root": lambda: mount(b"none", b"/", MS_REMOUNT | MS_BIND),
    "unmount what hides a directory": lambda: unmount(f"{given['home']}/.ssh".encode()),
    "make a device": lambda: os.mknod("/tmp/device", 0o60666, os.makedev(8, 0)),
    "enter the namespaces of the first process": lambda: run("nsenter", "-t", "1", "-m", "-p", "true"),
    "become root": lambda: os.setuid(0),
    "connect to a socket outside": lambda: connect(given["socket"]),
    "remove the git directory": lambda: os.rename(".git", ".git-moved"),
    "change the settings of Ralph": lambda: write(".ralph/escaped"),
    "change the settings of Ralph in a nested namespace": lambda: run(
        "unshare", "-r", "-m", "sh", "-c", "umount -l .ralph; echo x >> .ralph/escaped && test ! -w /etc"
    ),
}


def is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, ProcessLookupError):
        return True
    return False


if __name__ == "__main__":
    print(json.dumps({name: is_refused(attempt) for name, attempt in ATTEMPTS.items()}))
