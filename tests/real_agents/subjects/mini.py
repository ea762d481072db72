"""mini-swe-agent."""

from pathlib import Path

from install import PythonPackage
from subject import KEY, Environment, Subject


def furnish(home: Path, url: str, tries: int | None) -> Environment:
    own = {} if tries is None else {"MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": str(tries)}
    return {
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "MSWEA_MODEL_NAME": "openai/gpt-5",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        **own,
    }


SUBJECT = Subject(
    PythonPackage("mini", "mini-swe-agent", "2.4.6", beside=("mcp==2.3.0", "litellm==1.106.2"), version_by="--help"),
    furnish,
    api="chat",
    key="OPENAI_API_KEY",
    sign_in=("mini-extra config setup",),
    cost=0.00525,
    limit_of_plan=False,
    limit_lasts=65,  # the client that it uses waits out what ends within a minute
    idle_minutes=0.5,
    resumes=False,
    ending="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
)
