"""A prompt: named parts, each for a purpose and within a budget.

What changes least comes first: providers charge less for a beginning that they have seen before. `Place` decides the order,
so that no workflow has to think of it.

Templates are text with `{{names}}`, strict about every one of them. Their headings are the parts of a prompt.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum

from ralph.core.check_output import fence
from ralph.core.errors import UsageError
from ralph.core.text import regex
from ralph.core.values import value

CHARACTERS_PER_TOKEN = 4
"""A rough count that needs no tokenizer; it is the same for every model."""


class Place(IntEnum):
    """How long a part stays the same, and so where it stands."""

    RUN = 1
    """The same in every turn of the run."""
    ROLE = 2
    """The same in every turn of this role or hat."""
    TURN = 3
    """For this turn only."""
    MESSAGES = 4
    """What the user said. It comes late, so that nothing seems to overrule it."""
    ANSWER = 5
    """What to hand over. It comes last, so that it is not forgotten."""


@value
class PromptPart:
    """One part of a prompt. A part without text is left out, heading and all."""

    name: str
    text: str
    purpose: str = ""
    """Why it is there, for users who look at the parts of a prompt."""
    place: Place = Place.TURN
    budget: int = 0
    """Tokens that the text may take; 0 for any number."""
    heading: str = ""
    """The line above the text: a Markdown heading, or an opening tag."""
    ending: str = ""
    """The line below the text: a closing tag."""
    source: str = ""
    """The file with the whole text, named if some of it is left out."""
    keeps_end: bool = False
    """Whether the end of a text that is too long counts more than its beginning."""
    is_quoted: bool = False
    """Whether a user or an agent wrote it. It is in a code fence, so that nothing in it is read as an instruction."""

    def render(self) -> str:
        """The part as the agent reads it; empty if it has no text."""
        text = self.text.strip("\n").rstrip()
        if not text.strip():
            return ""
        note = ""
        if self.budget:
            text, note = _cut_text(text, self.budget, self.source, keeps_end=self.keeps_end)
        shown = fence(text) if self.is_quoted else text
        body = (note, shown) if self.keeps_end else (shown, note)
        return "\n".join(line for line in (self.heading, *body, self.ending) if line)


@value
class Prompt:
    """The parts of one prompt, in the order in which the agent reads them."""

    parts: tuple[PromptPart, ...] = ()

    @classmethod
    def of(cls, text: str) -> "Prompt":
        """A prompt of one part."""
        return build_prompt([PromptPart("prompt", text)])

    def with_parts(self, *parts: PromptPart) -> "Prompt":
        """The prompt with more parts, each in its place."""
        return build_prompt((*self.parts, *parts))

    @property
    def text(self) -> str:
        """The whole prompt."""
        rendered = (part.render() for part in self.parts)
        return "\n\n".join(text for text in rendered if text) + "\n"


@value
class PartSize:
    """What one part of a prompt takes, as it is stored with the turn."""

    name: str
    tokens: int
    budget: int = 0
    purpose: str = ""


def build_prompt(parts: Iterable[PromptPart]) -> Prompt:
    """The parts that have a text, in their places. A name that is used twice is a fault of the caller."""
    present = [part for part in parts if part.text.strip()]
    names = [part.name for part in present]
    if len(names) != len(set(names)):
        raise ValueError(f"a part of the prompt appears twice: {', '.join(names)}")
    return Prompt(tuple(sorted(present, key=lambda part: part.place)))


def measure_parts(prompt: Prompt) -> list[PartSize]:
    """The tokens of each part."""
    return [PartSize(part.name, count_tokens(part.render()), part.budget, part.purpose) for part in prompt.parts]


def count_tokens(text: str) -> int:
    """About how many tokens a text has."""
    return (len(text) + CHARACTERS_PER_TOKEN - 1) // CHARACTERS_PER_TOKEN


def fits_budget(text: str, budget: int) -> bool:
    """Whether a prompt shows a text with this budget in full."""
    return len(text) <= max(0, budget) * CHARACTERS_PER_TOKEN


def quote_text(text: str, budget: int = 0) -> str:
    """A text of the user or an agent: unchanged if it is one plain line, else in a code fence that nothing in it can close.

    `budget` is the number of tokens that it may take; 0 for any number.
    """
    text = text.strip("\n").rstrip()
    kept, note = _cut_text(text, budget, "", keeps_end=False) if budget else (text, "")
    shown = kept if _is_plain_line(kept) else fence(kept)
    return f"{shown}\n{note}" if note else shown


def _is_plain_line(text: str) -> bool:
    return len(text.splitlines()) <= 1 and not _STRUCTURE.search(text)


def _cut_text(text: str, budget: int, source: str, *, keeps_end: bool) -> tuple[str, str]:
    """The lines of a text that fit, and the note on what is left out; no note if nothing is."""
    if fits_budget(text, budget):
        return text, ""
    room = max(0, budget) * CHARACTERS_PER_TOKEN
    cut = text[len(text) - room :] if keeps_end else text[:room]
    whole = cut.partition("\n")[2] if keeps_end else cut.rpartition("\n")[0]
    kept = whole or cut
    where = f"; all of it is in `{source}`" if source else ""
    return kept, f"({len(text) - len(kept)} characters are left out here{where})"


GUIDANCE = "guidance"
"""Where the messages of the user come: what follows is the end of the prompt."""
_VARIABLE = regex(r"\{\{\s*(\w+)\s*\}\}")
_GUIDANCE_LINE = regex(r"^\{\{\s*guidance\s*\}\}\s*$", re.MULTILINE)
_FENCE = regex(r"\s*(```+|~~~+)")
_STRUCTURE = regex(r"```|~~~|^\s*(?:#+\s|</?\w)")
"""What would open code, or end a part of a prompt, if it stood on a line of its own."""
_NO_WORD = regex(r"[^a-z0-9]+")


@value
class PartSpec:
    """What a workflow says about one part of its prompts."""

    purpose: str
    place: Place = Place.TURN
    budget: int = 0
    source: str = ""
    is_quoted: bool = False


def fill_template(name: str, template: str, values: Mapping[str, str]) -> str:
    """The template with its variables replaced, in one pass: what a value says is never read as a variable.

    A line that holds nothing but a variable without a value is left out.
    """
    unknown = sorted(set(_VARIABLE.findall(template)) - set(values))
    if unknown:
        raise UsageError(
            f"the template uses unknown variables: {', '.join(unknown)}",
            where=name,
            todo=f"known values: {', '.join(sorted(values))}",
        )
    kept = "\n".join(line for line in template.splitlines() if not _is_empty(line, values))
    # Before the values come in: what they say keeps its own blank lines.
    tidy = re.sub(r"\n{3,}", "\n\n", kept).strip()
    return _VARIABLE.sub(lambda match: values[match[1]], tidy).strip() + "\n"


def fill_parts(
    name: str, template: str, values: Mapping[str, str], specs: Mapping[str, PartSpec] | None = None
) -> list[PromptPart]:
    """The template filled, one part for each heading of the first level. A part without text is left out.

    A part is called as its heading is, in small letters with hyphens. What comes before the first heading is called as the
    template is. What follows a line `{{guidance}}` is the end of the prompt.
    """
    specs = specs or {}
    before, _, after = _GUIDANCE_LINE.sub("\0", template, count=1).partition("\0")
    parts: list[PromptPart] = []
    for text, place, first in ((before, Place.TURN, name), (after, Place.ANSWER, "answer")):
        for heading, body in _split_at_headings(text):
            # A part has the same name in every turn, whatever its heading says.
            part_name = _NO_WORD.sub("-", _VARIABLE.sub("", heading).lower()).strip("-") or first
            spec = specs.get(part_name, PartSpec("", place))
            filled = fill_template(name, body, {**values, GUIDANCE: ""})
            part = PromptPart(
                name=part_name,
                text=filled,
                purpose=spec.purpose,
                place=Place.ANSWER if place is Place.ANSWER else spec.place,
                budget=spec.budget,
                heading=f"# {fill_template(name, heading, values).strip()}" if heading else "",
                source=spec.source,
                is_quoted=spec.is_quoted,
            )
            if filled.strip():
                parts.append(part)
    return parts


def _split_at_headings(text: str) -> Iterator[tuple[str, str]]:
    """The headings of the first level with the text below each. A `#` inside of a code fence is no heading."""
    heading, body, fence = "", list[str](), ""
    for line in text.splitlines():
        if match := _FENCE.match(line):
            fence = "" if fence and line.strip().startswith(fence) else fence or match[1]
        if line.startswith("# ") and not fence:
            yield heading, "\n".join(body)
            heading, body = line.removeprefix("# ").strip(), []
        else:
            body.append(line)
    yield heading, "\n".join(body)


def _is_empty(line: str, values: Mapping[str, str]) -> bool:
    match = _VARIABLE.fullmatch(line.strip())
    return bool(match and not values[match[1]].strip())


# Codex and others start tools in a login shell, and `/etc/profile` resets PATH: a bare `ralph` is not found there.
# Exported variables survive, so commands for agents name `$RALPH_BIN`, the absolute path that every turn gets. Qwen
# refuses commands that start with a variable, so its prompts contain the path itself.
PROGRAM = '"$RALPH_BIN"'
_COMMAND = regex(r"(?<![\w/.$-])ralph(?= (?:emit|tools|wave|diff)\b)")
NOT_FOUND = regex(r"\bralph: (?:command )?not found|command not found: ralph\b")
"""What shells say if `ralph` is not on their PATH."""


def name_program(text: str, program: str = PROGRAM) -> str:
    """Write the commands in a text for an agent so that they work whatever PATH its shell has."""
    return _COMMAND.sub(lambda match: program, text)
