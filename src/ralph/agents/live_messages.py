"""Messages of the user that reach an agent while it works; also the program that the hooks of agents run.

A message is the file `NAME.txt` in the directory RALPH_MESSAGES of the turn. A process claims it by renaming it to
`NAME.received.MEANS`: if several try at once, one gets it. As a program, `python -S -I live_messages.py AGENT:EVENT`
claims all messages and prints them in the form that the agent expects after that event. It imports nothing of
Ralph, so that it starts quickly.
"""

import os
import sys

WAITING, RECEIVED = ".txt", ".received."
ENDS = ("Stop", "agentStop", "AfterAgent")
"""The events before a turn ends, as agents call them."""


def claim_messages(directory: str, means: str) -> list[str]:
    """Claim all messages that wait, the oldest first."""
    return [text for _, text in rename_waiting(directory, f"{RECEIVED}{means}")]


def rename_waiting(directory: str, ending: str) -> list[tuple[str, str]]:
    """Rename all messages that wait, so that no other process claims them. Returns names and texts, the oldest first."""
    taken = []
    for file_name in _list_names(directory, waiting=True):
        name = file_name.removesuffix(WAITING)
        if rename_message(directory, name, WAITING, ending):
            with open(os.path.join(directory, name + ending), encoding="utf-8", errors="replace") as file:
                taken.append((name, file.read()))
    return taken


def rename_message(directory: str, name: str, old: str, new: str) -> bool:
    """Give a message another ending; False if another process has done so."""
    try:
        os.rename(os.path.join(directory, name + old), os.path.join(directory, name + new))
    except FileNotFoundError:
        return False
    return True


def list_received(directory: str) -> list[tuple[str, str]]:
    """The messages that were claimed, oldest first: the name of each, and by which means."""
    parts = (file_name.rpartition(RECEIVED) for file_name in _list_names(directory, waiting=False))
    return [(name, means) for name, _, means in parts if name]


def _list_names(directory: str, *, waiting: bool) -> list[str]:
    """The files of messages that wait, or of those that do not, oldest first."""
    try:
        with os.scandir(directory) as entries:
            files = [(_modified_at(entry), entry.name) for entry in entries if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    return [name for _, name in sorted(files) if name.endswith(WAITING) is waiting]


def _modified_at(entry: "os.DirEntry[str]") -> int:
    """When a message was written; 0 if another process has just claimed it."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0


def format_for_agent(agent: str, event: str, text: str) -> object:
    """What the agent expects its hook to print: a reason not to end its turn yet, or context beside a tool result."""
    if event in ENDS:
        return {"decision": "block", "reason": text}
    context = {"additionalContext": text}
    if agent == "copilot":
        return context
    return {"hookSpecificOutput": {"hookEventName": event, **context}}


def main(agent: str, event: str) -> None:
    """Claim and print what waits. A sub-agent, which has an `agent_id`, does not get the messages of its agent."""
    import json

    try:
        hook_input = json.loads(sys.stdin.buffer.read() or b"{}")
    except (ValueError, RecursionError):
        hook_input = {}
    if isinstance(hook_input, dict) and hook_input.get("agent_id"):
        return
    if messages := claim_messages(os.environ.get("RALPH_MESSAGES", ""), "hook"):
        sys.stdout.write(json.dumps(format_for_agent(agent, event, "\n\n".join(messages))))


if __name__ == "__main__":
    main(*sys.argv[1].split(":"))
