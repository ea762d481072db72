"""The output of a program on disk: its beginning up to a cap, and its end, without secrets."""

import os
from typing import Any

from ralph.core.redaction import Redactor

TAIL = 256 * 1024
"""How much of the end of a stream is kept once its cap is reached: the last event of an agent is in it."""


class Capped:
    """One output stream on disk: its beginning up to a cap, and its end."""

    def __init__(self, name: str, cap: int, secrets: list[str]) -> None:
        self.name = name
        self.cap = cap
        self.redactor = Redactor(secrets)
        self.file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.total = self.kept = self.left_out = 0
        self.tail = bytearray()
        self.failed = ""

    def write(self, data: bytes) -> None:
        """Take in what the program printed."""
        self.total += len(data)
        self._keep(self.redactor.feed(data))

    def _keep(self, data: bytes) -> None:
        head = data[: max(0, self.cap - self.kept)]
        self._put(head)
        self.kept += len(head)
        if len(head) < len(data):
            self.tail += data[len(head) :]
            if len(self.tail) > 4 * TAIL:
                self._trim()

    def _trim(self) -> None:
        over = max(0, len(self.tail) - TAIL)
        del self.tail[:over]
        self.left_out += over

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self.failed:
            try:
                view = view[os.write(self.file, view) :]
            except OSError as error:
                self.failed = error.strerror or str(error)

    def close(self) -> None:
        """Write what was held back, and the end of a stream that grew over its cap."""
        self._keep(self.redactor.flush())
        self._trim()
        if self.left_out:
            self._put(f"\n[ralph: {self.left_out} bytes left out]\n".encode())
        self._put(bytes(self.tail))
        os.close(self.file)

    def account(self) -> dict[str, Any]:
        """What was seen and what was kept."""
        return {"bytes": self.total, "kept": self.kept + len(self.tail), "error": self.failed}
