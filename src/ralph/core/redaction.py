"""Secrets of the environment, taken out of everything that is persisted."""

import json
import re
from collections.abc import Iterable, Mapping

MASK = "[redacted]"
_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH")
_PATH_ENDINGS = ("FILE", "PATH", "SOCK", "DIR", "HOME")
_SHORTEST_SECRET = 8
_ORDINARY_VALUES = frozenset(("false", "production", "development", "default", "disabled", "enabled"))
"""Short and ordinary values occur in any text; replacing them would only garble it."""


_AGENT_KEYS = re.compile(
    r"(?:ANTHROPIC|AZURE_OPENAI|OPENAI|CLAUDE|CODEX|GEMINI|GOOGLE_API|GOOGLE_GENAI|COPILOT|MISTRAL|GROQ|OPENROUTER|XAI|DEEPSEEK"
    r"|DASHSCOPE|QWEN|AMP|CURSOR|HF|HUGGINGFACE|HUGGING_FACE|HUGGINGFACEHUB|TOGETHER|TOGETHERAI|TOGETHER_AI|FIREWORKS|CEREBRAS|MOONSHOT"
    r"|KIMI|KIRO|ZAI|Z_AI|ZHIPU|ZHIPUAI|MINIMAX|PERPLEXITY|COHERE|SAMBANOVA|NEBIUS|LITELLM|OPENCODE|FACTORY|AUGMENT|KILO|KILOCODE)_"
    r"(?:\w*_)?(?:KEYS?|TOKEN|SECRET)(?:_\w+)?|AWS_BEARER_TOKEN_BEDROCK|(?:ANTHROPIC|OPENAI|GEMINI|GOOGLE_GENAI|GEMINI_CLI)_CUSTOM_HEADERS"
)
_ADDRESS_OF_MODEL = re.compile(r"\w*(?:BASE_URL|API_BASE|ENDPOINT|HOST)")
_HOLDS_PASSWORD = re.compile(r"\w+://[^/@\s]*@")
"""Only what agents are paid with: GITHUB_TOKEN and cloud credentials stay, since tests may need them."""


def without_agent_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the keys that agents are paid with, also in the addresses of models."""
    return {name: value for name, value in environment.items() if not _holds_agent_key(name, value)}


def _holds_agent_key(name: str, value: str) -> bool:
    is_address = _ADDRESS_OF_MODEL.fullmatch(name) and name.startswith(
        ("ANTHROPIC", "OPENAI", "AZURE_OPENAI", "GEMINI")
    )
    return bool(_AGENT_KEYS.fullmatch(name) or (is_address and _HOLDS_PASSWORD.match(value)))


def find_secret_values(environment: Mapping[str, str]) -> set[str]:
    """The values of variables with telling names."""
    return {value for name, value in environment.items() if _names_secret(name.upper()) and _is_secret(value)}


def _names_secret(name: str) -> bool:
    return any(part in name for part in _SECRET_NAMES) and not name.endswith(_PATH_ENDINGS)


def _is_secret(value: str) -> bool:
    return len(value) >= _SHORTEST_SECRET and value.lower() not in _ORDINARY_VALUES


def find_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values that must not be written anywhere: those of variables with telling names, also as JSON has them."""
    values = find_secret_values(environment)
    forms = set(values)
    for value in values:
        forms.add(json.dumps(value, ensure_ascii=True)[1:-1])
        forms.add(json.dumps(value, ensure_ascii=False)[1:-1])
    return tuple(sorted(forms, key=len, reverse=True))


class Redactor:
    """Replaces secrets in text and, chunk by chunk, in streams."""

    MASK = MASK.encode()

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted((s.encode(errors="surrogateescape") for s in secrets if s), key=len, reverse=True)
        joined = b"|".join(re.escape(s) for s in self._secrets)
        self._pattern = re.compile(joined) if self._secrets else None
        self._held = b""

    def text(self, text: str) -> str:
        """The text without secrets."""
        try:
            return self.data(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")
        except UnicodeEncodeError:
            return self.data(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def data(self, data: bytes) -> bytes:
        """The bytes without secrets."""
        return data if self._pattern is None else self._pattern.sub(self.MASK, data)

    def feed(self, chunk: bytes) -> bytes:
        """What may be written of the stream so far; what could be the start of a secret is held back."""
        if self._pattern is None:
            return chunk
        data = self._held + chunk
        safe = len(data) - max(_measure_overlap(data, secret) for secret in self._secrets)
        for match in self._pattern.finditer(data):
            if match.start() < safe < match.end():
                safe = match.start()
        self._held = data[safe:]
        return self._pattern.sub(self.MASK, data[:safe])

    def flush(self) -> bytes:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held if self._pattern is None else self._pattern.sub(self.MASK, held)


def _measure_overlap(data: bytes, secret: bytes) -> int:
    """How many bytes at the end of data begin the secret."""
    for length in range(min(len(data), len(secret) - 1), 0, -1):
        if secret.startswith(data[-length:]):
            return length
    return 0
