"""How agents send and receive messages: `ralph emit`, `ralph wave`, `ralph tools interact` and `ralph tools signals`."""

import os

from ralph.documents.agent.events import (
    PAYLOAD_LIMIT,
    PUBLISH_RULES_VARIABLE,
    REFUSED_EVENTS,
    advise_instead,
    dump_json,
    find_contradiction,
    find_publish_fault,
    find_topic_fault,
    list_gate_blockers,
    load_json,
    parse_events,
    render_event,
)
from ralph.tools import files
from ralph.tools.arguments import Argument, Command, ToolError, number_in, run_group, say, unknown, without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ralph.store.questions import QuestionFiles

USER_EVENTS = "emitted.jsonl"
"""The file of a run with the events of the user."""
_FINAL_OUTCOMES = ("success", "aborted")
"""Outcomes of runs that cannot be resumed."""


def _emit(args: "dict[str, Any]") -> int:
    topic = args["topic"]
    path = choose_events_file(args)
    files.append(path, build_event_line(args, path, topic, args.get("payload", "")))
    return say(f"Event emitted: {topic}")


def build_event_line(args: "dict[str, Any]", path: str, topic: str, payload: str, **more: object) -> bytes:
    """Check an event for the file at `path`, and return its line. Raises an error if the event would not count.

    The turn keeps a record of that: if the refused command was the last one of a script, the engine sends back the reason.
    """
    try:
        return _check_event(args, path, topic, payload, **more)
    except ToolError as error:
        events_of_turn = os.environ.get("RALPH_EVENTS_FILE", "")
        if events_of_turn and os.path.realpath(path) == os.path.realpath(events_of_turn):
            refused = os.path.join(os.path.dirname(path), REFUSED_EVENTS)
            files.append(refused, render_event("refused", error.what, files.now()))
        raise


def _check_event(args: "dict[str, Any]", path: str, topic: str, payload: str, **more: object) -> bytes:
    if fault := find_topic_fault(topic):
        raise ToolError(fault, "give the topic first, then the payload in quotes")
    if len(payload) > PAYLOAD_LIMIT:
        what = f"the payload is longer than {PAYLOAD_LIMIT} characters"
        raise ToolError(what, "write it into a file of the project, and send the path")
    value: object = payload
    if "json" in args:
        try:
            value = load_json(payload)
        except ValueError as error:
            todo = "put it in single quotes, or omit --json to send it as text"
            raise ToolError(f"the payload is not JSON: {error}", todo) from None
    rules = find_publish_rules(path)
    if rules and (fault := find_publish_fault(rules, topic, payload)):
        raise ToolError(fault, advise_instead(rules, topic))
    if isinstance(rules, dict) and topic == rules.get("completion"):
        _check_completion(rules, path, topic)
    return render_event(topic, value, args.get("ts") or files.now(), **more)


def _check_completion(rules: object, path: str, completion: str) -> None:
    """Refuse the completion promise if required events are missing, or an event of the same turn contradicts it."""
    published, _, _ = parse_events(files.read(path))
    topics = [event.topic for event in published]
    if topic := find_contradiction(rules, topics):
        what = f"`{completion}` contradicts `{topic}`, which you published in this turn"
        todo = f"if work is left, end the turn; if not, delete the line of `{topic}` from {path} and publish `{completion}` again"
        raise ToolError(what, todo)
    if reasons := list_gate_blockers(rules, topics):
        raise ToolError(f"`{completion}` was refused: {'; '.join(reasons)}", advise_instead(rules, completion))


def find_publish_rules(path: str) -> object:
    """The rules for events in a file: those of the turn, or those for users of a run of hats."""
    rules_of_turn = os.environ.get(PUBLISH_RULES_VARIABLE, "")
    events_of_turn = os.environ.get("RALPH_EVENTS_FILE", "")
    if rules_of_turn and os.path.realpath(path) == os.path.realpath(events_of_turn):
        return load_json(rules_of_turn)
    directory, name = os.path.split(path)
    if name != USER_EVENTS:
        return None
    # Only users get here, so slow imports are acceptable.
    from ralph.core.codec import from_plain
    from ralph.documents.hats.definition import USER, HatsSettings

    record = os.path.join(directory, "run.json")
    hats = files.read_value(record, "hats")
    return from_plain(HatsSettings, hats, record).list_publish_rules(USER) if hats else None


