"""mini-swe-agent."""

from pathlib import Path

from install import PythonPackage
from subject import KEY, NO_IMAGE_TOOL, NO_SUB_AGENTS, NO_THOUGHTS, NO_TODO_LIST, Environment, Subject

PACKAGE = PythonPackage(
    "mini", "mini-swe-agent", "2.4.6", extra_packages=("mcp==2.3.0", "litellm==1.106.2"), version_option="--help"
)


def set_up(home: Path, url: str, tries: int | None) -> Environment:
    own = {} if tries is None else _few(home, tries)
    return {
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "MSWEA_MODEL_NAME": "openai/gpt-5",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        **own,
    }


def _few(home: Path, tries: int) -> Environment:
    """Its own tries, and one each of the client that it uses, whose settings come last in its file."""
    [usual] = PACKAGE.path.glob("venv/lib/*/site-packages/minisweagent/config/mini.yaml")
    settings = home / "mini.yaml"
    settings.write_text(f"{usual.read_text()}    max_retries: 0\n")
    return {"MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": str(tries), "MSWEA_MINI_CONFIG_PATH": str(settings)}


SUBJECT = Subject(
    PACKAGE,
    set_up,
    api="chat",
    key="OPENAI_API_KEY",
    sign_in=("mini-extra config setup",),
    cost=0.00525,
    limit_of_plan=False,
    limit_lasts=20,  # it takes its time to end, on a machine that has much to do
    idle_minutes=1,
    resumes=False,
    cannot={**NO_THOUGHTS, **NO_IMAGE_TOOL, **NO_TODO_LIST, **NO_SUB_AGENTS},
    ending="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
)
