"""`/help`."""

from fairlead.console.conversation import WITHOUT_A_MODEL
from fairlead.console.session import ConsoleSession, Verb


async def _run(session: ConsoleSession, _rest: str) -> None:
    screen = session.screen
    screen.table(("command", "what you get"), [(verb.usage, verb.summary) for verb in session.verbs.values()])
    screen.say("`/<server>:<prompt>` uses a prompt of a server: `/prompts` lists them")
    screen.say("Tab completes, ↑ brings back lines, Ctrl-C cancels what is under way, Ctrl-D leaves")
    model = session.conversation.model_name
    if model is None:
        screen.say(WITHOUT_A_MODEL)
    else:
        screen.say(f"everything else you type goes to {model}")


VERB = Verb(name="help", usage="/help", summary="all commands of the console", run=_run)
