"""The meaning of what servers say: error codes, words of error messages, reasons to finish.

Sources: error codes of OpenAI, error types of Anthropic, codes of google.rpc, exceptions that vLLM names, and the
messages of servers and gateways as their users report them.
"""

from enum import Enum, auto


class Meaning(Enum):
    """The meaning of an error's code or type."""

    USED_UP = auto()
    """The account's quota or credit is used up. Only hours or a payment help."""
    TOO_FAST = auto()
    """A rate limit: wait, then retry."""
    PASSING = auto()
    """A temporary failure of the server: retry."""
    OVERFLOW = auto()
    """The conversation does not fit the model's context window."""
    CALL_UNREADABLE = auto()
    """The server could not parse its model's call."""
    OF_THE_REQUEST = auto()
    """A fault of the request, which would fail again. An error whose code is missing here is retried in vain, a bounded
    number of times."""


CODES = {
    **dict.fromkeys(("usage_limit_reached", "usage_limit_exceeded", "usage_not_included"), Meaning.USED_UP),
    **dict.fromkeys(("insufficient_quota", "quota_exceeded", "billing_hard_limit_reached"), Meaning.USED_UP),
    **dict.fromkeys(("billing_not_active", "insufficient_credits", "payment_required", "402"), Meaning.USED_UP),
    **dict.fromkeys(("429", "too_many_requests", "rate_limit_exceeded", "rate_limit_error"), Meaning.TOO_FAST),
    **dict.fromkeys(("rate_limited", "throttling", "throttling_error", "throttlingexception"), Meaning.TOO_FAST),
    **dict.fromkeys(("resource_exhausted", "slow_down"), Meaning.TOO_FAST),
    **dict.fromkeys(("server_error", "internal_error", "internal_server_error", "api_error"), Meaning.PASSING),
    **dict.fromkeys(("overloaded", "overloaded_error", "server_is_overloaded"), Meaning.PASSING),
    **dict.fromkeys(("insufficient_system_resource", "service_unavailable", "bad_gateway"), Meaning.PASSING),
    **dict.fromkeys(("timeout", "request_timeout", "timeout_error", "vector_store_timeout"), Meaning.PASSING),
    **dict.fromkeys(("408", "409", "425", "500", "502", "503", "504", "520", "522", "524", "529"), Meaning.PASSING),
    **dict.fromkeys(("context_length_exceeded", "context_window_exceeded"), Meaning.OVERFLOW),
    **dict.fromkeys(("exceed_context_size_error", "model_max_prompt_tokens_exceeded"), Meaning.OVERFLOW),
    "request_too_large": Meaning.OVERFLOW,  # in bytes, mostly those of images: a summary has none
    "tool_use_failed": Meaning.CALL_UNREADABLE,
    **dict.fromkeys(("invalid_prompt", "content_policy_violation", "content_filter"), Meaning.OF_THE_REQUEST),
    **dict.fromkeys(("bio_policy", "cyber_policy", "invalid_request_error"), Meaning.OF_THE_REQUEST),
    **dict.fromkeys(("authentication_error", "permission_error", "not_found_error"), Meaning.OF_THE_REQUEST),
    **dict.fromkeys(("billing_error", "invalid_api_key"), Meaning.OF_THE_REQUEST),
    **dict.fromkeys(("model_not_found", "unsupported_parameter", "unsupported_value"), Meaning.OF_THE_REQUEST),
    **dict.fromkeys(("unknown_parameter", "invalid_value", "invalid_type"), Meaning.OF_THE_REQUEST),
    **dict.fromkeys(("missing_required_parameter", "invalid_argument"), Meaning.OF_THE_REQUEST),
    **dict.fromkeys(("failed_precondition", "out_of_range", "unauthenticated"), Meaning.OF_THE_REQUEST),
    **dict.fromkeys(("permission_denied", "not_found", "unimplemented"), Meaning.OF_THE_REQUEST),
    **dict.fromkeys(("badrequesterror", "notfounderror", "authenticationerror"), Meaning.OF_THE_REQUEST),
    "permissiondeniederror": Meaning.OF_THE_REQUEST,
}

# Patterns as text: most runs see no error, and to compile them would cost each a millisecond.
OVERFLOW_WORDS = (
    r"(?i)context (?:length|window|size)|maximum context|prompt is too long|input is too long"
    r"|too many (?:input )?tokens|exceed context limit"
    r"|exceeds? the (?:available|maximum|model's).{0,40}(?:context|tokens)|reduce the length of"
)
TOO_FAST_WORDS = (
    r"(?i)rate.?limit|throttl|too many requests|(?:tokens|requests) per (?:min|day|hour|second)|please wait before"
    r"|\b(?:TPM|RPM|TPD|RPD)\b"
)
NEVER_FITS = r"(?i)request too large|(?:input or output )?tokens must be reduced|reduce your message size"
"""One request exceeds the limit of a whole minute: waiting does not help."""
CONTENT_WORDS = (
    r"(?i)(?:image|audio|file|media|content (?:type|part|block)).{0,80}(?:too large|too big|exceed|unsupported"
    r"|not support|invalid|could not|unable|failed|unknown|corrupt)"
    r"|(?:unsupported|invalid|unknown|not support\w*|too large).{0,40}"
    r"(?:image|audio|media|content (?:type|part|block)|multimodal|vision)"
)
"""A part of the request, such as an image, is refused."""


class Finish(Enum):
    """The meaning of a reason to finish that does not say that the answer is whole."""

    CUT = auto()
    """The answer reached a limit of length."""
    FAILED = auto()
    """The answer broke off: retry."""
    FILTERED = auto()
    """A filter of content stopped the answer."""


_FINISHES = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length"), Finish.CUT),
    "model_context_window_exceeded": Finish.CUT,
    **dict.fromkeys(("error", "network_error", "insufficient_system_resource", "abort", "aborted"), Finish.FAILED),
    **dict.fromkeys(("timeout", "cancelled", "canceled", "failed", "unexpected_tool_call"), Finish.FAILED),
    **dict.fromkeys(("content_filter", "content_filtered", "safety", "image_safety", "recitation"), Finish.FILTERED),
    **dict.fromkeys(("blocklist", "prohibited_content", "spii", "sensitive"), Finish.FILTERED),
}


def finish_of(reason: str | None) -> Finish | None:
    """Return the meaning of a reason to finish; None if the answer is whole, or nobody knows the reason."""
    folded = (reason or "").casefold()
    return _FINISHES.get(folded) or (Finish.FAILED if "malformed" in folded else None)
