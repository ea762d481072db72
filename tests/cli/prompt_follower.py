"""A program that does what its prompt says, word for word, in every role of a session.

It knows nothing about Ralph: every path, document, heading, field, allowed value and rule comes from the prompt, and what the
prompt does not say, it does not do. It understands requests of one form: each line `- FILE: WHAT, uses FILE and FILE` asks for a
line of text in a file, and names the files that have to be there before.
"""

import json
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass

Forms = dict[str, str]
FORM = re.compile(r"^`([^`\n]+)`([^`\n]*(?:`[^`\n]+`[^`\n]*)*)?:\n````\n(.*?\n)````$", re.DOTALL | re.MULTILINE)
NAMES_NEEDS = ("the tasks that must be done before it", "the earlier tasks that it builds on")
SAME_FILE = "If two tasks change the same file, let one depend on the other"
PASSES = re.compile(r"`([^`]+)` passes")


@dataclass(frozen=True)
class Piece:
    """One line of the request."""

    file: str
    what: str
    uses: tuple[str, ...]

    @property
    def command(self) -> str:
        return f"grep -qx '{self.what}' {self.file}"


def main() -> None:
    prompt = sys.stdin.read()
    outbox = pathlib.Path(find(r"Write these files to `([^`]+)`", prompt))
    for name, text in answer(prompt).items():
        place = outbox / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def answer(prompt: str) -> Forms:
    """The documents that the prompt asks for."""
    asked = prompt.partition("# What to hand over\n")[2]
    forms = {name: text for name, note, text in FORM.findall(asked) if "only if" not in note}
    result = json.loads(forms.pop("result.json"))
    if nothing := find(r"If no question is worth asking, write only `result.json`, with `(\w+): true`", prompt):
        return {"result.json": json.dumps({**result, nothing: True})}
    if "If there is nothing to keep, write only `result.json`" in prompt:
        return {"result.json": json.dumps(result)}
    if "report.md" in forms:
        documents, said = do_task(prompt, forms)
    elif "review.md" in forms:
        documents, said = review(prompt, forms)
    else:
        documents, said = plan(prompt, forms), {}
    return {**documents, "result.json": json.dumps({**result, **said})}


def plan(prompt: str, forms: Forms) -> Forms:
    """A plan, or tasks, in the form that the prompt shows."""
    pieces = read_request(quoted(prompt, "The user's request"))
    if pattern := find(r"One file `([^`]*<n>[^`]*)` for each task", prompt):
        return {
            pattern.replace("<n>", str(number)): fill_task(forms[pattern.replace("<n>", "1")], prompt, pieces, number)
            for number in range(1, len(pieces) + 1)
        }
    if "tasks.md" in forms:
        numbers = range(1, len(pieces) + 1)
        return {"tasks.md": "".join(fill_entry(forms["tasks.md"], prompt, pieces, number) for number in numbers)}
    criteria = [f"- `{piece.command}` passes" for piece in pieces]
    (name,) = forms
    return {name: fill_sections(forms[name], {r"success criteria": criteria}) if writes_commands(prompt) else ""}


def fill_task(form: str, prompt: str, pieces: list[Piece], number: int) -> str:
    """One task in a file of its own: the headings and fields of the example, with text about this piece."""
    piece = pieces[number - 1]
    text = re.sub(r"\btask-1\b", f"task-{number}", form)
    needs = ", ".join(f"task-{one}" for one in find_needs(prompt, pieces, number))
    text = re.sub(r"^depends_on: \[\]$", f"depends_on: [{needs}]", text, flags=re.MULTILINE)
    if "leave it out if there are none" in prompt:
        text = re.sub(r"^## Grounded In\n.*?\n\n", "", text, flags=re.DOTALL | re.MULTILINE)
    criteria = [f"- [ ] `{piece.command}` passes"] if writes_commands(prompt) else ["- [ ] It is there"]
    values = {"title": [f"Write {piece.what}"], "files": [f"- {piece.file}"], "success criteria": criteria}
    return fill_sections(text, {**values, "objective": [f"{piece.file} has the line {piece.what}"]})


