"""Histories cut and put together anew: pairs stay pairs at every cut, and what must survive does."""

import json
import random
from itertools import zip_longest

import msgspec
import pytest

from ferrule.history.compaction import (
    CONTEXT,
    KEPT_USER_TOKENS,
    SUMMARY_PREFIX,
    around_summary,
    carried_plan,
    compacted,
    cut_to,
    newest_words,
    shortened,
    split_unanswered,
    summary_message,
    units,
    user_message,
)
from ferrule.history.pairs import answered_id, called_id, settled
from ferrule.history.tokens import IMAGE_TOKENS, Meter, estimate
from ferrule.protocol.content import InputImage, InputText, OutputText, text_of
from ferrule.protocol.items import (
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    ItemView,
    Message,
    Origin,
    Reasoning,
    ResponseItem,
    ShellCall,
    ShellCallOutput,
    ToolSearchCall,
    ToolSearchOutput,
    make_item,
    read_item,
)


def said(view: ItemView, response: int, place: int = 0) -> ResponseItem:
    item = make_item(view)
    return ResponseItem(item.raw, item.view, Origin("p", "f", response, place))


def call(call_id: str, response: int, place: int = 0, name: str = "look", arguments: str = "{}") -> ResponseItem:
    view = FunctionCall(id=f"fc_{call_id}", call_id=call_id, name=name, arguments=arguments)
    return said(view, response, place)


def answer(call_id: str, text: str = "seen") -> ResponseItem:
    return make_item(FunctionCallOutput(call_id=call_id, output=text))


def thought(response: int) -> ResponseItem:
    return said(Reasoning(id=f"rs_{response}", encrypted_content="gAAA"), response)


def words(text: str, response: int = 1) -> ResponseItem:
    return said(Message(role="assistant", content=(OutputText(text),)), response, 9)


def rounds(count: int, output: str = "seen") -> list[ResponseItem]:
    """Rounds of reasoning, two parallel calls and their outputs, behind a prompt."""
    items = [user_message("do it")]
    for at in range(count):
        first, second = f"a{at}", f"b{at}"
        response = len(items)
        items += [thought(response), call(first, response, 1), call(second, response, 2)]
        items += [answer(first, output), answer(second, output)]
    return items


def unpaired(items: list[ResponseItem] | tuple[ResponseItem, ...]) -> list[str]:
    """Ids of calls without an output, outputs without a call, and reasoning without what followed it."""
    calls = [name for item in items if (name := called_id(item.view)) is not None]
    outputs = [name for item in items if (name := answered_id(item.view)) is not None]
    alone = [
        str(item.view.id)
        for item, after in zip_longest(items, items[1:])
        if isinstance(item.view, Reasoning) and (after is None or called_id(after.view) is None)
    ]
    return sorted(set(calls) ^ set(outputs)) + alone


def test_b142_pairs_stay_together_at_every_cut() -> None:
    items = rounds(3, "x" * 1_200)
    lengths = set()
    for tokens in range(0, sum(map(estimate, items)) + 20, 7):
        kept = cut_to(items, tokens)
        assert unpaired(kept) == [] and sum(map(estimate, kept)) <= tokens, tokens
        lengths.add(len(kept))
    assert lengths == {0, 1, 4, 5, 10, 15, 16}


def test_b142_any_history_is_cut_in_units() -> None:
    chance = random.Random(7)
    for _ in range(300):
        items: list[ResponseItem] = []
        for number in range(chance.randrange(1, 12)):
            match chance.randrange(4):
                case 0:
                    items.append(user_message("w" * chance.randrange(2_000)))
                case 1:
                    items.append(words("said", len(items) + 1))
                case _:
                    ids = [f"{number}-{each}" for each in range(chance.randrange(1, 4))]
                    response = len(items) + 1
                    items += [thought(response)] if chance.random() < 0.5 else []
                    items += [call(each, response, place) for place, each in enumerate(ids, 1)]
                    items += [answer(each, "o" * chance.randrange(5_000)) for each in ids]
        room = chance.randrange(6_000)
        kept = cut_to(items, room)
        assert unpaired(kept) == [] and sum(map(estimate, kept)) <= room
        assert [item for unit in units(items) for item in unit] == items
        whole = compacted(items, opening=(), summary=[summary_message("S")])
        assert unpaired(whole) == []


def test_reasoning_of_an_unknown_maker_stays_with_what_follows() -> None:
    items = [ResponseItem(item.raw, item.view) for item in rounds(2)]
    assert [len(unit) for unit in units(items)] == [1, 5, 5]


