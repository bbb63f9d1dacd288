"""The ground truth of the Berkeley Function Calling Leaderboard through `ferrule serve`, beside the direct way.

A scripted model answers each question with its ground truth. A client asks through the gateway and asks the model
itself, over both upstream wires, whole and streamed. Names and arguments must be equal; the leaderboard's own checker
judges them. `scripts/compat_bfcl` installs it and runs this.
"""

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx2
import msgspec

from ferrule.testing import ScriptedModel, function_call, step
from ferrule.testing.request import Request, Wire
from ferrule.testing.steps import Simple
from tests.gateway.served import new_place, serving

Json = dict[str, Any]
Calls = list[tuple[str, str]]
"""Names and arguments, in order."""

CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
AT_ONCE = 8
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""Names of types that are not JSON Schema's."""
SEED = 7


class Question(msgspec.Struct, frozen=True):
    """A question: its functions as the leaderboard writes them, and the accepted answers."""

    id: str
    category: str
    functions: list[Json]
    answers: list[Json]

    @property
    def truth(self) -> list[tuple[str, Json]]:
        """The calls that answer it."""
        return [(name, _first(given)) for answer in self.answers for name, given in answer.items()]

    @property
    def tools(self) -> list[Json]:
        """The functions as tools. Dots are no part of a function's name."""
        return [
            {
                "type": "function",
                "name": _name(function["name"]),
                "description": function["description"],
                "parameters": _schema(function["parameters"]),
            }
            for function in self.functions
        ]


def _name(name: str) -> str:
    return name.replace(".", "_")


def _first(given: Mapping[str, Any]) -> Json:
    """Take an accepted value of each argument; an empty text means that it may be missing."""
    chosen = {name: _chosen(accepted) for name, accepted in given.items()}
    return {name: value for name, value in chosen.items() if value != ""}


def _chosen(accepted: Any) -> Any:
    """Return the first of the accepted values that says something; deep inside, some answers give the value itself."""
    if not isinstance(accepted, list):
        return accepted
    return _plain(next((value for value in accepted if value != ""), ""))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return _first(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _schema(value: Any) -> Any:
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _schema(below) for name, below in value.items()}
    kind = kept.get("type")
    return kept | {"type": TYPES.get(kind, kind)} if isinstance(kind, str) else kept


def questions(data: Path) -> Iterator[Question]:
    """Yield all questions with an answer of the categories."""
    for category in CATEGORIES:
        asked = _lines(data / f"BFCL_v4_{category}.json")
        answers = {
            line["id"]: line["ground_truth"] for line in _lines(data / f"possible_answer/BFCL_v4_{category}.json")
        }
        for line in asked:
            yield Question(line["id"], category, line["function"], answers[line["id"]])


def _lines(file: Path) -> list[Json]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


class Model:
    """Answers each question, known by its id, with its ground truth, in pieces of any size."""

    def __init__(self, asked: list[Question]) -> None:
        self._truth = {question.id: question.truth for question in asked}
        self._random = random.Random(SEED)

    def says(self, request: Request) -> Simple:
        """Call what the question wants, by the names that this request offers."""
        calls = [function_call(_name(name), given) for name, given in self._truth[request.user_text]]
        return step(*calls, delta_chars=self._random.randint(1, 40))


