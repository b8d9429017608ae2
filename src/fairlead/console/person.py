"""The person at the prompt, as an operator: they are asked in the place of the prompt."""

from typing import TYPE_CHECKING, Final

from fairlead.cli.asking import Lines, PersonOperator, show_words
from fairlead.cli.output import printable, printable_lines, say
from fairlead.errors import CallDenied, ModelFailed
from fairlead.host.operator import Ability, ApprovalAnswer, ApprovalQuestion, SampleRequest
from fairlead.loop.dialect import ChatModel
from fairlead.loop.sampling import sampled, words_in

if TYPE_CHECKING:
    from mcp_types import CreateMessageResult

WITH_A_MODEL: Final = PersonOperator.abilities | frozenset[Ability]({"sample"})


class PromptOperator(PersonOperator):
    """Asks the person at the prompt, and remembers what they said about calls."""

    def __init__(self, lines: Lines) -> None:
        super().__init__(lines)
        self.answers: list[tuple[ApprovalQuestion, ApprovalAnswer]] = []
        """What was answered in this run, the oldest first."""
        self._model: ChatModel | None = None
        self._may_sample: set[str] = set()

    def take_model(self, model: ChatModel | None) -> None:
        """Have servers that want a model's word get this one's; without one they cannot ask."""
        self._model = model
        self.abilities = WITH_A_MODEL if model is not None else PersonOperator.abilities

    async def approve(self, question: ApprovalQuestion) -> ApprovalAnswer:
        """Show the whole call and ask whether it may be made."""
        answer = await super().approve(question)
        self.answers.append((question, answer))
        return answer

    async def sample(self, request: SampleRequest) -> "CreateMessageResult":
        """Show what a server wants to ask the model, and ask it if the person agrees."""
        assert self._model is not None, "it was not declared"
        if request.server_id not in self._may_sample:
            answer = await self._asked(lambda: self._ask_to_sample(request), "no")
            if answer == "no":
                raise CallDenied(f"`{request.server_id}` may not ask the model: a person said no")
            if answer == "session":
                self._may_sample.add(request.server_id)
        try:
            return await sampled(self._model, request)
        except ModelFailed as exc:
            say(f"`{request.server_id}` got no answer from the model: {printable_lines(str(exc))}")
            raise

    async def _ask_to_sample(self, request: SampleRequest) -> str:
        say(f"\n`{request.server_id}` wants to ask your model, for up to {request.max_tokens:,} tokens.")
        if request.params.system_prompt:
            show_words("It has the model told:", request.params.system_prompt)
        for message in request.params.messages:
            show_words(f"It has the {printable(message.role)} say:", words_in(message.content_as_list))
        return await self.choose("May it?", ["once", "session", "no"], "no")
