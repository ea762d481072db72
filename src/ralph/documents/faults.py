"""What is wrong with a value that the user or an agent wrote, in plain words instead of those of the validation library."""

import re
from collections.abc import Mapping
from typing import Any

_MAX_SHOWN = 40
_WANTED = {
    "string": "a text",
    "bool": "`true` or `false`",
    "int": "a whole number",
    "float": "a number",
    "list": "a list, for example `[a, b]`",
    "tuple": "a list, for example `[a, b]`",
}
"""What to write, by the first part of the type of a fault, as in `int_parsing`."""
_BOUNDS = {
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than": "less than {lt:g}",
    "less_than_equal": "{le:g} or less",
}


def explain_fault(fault: Mapping[str, Any], mapping: str = "hold `key: value` lines") -> str:
    """What is wrong with a value, and what to write instead, in words that can follow the name of its key.

    `fault` is one of the errors of pydantic. `mapping` is what a table of keys looks like in this file.
    """
    kind, context, given = str(fault["type"]), fault.get("ctx", {}), fault.get("input")
    shown = _show(given)
    if kind in _BOUNDS:
        return f"it must be {_BOUNDS[kind].format(**context)}, not {shown}"
    match kind:
        case "missing":
            return "it is missing"
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"it must {mapping}, not {shown}"
        case "literal_error":
            # The empty value means that the key was left out, so the message does not offer it.
            words = re.findall(r"'([^']+)'", context["expected"])
            return f"it must be {_list_choices(words)}, not {shown}"
        case "string_too_short":
            return "it must not be empty"
        case "string_too_long":
            return f"it must have at most {context['max_length']} characters, and has {len(given or '')}"
        case "too_short":
            return f"it must have {context['min_length']} or more entries"
        case "too_long":
            return f"it must have {context['max_length']} or fewer entries"
        case "finite_number":
            return f"it must be a finite number, not {shown}"
    wanted = _WANTED.get(kind.partition("_")[0], "")
    if wanted:
        quotes = ": put it in quotes" if kind == "string_type" and isinstance(given, int | float) else ""
        return f"it must be {wanted}, not {shown}{quotes}"
    return str(fault["msg"]).removeprefix("Value error, ")


def _list_choices(words: list[str]) -> str:
    quoted = [f"`{word}`" for word in words]
    return " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


def _show(given: object) -> str:
    """A value as an error quotes it."""
    if given is None or given == "":
        return "empty"
    if isinstance(given, bool):
        return "`true`" if given else "`false`"
    if isinstance(given, dict):
        return "a table of keys"
    if isinstance(given, list | tuple):
        return "a list"
    text = str(given)
    return f"`{text[:_MAX_SHOWN]}{'...' if len(text) > _MAX_SHOWN else ''}`"
