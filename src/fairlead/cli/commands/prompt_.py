"""`fairlead prompt`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fairlead.catalog.tools import PromptArgument, PromptOffer
from fairlead.cli.options import json_option, load, server_argument
from fairlead.config.command_lines import command_line
from fairlead.config.validate import suggestion
from fairlead.errors import CallRejected
from fairlead.terminal.arguments import check_text
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_json, printable, printable_lines, say

if TYPE_CHECKING:
    from fairlead.host.host import Host
    from fairlead.host.offers.contents import PromptResult
    from fairlead.terminal.prompts import TerminalOperator

MAX_SUGGESTIONS = 20


@click.command("prompt")
@server_argument
@click.argument("name", callback=check_text)
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]...", callback=check_text)
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str, name: str, pairs: tuple[str, ...], *, as_json: bool) -> int:
    """Show a prompt of a server, filled in. At a terminal you are prompted for missing arguments.

    \b
    Examples:
      fairlead prompt everything simple-prompt
      fairlead prompt everything args-prompt city=Berlin
    """
    from fairlead.host.host import Host
    from fairlead.terminal.host_run import run_async, spinning
    from fairlead.terminal.prompts import TerminalOperator, operator_here

    loaded = load(ctx)
    loaded.server(server_id)
    arguments = dict(map(_argument, pairs))

    async def main() -> int:
        operator = operator_here()
        async with Host.open(loaded, operator=operator) as host:
            async with spinning(f"asking {server_id} …"):
                known = (await host.prompts.list(server_id)).items
            prompt = next((prompt for prompt in known if prompt.name == name), None)
            for argument in _find_missing(prompt, arguments):
                if not isinstance(operator, TerminalOperator):
                    wanted = printable(argument.name)
                    raise click.UsageError(f"`{name}` needs the argument `{wanted}`: add {wanted}=…", ctx)
                arguments[argument.name] = await _ask_argument(host, operator, prompt, argument, arguments)
            try:
                async with spinning(f"asking {server_id} …"):
                    result = await host.prompts.get(server_id, name, arguments)
            except CallRejected as exc:
                if prompt is None and (known or exc.hint is None):
                    exc.hint = suggestion(name, [prompt.name for prompt in known]) or (
                        f"run `{command_line('prompts', server_id)}`"
                    )
                raise
        if as_json:
            print_json(result.data)
        else:
            _show(result)
        return Exit.OK

    return run_async(main)


def _argument(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"`{pair}` is not NAME=VALUE", param_hint="NAME=VALUE")
    return name, value


def _find_missing(prompt: PromptOffer | None, arguments: dict[str, str]) -> Sequence[PromptArgument]:
    wanted = prompt.arguments if prompt else ()
    return [argument for argument in wanted if argument.required and argument.name not in arguments]


async def _ask_argument(
    host: "Host",
    operator: "TerminalOperator",
    prompt: PromptOffer | None,
    argument: PromptArgument,
    others: dict[str, str],
) -> str:
    """Ask the person for an argument, with what the server suggests for it."""
    assert prompt is not None, "only a known prompt misses something"
    suggested = await host.prompts.complete(prompt.server_id, prompt.name, argument.name, others=others)
    if argument.description:
        say(f"  | {printable(argument.description)}")
    if suggested.values:
        some = ", ".join(map(printable, suggested.values[:MAX_SUGGESTIONS]))
        say(f"  for example: {some}{' …' if len(suggested.values) > MAX_SUGGESTIONS else ''}")
    typed = await operator.ask_line(printable(argument.name))
    if typed is None:
        raise click.Abort
    return typed


def _show(result: "PromptResult") -> None:
    messages = result.messages
    for number, message in enumerate(messages):
        if len(messages) > 1:
            print_data(f"{'' if number == 0 else chr(10)}[{printable(str(message.get('role')))}]")
        print_data(_render_content(message.get("content")))


def _render_content(content: Any) -> str:  # noqa: ANN401 - any JSON of a server
    match content:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return printable_lines(text)
        case {"type": str(kind)}:
            return f"[{printable(kind)}; --json shows it]"
        case _:
            return "[something; --json shows it]"
