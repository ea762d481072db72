"""`ralph tools memory`: what agents learned, for those that come after them."""

from ralph.documents.agent import memories
from ralph.documents.agent.json_text import dumps
from ralph.documents.agent.memories import CHARACTERS_PER_TOKEN, SECTIONS, Memory
from ralph.tools import place
from ralph.tools.arguments import COUNT, Argument, Command, ToolError, choice, formats, number_in, run_group, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ABOUT = "What agents learned, for those that come after them: patterns, decisions, fixes, context."
FILE = "memories.md"
MOST_FOUND = 10
LONGEST = 4000
SHORT = 60


def _read(given: "dict[str, Any]") -> list[Memory]:
    return memories.parse(place.read(place.shared(given, FILE)).decode(errors="surrogateescape"))


def _add(given: "dict[str, Any]") -> int:
    content = "\n".join(line.rstrip() for line in given["content"].strip().splitlines())
    if not content:
        raise ToolError("there is nothing to remember", "give it in quotes")
    if len(content) > LONGEST:
        raise ToolError(f"it is longer than {LONGEST} characters", "say what matters, and where the rest is written")
    tags = tuple(_listed(given.get("tags", "")))
    if bad := next((tag for tag in tags if any(mark in tag for mark in "|<>\n")), None):
        raise ToolError(f"{bad!r} is not a tag", "use letters, digits and dashes, and commas between tags")
    kept: list[Memory] = []

    def add(data: bytes) -> bytes:
        text = data.decode(errors="surrogateescape")
        taken, id = {memory.id for memory in memories.parse(text)}, place.new_id("mem")
        while id in taken:
            id = place.new_id("mem")
        kept[:] = [Memory(id, given["type"], content, tags, place.day())]
        return memories.added(text, kept[0]).encode(errors="surrogateescape")

    place.change(place.shared(given, FILE), add)
    texts = {"json": dumps(kept[0].row(), 2), "quiet": kept[0].id, "markdown": kept[0].render().rstrip()}
    return say(texts.get(given["format"], f"Memory stored: {kept[0].id}"))


def _list(given: "dict[str, Any]") -> int:
    found = _wanted(_read(given), given)
    if "last" in given:
        newest = sorted(found, key=memories.age)[-given["last"] :]
        found = [memory for memory in found if memory in newest]
    return _say(found, given, "No memories yet; `ralph tools memory add` stores one")


def _search(given: "dict[str, Any]") -> int:
    stored = _read(given)
    found = _wanted(stored, given)
    if query := given.get("query", "").strip():
        found = memories.search(found, query)
    shown = found if "all" in given else found[:MOST_FOUND]
    more = f"\n{len(found) - len(shown)} more: --all shows them" if len(shown) < len(found) else ""
    return _say(shown, given, f"No matching memories among {len(stored)}; try other words", more)


def _show(given: "dict[str, Any]") -> int:
    memory = _find(_read(given), given)
    about = f"ID:      {memory.id}\nType:    {memory.kind}\nCreated: {memory.created}\nTags:    {', '.join(memory.tags) or '-'}"
    texts = {"json": dumps(memory.row(), 2), "quiet": memory.id, "markdown": memory.render().rstrip()}
    return say(texts.get(given["format"], f"{about}\n\n{memory.content}"))


def _delete(given: "dict[str, Any]") -> int:
    def delete(data: bytes) -> bytes:
        text = data.decode(errors="surrogateescape")
        return memories.without(text, _find(memories.parse(text), given).id).encode(errors="surrogateescape")

    place.change(place.shared(given, FILE), delete)
    return say(f"Memory deleted: {given['id']}")


def _prime(given: "dict[str, Any]") -> int:
    found = _wanted(_read(given), given)
    chosen = memories.within(found, given.get("budget", 0))
    if given["format"] == "json":
        return say(dumps([memory.row() for memory in chosen], 2))
    left = len(found) - len(chosen)
    more = f"\n<!-- {left} older ones are left out: `ralph tools memory search` finds them -->" if left else ""
    return say(memories.markdown(chosen).rstrip("\n") + more) if found else 0


