"""`/clear`."""

from fairlead.console.session import ConsoleSession, Verb


async def _run(session: ConsoleSession, _rest: str) -> None:
    session.conversation.clear()
    session.attached.clear()
    session.screen.say("the model has forgotten what was said")


VERB = Verb(name="clear", usage="/clear", summary="begin a new conversation with the model", run=_run)