def choose_events_file(args: "dict[str, Any]") -> str:
    """The file of `--file`, the turn's own, or the one for events of the user."""
    if args.get("file"):
        return str(args["file"])
    if events_file := os.environ.get("RALPH_EVENTS_FILE"):
        return events_file
    if turn := os.environ.get("RALPH_TURN"):
        what = f"RALPH_TURN={turn} is not a turn that Ralph started, so no hat would receive the event"
        raise ToolError(what, "unset RALPH_TURN, or call the program in RALPH_BIN")
    from ralph.supervisor.processes import find_surrounding_turn

    if place := find_surrounding_turn():
        what = (
            "this process belongs to a turn, and its environment does not say to which: it cannot publish for the user"
        )
        raise ToolError(what, "keep the variables of the turn, and call the program in RALPH_BIN", where=place)
    root = files.root(args)
    if run := args.get("run"):
        run_dir = os.path.join(root, ".ralph", "runs", run)
        if (
            os.path.basename(run_dir) != run
            or files.read_value(os.path.join(run_dir, "run.json"), "workflow") != "hats"
        ):
            raise ToolError(f"there is no run {run} of hats", "`ralph status` lists all runs", where=run_dir)
        return _find_user_events_file(run, run_dir)
    marker = os.path.join(root, ".ralph", "current-events")
    name = files.read(marker).decode(errors="replace").strip()
    if not name:
        raise ToolError("no run here can receive the event", "start one, or pass --file", where=marker)
    path = os.path.realpath(os.path.join(root, name))
    if os.path.commonpath([path, os.path.realpath(root)]) != os.path.realpath(root):
        raise ToolError(f"this file names a path outside the project: {name}", "remove it", where=marker)
    run = files.run_id(args)
    run_dir = os.path.join(root, ".ralph", "runs", run)
    # A run of hats reads the events of users from this file. Its own log is only for reading.
    is_its_log = bool(run) and name == f".ralph/events-{run}.jsonl" and os.path.isdir(run_dir)
    return _find_user_events_file(run, run_dir) if is_its_log else path


def _find_user_events_file(run: str, run_dir: str) -> str:
    """The file from which a run reads the events of the user."""
    state = os.path.join(run_dir, "hats.json")
    outcome = files.read_value(state, "outcome")
    if outcome in _FINAL_OUTCOMES and files.read_value(state, "ended"):
        raise ToolError(f"run {run} is over ({outcome}): no hat would receive it", "start another with `ralph run`")
    return os.path.join(run_dir, USER_EVENTS)


EMIT = Command(
    "emit",
    "Publish an event. The run routes it when the turn has ended.",
    _emit,
    Argument("topic", help="The topic of the event, for example build.done."),
    Argument("payload", nargs="*", default="", help="The content of the event. `-` reads standard input."),
    Argument("-j", "--json", action="store_true", help="The payload is JSON. Ralph checks it and stores it as JSON."),
    Argument("--ts", metavar="TIME", help="When the event happened. Default: now."),
    Argument(
        "--run", metavar="RUN", help="The run that receives it, if you publish it outside a turn. Default: the latest."
    ),
    Argument(
        "--file", metavar="PATH", help="The file to add it to. Default: the file of the turn, or of the current run."
    ),
)


def run_emit(words: list[str]) -> int:
    """Run `ralph emit WORDS...`."""
    return EMIT.run("ralph", words)


WAVE_HELP = """\
usage: ralph wave emit TOPIC --payloads PAYLOAD PAYLOAD ...

  Publish one event for each payload, all or none, and print the id that these events share."""


def run_wave(words: list[str]) -> int:
    """Run `ralph wave WORDS...`."""
    if not words or "--help" in words or "-h" in words:
        return say(WAVE_HELP)
    if words[0] != "emit":
        raise unknown("ralph wave", words[0], ["emit"])
    if words[2:3] != ["--payloads"] or len(words) < 4:
        raise ToolError("the topic or the payloads are missing", "ralph wave emit TOPIC --payloads PAYLOAD PAYLOAD ...")
    topic, payloads, wave = words[1], [without_secrets(word) for word in words[3:]], files.make_id("wave")
    path = choose_events_file({})
    lines = [
        build_event_line({}, path, topic, payload, wave_id=wave, wave_index=number, wave_total=len(payloads))
        for number, payload in enumerate(payloads)
    ]
    files.append(path, b"".join(lines))
    return say(wave)


ABOUT_INTERACT = "Report your progress to the user, or ask a question. The user may be away."
PROGRESS_FILE = "progress.jsonl"
MAX_MESSAGE_CHARS = 2000
MAX_QUESTION_CHARS = 4000
SIGNALS_USAGE = """usage: ralph tools signals

  Print each new message from the user once. Call it between the steps of your work."""
_POLL_SECONDS = 0.2


