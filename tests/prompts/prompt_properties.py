"""What must hold for every prompt, whether a test built it or a real agent received it.

Each function takes the text that an agent reads and returns the faults that it finds.
"""

import re
from collections.abc import Callable, Collection
from itertools import pairwise

from ralph.core.prompt import PartSize, count_tokens
from ralph.core.turns import INBOX

CONTRADICTIONS = [
    ("thrown away", "Nothing is thrown away"),
    ("The checks do not pass", "The commands pass"),
    ("All checks pass", "do not pass yet"),
    ("Do not ask the user", "interact ask"),
    ("Change no file of the project", "Make the checks pass"),
    ("the final one", "the next iteration will"),
    ("not reports", "say what is wrong and where"),
    ("Do not commit", "Commit your work"),
    ("Publish one event that states the result. Then stop", "publish one event for each independent piece of work"),
    ("do not repeat it", "Do the task below"),
    ("Do not start over", "Start again from the beginning"),
    ("the user's own tree", "has been merged"),
    ("the user's own tree", "the engine discards"),
    ("the user's own tree", "PREVIOUS_BRANCH"),
    ("the user's own tree", "for your task alone"),
    ("Your last turn was turn", "<changes-so-far>"),
]
"""Sentences that must not stand in one prompt."""
LONGEST_SENTENCE = 25
"""Words of a sentence."""
WIDTH = 110
"""Lines that are longer continue on the next one."""
FIXED_REASONS = ("Why: the code does not yet do what the checks expect", "Why: the checks do not pass yet")
MAX_TOKENS = 8000
"""Tokens of a whole prompt, without the text of the user."""
USER_PARTS = ("task", "task-of-the-loop", "objective", "messages")
"""The parts that are as long as the user makes them."""
_PATH = re.compile(r"`([^`\s]+)`")
_TAG = re.compile(r"^<(/?)([a-z][a-z-]*)(?: [^>]*)?>$", re.MULTILINE)


def find_open_fences(text: str) -> list[str]:
    opened = ""
    for line in text.splitlines():
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and not opened:
            opened = mark[1]
        elif mark and _closes(line, opened):
            opened = ""
    return [f"the fence {opened} is not closed"] if opened else []


def find_open_tags(text: str) -> list[str]:
    """Tags on lines of their own, which enclose the parts of a prompt for hats."""
    faults, opened = [], list[str]()
    for closes, name in _TAG.findall("\n".join(_outside_fences(text))):
        if not closes:
            opened.append(name)
        elif not opened or opened.pop() != name:
            faults.append(f"</{name}> closes nothing")
    return [*faults, *(f"<{name}> is not closed" for name in opened)]


def find_empty_and_repeated_parts(text: str) -> list[str]:
    lines = _outside_fences(text)
    headings = [line for line in lines if line.startswith("# ")]
    faults = [f"{one} is there twice" for one in set(headings) if headings.count(one) > 1]
    for before, after in pairwise([*lines, "# end"]):
        if before.startswith("# ") and after.startswith("# "):
            faults.append(f"nothing stands below {before}")
    paragraphs = [one.strip() for one in text.split("\n\n") if len(one.strip()) > 80]
    return faults + [f"there twice: {one}" for one in set(paragraphs) if paragraphs.count(one) > 1]


def find_placeholders(text: str) -> list[str]:
    return re.findall(r"\{\{.*?\}\}|\{(?:task_name|documents|specs_dir)\}", text)


def find_contradictions(text: str) -> list[str]:
    return [" / ".join(pair) for pair in CONTRADICTIONS if all(one in text for one in pair)]


def find_fixed_reasons(text: str) -> list[str]:
    """Reasons in lessons that fit every failure, and so say nothing."""
    return [line.strip() for line in text.splitlines() if line.strip() in FIXED_REASONS]


