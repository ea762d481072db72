"""Regular expressions that are compiled when they are first used: the rules have hundreds, and a run needs few of them."""

import re
from typing import Any, AnyStr, cast


class _Later:
    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A regular expression, as `re.compile` makes it, with its work put off until a method of it is called."""
    return cast(re.Pattern[AnyStr], _Later(text, flags))
