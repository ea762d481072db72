"""Shortening an address, and finding it again."""

from datetime import datetime

from shortener.addresses import clean
from shortener.codes import code_of, number_of
from shortener.store import Store


class Links:
    """The links of a store, by their codes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def shorten(self, address: str) -> str:
        """The code of an address, new or known."""
        return code_of(self._store.add(clean(address)))

    def follow(self, code: str, at: datetime) -> str:
        """Where a code leads; that it was asked for is a visit."""
        number = number_of(code)
        url = self._store.url(number)
        if url is None:
            raise LookupError(f"there is no link with the code {code!r}")
        self._store.visit(number, at)
        return url