class Client:
    """Asks the model, or the gateway."""

    def __init__(self, http: httpx2.AsyncClient, url: str, wire: Wire) -> None:
        self._http = http
        self._url = url
        self._wire = wire

    async def ask(self, question: Question, *, stream: bool) -> Calls:
        """Return the calls of the answer."""
        if self._wire == "responses":
            body: Json = {"input": question.id, "tools": question.tools, "store": False}
            said = await self._post("/responses", body, stream)
            final = said[-1]["response"] if stream else said[0]
            return [(item["name"], item["arguments"]) for item in final["output"] if item["type"] == "function_call"]
        tools = [
            {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
            for tool in question.tools
        ]
        body = {"messages": [{"role": "user", "content": question.id}], "tools": tools}
        said = await self._post("/chat/completions", body, stream)
        if not stream:
            return [_called(call) for call in said[0]["choices"][0]["message"]["tool_calls"]]
        return _joined(said)

    async def _post(self, path: str, body: Json, stream: bool) -> list[Json]:
        answer = await self._http.post(self._url + path, json=body | {"model": "m", "stream": stream})
        answer.raise_for_status()
        if not stream:
            return [answer.json()]
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


def _called(call: Json) -> tuple[str, str]:
    return call["function"]["name"], call["function"]["arguments"]


def _joined(chunks: list[Json]) -> Calls:
    """Put the pieces of streamed calls together."""
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for call in choice["delta"].get("tool_calls") or []:
                told = call.get("function", {})
                names.setdefault(call["index"], told.get("name") or "")
                arguments[call["index"]] = arguments.get(call["index"], "") + (told.get("arguments") or "")
    return [(names[index], arguments[index]) for index in sorted(names)]


class Judge:
    """The leaderboard's own checker."""

    def __init__(self, site_packages: Path) -> None:
        sys.path.append(str(site_packages))
        config: Any = ModuleType("bfcl_eval.constants.model_config")
        config.MODEL_CONFIG_MAPPING = {"m": SimpleNamespace(underscore_to_dot=True)}
        sys.modules[config.__name__] = config  # The real one imports the SDK of every provider.
        for name in ("java", "js"):  # Neither language is asked for, and both need parsers.
            converter: Any = ModuleType(f"bfcl_eval.eval_checker.ast_eval.type_convertor.{name}_type_converter")
            setattr(converter, f"{name}_type_converter", None)
            sys.modules[converter.__name__] = converter
        from bfcl_eval.constants.enums import Language  # type: ignore[import-not-found]
        from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # type: ignore[import-not-found]

        self._check = ast_checker
        self._language = Language.PYTHON

    def accepts(self, question: Question, calls: Calls) -> bool:
        """Return whether the calls are right."""
        decoded = [{name: json.loads(arguments)} for name, arguments in calls]
        about = question.functions, decoded, question.answers, self._language, question.category, "m"
        return bool(self._check(*about)["valid"])


async def answers(client: Client, asked: list[Question], *, stream: bool) -> list[Calls]:
    """Ask all questions, some at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(question: Question) -> Calls:
        async with slots:
            return await client.ask(question, stream=stream)

    return list(await asyncio.gather(*(one(question) for question in asked)))


async def compare(direct_url: str, gateway_url: str, wire: Wire, asked: list[Question], judge: Judge) -> int:
    """Print how both ways end over one wire; return how many answers differ."""
    differing = 0
    async with httpx2.AsyncClient(timeout=120, trust_env=False) as http:
        for stream in (False, True):
            direct = await answers(Client(http, direct_url, wire), asked, stream=stream)
            through = await answers(Client(http, gateway_url, "responses"), asked, stream=stream)
            pairs = list(zip(asked, direct, through, strict=True))
            unequal = [f"{question.id}: {one} / {other}" for question, one, other in pairs if one != other]
            accepted = [
                sum(judge.accepts(question, calls) for question, calls in zip(asked, found, strict=True))
                for found in (direct, through)
            ]
            differing += len(unequal)
            how = "streamed" if stream else "whole"
            print(
                f"upstream {wire}, {how}: {len(asked) - len(unequal)} of {len(asked)} equal; "
                f"right: {accepted[0]} direct, {accepted[1]} through the gateway",
                *unequal[:5], sep="\n  ", flush=True,
            )  # fmt: skip
    return differing


def main(site_packages: str) -> int:
    """Compare over both wires. Exits with 1 if anything differs."""
    judge = Judge(Path(site_packages))
    asked = list(questions(Path(site_packages, "bfcl_eval", "data")))
    differing = 0
    for wire in ("chat", "responses"):
        with (
            tempfile.TemporaryDirectory(prefix="ferrule-bfcl-") as folder,
            ScriptedModel(Model(asked).says, strict=False) as model,
            serving(new_place(Path(folder)), model.base_url, wire=wire) as gateway,
        ):
            differing += asyncio.run(compare(model.base_url, gateway.url, wire, asked, judge))
    return 1 if differing or not asked else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
