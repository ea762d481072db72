"""Google's generateContent and streamGenerateContent."""

from collections.abc import Mapping

from wire import Answer, Event, Json, Offer, Refusal, flat, new_id, seconds_until

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
RPC = "type.googleapis.com/google.rpc."


class GenerateContent:
    """POST /v1beta/models/MODEL:generateContent."""

    def offers(self, body: Json) -> list[Offer]:
        declared = [one for tool in body.get("tools") or [] for one in tool.get("functionDeclarations") or []]
        return [Offer(one["name"], one.get("parametersJsonSchema") or one.get("parameters") or {}) for one in declared]

    def user_text(self, body: Json) -> str:
        contents = [one for one in body.get("contents", []) if one.get("role", "user") == "user"]
        return "\n".join(flat(one.get("parts")) for one in contents)

    def render(self, answer: Answer) -> Json:
        return _chunk(answer, _parts(answer), last=True)

    def events(self, answer: Answer) -> list[Event]:
        parts = _parts(answer)
        return [("", _chunk(answer, [part], last=number == len(parts))) for number, part in enumerate(parts, 1)]

    def refusal(self, status: int, message: str) -> Refusal:
        return Refusal({"error": {"code": status, "message": message, "status": STATUSES.get(status, "INTERNAL")}})

    def limit(self, resets_at: float, *, of_plan: bool) -> Refusal:
        """In the details of the error: which quota, and after how long a retry makes sense."""
        quota = f"GenerateRequestsPer{'Day' if of_plan else 'Minute'}PerProjectPerModel"
        metric = "generativelanguage.googleapis.com/generate_content_requests"
        seconds = seconds_until(resets_at)
        message = f"You exceeded your current quota. Please retry in {seconds}s."
        details = [
            {"@type": f"{RPC}QuotaFailure", "violations": [{"quotaMetric": metric, "quotaId": quota}]},
            {"@type": f"{RPC}RetryInfo", "retryDelay": f"{seconds}s"},
        ]
        return Refusal({"error": {**self.refusal(429, message).body["error"], "details": details}})

    def quota(self, used: float, resets_at: float) -> Mapping[str, str]:
        """It has no such headers."""
        return {}

    def broken(self, message: str) -> Event:
        return "", self.refusal(503, message).body


def _parts(answer: Answer) -> list[Json]:
    parts: list[Json] = [{"text": answer.thought, "thought": True}] if answer.thought else []
    parts += [{"text": answer.text}] if answer.text or not answer.calls else []
    return parts + [
        {
            "functionCall": {"id": f"fc_{call.id}", "name": call.name, "args": call.arguments},
            "thoughtSignature": "bW9jaw==",
        }
        for call in answer.calls
    ]


def _chunk(answer: Answer, parts: list[Json], *, last: bool) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    used = answer.tokens
    usage = {
        "promptTokenCount": used.input,
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
        "cachedContentTokenCount": used.cached,
        "totalTokenCount": used.input + used.output,
    }
    return {
        "candidates": [{**candidate, "finishReason": "STOP"} if last else candidate],
        "usageMetadata": usage,
        "modelVersion": answer.model,
        "responseId": new_id("r"),
    }
