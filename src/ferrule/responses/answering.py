"""The client's answers to calls that wait: to requests of ours alone, in their conversation, each once."""

from collections.abc import Sequence

from ferrule.hosted.approvals import Approvals, Wanted
from ferrule.hosted.records import Answer, HeldCall, record_in
from ferrule.protocol.items import ResponseItem
from ferrule.responses.errors import ApiError, not_found
from ferrule.responses.held import Placed, Waiting, answers_in, held_in, outputs_in, waiting
from ferrule.responses.tools import ToolPlan
from ferrule.store import Store

ID = "approval_request_id"


class Answering:
    """Checks answers, and takes them."""

    def __init__(self, store: Store) -> None:
        self._approvals = Approvals(store)

    async def check(self, before: Sequence[ResponseItem], placed: Sequence[Placed], owner: str) -> None:
        """Check the answers of a request. `before` is the conversation that it continues. Raises `ApiError`: a request
        that this server did not make, or made to somebody else or elsewhere, does not exist; one is answered once."""
        earlier, over = held_in(before), {*answers_in(before)}
        known = held_in([item for _, item in placed]) | earlier if not before else earlier
        done = outputs_in(before)
        for at, item in placed:
            answer = record_in(item, Answer)
            if answer is None:
                continue
            param = f"input[{at}].{ID}"
            held = known.get(answer.request)
            if held is None or not await self._approvals.is_ours(held.id, wanted_by(held, owner)):
                raise not_found("approval request", answer.request, param)
            if held.id in over or held.call in done:
                raise used(held.id, param)
            over.add(held.id)

    async def take(
        self, before: Sequence[ResponseItem], new: Sequence[ResponseItem], plan: ToolPlan, owner: str
    ) -> frozenset[str]:
        """Take the answers to calls that still wait. Returns the requests that are allowed now. Raises `ApiError`."""
        earlier = held_in(before)
        found = {one.held.id: one for one in waiting((*before, *new)) if one.answer is not None}
        if not found:
            return frozenset()
        given = answers_in(new)
        for request_id in given.keys() & found.keys():
            _check_server(found[request_id], plan)
        must = {name for name in given.keys() & found.keys() if given[name].approve or name in earlier}
        before_now = await self._approvals.use(owner, found, must)
        if again := must & before_now:
            raise used(min(again), f"input.{ID}")
        return frozenset(found) - before_now


def _check_server(one: Waiting, plan: ToolPlan) -> None:
    """Check that an allowed call can run. Raises `ApiError`."""
    label = one.held.request.get("server_label")
    declared = {tool.declared.get("server_label") for tool in plan.unopened}
    if one.answer is not None and one.answer.approve and label not in declared:
        text = f"input.{ID}: the call is one of the server {label!r}: name it in `tools` for the call to run"
        raise ApiError(text, code="invalid_value", param=f"input.{ID}")


def wanted_by(held: HeldCall, owner: str) -> Wanted:
    """Return what a request asks for."""
    request = held.request
    return Wanted(
        owner=owner,
        server=str(request.get("server_label")),
        tool=str(request.get("name")),
        arguments=str(request.get("arguments")),
    )


def used(request_id: str, param: str) -> ApiError:
    """Return the error for a second answer."""
    text = f"{param}: the approval request {request_id!r} has been answered, or the conversation went on without that"
    return ApiError(text, code="approval_used", param=param)
