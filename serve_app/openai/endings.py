"""Where answers end beside the end-of-sequence token and the limit, and how their text ends.

The verifier looks for a few stop strings, in text without special tokens. All other conditions are watched here, in the
runs that it commits: an answer is cut at the first token that meets one, and its session closed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import msgspec
import tokenizers

from core.generation import Run
from core.text.detokenizer import TextStream
from serve_app.openai.service import ChoiceRun


@dataclass(frozen=True)
class Ending:
    """What ends an answer, and what of the end is shown.

    `ids` end an answer, those of the end-of-sequence tokens among them; `watched_ids` are those that the verifier does
    not know. `watched` says whether the verifier misses any condition. With `include_stop` the text has the stop
    string, or the token, that ended it.
    """

    stop: tuple[str, ...] = ()
    ids: frozenset[int] = frozenset()
    watched_ids: frozenset[int] = frozenset()
    watched: bool = False
    skip_special_tokens: bool = True
    include_stop: bool = False

    def text(self, tokenizer: tokenizers.Tokenizer) -> TextStream:
        return TextStream(tokenizer, self.stop, self.skip_special_tokens, self.include_stop)

    def shown(self, run: Run) -> tuple[int, ...]:
        """The tokens of a run whose text is shown: without the last, if the answer ended because of that very token."""
        if run.finish_reason != "stop" or self.include_stop or self.ids.isdisjoint(run.tokens[-1:]):
            return run.tokens
        return run.tokens[:-1]


async def cut_runs(
    runs: AsyncGenerator[ChoiceRun, None], num_choices: int, ending: Ending, tokenizer: tokenizers.Tokenizer
) -> AsyncGenerator[ChoiceRun, None]:
    """The runs of one prompt's choices, up to where `ending` ends each; then the sessions are closed."""
    watches = {choice: _Watch(ending, tokenizer) for choice in range(num_choices)}
    async with aclosing(runs):
        async for run in runs:
            watch = watches.get(run.choice)
            if watch is None:  # it has ended here, while another choice of the prompt goes on
                continue
            cut = watch.cut(run.run)
            if cut.finish_reason is not None:
                del watches[run.choice]
            yield msgspec.structs.replace(run, run=cut)
            if not watches:
                return


class _Watch:
    """Watches the tokens of one choice."""

    def __init__(self, ending: Ending, tokenizer: tokenizers.Tokenizer) -> None:
        self._ids = ending.watched_ids
        self._text = ending.text(tokenizer)

    def cut(self, run: Run) -> Run:
        """`run` up to the token that ends the answer, if one does."""
        for length, token in enumerate(run.tokens, start=1):
            self._text.push(token)
            if token in self._ids or self._text.stopped:
                return msgspec.structs.replace(
                    run,
                    tokens=run.tokens[:length],
                    accepted=min(run.accepted, length),
                    logprobs=run.logprobs[:length],
                    finish_reason="stop",
                )
        return run
