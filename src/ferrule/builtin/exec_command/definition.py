"""What `exec_command` takes, and what it and `write_stdin` answer."""

from collections.abc import Sequence

from pydantic import AliasChoices, Field

from ferrule.builtin.exec_command import describe
from ferrule.builtin.execution import (
    LOGIN,
    WORKDIR,
    AskedPermissions,
    CommandTool,
    Justification,
    Number,
    OldEscalation,
    PrefixRule,
)
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation

YIELD_TIME = "How long to wait for the end, in milliseconds, before what was written so far is returned"
MAX_OUTPUT_TOKENS = "The most output to return, in tokens; of more the middle is left out"


class ExecCommandAction(Action):
    """A command and how long to wait for it."""

    cmd: str = Field(description="The script to run", validation_alias=AliasChoices("cmd", "command"))
    workdir: str | None = Field(default=None, description=WORKDIR)
    shell: str | None = Field(
        default=None, description="The shell to run it with, by path or name; the user's own by default"
    )
    tty: bool | None = Field(
        default=None,
        description="Whether the command gets a terminal, which also takes input; without one (the default) its input "
        "is empty",
    )
    yield_time_ms: Number | None = Field(default=None, description=YIELD_TIME)
    max_output_tokens: Number | None = Field(default=None, description=MAX_OUTPUT_TOKENS)
    login: bool | None = Field(default=None, description=LOGIN)
    timeout: Number | None = Field(
        default=None,
        description="After this many milliseconds the command and all that it started are ended; no limit by default",
        validation_alias=AliasChoices("timeout", "timeout_ms"),
    )
    sandbox_permissions: AskedPermissions = None
    justification: Justification = None
    prefix_rule: PrefixRule = None
    with_escalated_permissions: OldEscalation = None


class ExecObservation(Observation):
    """What a session wrote since the last call. One of `exit_code` and `session_id` is set: it ended, or it runs."""

    bounded = True

    chunk_id: str
    wall_seconds: float
    exit_code: int | None
    session_id: int | None
    original_token_count: int
    output: str

    @property
    def to_llm_content(self) -> str:
        state = (
            f"Process running with session ID {self.session_id}"
            if self.exit_code is None
            else f"Process exited with code {self.exit_code}"
        )
        return (
            f"Chunk ID: {self.chunk_id}\nWall time: {self.wall_seconds:.4f} seconds\n{state}\n"
            f"Original token count: {self.original_token_count}\nOutput:\n{self.output}"
        )

    @property
    def success(self) -> bool:
        return not self.exit_code


class ExecCommandTool(CommandTool[ExecCommandAction, ExecObservation]):
    """Starts sessions through `ctx.run`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ExecCommandTool]":
        """The one instance."""
        from ferrule.builtin.exec_command.impl import ExecCommandExecutor

        return [cls(conv_state, describe(conv_state), ExecCommandExecutor(conv_state.commands))]