def _progress(args: "dict[str, Any]") -> int:
    message = args["message"].strip()
    if not message or len(message) > MAX_MESSAGE_CHARS:
        raise ToolError(
            f"a message has 1 to {MAX_MESSAGE_CHARS} characters", "report your progress in a sentence or two"
        )
    directory = _run_dir(args)
    turn = os.environ.get("RALPH_TURN", "").rpartition("/")[2]
    role = os.environ.get("RALPH_HAT") or os.environ.get("RALPH_ROLE", "")
    line = {
        "at": files.now(),
        "type": "turn.progress",
        "turn": int(turn) if turn.isdigit() else None,
        "role": role,
        "message": message,
    }
    files.append(os.path.join(directory, PROGRESS_FILE), (dump_json(line) + "\n").encode(errors="backslashreplace"))
    return say("Sent.")


def _ask(args: "dict[str, Any]") -> int:
    """Ask, wait until the user answers or the time is over, and print the answer."""
    import time
    from pathlib import Path

    from ralph.core.signals import Question
    from ralph.store.questions import NO_ANSWER, QuestionFiles

    text, default = args["question"].strip(), args.get("default", "").strip()
    options = tuple(option.strip() for option in args.get("options", "").split("|") if option.strip())
    if not text or len(text) > MAX_QUESTION_CHARS:
        raise ToolError(f"a question has 1 to {MAX_QUESTION_CHARS} characters", "ask one question, in a few sentences")
    if default and options and default not in options:
        raise ToolError(f"the default {default!r} is not one of the options", f"choose from {', '.join(options)}")
    questions, now, seconds = QuestionFiles(Path(_run_dir(args))), time.time(), float(args["timeout"])
    turn, role = os.environ.get("RALPH_TURN", ""), os.environ.get("RALPH_HAT") or os.environ.get("RALPH_ROLE", "")
    question = Question(
        id="",
        question=text,
        options=options,
        default=default,
        asked_at=now,
        timeout=seconds,
        turn=turn.rpartition("/")[2],
        role=role,
    )
    asked = questions.ask(question)
    while time.time() < now + seconds:
        if answer := _answer(questions, asked.id):
            return say(answer)
        time.sleep(_POLL_SECONDS)
    questions.expire(asked.id, time.time())
    return say(_answer(questions, asked.id) or default or NO_ANSWER)


def _answer(questions: "QuestionFiles", id: str) -> str:
    found = questions.get(id)
    return (found.answer or "") if found else ""


def _run_dir(args: "dict[str, Any]") -> str:
    run = files.run_id(args)
    runs = os.path.join(files.root(args), ".ralph", "runs")
    directory = os.path.join(runs, run)
    if not run or run.startswith(".") or os.path.dirname(directory) != runs or not os.path.isdir(directory):
        raise ToolError(f"there is no run {run}".rstrip(), "this is for the agents of a run", where=runs)
    return directory


INTERACT = (
    Command(
        "progress",
        "Report your progress. The user sees it in the live view, in `ralph status` and in `ralph logs`.",
        _progress,
        Argument("message", nargs="+", help="A sentence or two."),
    ),
    Command(
        "ask",
        "Ask the user, wait for the answer, and print it.",
        _ask,
        Argument("question", nargs="+", help="One question, in a few sentences."),
        Argument("--options", metavar="A|B|C", help="The answers to choose from, separated by |."),
        Argument("--default", metavar="TEXT", help="The answer if the user does not answer in time."),
        Argument(
            "--timeout",
            metavar="SECONDS",
            type=number_in(range(1, 86_401)),
            default=300,
            help="How many seconds to wait. Default: %(default)s.",
        ),
    ),
)


def run_interact(words: list[str]) -> int:
    """Run `ralph tools interact WORDS...`."""
    if words[:1] == ["ask"] and os.environ.get("RALPH_MAY_ASK") == "no":
        raise ToolError(
            "this hat may not ask the user", "choose the safest option, and record it: ralph tools decision add"
        )
    return run_group("ralph tools interact", ABOUT_INTERACT, INTERACT, words)


def run_signals(words: list[str]) -> int:
    """Print the user's messages since the turn last asked."""
    if words[:1] in (["--help"], ["-h"]):
        return say(SIGNALS_USAGE)
    if words:
        raise ToolError(f"unexpected argument {words[0]!r}", "remove it")
    directory = os.environ.get("RALPH_MESSAGES")
    if not directory:
        raise ToolError("this is not a turn of a run", "users see the signals of a run with `ralph signals`")
    from ralph.agents.live_messages import claim_messages

    return say("\n".join(claim_messages(directory, "tool")) or "No new messages.")


TOOLS = {"interact": (run_interact, INTERACT), "signals": (run_signals, ())}
