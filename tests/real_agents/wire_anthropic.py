"""Anthropic's Messages."""

import json
import math
from datetime import UTC, datetime

from wire import Answer, Event, Json, Offer, Refusal, flat, new_id, pieces, seconds_until

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Messages:
    """POST /v1/messages."""

    def offers(self, body: Json) -> list[Offer]:
        return [Offer(one["name"], one["input_schema"]) for one in body.get("tools") or [] if "input_schema" in one]

    def user_text(self, body: Json) -> str:
        return "\n".join(flat(one["content"]) for one in body.get("messages", []) if one["role"] == "user")

    def render(self, answer: Answer) -> Json:
        blocks: list[Json] = [{"type": "text", "text": answer.text}] if answer.text else []
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
            is_text = block["type"] == "text"
            empty = {**block, "text": ""} if is_text else {**block, "input": {}}
            found.append(("content_block_start", {"index": index, "content_block": empty}))
            for piece in pieces(block["text"] if is_text else json.dumps(block["input"])):
                delta = (
                    {"type": "text_delta", "text": piece}
                    if is_text
                    else {"type": "input_json_delta", "partial_json": piece}
                )
                found.append(("content_block_delta", {"index": index, "delta": delta}))
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

    def broken(self, message: str) -> Event:
        return "error", {"type": "error", "error": {"type": "overloaded_error", "message": message}}
