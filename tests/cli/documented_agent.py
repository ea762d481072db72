"""Amp, Cursor CLI and Kiro CLI as their documentation describes them: their options, their output, and nothing else.

The name of the program says which of them it is. `$HOME/plan.json` has the shell commands of its turns, one list for each
turn; `$HOME/calls.jsonl` gets what it was called with.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HOME = Path(os.environ["HOME"])
NAME = Path(sys.argv[0]).name
SESSION = "00000000-0000-4000-8000-000000000001"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Accept the documented options only."""
    parser = argparse.ArgumentParser(prog=NAME, allow_abbrev=False)
    parser.set_defaults(session="", model="")
    if NAME == "amp":
        if arguments[:2] == ["threads", "continue"]:
            parser.set_defaults(session=arguments[2])
            arguments = arguments[3:]
        parser.add_argument("--execute", "-x", action="store_true", required=True)
        parser.add_argument("--stream-json-thinking", action="store_true", required=True)
        parser.add_argument("--dangerously-allow-all", action="store_true")
        parser.add_argument("--no-ide", action="store_true")
        parser.add_argument("--mode", "-m", dest="model")
    elif NAME == "cursor-agent":
        parser.add_argument("-p", "--print", action="store_true", required=True)
        parser.add_argument("--force", "-f", action="store_true")
        parser.add_argument("--mode", choices=["ask", "plan"])
        parser.add_argument("--output-format", choices=["stream-json"], required=True)
        parser.add_argument("--model", "-m")
        parser.add_argument("--resume", dest="session")
    else:
        parser.add_argument("chat", choices=["chat"])
        parser.add_argument("--no-interactive", action="store_true", required=True)
        parser.add_argument("--trust-all-tools", "-a", action="store_true")
        parser.add_argument("--trust-tools")
        parser.add_argument("--wrap", choices=["always", "never", "auto"])
        parser.add_argument("--model")
    return parser.parse_args(arguments)


def say(**event: object) -> None:
    print(json.dumps({**event, "session_id": SESSION}), flush=True)


def speak(text: str) -> None:
    """Print a message of the model."""
    if NAME == "kiro-cli":
        print(f"\x1b[38;5;141m> \x1b[0m{text}", flush=True)
        return
    usage = {"input_tokens": 1000, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 50}
    told = {"usage": usage} if NAME == "amp" else {}
    content = [{"type": "text", "text": text}]
    say(type="assistant", message={"type": "message", "role": "assistant", "content": content, **told})


def run(command: str, number: int) -> None:
    """Run a command with its tool, and print what that prints."""
    key, shown = f"call-{number}", {"command": command}
    if NAME == "amp":
        used = {"type": "tool_use", "id": key, "name": "Bash", "input": {"cmd": command}}
        say(type="assistant", message={"type": "message", "role": "assistant", "content": [used]})
    elif NAME == "cursor-agent":
        say(type="tool_call", subtype="started", call_id=key, tool_call={"shellToolCall": {"args": shown}})
    else:
        print(f"I will run the following command: {command} (using tool: shell)", flush=True)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    if NAME == "amp":
        result = {"type": "tool_result", "tool_use_id": key, "content": done.stdout, "is_error": done.returncode != 0}
        say(type="user", message={"role": "user", "content": [result]})
    elif NAME == "cursor-agent":
        outcome = {"success": {"exitCode": done.returncode, "stdout": done.stdout, "stderr": done.stderr}}
        tool = {"shellToolCall": {"args": shown, "result": outcome}}
        say(type="tool_call", subtype="completed", call_id=key, tool_call=tool)
    else:
        print(f"{done.stdout} - Completed in 0.1s", flush=True)


def end(text: str) -> None:
    """Print what marks the end of a turn."""
    if NAME == "kiro-cli":
        print("\x1b[38;5;8m\n ▸ Credits: 0.07 • Time: 4s\n\x1b[0m", file=sys.stderr, flush=True)
        return
    usage = {"usage": {"inputTokens": 1000, "outputTokens": 50}} if NAME == "cursor-agent" else {}
    say(type="result", subtype="success", is_error=False, duration_ms=10, result=text, **usage)


def main() -> int:
    options = parse(sys.argv[1:])
    prompt = sys.stdin.read()
    called = {"prompt": prompt, "session": options.session, "model": options.model, "arguments": sys.argv[1:]}
    with (HOME / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(called) + "\n")
    failure = os.environ.get("DOCUMENTED_FAILURE", "")
    if failure == "signed-out" and NAME == "kiro-cli":
        print("Authentication failed. Check your API key.")
        return 0
    if failure == "signed-out":
        print("Authentication required. Please log in first.", file=sys.stderr)
        return 1
    plan = json.loads((HOME / "plan.json").read_text())
    turn = len((HOME / "calls.jsonl").read_text().splitlines())
    if NAME != "kiro-cli":
        say(type="system", subtype="init", cwd=os.getcwd())
    speak("Go.")
    for number, command in enumerate(plan[turn - 1]):
        run(command, number)
    speak("Done.")
    end("Done.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
