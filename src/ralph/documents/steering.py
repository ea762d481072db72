"""What an agent makes of how a person steered it, as answers tell it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Steering(BaseModel):
    """What came of a STEER."""

    model_config = ConfigDict(extra="ignore", strict=True)

    response: Literal["restarted", "adjusted", "scope-change"] = Field(
        description="whether you began again, took it in and went on, or cannot because it is another task"
    )
    note: str = Field(default="", max_length=2000, description="a sentence on it")


class Answer(BaseModel):
    """What all answers have in common."""

    model_config = ConfigDict(extra="ignore", strict=True)

    steering: Steering | None = Field(default=None, description="only where a person steered you: what you made of it")
