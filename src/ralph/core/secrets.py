"""Which values of the environment are secrets; it imports nothing, for agents wait for it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "[redacted]"
_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH")
_PLACES = ("FILE", "PATH", "SOCK", "DIR", "HOME")
_SHORTEST = 8
_ORDINARY = frozenset(("false", "production", "development", "default", "disabled", "enabled"))
"""Short and ordinary values occur in any text; replacing them would only garble it."""


def secret_values(environment: "Mapping[str, str]") -> set[str]:
    """The values of variables with telling names."""
    return {value for name, value in environment.items() if _tells(name.upper()) and _is_one(value)}


def _tells(name: str) -> bool:
    return any(part in name for part in _NAMES) and not name.endswith(_PLACES)


def _is_one(value: str) -> bool:
    return len(value) >= _SHORTEST and value.lower() not in _ORDINARY
