"""`ralph wave emit`: publish several events at once, for a hat that takes them side by side."""

from ralph.tools import place
from ralph.tools.arguments import ToolError, say, unknown, without_secrets
from ralph.tools.emit import file_for, line_for

HELP = """\
usage: ralph wave emit TOPIC --payloads PAYLOAD PAYLOAD ...

  Publish an event for each payload, all or none, and print the id of the wave. The same as `ralph emit` once for each."""


def run(words: list[str]) -> int:
    """Do what `ralph wave WORDS...` says."""
    if not words or "--help" in words or "-h" in words:
        return say(HELP)
    if words[0] != "emit":
        raise unknown("ralph wave", words[0], ["emit"])
    if words[2:3] != ["--payloads"] or len(words) < 4:
        raise ToolError("the topic or the payloads are missing", "ralph wave emit TOPIC --payloads PAYLOAD PAYLOAD ...")
    topic, payloads, wave = words[1], [without_secrets(word) for word in words[3:]], place.new_id("wave")
    path = file_for({})
    lines = [
        line_for({}, path, topic, payload, wave_id=wave, wave_index=number, wave_total=len(payloads))
        for number, payload in enumerate(payloads)
    ]
    place.append(path, b"".join(lines))
    return say(wave)