def fill_entry(form: str, prompt: str, pieces: list[Piece], number: int) -> str:
    """One task of a list: the lines of the first example, with text about this piece."""
    piece = pieces[number - 1]
    example = re.split(r"^(?=- task-2:)", form, flags=re.MULTILINE)[0]
    head, _, fields = example.partition("\n")
    needs = ", ".join(f"task-{one}" for one in find_needs(prompt, pieces, number)) or "None"
    values = {"Files": piece.file, "Objective": f"{piece.file} has the line {piece.what}", "Inherits From": needs}
    for name, value in values.items():
        fields = re.sub(rf"(\*\*{name}\*\*: ).*", rf"\g<1>{value}", fields)
    criterion = f"`{piece.command}` passes" if writes_commands(prompt) else "It is there"
    fields = re.sub(
        r"(\*\*Success Criteria\*\*:\n)(\s+- ).*?\n(?=    - \*\*)", rf"\g<1>\g<2>{criterion}\n", fields, flags=re.S
    )
    return re.sub(r"task-1: .*", f"task-{number}: Write {piece.what}", head) + "\n" + fields


def find_needs(prompt: str, pieces: list[Piece], number: int) -> list[int]:
    """The earlier tasks that a task needs, as far as the prompt says that they matter."""
    piece, found = pieces[number - 1], set[int]()
    for earlier, other in enumerate(pieces[: number - 1], 1):
        is_used = other.file in piece.uses and any(words in prompt for words in NAMES_NEEDS)
        is_shared = other.file == piece.file and SAME_FILE in prompt
        if is_used or is_shared:
            found.add(earlier)
    return sorted(found)


def do_task(prompt: str, forms: Forms) -> tuple[Forms, dict[str, object]]:
    """Write the line that the task asks for, run the commands among its criteria, and report."""
    task = quoted(prompt, "Your task")
    file, what = find(r"(\S+) has the line .+", task), find(r"\S+ has the line (.+)", task)
    with pathlib.Path(file).open("a") as target:
        target.write(f"{what}\n")
    held = {command: runs(command) for command in PASSES.findall(task)}
    lines = [f"{'✅' if is_met else '❌'} `{command}`" for command, is_met in held.items()]
    report = fill_sections(forms["report.md"], {"success criteria status": lines, "blockers": ["- None"]})
    said = {"status": "completed", "success_criteria_met": all(held.values()), "files_modified": [file]}
    return {"report.md": report}, {**said, "summary": f"Wrote {what}."}


def review(prompt: str, forms: Forms) -> tuple[Forms, dict[str, object]]:
    """Run what has to pass, and answer with one of the values that the prompt allows."""
    inbox = pathlib.Path(find(r"`([^`]+)` holds:", prompt))
    judged = find(r"Judge whether the task in `([^`]+)` is done", prompt) or "plan.md"
    held = all(runs(command) for command in PASSES.findall((inbox / judged).read_text()))
    field, good, bad = re.findall(r"`(verdict|assessment)` is ([^|`]+) \| ([^|`;,]+)", prompt)[0]
    verdict = good if held else bad
    text = forms["review.md"].replace(bad, verdict)
    said = {field: verdict, "feedback" if field == "verdict" else "gaps": "" if field == "verdict" else []}
    return {"review.md": text}, {"status": "completed", **said}


def read_request(text: str) -> list[Piece]:
    found = []
    for file, what, uses in re.findall(r"^- (\S+): (.+?)(?:, uses (.+))?$", text, re.MULTILINE):
        found.append(Piece(file, what, tuple(uses.split(" and ")) if uses else ()))
    return found


def writes_commands(prompt: str) -> bool:
    return "as `` `command` passes ``" in prompt


def fill_sections(text: str, values: dict[str, list[str]]) -> str:
    """The text with other lines below some of its headings."""
    lines, heading = [], ""
    for line in text.splitlines():
        if match := re.match(r"#+ (.+)", line):
            heading = match[1].lower().replace("goal & ", "")
            lines += [line, *values.get(heading, ()), *([""] if heading in values else [])]
        elif heading not in values:
            lines.append(line)
    return "\n".join(lines) + "\n"


def quoted(prompt: str, heading: str) -> str:
    """The text in the code fence below a heading."""
    return find(rf"^# {heading}\n(`{{3,}})\n(.*?)\n\1$", prompt, 2)


def find(pattern: str, text: str, group: int = 1) -> str:
    match = re.search(pattern, text, re.DOTALL | re.MULTILINE if "^" in pattern else 0)
    return match[group] if match else ""


def runs(command: str) -> bool:
    return subprocess.run(["sh", "-c", command], check=False).returncode == 0


if __name__ == "__main__":
    main()
