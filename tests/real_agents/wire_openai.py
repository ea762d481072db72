"""OpenAI's Responses, and Chat Completions, which many others speak too."""

import json
import math
import time
from collections.abc import Mapping

from wire import Answer, Event, Json, Offer, Refusal, flat, new_id, pieces, seconds_until

KINDS = {400: "invalid_request_error", 401: "invalid_request_error", 429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


class Errors:
    """The errors of both formats."""

    def refusal(self, status: int, message: str) -> Refusal:
        kind, code = KINDS.get(status, "server_error"), CODES.get(status)
        return Refusal({"error": {"message": message, "type": kind, "param": None, "code": code}})

    def limit(self, resets_at: float, *, of_plan: bool) -> Refusal:
        """A plan of ChatGPT names the moment in a field, the API the seconds in a sentence and a header."""
        seconds = seconds_until(resets_at)
        if of_plan:
            error = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus"}
            return Refusal({"error": {**error, "resets_at": math.ceil(resets_at), "resets_in_seconds": seconds}})
        message = f"Rate limit reached for gpt-5 on requests per min (RPM): Limit 3. Please try again in {seconds}s."
        return Refusal(self.refusal(429, message).body, {"retry-after": str(seconds)})

    def quota(self, used: float, resets_at: float) -> Mapping[str, str]:
        """As a plan of ChatGPT answers to Codex."""
        return {
            "x-codex-primary-used-percent": f"{used * 100:g}",
            "x-codex-primary-window-minutes": "300",
            "x-codex-primary-reset-at": str(math.ceil(resets_at)),
        }


class Responses(Errors):
    """POST /v1/responses."""

    def offers(self, body: Json) -> list[Offer]:
        tools = [one for one in body.get("tools") or [] if one.get("type") in ("function", "custom")]
        return [Offer(one["name"], one.get("parameters") or {}, one["type"] == "custom") for one in tools]

    def user_text(self, body: Json) -> str:
        asked = body.get("input", [])
        if isinstance(asked, str):
            return asked
        messages = [one for one in asked if one.get("type", "message") == "message" and one.get("role") == "user"]
        return "\n".join(flat(one.get("content")) for one in messages)

    def render(self, answer: Answer) -> Json:
        return {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "completed",
            "model": answer.model,
            "output": _items(answer),
            "usage": {
                "input_tokens": answer.tokens.input,
                "input_tokens_details": {"cached_tokens": answer.tokens.cached},
                "output_tokens": answer.tokens.output,
                "output_tokens_details": {"reasoning_tokens": answer.tokens.reasoning},
                "total_tokens": answer.tokens.input + answer.tokens.output,
            },
            "error": None,
            "incomplete_details": None,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "metadata": {},
            "instructions": None,
        }

    def events(self, answer: Answer) -> list[Event]:
        response = self.render(answer)
        opening = {**response, "status": "in_progress", "output": [], "usage": None}
        found: list[tuple[str, Json]] = [
            ("response.created", {"response": opening}),
            ("response.in_progress", {"response": opening}),
        ]
        for index, item in enumerate(response["output"]):
            found += _item_events(index, item)
        found.append(("response.completed", {"response": response}))
        return [(name, {"type": name, "sequence_number": number, **data}) for number, (name, data) in enumerate(found)]

    def broken(self, message: str) -> Event:
        failed: Json = {"id": new_id("resp_"), "object": "response", "status": "failed", "output": [], "usage": None}
        error = {"code": "server_is_overloaded", "message": message}
        data = {"type": "response.failed", "sequence_number": 99, "response": {**failed, "error": error}}
        return "response.failed", data


def _items(answer: Answer) -> list[Json]:
    items: list[Json] = []
    if answer.thought:
        summary = [{"type": "summary_text", "text": answer.thought}]
        items.append({"type": "reasoning", "id": new_id("rs_"), "summary": summary, "encrypted_content": "bW9jaw=="})
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        items.append(
            {"type": "message", "id": new_id("msg_"), "role": "assistant", "status": "completed", "content": [part]}
        )
    for call in answer.calls:
        common = {"call_id": f"call_{call.id}", "name": call.name, "status": "completed"}
        if isinstance(call.arguments, str):
            items.append({"type": "custom_tool_call", "id": f"ctc_{call.id}", "input": call.arguments, **common})
        else:
            given = json.dumps(call.arguments)
            items.append({"type": "function_call", "id": f"fc_{call.id}", "arguments": given, **common})
    return items


def _item_events(index: int, item: Json) -> list[tuple[str, Json]]:
    key = {"item_id": item["id"], "output_index": index}
    found: list[tuple[str, Json]] = []
    if item["type"] == "message":
        empty, [part] = {**item, "content": [], "status": "in_progress"}, item["content"]
        key = {**key, "content_index": 0}
        found.append(("response.content_part.added", {**key, "part": {**part, "text": ""}}))
        found += [("response.output_text.delta", {**key, "delta": piece}) for piece in pieces(part["text"])]
        found.append(("response.output_text.done", {**key, "text": part["text"]}))
        found.append(("response.content_part.done", {**key, "part": part}))
    elif item["type"] == "reasoning":
        empty, [part] = {**item, "summary": []}, item["summary"]
        key = {**key, "summary_index": 0}
        found.append(("response.reasoning_summary_part.added", {**key, "part": {**part, "text": ""}}))
        found += [("response.reasoning_summary_text.delta", {**key, "delta": piece}) for piece in pieces(part["text"])]
        found.append(("response.reasoning_summary_text.done", {**key, "text": part["text"]}))
        found.append(("response.reasoning_summary_part.done", {**key, "part": part}))
    elif item["type"] == "function_call":
        empty, given = {**item, "arguments": "", "status": "in_progress"}, item["arguments"]
        found += [("response.function_call_arguments.delta", {**key, "delta": piece}) for piece in pieces(given)]
        found.append(("response.function_call_arguments.done", {**key, "arguments": given}))
    else:
        empty = item
    added = ("response.output_item.added", {"output_index": index, "item": empty})
    return [added, *found, ("response.output_item.done", {"output_index": index, "item": item})]


class Chat(Errors):
    """POST /v1/chat/completions."""

    def offers(self, body: Json) -> list[Offer]:
        tools = [one["function"] for one in body.get("tools") or [] if "function" in one]
        return [Offer(one["name"], one.get("parameters") or {}) for one in tools]

    def user_text(self, body: Json) -> str:
        return "\n".join(flat(one.get("content")) for one in body.get("messages", []) if one["role"] == "user")

    def render(self, answer: Answer) -> Json:
        message: Json = {"role": "assistant", "content": answer.text or None}
        if answer.thought:
            message["reasoning_content"] = answer.thought
        if answer.calls:
            message["tool_calls"] = _chat_calls(answer)
        choice = {"index": 0, "message": message, "finish_reason": _finish(answer), "logprobs": None}
        return {**_chat_head(answer, "chat.completion"), "choices": [choice], "usage": _chat_usage(answer)}

    def events(self, answer: Answer) -> list[Event]:
        head = _chat_head(answer, "chat.completion.chunk")

        def chunk(delta: Json, finish: str | None = None) -> Event:
            return "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}

        found = [chunk({"role": "assistant", "content": ""})]
        found += [chunk({"reasoning_content": piece}) for piece in pieces(answer.thought)]
        found += [chunk({"content": piece}) for piece in pieces(answer.text)]
        for index, call in enumerate(_chat_calls(answer)):
            given = call["function"]["arguments"]
            named = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
            found.append(chunk({"tool_calls": [named]}))
            found += [
                chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}) for piece in pieces(given)
            ]
        found.append(chunk({}, _finish(answer)))
        return [*found, ("", {**head, "choices": [], "usage": _chat_usage(answer)}), ("", "[DONE]")]

    def broken(self, message: str) -> Event:
        return "", {"error": {"message": message, "type": "server_error", "code": None}}


def _chat_head(answer: Answer, kind: str) -> Json:
    return {"id": new_id("chatcmpl-"), "object": kind, "created": int(time.time()), "model": answer.model}


def _chat_calls(answer: Answer) -> list[Json]:
    return [
        {
            "id": f"call_{call.id}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for call in answer.calls
    ]


def _chat_usage(answer: Answer) -> Json:
    used = answer.tokens
    return {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    }


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"
