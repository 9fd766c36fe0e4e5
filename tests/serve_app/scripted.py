"""A service whose target says what a test has written down; all else is real: tokenizer, commit rule, text, HTTP."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from functools import cache

import msgspec
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from core.generation import GenerationRequest, Run, TokenLogprob
from core.text.tokenizer import Tokenizer
from core.verify.commit import Chain
from serve_app.config import Aliases
from serve_app.http.service import ChoiceRun, Overloaded, Speculation

BOS, EOS = "<s>", "</s>"
BOS_ID, EOS_ID = 0, 1
TEXT = ("the answer is forty-two. END of the story; stop here. ", "答案是四十二 naïve émigré 🙂 ") * 20
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message.content == 'refuse me' %}"
    "{{ raise_exception('this template will not have it') }}{% endif %}"
    "{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
)
RUN_LENGTHS = (1, 3, 2)


@cache
def toy_tokenizer() -> Tokenizer:
    """A byte-level BPE with BOS, EOS and a chat template."""
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=[BOS, EOS], initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator(TEXT, trainer)
    raw.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, BOS_ID)])
    hf = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=BOS, eos_token=EOS, chat_template=TEMPLATE)
    return Tokenizer(hf, [EOS_ID])


def tokens_of(text: str) -> list[int]:
    return toy_tokenizer().raw.encode(text, add_special_tokens=False).ids


def logprob_of(position: int, token: int, top: int) -> TokenLogprob:
    """Made up, different at every position; the alternatives are the ids after the token."""
    best = tuple((token + n, -0.5 * n - position) for n in range(top))
    return TokenLogprob(token, -float(position), best or ((token, -float(position)),))


class ScriptedService:
    """Implements `Service`: every choice is answered `tokens`, then EOS, in runs of `lengths` over and over.

    Of a run all tokens but the last were accepted, the first run excepted, which has no proposals. They were proposed
    by the client's prediction, if it has sent one. `step` is awaited before each pass. `open` counts the sessions that
    are not closed yet.
    """

    tokenizer = toy_tokenizer()
    model_name = "org/toy"
    context = 256
    vocab_size = tokenizer.num_valid
    tasks = ("general", "math", "python")
    max_choices = 4
    owner_salt = b"salt"

    def __init__(self, tokens: Sequence[int] = (), lengths: Sequence[int] = RUN_LENGTHS) -> None:
        self.tokens = tokens or tokens_of("the answer is forty-two. END of the story")
        self.lengths = lengths
        self.aliases: Aliases = []
        self.step: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
        self.failure: Exception | None = None
        self.fails_after = 0
        self.asked: list[GenerationRequest] = []
        self.speculation = Speculation()
        self.open = 0
        self.most_open = 0
        self.is_healthy = True

    def describe(self) -> dict[str, object]:
        return {"numerics": "exact", "tasks": list(self.tasks)}

    async def healthy(self) -> bool:
        return self.is_healthy

    async def metrics(self) -> str:
        if not self.is_healthy:
            raise Overloaded("no node tells its metrics")
        return "ray_taskspec_verifier_tokens_total 1.0\n"

    async def generate(
        self, requests: list[GenerationRequest], speculation: Speculation
    ) -> AsyncGenerator[ChoiceRun, None]:
        self.asked += requests
        self.speculation = speculation
        self.open += len(requests)
        self.most_open = max(self.most_open, self.open)
        try:
            passes = itertools.zip_longest(*[self.runs(request) for request in requests])
            for number, runs in enumerate(passes):
                await self.step()
                if self.failure is not None and number == self.fails_after:
                    raise self.failure
                for request, run in zip(requests, runs, strict=True):
                    if run is not None:
                        yield ChoiceRun(request.choice, run, speculation.task or "general")
        finally:
            self.open -= len(requests)

    def runs(self, request: GenerationRequest) -> Iterator[Run]:
        """The script as the commit rule lets it pass."""
        chain = Chain(request, eos_ids=[EOS_ID], context=self.context, tokenizer=self.tokenizer.raw)
        lengths = itertools.cycle(self.lengths)
        while chain.finish_reason is None:
            begin = chain.num_generated
            num_proposed = chain.limit_proposals(next(lengths)) if begin else 0
            drawn = self.drawn(begin, num_proposed + 1)
            proposed = [*drawn[: num_proposed - 1], drawn[num_proposed - 1] + 1] if num_proposed else []
            logprobs = []
            if request.params.logprobs is not None:
                logprobs = [logprob_of(begin + n, token, request.params.logprobs) for n, token in enumerate(drawn)]
            run = chain.commit(drawn, proposed, logprobs, "prediction" if request.prediction else "draft")
            read = request.tokens[1 : request.prompt_length] if begin == 0 else ()
            if (top := request.params.prompt_logprobs) is not None:
                read_logprobs = tuple(logprob_of(n, token, top) for n, token in enumerate(read, start=1))
                run = msgspec.structs.replace(run, prompt_logprobs=read_logprobs)
            yield run

    def drawn(self, begin: int, length: int) -> list[int]:
        script = [*self.tokens, *[EOS_ID] * length]
        return script[begin : begin + length] or [EOS_ID] * length
