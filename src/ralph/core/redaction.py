"""Secrets of the environment, taken out of everything that is persisted."""

import json
import re
from collections.abc import Iterable, Mapping

from ralph.core.secrets import MASK, secret_values


def secrets_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values that must not be written anywhere: those of variables with telling names, also as JSON has them."""
    values = secret_values(environment)
    escaped = {json.dumps(value, ensure_ascii=ascii)[1:-1] for value in values for ascii in (True, False)}
    return tuple(sorted(values | escaped, key=len, reverse=True))


class Redactor:
    """Replaces secrets in text and, chunk by chunk, in streams."""

    MASK = MASK.encode()

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted((s.encode(errors="surrogateescape") for s in secrets if s), key=len, reverse=True)
        joined = b"|".join(re.escape(s) for s in self._secrets)
        self._pattern = re.compile(joined) if self._secrets else None
        self._held = b""

    def text(self, text: str) -> str:
        """The text without secrets."""
        try:
            return self.data(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")
        except UnicodeEncodeError:
            return self.data(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def data(self, data: bytes) -> bytes:
        """The bytes without secrets."""
        return data if self._pattern is None else self._pattern.sub(self.MASK, data)

    def feed(self, chunk: bytes) -> bytes:
        """What may be written of the stream so far; what could be the start of a secret is held back."""
        if self._pattern is None:
            return chunk
        data = self._held + chunk
        safe = len(data) - max(_overlap(data, secret) for secret in self._secrets)
        for match in self._pattern.finditer(data):
            if match.start() < safe < match.end():
                safe = match.start()
        self._held = data[safe:]
        return self._pattern.sub(self.MASK, data[:safe])

    def flush(self) -> bytes:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held if self._pattern is None else self._pattern.sub(self.MASK, held)


def _overlap(data: bytes, secret: bytes) -> int:
    """How many bytes at the end of data begin the secret."""
    for length in range(min(len(data), len(secret) - 1), 0, -1):
        if secret.startswith(data[-length:]):
            return length
    return 0