def test_outputs_are_shortened_before_anything_is_left_out() -> None:
    items = [user_message("do it"), call("c", 1), answer("c", "a" * 40_000), call("d", 3), answer("d", "short")]
    kept = cut_to(items, 1_000)
    assert [called_id(item.view) or answered_id(item.view) for item in kept] == [None, "c", "c", "d", "d"]
    assert b"tokens truncated" in kept[2].raw
    assert kept[4] is items[4]
    assert 800 < sum(map(estimate, kept)) <= 1_000


def test_an_earlier_summary_is_left_out_last() -> None:
    earlier = summary_message("S")
    items = [user_message("go"), earlier, *rounds(4)[1:]]
    kept = cut_to(items, 250)
    assert kept[0] is earlier and kept[-1] is items[-1] and len(kept) < len(items)
    assert cut_to(items, estimate(earlier)) == [earlier]


def test_a_response_that_fits_nowhere_takes_no_others_along() -> None:
    items = [*rounds(2), call("huge", 50, arguments=json.dumps({"text": "x" * 9_000})), answer("huge")]
    assert cut_to(items, 1_000) == items[:-2]


@pytest.mark.parametrize("room", [400, 2_000, 8_000])
def test_of_a_response_that_is_too_long_the_newest_calls_are_kept(room: int) -> None:
    ids = [f"c{at}" for at in range(256)]
    before = rounds(1)
    items = [*before, thought(9), *(call(name, 9, at) for at, name in enumerate(ids)), *map(answer, ids)]
    kept = cut_to([*items, user_message("and?")], room)
    assert unpaired(kept) == [] and room // 3 < sum(map(estimate, kept)) <= room
    assert kept[: len(before)] == before and called_id(kept[len(before)].view) != "c0"
    assert kept[-2] is items[-1] and b"fc_" not in kept[len(before)].raw


def test_every_form_of_output_is_shortened() -> None:
    picture = InputImage(image_url="data:image/png;base64," + "A" * 50_000)
    for view in (
        FunctionCallOutput(call_id="c", output="a" * 9_000),
        FunctionCallOutput(call_id="c", output=(InputText("a" * 9_000), picture)),
        read_item(
            json.dumps(
                {
                    "type": "shell_call_output",
                    "call_id": "c",
                    "output": [
                        {"stdout": "a" * 9_000, "stderr": "b" * 9_000, "outcome": {"type": "exit", "exit_code": 0}}
                    ],
                }
            )
        ).view,
        Message(role="user", content=(InputText("a" * 9_000), picture)),
    ):
        assert not isinstance(view, ShellCall)
        cut = shortened(make_item(view), 300)
        assert estimate(cut) < 400, view
        assert b"base64" not in cut.raw
        assert isinstance(view, ShellCallOutput) or b"truncated" in cut.raw


def test_the_newest_words_of_the_user_are_kept_in_order() -> None:
    old, crossing, new = user_message("old " * 100), user_message("c" * 9_000), user_message("new")
    kept = newest_words([old, words("x"), crossing, words("y"), new], 500)
    assert len(kept) == 2 and kept[1] is new
    assert "truncated" in kept[0].raw.decode() and estimate(kept[0]) < 540


def test_what_the_runtime_says_is_not_taken_for_the_users_words() -> None:
    context = [user_message(f"{begin} of it {end}") for begin, end in CONTEXT]
    notes = [user_message('<subagent_notification>{"agent_id":"a"}</subagent_notification>'), summary_message("S")]
    assert newest_words([*context, *notes, user_message("mine")]) == [user_message("mine")]


@pytest.mark.parametrize("begin", [begin for begin, end in CONTEXT if end])
def test_words_that_begin_like_the_runtimes_are_the_users(begin: str) -> None:
    mine = user_message(f"{begin} is what I see in my log: why?")
    assert newest_words([words("x"), mine]) == [mine]
    assert list(split_unanswered([words("x"), mine])[1]) == [mine]


def test_a_prompt_that_was_not_answered_yet_comes_after_the_summary() -> None:
    note = make_item(Message(role="developer", content=(InputText("a note"),)))
    items = [user_message("first"), words("done"), note, user_message("second"), note]
    seen, unanswered = split_unanswered(items)
    assert (list(seen), list(unanswered)) == (items[:3], items[3:])
    new = compacted(items, opening=[user_message("# AGENTS.md instructions")], summary=[summary_message("S")])
    assert [text_of(item.view.content)[:20] for item in new if isinstance(item.view, Message)] == [
        "# AGENTS.md instruct", "first", SUMMARY_PREFIX[:20], "second", "a note",
    ]  # fmt: skip


