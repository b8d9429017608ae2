"""`/quit`."""

from fairlead.console.session import ConsoleSession, Verb


async def _run(session: ConsoleSession, _rest: str) -> None:
    session.leave()


VERB = Verb(name="quit", usage="/quit", summary="leave; every server is stopped", run=_run)
