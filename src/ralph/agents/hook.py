"""Words of a person that reach an agent while it works; also the program that the hooks of agents run.

Each lies as `NAME.txt` in the directory RALPH_WORDS of the turn. Who takes one in renames it to `NAME.heard.MEANS`: of
several who try at once, one has it. As a program, by `python -S -I hook.py AGENT:EVENT`, this takes in all there are and
prints them as that agent wants it after that event. It stands alone, so that it starts quickly.
"""

import os
import sys

WAITING, HEARD = ".txt", ".heard."
ENDS = ("Stop", "agentStop", "AfterAgent")
"""The events before a turn ends, as agents call them."""


def claim(directory: str, means: str) -> list[str]:
    """Take in all words that wait, the oldest first."""
    return [text for _, text in take(directory, f"{HEARD}{means}")]


def take(directory: str, ending: str) -> list[tuple[str, str]]:
    """Give all words that wait another ending, so that nobody else takes them; their names and texts, the oldest first."""
    taken = []
    for file in _names(directory, waiting=True):
        name = file.removesuffix(WAITING)
        if rename(directory, name, WAITING, ending):
            with open(os.path.join(directory, name + ending), encoding="utf-8", errors="replace") as words:
                taken.append((name, words.read()))
    return taken


def rename(directory: str, name: str, old: str, new: str) -> bool:
    """Give words another ending; False where somebody else has done so."""
    try:
        os.rename(os.path.join(directory, name + old), os.path.join(directory, name + new))
    except FileNotFoundError:
        return False
    return True


def heard(directory: str) -> list[tuple[str, str]]:
    """What was taken in, in the order in which it was said: the name, and by which means."""
    found = (name.rpartition(HEARD) for name in _names(directory, waiting=False))
    return [(name, means) for name, _, means in found if name]


def _names(directory: str, *, waiting: bool) -> list[str]:
    """The files of words that wait, or of those that do not, by their age."""
    try:
        with os.scandir(directory) as entries:
            found = [(_age(entry), entry.name) for entry in entries if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    return [name for _, name in sorted(found) if name.endswith(WAITING) is waiting]


def _age(entry: "os.DirEntry[str]") -> int:
    """When its words were written; 0 where somebody has just taken them."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0


def printed(agent: str, event: str, text: str) -> object:
    """What an agent wants to read of its hook: a reason not to end its turn yet, or something to know beside a result."""
    if event in ENDS:
        return {"decision": "block", "reason": text}
    context = {"additionalContext": text}
    return context if agent == "copilot" else {"hookSpecificOutput": {"hookEventName": event, **context}}


def main(agent: str, event: str) -> None:
    """Take in what waits; what is said to the agent is not said to an agent that it started itself."""
    import json

    try:
        about = json.loads(sys.stdin.buffer.read() or b"{}")
    except (ValueError, RecursionError):
        about = {}
    if isinstance(about, dict) and about.get("agent_id"):
        return
    if words := claim(os.environ.get("RALPH_WORDS", ""), "hook"):
        sys.stdout.write(json.dumps(printed(agent, event, "\n\n".join(words))))


if __name__ == "__main__":
    main(*sys.argv[1].split(":"))