def _find(stored: list[Memory], given: "dict[str, Any]") -> Memory:
    if found := next((memory for memory in stored if memory.id == given["id"]), None):
        return found
    where = place.shared(given, FILE)
    raise ToolError(f"Memory not found: {given['id']}", "`ralph tools memory list` shows them", where=where, code=1)


def _wanted(stored: list[Memory], given: "dict[str, Any]") -> list[Memory]:
    """Those of the kinds, the tags and the days that were asked for."""
    kinds, tags = _listed(given.get("type", "").lower()), {tag.lower() for tag in _listed(given.get("tags", ""))}
    if wrong := [kind for kind in kinds if kind not in SECTIONS]:
        raise ToolError(f"--type {wrong[0]!r} is none of {', '.join(SECTIONS)}", "give one of these")
    since = place.day(given["recent"]) if "recent" in given else ""
    return [
        memory
        for memory in stored
        if (not kinds or memory.kind in kinds)
        and (not tags or tags & {tag.lower() for tag in memory.tags})
        and memory.created >= since
    ]


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _say(found: list[Memory], given: "dict[str, Any]", nothing: str, more: str = "") -> int:
    match given["format"]:
        case "json":
            return say(dumps([memory.row() for memory in found], 2))
        case "quiet":
            return say("\n".join(memory.id for memory in found)) if found else 0
        case "markdown":
            return say(memories.markdown(found).rstrip("\n")) if found else 0
    if not found:
        return say(nothing)
    lines = [f"{'ID':<20} {'Type':<9} {'Created':<11} {'Tags':<20} Content", "-" * 110]
    for memory in found:
        text = " ".join(memory.content.split())
        text = text if len(text) <= SHORT else text[: SHORT - 1] + "…"
        lines.append(
            f"{memory.id:<20} {memory.kind:<9} {memory.created:<11} {', '.join(memory.tags) or '-':<20} {text}"
        )
    return say("\n".join(lines) + more)


_FORMAT = formats("table", "json", "markdown", "quiet")
_KINDS = Argument("-t", "--type", metavar="KIND,KIND", help="Only memories of these kinds.")
_TAGS = Argument("--tags", metavar="TAG,TAG", help="Only memories with one of these tags.")
_ID = Argument("id", help="The id of the memory.")
_BUDGET = f"At most so many tokens, of {CHARACTERS_PER_TOKEN} characters each. 0 is no limit."
COMMANDS = (
    Command(
        "add",
        "Remember something.",
        _add,
        Argument("content", nargs="+", help="What was learned; - reads it from standard input."),
        Argument(
            "-t",
            "--type",
            type=choice,
            choices=tuple(SECTIONS),
            default="pattern",
            help="What kind of thing it is. Default: %(default)s.",
        ),
        Argument("--tags", metavar="TAG,TAG", help="Words to find it by."),
        _FORMAT,
    ),
    Command(
        "list",
        "All memories, the newest of each kind first.",
        _list,
        _KINDS,
        Argument("--last", metavar="N", type=number_in(COUNT), help="Only the newest N."),
        _FORMAT,
    ),
    Command(
        "search",
        "The memories that have these words, the best first.",
        _search,
        Argument("query", nargs="*", default="", help="The words to look for."),
        _KINDS,
        _TAGS,
        Argument("--all", action="store_true", help=f"More than the {MOST_FOUND} best."),
        _FORMAT,
    ),
    Command("show", "One memory.", _show, _ID, _FORMAT),
    Command("delete", "Forget a memory that is wrong.", _delete, _ID),
    Command(
        "prime",
        "Memories for a prompt, the newest that fit.",
        _prime,
        Argument("--budget", metavar="TOKENS", type=number_in(range(COUNT[-1])), help=_BUDGET),
        _KINDS,
        _TAGS,
        Argument("--recent", metavar="DAYS", type=number_in(COUNT), help="Only those of the last DAYS days."),
        formats("markdown", "json"),
    ),
)


def run(words: list[str]) -> int:
    """Do what `ralph tools memory WORDS...` says."""
    return run_group("ralph tools memory", ABOUT, COMMANDS, words)