def find_long_sentences(text: str) -> list[str]:
    """Sentences above 25 words. Code in backticks is one word; what stands in a list, a table or an example is no sentence."""
    faults = []
    for paragraph in _join_paragraphs(text):
        words = re.sub(r"``.+?``|`[^`]*`", "CODE", paragraph)
        for sentence in re.split(r"(?<=[.!?:;])\s+", words):
            if len(sentence.split()) > LONGEST_SENTENCE:
                faults.append(f"{len(sentence.split())} words: {sentence}")
    return faults


def _join_paragraphs(text: str) -> list[str]:
    """The lines of a text with those joined that only the width of the page divides."""
    found, continues = list[str](), False
    for line in _outside_fences(text):
        begins = re.match(r"\s*(?:[-*<|{#$]|\d+\.|[A-Z_]{3,}:)", line)
        if continues and found and not begins:
            found[-1] += f" {line.strip()}"
        else:
            found.append(line.strip())
        continues = len(line) > WIDTH
    return [line for line in found if not line.startswith(("{", "|", "$", "Failed:", "Did:"))]


TEXT_PROPERTIES: list[Callable[[str], list[str]]] = [
    find_open_fences,
    find_open_tags,
    find_empty_and_repeated_parts,
    find_placeholders,
    find_contradictions,
    find_fixed_reasons,
]


def find_unknown_paths(text: str, inbox: Collection[str], paths: Collection[str]) -> list[str]:
    """Paths in Ralph's directories that are neither in the inbox nor among those that the agent reads or writes."""
    known = {path.rstrip("/") for path in paths}
    folders = {name.rpartition("/")[0] for name in inbox}
    faults = []
    for token in sorted({token.rstrip("/") for token in _PATH.findall(text)}):
        if token.startswith(f"{INBOX}/"):
            if token.removeprefix(f"{INBOX}/") not in {*inbox, *folders}:
                faults.append(f"`{token}` is not in the inbox")
        elif token.startswith((".ralph/", ".agents/")) and token != INBOX and not _is_below(token, known):
            faults.append(f"`{token}` does not exist")
    return faults


def find_parts_above_budget(parts: Collection[PartSize]) -> list[str]:
    """Parts that are longer than their budget, with room for the headings; and prompts that are too long altogether."""
    faults = [f"{part.name}: {part.tokens} of {part.budget} tokens" for part in parts if _is_above(part)]
    total = sum(part.tokens for part in parts if part.name not in USER_PARTS)
    return [*faults, f"the prompt has {total} tokens"] if total >= MAX_TOKENS else faults


def find_faults(
    text: str, inbox: Collection[str] | None, paths: Collection[str], parts: Collection[PartSize]
) -> list[str]:
    """All faults of a prompt. `inbox` is None if it is not known what was in the inbox."""
    faults = [fault for look in TEXT_PROPERTIES for fault in look(text)]
    if inbox is not None:
        faults += find_unknown_paths(text, inbox, paths)
    return [*faults, *find_parts_above_budget(parts), *find_missing_parts(text, parts)]


def find_missing_parts(text: str, parts: Collection[PartSize]) -> list[str]:
    """Whether a prompt is shorter or longer than the parts of which it consists.

    The tokens of a part are its characters divided by four, rounded up. Two line breaks stand between parts and one at the
    end. So the two counts can only differ by the rounding.
    """
    difference = count_tokens(text) - sum(part.tokens for part in parts)
    if difference < -((len(parts) + 1) // 4):
        return ["the prompt is shorter than its parts"]
    return ["the prompt is longer than its parts"] if difference > (len(parts) + 1) // 2 else []


def _is_below(path: str, known: Collection[str]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in known)


def _is_above(part: PartSize) -> bool:
    return bool(part.budget) and part.tokens > part.budget + 40


def _outside_fences(text: str) -> list[str]:
    """The lines that say something and are no example."""
    lines, opened = [], ""
    for line in text.splitlines():
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if opened:
            opened = "" if mark and _closes(line, opened) else opened
        elif mark:
            opened = mark[1]
            lines.append("(an example)")
        elif line.strip():
            lines.append(line)
    return lines


def _closes(line: str, opened: str) -> bool:
    return line.strip().startswith(opened) and not line.strip().strip(opened[0])
