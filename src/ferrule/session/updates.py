"""What people see of an answer while it arrives."""

from collections.abc import Callable

from ferrule.model.stream import (
    ItemAdded,
    LeftOut,
    PassedOver,
    ReasoningDelta,
    ResponseEvent,
    TextDelta,
    ToolInputDelta,
)
from ferrule.protocol.events import Event, ItemUpdated, WarningEvent
from ferrule.protocol.thoughts import ShownText
from ferrule.session.web import Citing
from ferrule.tools.events import ToolEvent
from ferrule.tools.handler import InputWatcher
from ferrule.tools.registry import ToolRegistry


class Updates:
    """Turns the pieces of a turn's answers into events. `citing` takes the marks out of texts."""

    def __init__(self, emit: Callable[[Event | ToolEvent], None], citing: Citing) -> None:
        self._emit = emit
        self._citing = citing
        self._texts: dict[str, ShownText] = {}
        self._watchers: dict[str, InputWatcher] = {}

    def show(self, event: ResponseEvent, registry: ToolRegistry) -> None:
        """Show what arrives. The tools of `registry` read their own input along."""
        emit = self._emit
        match event:
            case TextDelta(item_id=item_id, delta=delta):
                text = self._texts.setdefault(item_id, ShownText()).feed(delta)
                if text := self._citing.feed(item_id, text):
                    emit(ItemUpdated(item_id=item_id, kind="text", delta=text))
            case ReasoningDelta(item_id=item_id, delta=delta):
                emit(ItemUpdated(item_id=item_id, kind="reasoning", delta=delta, summary=event.summary))
            case ToolInputDelta(item_id=item_id, call_id=call_id, delta=delta):
                emit(ItemUpdated(item_id=item_id, kind="input", delta=delta, call_id=call_id))
                watcher = self._watchers.get(item_id)
                progress = watcher.feed(delta) if watcher is not None else None
                if progress is not None:
                    emit(progress)
            case ItemAdded(item_id=item_id, call_id=call_id, name=name) if name and call_id:
                handler = registry.handler(name)
                watcher = handler.input_watcher(call_id) if handler is not None else None
                if watcher is not None:
                    self._watchers[item_id] = watcher
            case LeftOut(message=message) | PassedOver(message=message):
                emit(WarningEvent(message=message))
