"""`ralph tools memory` and `ralph tools decision`: what agents learned and decided, for later agents."""

import os

from ralph.documents.agent.events import dump_json
from ralph.documents.agent.notes import (
    CHARACTERS_PER_TOKEN,
    DECISION_FIELDS,
    MEMORY_SECTIONS,
    Decision,
    Memory,
    add_decision,
    add_memory,
    creation_order,
    fit_memories,
    parse_decisions,
    parse_memories,
    remove_memory,
    render_memories,
    search_memories,
)
from ralph.tools import files
from ralph.tools.arguments import (
    COUNT,
    FORMAT,
    Argument,
    Command,
    ToolError,
    choice,
    formats,
    non_empty,
    number_in,
    run_group,
    say,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ABOUT = "What agents learned, for later agents: patterns, decisions, fixes, context."
FILE = "memories.md"
MAX_FOUND = 10
LONGEST = 4000
SHORT = 60


def _read(args: "dict[str, Any]") -> list[Memory]:
    return parse_memories(files.read(files.find_shared_path(args, FILE)).decode(errors="surrogateescape"))


def _add(args: "dict[str, Any]") -> int:
    content = "\n".join(line.rstrip() for line in args["content"].strip().splitlines())
    if not content:
        raise ToolError("the memory is empty", "write it in quotes")
    if len(content) > LONGEST:
        raise ToolError(
            f"it is longer than {LONGEST} characters", "write only what matters, and where to find the rest"
        )
    tags = tuple(_split_list(args.get("tags", "")))
    if bad := next((tag for tag in tags if any(mark in tag for mark in "|<>\n")), None):
        raise ToolError(f"{bad!r} is not a tag", "use letters, digits and dashes, and commas between tags")
    kept: list[Memory] = []

    def add(data: bytes) -> bytes:
        text = data.decode(errors="surrogateescape")
        taken, id = {memory.id for memory in parse_memories(text)}, files.make_id("mem")
        while id in taken:
            id = files.make_id("mem")
        kept[:] = [Memory(id, args["type"], content, tags, files.day())]
        return add_memory(text, kept[0]).encode(errors="surrogateescape")

    files.change(files.find_shared_path(args, FILE), add)
    texts = {"json": dump_json(kept[0].row(), 2), "quiet": kept[0].id, "markdown": kept[0].render().rstrip()}
    return say(texts.get(args["format"], f"Memory stored: {kept[0].id}"))


def _list(args: "dict[str, Any]") -> int:
    found = _filter(_read(args), args)
    if "last" in args:
        newest = sorted(found, key=creation_order)[-args["last"] :]
        found = [memory for memory in found if memory in newest]
    return _say(found, args, "No memories yet; `ralph tools memory add` stores one")


def _search(args: "dict[str, Any]") -> int:
    stored = _read(args)
    found = _filter(stored, args)
    if query := args.get("query", "").strip():
        found = search_memories(found, query)
    shown = found if "all" in args else found[:MAX_FOUND]
    more = f"\n{len(found) - len(shown)} more: --all shows them" if len(shown) < len(found) else ""
    return _say(shown, args, f"No matching memories among {len(stored)}; try other words", more)


def _show(args: "dict[str, Any]") -> int:
    memory = _find(_read(args), args)
    about = f"ID:      {memory.id}\nType:    {memory.kind}\nCreated: {memory.created}\nTags:    {', '.join(memory.tags) or '-'}"
    texts = {"json": dump_json(memory.row(), 2), "quiet": memory.id, "markdown": memory.render().rstrip()}
    return say(texts.get(args["format"], f"{about}\n\n{memory.content}"))


def _delete(args: "dict[str, Any]") -> int:
    def delete(data: bytes) -> bytes:
        text = data.decode(errors="surrogateescape")
        return remove_memory(text, _find(parse_memories(text), args).id).encode(errors="surrogateescape")

    files.change(files.find_shared_path(args, FILE), delete)
    return say(f"Memory deleted: {args['id']}")


def _prime(args: "dict[str, Any]") -> int:
    found = _filter(_read(args), args)
    chosen = fit_memories(found, args.get("budget", 0))
    if args["format"] == "json":
        return say(dump_json([memory.row() for memory in chosen], 2))
    left = len(found) - len(chosen)
    more = f"\n<!-- {left} older ones are left out: `ralph tools memory search` finds them -->" if left else ""
    return say(render_memories(chosen).rstrip("\n") + more) if found else 0


def _find(stored: list[Memory], args: "dict[str, Any]") -> Memory:
    if found := next((memory for memory in stored if memory.id == args["id"]), None):
        return found
    where = files.find_shared_path(args, FILE)
    raise ToolError(
        f"Memory not found: {args['id']}", "`ralph tools memory list` lists all memories", where=where, code=1
    )


def _filter(stored: list[Memory], args: "dict[str, Any]") -> list[Memory]:
    """The memories with the requested kinds, tags and age."""
    kinds = _split_list(args.get("type", "").lower())
    tags = {tag.lower() for tag in _split_list(args.get("tags", ""))}
    if wrong := [kind for kind in kinds if kind not in MEMORY_SECTIONS]:
        raise ToolError(f"--type {wrong[0]!r} is unknown", f"give one of {', '.join(MEMORY_SECTIONS)}")
    since = files.day(args["recent"]) if "recent" in args else ""
    found = []
    for memory in stored:
        has_kind = not kinds or memory.kind in kinds
        has_tag = not tags or any(tag.lower() in tags for tag in memory.tags)
        if has_kind and has_tag and memory.created >= since:
            found.append(memory)
    return found


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _say(found: list[Memory], args: "dict[str, Any]", nothing: str, more: str = "") -> int:
    match args["format"]:
        case "json":
            return say(dump_json([memory.row() for memory in found], 2))
        case "quiet":
            return say("\n".join(memory.id for memory in found)) if found else 0
        case "markdown":
            return say(render_memories(found).rstrip("\n")) if found else 0
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
_BUDGET = f"The maximum number of tokens, of {CHARACTERS_PER_TOKEN} characters each. Default: 0, no limit."
COMMANDS = (
    Command(
        "add",
        "Store a memory.",
        _add,
        Argument("content", nargs="+", help="What was learned. `-` reads standard input."),
        Argument(
            "-t",
            "--type",
            type=choice,
            choices=tuple(MEMORY_SECTIONS),
            default="pattern",
            help="The kind of memory. Default: %(default)s.",
        ),
        Argument("--tags", metavar="TAG,TAG", help="Words to find it by."),
        _FORMAT,
    ),
    Command(
        "list",
        "List all memories, the newest of each kind first.",
        _list,
        _KINDS,
        Argument("--last", metavar="N", type=number_in(COUNT), help="Only the newest N."),
        _FORMAT,
    ),
    Command(
        "search",
        "Find memories by words, best match first.",
        _search,
        Argument("query", nargs="*", default="", help="The words to look for."),
        _KINDS,
        _TAGS,
        Argument("--all", action="store_true", help=f"Show all matches, not only the {MAX_FOUND} best."),
        _FORMAT,
    ),
    Command("show", "Show a memory.", _show, _ID, _FORMAT),
    Command("delete", "Delete a memory that is wrong.", _delete, _ID),
    Command(
        "prime",
        "Print the newest memories that fit into a budget.",
        _prime,
        Argument("--budget", metavar="TOKENS", type=number_in(range(COUNT[-1])), help=_BUDGET),
        _KINDS,
        _TAGS,
        Argument("--recent", metavar="DAYS", type=number_in(COUNT), help="Only memories of the last DAYS days."),
        formats("markdown", "json"),
    ),
)


def run_memory(words: list[str]) -> int:
    """Run `ralph tools memory WORDS...`."""
    return run_group("ralph tools memory", ABOUT, COMMANDS, words)


ABOUT_DECISIONS = (
    "Decisions that agents were not sure about: how sure, the alternatives, the reasons, how to undo them."
)
DECISIONS_FILE = "decisions.md"


def _add_decision(args: "dict[str, Any]") -> int:
    if not args["decision"].strip():
        raise ToolError("the decision is empty", "write it in one sentence")
    whose = {"role": os.environ.get("RALPH_HAT") or os.environ.get("RALPH_ROLE", ""), "run": files.run_id(args)}
    fields = {**{name: str(args[name]) for name in DECISION_FIELDS}, **whose, "date": files.day()}
    kept: list[Decision] = []

    def add(data: bytes) -> bytes:
        text, decision = add_decision(data.decode(errors="surrogateescape"), args["decision"], fields)
        kept[:] = [decision]
        return text.encode(errors="surrogateescape")

    files.change(files.find_shared_path(args, DECISIONS_FILE), add)
    texts = {"json": dump_json(kept[0].row()), "quiet": kept[0].id}
    return say(texts.get(args["format"], f"Decision recorded: {kept[0].id}"))


def _list_decisions(args: "dict[str, Any]") -> int:
    found = parse_decisions(files.read(files.find_shared_path(args, DECISIONS_FILE)).decode(errors="surrogateescape"))
    if args["format"] == "json":
        return say(dump_json([decision.row() for decision in found], 2))
    if args["format"] == "quiet":
        return say("\n".join(decision.id for decision in found)) if found else 0
    if not found:
        return say("No decisions yet")
    return say("\n".join(f"{one.id}  {one.fields.get('confidence', '-'):>4}  {one.title}" for one in found))


DECISION_COMMANDS = (
    Command(
        "add",
        "Record a decision.",
        _add_decision,
        Argument("decision", nargs="+", help="What was decided, in a sentence."),
        Argument(
            "-c", "--confidence", metavar="0-100", type=number_in(range(101)), required=True, help="How sure you are."
        ),
        Argument("--alternatives", metavar="TEXT", type=non_empty, required=True, help="The alternatives."),
        Argument("--reasoning", metavar="TEXT", type=non_empty, required=True, help="The reasons."),
        Argument(
            "--reversibility",
            metavar="TEXT",
            type=non_empty,
            required=True,
            help="How to undo it, and what that costs.",
        ),
        FORMAT,
    ),
    Command("list", "List all decisions, the oldest first.", _list_decisions, FORMAT),
)


def run_decision(words: list[str]) -> int:
    """Run `ralph tools decision WORDS...`."""
    return run_group("ralph tools decision", ABOUT_DECISIONS, DECISION_COMMANDS, words)


TOOLS = {"memory": (run_memory, COMMANDS), "decision": (run_decision, DECISION_COMMANDS)}
