"""Approval requests of the provider for tools of a remote MCP server: the user decides, as for local calls."""

import msgspec

from ferrule.protocol.items import McpApprovalResponse
from ferrule.protocol.payload import NativePayload, ToolOutput, ToolPayload
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.context import Access, ToolContext, ToolInvocation
from ferrule.tools.effects import McpEffect
from ferrule.tools.handler import ToolHandler


class _Asked(msgspec.Struct):
    server_label: str
    name: str
    arguments: str


class RemoteApproval(ToolHandler):
    """The handler of `mcp_approval_request` items. A refusal is an answer too: dispatch makes it one."""

    acts_through_context = True

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Accept only these requests."""
        return isinstance(payload, NativePayload)

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """Approve if the user does. Raises `RespondToModel` with the reason of a refusal."""
        assert isinstance(invocation.payload, NativePayload)
        asked = msgspec.json.decode(invocation.payload.arguments, type=_Asked)
        effect = McpEffect(
            server=asked.server_label,
            tool=asked.name,
            arguments=asked.arguments,
            annotations=ToolAnnotations(),
            approval="provider",
        )

        async def approved(access: Access) -> ToolOutput:
            return ToolOutput(McpApprovalResponse(approval_request_id=invocation.call_id, approve=True), True, True)

        return await ctx.run(effect, approved)
