"""The methods that are served, with the forms of their params and results."""

from collections.abc import Mapping
from types import MappingProxyType

from ferrule.doors.app_server import opened, others, stored
from ferrule.doors.app_server.connection import Method
from ferrule.doors.app_server.shapes import requests as shape
from ferrule.doors.app_server.shapes.common import Empty

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "thread/start": Method(shape.ThreadStartParams, shape.ThreadOpened, opened.start),
        "thread/resume": Method(shape.ThreadResumeParams, shape.ThreadOpened, opened.resume),
        "thread/fork": Method(shape.ThreadForkParams, shape.ThreadOpened, opened.fork),
        "thread/list": Method(shape.ThreadListParams, shape.ThreadList, stored.list_threads),
        "thread/loaded/list": Method(shape.PageParams, shape.LoadedThreads, stored.list_loaded),
        "thread/read": Method(shape.ThreadReadParams, shape.ThreadResult, stored.read),
        "thread/turns/list": Method(shape.TurnsListParams, shape.TurnsList, stored.list_turns),
        "thread/name/set": Method(shape.ThreadNameParams, Empty, stored.rename),
        "thread/archive": Method(shape.ThreadParams, Empty, stored.archive),
        "thread/delete": Method(shape.ThreadParams, Empty, stored.delete),
        "thread/unsubscribe": Method(shape.ThreadParams, shape.Unsubscribed, opened.unsubscribe),
        "thread/compact/start": Method(shape.ThreadParams, Empty, opened.compact),
        "turn/start": Method(shape.TurnStartParams, shape.TurnResult, opened.start_turn),
        "turn/steer": Method(shape.TurnSteerParams, shape.TurnSteered, opened.steer, alone=False),
        "turn/interrupt": Method(shape.TurnInterruptParams, Empty, opened.interrupt, alone=False),
        "account/read": Method(shape.AccountReadParams, shape.AccountRead, others.account),
        "model/list": Method(shape.ModelListParams, shape.ModelList, others.models),
        "config/read": Method(shape.ConfigReadParams, shape.ConfigReadResult, others.config),
        "fuzzyFileSearch": Method(shape.FuzzyFileSearchParams, shape.FuzzyFileSearchResult, others.find_files),
        "configRequirements/read": Method(Empty, shape.ConfigRequirements, others.requirements),
        "skills/list": Method(shape.SkillsListParams, shape.SkillsList, others.skills),
        "command/exec": Method(shape.CommandExecParams, shape.CommandExecResult, others.execute),
    }
)
