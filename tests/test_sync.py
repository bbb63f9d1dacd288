import asyncio
import threading

import pytest

from ferrule.sync import LoopBound, background_loop, call_async_from_sync, wait_for_coroutine


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return value * 2


def test_a_coroutine_function_is_called_from_plain_code() -> None:
    assert call_async_from_sync(double, 21) == 42


def test_errors_travel() -> None:
    async def fail() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        call_async_from_sync(fail)


def test_a_timeout_cancels_and_waits_for_the_clean_up() -> None:
    cleaned = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(TimeoutError, match="not done after"):
        call_async_from_sync(slow, timeout=0.05)
    assert cleaned == [True]


def test_it_refuses_to_wait_on_its_own_loop() -> None:
    async def nested() -> None:
        wait_for_coroutine(double(1))

    with pytest.raises(RuntimeError, match="await the coroutine instead"):
        call_async_from_sync(nested)


def test_an_interrupt_of_the_waiting_thread_cancels_the_coroutine() -> None:
    entered, cleaned = threading.Event(), threading.Event()

    class Interrupted(BaseException):
        pass

    async def slow() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    class InterruptedEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if not self.is_set() and not self.raised:
                self.raised = True
                assert entered.wait(5)
                raise Interrupted
            return super().wait(timeout)

        raised = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ferrule.sync.threading.Event", InterruptedEvent)
        with pytest.raises(Interrupted):
            wait_for_coroutine(slow())
    assert cleaned.is_set()


def test_an_object_used_on_a_second_loop_raises() -> None:
    class Thing(LoopBound):
        async def use(self) -> None:
            self.bind_to_running_loop()

    thing = Thing()
    call_async_from_sync(thing.use)
    call_async_from_sync(thing.use)
    with pytest.raises(RuntimeError, match="Thing belongs to another event loop"):
        asyncio.run(thing.use())
    assert background_loop().is_running()
