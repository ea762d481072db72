"""`ralph emit`, as the rest of the command line knows it."""

from ralph.cli.tools import Passed
from ralph.tools import emit

command = Passed("emit", emit.COMMAND.help("ralph"))
