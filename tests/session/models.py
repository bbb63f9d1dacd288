"""A model in this process: the only thing here that stands for something real, the server, which other tests have."""

from collections.abc import AsyncGenerator, Callable, Sequence

from ferrule.model.stream import Completed, Created, ItemDone, ModelRequest, ResponseEvent
from ferrule.protocol.content import OutputText, text_of
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, ItemView, Message, ResponseItem, make_item
from ferrule.session.session import Session

Step = Sequence[ItemView] | Exception | Callable[[ModelRequest], AsyncGenerator[ResponseEvent, None]]


def says(text: str) -> ItemView:
    return Message(id="msg", role="assistant", content=(OutputText(text),))


def calls(name: str, arguments: str = "{}", call_id: str = "call_1") -> ItemView:
    return FunctionCall(call_id=call_id, name=name, arguments=arguments)


def said_in(request: ModelRequest) -> list[str]:
    """Everything that a request says in the user's role."""
    views = [item.view for item in request.items]
    return [text_of(view.content) for view in views if isinstance(view, Message) and view.role == "user"]


class InProcessModel:
    """Plays steps: items to say, an error to raise, or a function that streams."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        self.requests.append(request)
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        if callable(step):
            async for event in step(request):
                yield event
            return
        yield Created(f"resp_{len(self.requests)}")
        for view in step:
            yield ItemDone(ResponseItem(make_item(view).raw, view))
        yield Completed(f"resp_{len(self.requests)}", TokenUsage(10, 0, 5, 0))

    async def aclose(self) -> None:
        pass


def answers(session: Session) -> list[str]:
    """What tools have answered in a session, as text."""
    return [text_of(item.view.output) for item in session.history.items if isinstance(item.view, FunctionCallOutput)]