def test_the_last_plan_and_every_search_survive_each_compaction() -> None:
    plan = json.dumps({"plan": [{"step": "write it", "status": "in_progress"}]})
    search = said(
        ToolSearchCall(id="ts_1", call_id="s", arguments=msgspec.Raw(b'{"query":"x"}'), execution="client"), 1
    )
    found = make_item(
        ToolSearchOutput(call_id="s", execution="client", tools=(msgspec.Raw(b'{"type":"function","name":"t"}'),))
    )
    items = [
        user_message("go"), search, found,
        call("p1", 4, name="update_plan", arguments='{"plan":[{"step":"old","status":"pending"}]}'), answer("p1"),
        call("p2", 6, name="update_plan", arguments=plan), answer("p2", "Plan updated"),
        call("p3", 8, name="update_plan", arguments='{"plan":'), answer("p3", "not JSON"),
    ]  # fmt: skip
    for _ in range(3):
        new = compacted(items, opening=(), summary=[summary_message("S")])
        raw = b"".join(item.raw for item in new).decode()
        assert raw.count("write it") == 1 and '"old' not in raw and raw.count('"name":"t"') == 1
        assert unpaired(new) == [] and "fc_p2" not in raw and "ts_1" not in raw
        items = [*new, call("x", 20), answer("x")]


def test_a_servers_own_summary_stands_between_opening_and_what_follows() -> None:
    plan = call("p", 2, name="update_plan", arguments='{"plan":[{"step":"s","status":"pending"}]}')
    history = [user_message("# AGENTS.md instructions for / old"), user_message("go"), plan, answer("p")]
    blob = said(Compaction(encrypted_content="gAAA"), 5)
    new = around_summary(
        [history[0], history[1], blob], history, opening=[user_message("# AGENTS.md instructions for / new")], notes=()
    )
    assert [item.view for item in new] == [
        user_message("# AGENTS.md instructions for / new").view, *[item.view for item in carried_plan(history)],
        history[1].view, blob.view,
    ]  # fmt: skip
    alone = around_summary([blob], history, opening=(), notes=())
    assert list(alone[-2:]) == [history[1], blob], "another server cannot read the blob"


def test_a_replacement_is_its_own_replay() -> None:
    plan = call("p", 2, name="update_plan", arguments='{"plan":[{"step":"s","status":"pending"}]}')
    new = compacted([user_message("go"), plan, answer("p")], opening=(), summary=[summary_message("S")])
    assert settled([tuple(unit) for unit in units(new)]) == list(new)


def test_a_replay_is_in_order_though_an_output_came_before_an_earlier_call() -> None:
    late, early = call("late", 2, place=2), call("early", 2, place=1)
    replayed = settled([[late, answer("late"), early, answer("early")]])
    assert replayed == [early, late, answer("early"), answer("late")]


def test_images_weigh_alike_and_secrets_less() -> None:
    url = "data:image/png;base64," + "A" * 400_000
    shown = make_item(FunctionCallOutput(call_id="c", output=(InputImage(image_url=url),)))
    assert IMAGE_TOKENS <= estimate(shown) < IMAGE_TOKENS + 50
    hidden = make_item(Reasoning(encrypted_content="A" * 8_000))
    assert estimate(hidden) < 1_600
    assert estimate(user_message("")) >= 1


def test_the_servers_count_corrects_the_estimate() -> None:
    meter = Meter()
    assert meter.next(900, 100) == 1_000
    meter.counted(1_500, 900, 100)
    assert meter.next(900, 100) == 1_500
    assert meter.next(1_000, 100) == 1_650
    meter.forget()
    assert meter.next(100, 100) == 300


@pytest.mark.parametrize("count", [0, 10, 499])
def test_a_count_that_cannot_be_the_whole_is_not_taken(count: int) -> None:
    meter = Meter()
    meter.counted(count, 900, 100)
    assert meter.next(900, 100) == 1_000


def test_a_count_never_makes_later_items_cheaper() -> None:
    meter = Meter()
    meter.counted(700, 900, 100)
    assert meter.next(900, 100) == 700 and meter.next(1_900, 100) == 1_700
    assert KEPT_USER_TOKENS == 20_000
