"""Errors as the Responses API tells them."""

from ferrule.protocol.errors import FerruleError

INVALID = "invalid_request_error"


class ApiError(FerruleError):
    """A request that cannot be answered. `status` is the HTTP status, `param` the field that is wrong, such as
    `input[0].content`, `code` a word for programs."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = INVALID,
        code: str | None = None,
        param: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param
        self.retry_after_ms = retry_after_ms

    @property
    def body(self) -> dict[str, object]:
        """The body of the HTTP answer."""
        return {"error": {"message": str(self), "type": self.kind, "code": self.code, "param": self.param}}


def not_found(kind: str, item_id: str, param: str | None = None) -> ApiError:
    """Return the error for an id that does not exist, or belongs to somebody else. `param`: the field that names it."""
    return ApiError(f"There is no {kind} {item_id!r}.", status=404, code="not_found", param=param)
