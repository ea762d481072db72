"""JSON without `json`: that module brings `re` along, and so takes as long to import as the rest of a command takes."""

DEEPEST = 100


class _Settings:
    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> object:
        raise ValueError(f"{name} is not JSON")


try:
    from _json import encode_basestring, make_scanner

    _scan = make_scanner(_Settings)  # type: ignore[arg-type]  # it takes whatever has these attributes
except ImportError:  # an interpreter without the accelerators of CPython
    from json.encoder import encode_basestring

    _scan = None  # type: ignore[assignment]  # then `json` itself reads


def loads(text: str) -> object:
    """The value of a JSON text; what is not JSON is a ValueError that says what is wrong."""
    value = _value(text.strip(" \t\r\n"))
    if text.count("[") + text.count("{") > DEEPEST and _too_deep(value, DEEPEST):
        raise ValueError(f"it is nested more than {DEEPEST} deep")
    return value


def _value(text: str) -> object:
    if _scan:
        try:
            value, end = _scan(text, 0)
            if end == len(text):
                return value
        except (StopIteration, ValueError, SystemError, RecursionError):  # the scanner alone cannot say what is wrong
            pass
    import json

    try:
        return json.loads(text, parse_constant=_Settings.parse_constant)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} deep") from None


def _too_deep(value: object, room: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(room == 0 or _too_deep(item, room - 1) for item in inside)


def dumps(value: object, indent: int | None = None, _level: int = 1) -> str:
    """A value as JSON: on one line, as tight as other tools for these files write it, or indented."""
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return encode_basestring(value)
        case dict():
            colon = ":" if indent is None else ": "
            pairs = [(encode_basestring(str(key)), dumps(item, indent, _level + 1)) for key, item in value.items()]
            return _framed("{}", [key + colon + item for key, item in pairs], indent, _level)
        case list() | tuple():
            return _framed("[]", [dumps(item, indent, _level + 1) for item in value], indent, _level)
        case int() | float():
            return repr(value).replace("inf", "1e999")
        case _:
            raise TypeError(f"{type(value).__name__} has no form in JSON")


def _framed(frame: str, inside: list[str], indent: int | None, level: int) -> str:
    if indent is None or not inside:
        return frame[0] + ",".join(inside) + frame[1]
    margin = "\n" + " " * indent * level
    return frame[0] + margin + f",{margin}".join(inside) + "\n" + " " * indent * (level - 1) + frame[1]
