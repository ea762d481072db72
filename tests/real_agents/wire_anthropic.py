"""Anthropic's Messages."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime

from wire import Answer, Event, Json, Offer, Refusal, flat, new_id, pieces, seconds_until

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
DELTAS = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}
"""For each type of block: the key of its content, the type of its pieces, and their key."""


class Messages:
    """POST /v1/messages."""

    def offers(self, body: Json) -> list[Offer]:
        return [Offer(one["name"], one["input_schema"]) for one in body.get("tools") or [] if "input_schema" in one]

    def user_text(self, body: Json) -> str:
        return "\n".join(flat(one["content"]) for one in body.get("messages", []) if one["role"] == "user")

    def render(self, answer: Answer) -> Json:
        blocks: list[Json] = []
        if answer.thought:
            blocks.append({"type": "thinking", "thinking": answer.thought, "signature": "bW9jaw=="})
        if answer.text:
            blocks.append({"type": "text", "text": answer.text})
        blocks += [
            {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.arguments}
            for call in answer.calls
        ]
        return {
            "id": new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": blocks,
            "stop_reason": "tool_use" if answer.calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": answer.tokens.input - answer.tokens.cached,
                "output_tokens": answer.tokens.output,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": answer.tokens.cached,
                "service_tier": "standard",
            },
        }

    def events(self, answer: Answer) -> list[Event]:
        message = self.render(answer)
        opening = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
        found: list[tuple[str, Json]] = [("message_start", {"message": opening})]
        for index, block in enumerate(message["content"]):
            key, delta, name = DELTAS[block["type"]]
            empty = {**block, key: "" if isinstance(block[key], str) else {}}
            if "signature" in block:
                empty["signature"] = ""
            found.append(("content_block_start", {"index": index, "content_block": empty}))
            for piece in pieces(block[key] if isinstance(block[key], str) else json.dumps(block[key])):
                found.append(("content_block_delta", {"index": index, "delta": {"type": delta, name: piece}}))
            if "signature" in block:
                signed = {"type": "signature_delta", "signature": block["signature"]}
                found.append(("content_block_delta", {"index": index, "delta": signed}))
            found.append(("content_block_stop", {"index": index}))
        ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        found += [("message_delta", {"delta": ending, "usage": message["usage"]}), ("message_stop", {})]
        return [(name, {"type": name, **data}) for name, data in found]

    def refusal(self, status: int, message: str) -> Refusal:
        error = {"type": KINDS.get(status, "api_error"), "message": message}
        return Refusal({"type": "error", "error": error, "request_id": new_id("req_")})

    def limit(self, resets_at: float, *, of_plan: bool) -> Refusal:
        """In the headers, which differ for a key and for a plan."""
        headers = {"retry-after": str(seconds_until(resets_at))}
        if of_plan:
            headers |= {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-representative-claim": "five_hour",
                "anthropic-ratelimit-unified-reset": str(math.ceil(resets_at)),
            }
        else:
            moment = datetime.fromtimestamp(math.ceil(resets_at), UTC)
            headers |= {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        message = "This request would exceed your account's rate limit. Please try again later."
        return Refusal(self.refusal(429, message).body, headers)

    def quota(self, used: float, resets_at: float) -> Mapping[str, str]:
        """As a subscription answers: the share of each window, and a warning if one is nearly used up."""
        reset = str(math.ceil(resets_at))
        prefix = "anthropic-ratelimit-unified"
        return {
            f"{prefix}-status": "allowed_warning" if used >= 0.75 else "allowed",
            f"{prefix}-reset": reset,
            f"{prefix}-representative-claim": "five_hour",
            f"{prefix}-5h-status": "allowed_warning" if used >= 0.75 else "allowed",
            f"{prefix}-5h-utilization": str(used),
            f"{prefix}-5h-reset": reset,
            f"{prefix}-5h-surpassed-threshold": "0.75",
        }

    def broken(self, message: str) -> Event:
        return "error", {"type": "error", "error": {"type": "overloaded_error", "message": message}}
