"""A program that speaks the Agent Client Protocol, and says what the JSON in its first argument has it say.

    greeting    its answer to `initialize`, more or less; null for none
    answers     its answers to other methods, by name; {"error": ...} for an error
    history     updates of a conversation that is loaded, before the answer; `late` after it
    turn        what it does when it is prompted: a list of {"update": ...}, {"ask": [method, params]}, {"print": text},
                {"complain": text}, {"orphan": seconds}, {"hang": 1}, {"exit": code}, {"listen": its answer to what it is told
                next, null for none}
    result      its answer to the prompt
    deaf        whether it listens no more once a conversation has begun

What it is told is noted in the file that ACP_LOG names, one message a line.
"""

import json
import os
import subprocess
import sys
import time

PLAY = json.loads(sys.argv[1])
SESSION = "s-1"


def main():
    for line in sys.stdin:
        heard = json.loads(line)
        note(heard)
        if heard.get("method") == "session/cancel":
            continue
        answer(heard)


def note(message):
    with open(os.environ["ACP_LOG"], "a") as log:
        log.write(json.dumps(message) + "\n")


def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(one, session=SESSION):
    say(method="session/update", params={"sessionId": one.pop("session", session), "update": one})


def answer(heard):
    method, key = heard.get("method"), heard.get("id")
    if method == "initialize":
        greet(key)
    elif method == "session/prompt":
        for deed in PLAY.get("turn", []):
            do(deed)
        reply(key, PLAY.get("result", {"stopReason": "end_turn"}))
    elif method in ("session/load", "session/resume") and method not in PLAY.get("answers", {}):
        for one in PLAY.get("history", []):
            update(one)
        reply(key, {})
        for one in PLAY.get("late", []):
            update(one)
    else:
        given = PLAY.get("answers", {}).get(method, {"sessionId": SESSION} if method == "session/new" else {})
        if isinstance(given, list):
            given = given.pop(0)
        reply(key, given)
        if PLAY.get("deaf"):
            time.sleep(60)


def greet(key):
    given = PLAY.get("greeting", {})
    if given is not None:
        can = {"loadSession": True}
        reply(key, {"protocolVersion": 1, "agentCapabilities": can, "authMethods": [], **given})


def reply(key, given):
    say(id=key, **(given if "error" in given else {"result": given}))


def do(deed):
    [(what, how)] = deed.items()
    if what == "update":
        update(how)
    elif what == "ask":
        say(id=f"q-{time.monotonic_ns()}", method=how[0], params={"sessionId": SESSION, **how[1]})
        note(json.loads(sys.stdin.readline()))
    elif what == "print":
        sys.stdout.write(how * deed.get("times", 1) + "\n")
        sys.stdout.flush()
    elif what == "long":
        say(method="session/update", params={"text": "x" * how})
    elif what == "complain":
        sys.stderr.write(how + "\n")
        sys.stderr.flush()
    elif what == "orphan":
        words = [sys.executable, "-c", f"import time; time.sleep({how})", os.environ["ACP_LOG"]]
        subprocess.Popen(words, start_new_session=True)
    elif what == "hang":
        while heard := json.loads(sys.stdin.readline() or "{}"):
            note(heard)
            if heard.get("method") == "session/cancel" and how == "until cancelled":
                return
        time.sleep(60)
    elif what == "sleep":
        time.sleep(how)
    elif what == "listen":
        heard = json.loads(sys.stdin.readline())
        note(heard)
        if how is not None:
            reply(heard["id"], how)
    elif what == "exit":
        sys.stdout.flush()
        os._exit(how)


for first in PLAY.get("first", []):
    do(first)
main()
