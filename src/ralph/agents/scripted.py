"""The scripted agent: a real process that plays a scenario file.

`python -P -m ralph.agents.scripted --scenario FILE` reads a prompt from stdin, works in the current directory
and prints what it does as JSON Lines on stdout. `-P` keeps the workspace's own modules out of its imports.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from ralph.agents.live_messages import claim_messages
from ralph.core.errors import RalphError, UsageError
from ralph.core.limits import Usage
from ralph.documents import scenario as script
from ralph.store.files import read_text

if TYPE_CHECKING:
    from random import Random

SCENARIO_LIMIT = 1024 * 1024
OUTPUT_CHARS = 4000
"""How much of the end of a tool's output is printed. Test runners print their summary there."""
ORPHAN = """import sys, time
time.sleep(float(sys.argv[1]))
if sys.argv[2]:
    open(sys.argv[2], "w").write("late\\n")
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play one turn of a scenario. The exit code is 2 if the scenario or the environment is wrong."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    path = _scenario_path(arguments)
    prompt = _read_prompt()
    try:
        text = read_text(Path(path), SCENARIO_LIMIT, "the scenario", "check the path")
        scenario = script.parse_scenario(text, path)
        turn = _read_identity(os.environ, prompt)
    except RalphError as error:
        print_event("error", message=str(error))
        return 2
    player = Player(path, scenario.seed, turn)
    try:
        code = player.play(_select_steps(scenario, turn, path))
    except UsageError as error:
        print_event("error", message=str(error))
        return 1
    if code is None:
        print_event("result", text=player.last_message, is_error=False)
    return code or 0


def print_event(kind: str, **content: object) -> None:
    """Print one event on stdout, at once."""
    line = json.dumps({"type": kind, **content}, ensure_ascii=False) + "\n"
    sys.stdout.buffer.write(line.encode(errors="backslashreplace"))
    sys.stdout.buffer.flush()


class Player:
    """Plays the steps of one turn."""

    def __init__(self, name: str, seed: int, turn: script.Identity) -> None:
        self.last_message = ""
        self._received: list[str] = []
        """Messages for which no `listen` step has waited yet."""
        self._name = name
        self._seed = f"{seed}/{turn.turn}/{turn.role}/{turn.hat}/{turn.task}/{turn.attempt}"

    @cached_property
    def chance(self) -> "Random":
        """The same draws for the same seed and turn, in every run."""
        from random import Random

        return Random(self._seed)

    def play(self, steps: Sequence[script.ScriptStep]) -> int | None:
        """Play the steps one after the other. Returns an exit code if one of them ends the turn."""
        for step in steps:
            try:
                code = self._play_step(step.action)
            except OSError as error:
                todo = "correct the step, or what it finds in the workspace"
                raise UsageError(str(error), where=self._location(step), todo=todo) from None
            except UsageError as error:
                error.where = error.where or self._location(step)
                raise
            if code is not None:
                return code
            self._receive()
        return None

    def _receive(self) -> None:
        """Receive messages of the user, as agents do after each use of a tool."""
        for message in claim_messages(os.environ.get("RALPH_MESSAGES", ""), "hook"):
            self._received.append(message)
            print_event("text", text=f"received: {message}")

    def _listen(self, action: script.Listen) -> None:
        deadline = time.monotonic() + action.seconds
        self._receive()
        while not self._received and time.monotonic() < deadline:
            time.sleep(0.02)
            self._receive()
        if action.into:
            target = _inside(Path.cwd(), action.into)
            before = target.read_text(errors="replace") if target.exists() else ""
            _write(target, before + "".join(f"{message}\n" for message in self._received))
        self._received = []

    def _location(self, step: script.ScriptStep) -> str:
        return f"{self._name}:{step.line}"

    def _play_step(self, action: script.Action) -> int | None:
        if isinstance(action, script.Deed):
            _do_work(action)
        elif isinstance(action, script.Trouble):
            _misbehave(action)
        else:
            return self._talk(action)
        return None

    def _talk(self, action: script.Talk) -> int | None:
        match action:
            case script.Say():
                self.last_message = action.text
                print_event("text", text=action.text)
            case script.Listen():
                self._listen(action)
            case script.Error():
                print_event("error", message=action.message)
            case Usage():
                names = ("cached_tokens", "reasoning_tokens", "model")
                details = {name: getattr(action, name) for name in names if getattr(action, name)}
                if action.cost is not None:
                    details["cost"] = action.cost
                print_event("usage", input_tokens=action.input_tokens, output_tokens=action.output_tokens, **details)
            case script.RateLimit():
                print_event("limit", resets_at=time.time() + action.resets_in, message=action.message)
                return 1
            case script.Exit():
                return action.code
            case script.Choose():
                weights = [option.weight for option in action.options]
                return self.play(self.chance.choices(action.options, weights)[0].steps)
            case _:
                assert_never(action)
        return None


def _do_work(action: script.Deed) -> None:
    match action:
        case script.Write():
            _write(_inside(Path.cwd(), action.path), action.content)
            print_event("tool", name="write", input={"path": action.path}, output="", code=0)
        case script.Patch():
            _patch(action)
        case script.Delete():
            _delete(action)
        case script.Run():
            _run(action)
        case script.Outbox():
            _write(_inside(_outbox(), action.path), action.content)
            print_event("tool", name="outbox", input={"path": action.path}, output="", code=0)
        case script.Emit():
            _emit(action)
        case _:
            assert_never(action)


def _patch(action: script.Patch) -> None:
    target = _inside(Path.cwd(), action.path)
    find = action.find.encode()
    before = target.read_bytes() if target.exists() or not action.optional else b""
    if find not in before and not action.optional:
        raise UsageError(
            f"cannot patch {action.path}: {action.find!r} is not in it", todo="correct `find`, or add `optional: true`"
        )
    if find in before:
        target.write_bytes(before.replace(find, action.replace.encode()))
    arguments = {"path": action.path, "find": action.find, "replace": action.replace}
    print_event("tool", name="patch", input=arguments, output=f"{before.count(find)} replaced", code=0)


def _delete(action: script.Delete) -> None:
    # The last part can be a symlink, which is then deleted itself: only its directory must be inside.
    target = _inside(Path.cwd(), str(Path(action.path).parent)) / Path(action.path).name
    if target.is_dir() and not target.is_symlink():
        from shutil import rmtree

        rmtree(target)
    elif not action.optional or target.is_symlink() or target.exists():
        target.unlink()
    print_event("tool", name="delete", input={"path": action.path}, output="", code=0)


def _run(action: script.Run) -> None:
    from subprocess import DEVNULL, STDOUT, run
    from tempfile import TemporaryFile

    # A file, not a pipe: a background process of the command must not delay the turn.
    with TemporaryFile() as printed:
        command = ["/bin/sh", "-c", action.command]
        code = run(command, stdin=DEVNULL, stdout=printed, stderr=STDOUT, check=False).returncode
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - 4 * OUTPUT_CHARS))
        output = printed.read().decode(errors="replace")[-OUTPUT_CHARS:]
    print_event("tool", name="run", input={"command": action.command}, output=output, code=code)
    if action.check and code != 0:
        raise UsageError(f"`{action.command}` exited with {code}", todo="see its output in the event before")


def _emit(action: script.Emit) -> None:
    from datetime import UTC, datetime

    event = {"topic": action.topic, "payload": action.payload, "ts": datetime.now(UTC).isoformat()}
    with _path_from("RALPH_EVENTS_FILE").open("ab", buffering=0) as events:
        events.write(json.dumps(event, ensure_ascii=False).encode() + b"\n")
    print_event("tool", name="emit", input={"topic": action.topic, "payload": action.payload}, output="", code=0)


def _misbehave(action: script.Trouble) -> None:
    match action:
        case script.Sleep():
            time.sleep(action.seconds)
        case script.Hang():
            while True:
                signal.pause()
        case script.IgnoreTerm():
            # A handler, not SIG_IGN: commands would inherit that.
            signal.signal(signal.SIGTERM, lambda number, frame: None)
        case script.Orphan():
            _leave_orphan(action)
        case script.Spew():
            _spew(action)
        case script.Crash():
            _crash(signal.Signals[action.signal])
        case _:
            assert_never(action)


def _leave_orphan(action: script.Orphan) -> None:
    """Start a process from a child that exits at once, so that this process is not its parent."""
    from subprocess import DEVNULL, Popen

    late = str(_inside(Path.cwd(), action.writes)) if action.writes else ""
    output = None if action.hold_output else DEVNULL
    child = os.fork()
    if child == 0:
        code = 1
        try:
            Popen(
                [sys.executable, "-I", "-S", "-c", ORPHAN, str(action.seconds), late],
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                env={} if action.scrub_env else None,
                start_new_session=action.setsid,
            )
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1] != 0:
        raise UsageError("the orphan could not be started", todo="see stderr")


def _spew(action: script.Spew) -> None:
    stream = sys.stdout.buffer if action.stream == "stdout" else sys.stderr.buffer
    width = action.line or action.bytes or 1
    line = ((b"\xff\xfe" if action.invalid_utf8 else b"x") * width)[: width - 1] + b"\n"
    lines, rest = divmod(action.bytes, width)
    for _ in range(lines):
        stream.write(line)
    stream.write(line[width - rest :])
    stream.flush()


def _crash(number: signal.Signals) -> None:
    from resource import RLIMIT_CORE, setrlimit

    setrlimit(RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise UsageError(f"{number.name} did not end the agent", todo="use a signal that does, like SIGSEGV or SIGKILL")


def _write(target: Path, content: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode())


def _inside(root: Path, path: str) -> Path:
    """The path with its symlinks followed. It must stay inside the root."""
    base, target = os.path.realpath(root), os.path.realpath(root / path)
    if not Path(target).is_relative_to(base):
        raise UsageError(f"{path} leads out of {base}, to {target}", todo="remove the symlink")
    return Path(target)


def _outbox() -> Path:
    outbox = _path_from("RALPH_OUTBOX")
    if not outbox.is_dir():
        raise UsageError(f"RALPH_OUTBOX is not a directory: {outbox}", todo="create it before the turn")
    return outbox


def _path_from(variable: str) -> Path:
    if not os.environ.get(variable):
        raise UsageError(f"{variable} is not set, and this step writes there", todo="set it to a path")
    return Path(os.environ[variable])


def _read_prompt() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    return sys.stdin.buffer.read().decode(errors="replace")


def _read_identity(environment: Mapping[str, str], prompt: str) -> script.Identity:
    return script.Identity(
        role=environment.get("RALPH_ROLE", ""),
        hat=environment.get("RALPH_HAT", ""),
        task=environment.get("RALPH_TASK", ""),
        attempt=_number("RALPH_ATTEMPT", environment.get("RALPH_ATTEMPT", "")),
        turn=_number("RALPH_TURN", environment.get("RALPH_TURN", "").rpartition("/")[2]),
        prompt=prompt,
    )


def _number(variable: str, text: str) -> int:
    if text and not text.isdecimal():
        raise UsageError(f"{variable} has no number: {text!r}", todo='RALPH_TURN looks like "<run>/00001"')
    return int(text or -1)


def _select_steps(scenario: script.Scenario, turn: script.Identity, name: str) -> Sequence[script.ScriptStep]:
    steps = scenario.steps_for(turn)
    if steps is None and scenario.otherwise == "fail":
        identity = ((key, value) for key, value in vars(turn).items() if key != "prompt")
        description = ", ".join(f"{key} {value}" for key, value in identity if value not in ("", -1))
        todo = "add an entry that matches it, or `otherwise: finish`"
        raise UsageError(f"no entry matches this turn ({description})", where=name, todo=todo)
    return steps or ()


def _scenario_path(arguments: Sequence[str] | None) -> str:
    from argparse import ArgumentParser

    parser = ArgumentParser(prog="python -P -m ralph.agents.scripted", description=main.__doc__)
    parser.add_argument("--scenario", required=True, metavar="FILE", help="the scenario file (YAML)")
    return str(parser.parse_args(arguments).scenario)


if __name__ == "__main__":
    sys.exit(main())
