"""Prompt templates: text with `{{names}}`, strict about every one of them."""

import re
from collections.abc import Mapping

from ralph.core.errors import UsageError

_VARIABLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def fill(name: str, template: str, values: Mapping[str, str]) -> str:
    """The template with its variables replaced, in one pass: what a value says is never read as a variable."""
    unknown = sorted(set(_VARIABLE.findall(template)) - set(values))
    if unknown:
        raise UsageError(
            f"the template uses unknown variables: {', '.join(unknown)}",
            where=name,
            todo=f"known are {', '.join(sorted(values))}",
        )
    text = _VARIABLE.sub(lambda match: values[match[1]], template)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def fill_parts(name: str, template: str, values: Mapping[str, str]) -> tuple[str, str]:
    """The template filled, in two parts: before and after its first `{{guidance}}`; without one, all is before it."""
    before, *after = re.split(r"\{\{\s*guidance\s*\}\}", template, maxsplit=1)
    return fill(name, before, values), fill(name, after[0], values) if after else ""
