"""`ralph wave`, as the rest of the command line knows it."""

from ralph.cli.tools import Passed
from ralph.tools import wave

command = Passed("wave", wave.HELP)
