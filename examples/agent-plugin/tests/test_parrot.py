"""The adapter keeps what Ralph expects of every adapter, by what the real program printed."""

from pathlib import Path

from ralph.agents.contract import AdapterContract, find_recordings
from ralph_agent_parrot.adapter import Parrot


class TestParrot(AdapterContract):
    """Run with pytest; add tests of your own for what only your agent does."""

    adapter = Parrot()
    streams = find_recordings(Path(__file__).with_name("streams"), "parrot")
    tokens = {"parrot": (1240, 30)}
