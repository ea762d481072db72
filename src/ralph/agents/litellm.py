"""What the errors of LiteLLM mean, by which Aider and mini-swe-agent ask their models."""

import re

from ralph.agents.failures import failure_of
from ralph.core.stream import Failure

_KINDS = {
    "AuthenticationError": Failure.ACCESS,
    "PermissionDeniedError": Failure.ACCESS,
    "NotFoundError": Failure.ACCESS,
    "RateLimitError": Failure.LIMIT,
    "RouterRateLimitError": Failure.LIMIT,
    "InternalServerError": Failure.OVERLOAD,
    "ServiceUnavailableError": Failure.OVERLOAD,
    "BadGatewayError": Failure.OVERLOAD,
    "APIConnectionError": Failure.OVERLOAD,
    "APIError": Failure.OVERLOAD,
    "Timeout": Failure.OVERLOAD,
}
_NAMED = re.compile(r"^litellm\.(\w+): ", re.MULTILINE)
KEYS = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY"),
    *("MISTRAL_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "COHERE_API_KEY", "FIREWORKS_API_KEY", "AZURE_API_KEY"),
)
"""Variables that hold a key for one of its providers."""


def failure_named(error: str, name: str = "") -> Failure:
    """The class of an error by its name, which its text begins with where it is not told."""
    told = _NAMED.search(error)
    return _KINDS.get(name or (told[1] if told else "")) or failure_of(error)
