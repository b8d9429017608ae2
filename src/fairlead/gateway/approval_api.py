"""The calls that wait for a person's word, for programs such as the command line."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fairlead.gateway.access import Access, Admitted
from fairlead.gateway.approvals import Pending, PendingApprovals
from fairlead.gateway.perimeter import Refused
from fairlead.host.operator import ApprovalAnswer

PATH: Final = "/api/approvals"


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's answer to one of the calls."""

    id: str
    answer: ApprovalAnswer


_decode = msgspec.json.Decoder(Word).decode


def approval_routes(approvals: PendingApprovals, access: Access) -> list[Route]:
    """Where waiting calls are listed and answered: those of the own principal, with scope `admin` all."""

    async def listed(_: Request, admitted: Admitted) -> Response:
        pending = approvals.pending(admitted.decides_for)
        return JSONResponse({"pending": [_as_json(call) for call in pending]})

    async def answered(request: Request, admitted: Admitted) -> Response:
        try:
            word = _decode(await request.body())
        except (ValueError, RecursionError) as exc:
            return JSONResponse({"error": f"that is no answer: {exc}"}, 400)
        return JSONResponse(
            {"answered": approvals.answer(word.id, word.answer, principal=admitted.decides_for)}
        )

    return [
        Route(PATH, _admitting(access, listed), methods=["GET"]),
        Route(PATH, _admitting(access, answered), methods=["POST"]),
    ]


def _admitting(
    access: Access, answer: Callable[[Request, Admitted], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        admitted = await access.admit(request.scope)
        if isinstance(admitted, Refused):
            return Response(admitted.body, admitted.status, dict(admitted.headers))
        return await answer(request, admitted)

    return endpoint


def _as_json(call: Pending) -> dict[str, Any]:
    question = call.question
    return {
        "id": call.id,
        "server": question.server_id,
        "tool": question.tool,
        "arguments": question.arguments,
        "reason": question.reason,
        "claims": list(question.claims),
        "remember": question.remember,
        "principal": question.principal,
        "created_at": call.created,
    }
