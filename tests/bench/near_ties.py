"""How far tokens lie apart that kernels round otherwise, and tokens that a draft guessed wrong: what `audit` may pass.

Enters: a target with its draft. Leaves: the gaps at which answers of one decoder differ from plain decoding by another,
and those of the draft's wrong tokens, as if an engine had accepted them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

from core.audit import audit as audits
from core.audit.audit import NEAR_TIE, AnswerVerdict, Question
from core.audit.expected import RecordedIds
from core.distill.answering import answer
from core.generation import GenerationRequest
from core.model.base import drawable_ids
from core.model.causal_lm import CausalLM, load_draft_model, load_model
from core.model_names import locate
from core.replay.replay import output_logits, session_forward
from core.sampling.params import SamplingParams
from core.sampling.sampler import GeneratedCounts, Sampling, sample
from core.smollm2 import demo_prompts
from core.text.tokenizer import Tokenizer, load_tokenizer
from core.traces.record import Record
from serve_app.terminal.progress import step
from tests.bench import machine
from tests.bench.output import header, save

SESSIONS = 16
PAGES = 400
WRONG = 4  # tokens of the draft for each answer
COMPILED = ("compiled", torch.bfloat16)  # weights; it computes in float32
OTHERS = {"torch, bfloat16": ("torch", torch.bfloat16), "torch, float32": ("torch", torch.float32)}


class Gaps(NamedTuple):
    """How far tokens lie below plain decoding's own, of so many compared, at a temperature."""

    name: str
    temperature: float
    tokens: int
    gaps: list[float]

    @property
    def over(self) -> float:
        """The share over the limit of a near-tie."""
        return sum(gap > NEAR_TIE for gap in self.gaps) / max(1, len(self.gaps))


def requests(
    tokenizer: Tokenizer, count: int, temperatures: Sequence[float], max_tokens: int
) -> list[GenerationRequest]:
    asked = []
    for number, prompt in enumerate(demo_prompts()[:count]):
        tokens = tuple(tokenizer.encode_chat([{"role": "user", "content": prompt.prompt}]))
        for temperature in temperatures:
            params = SamplingParams(seed=number, max_tokens=max_tokens, temperature=temperature)
            asked.append(GenerationRequest(tokens=tokens, prompt_length=len(tokens), params=params))
    return asked


def wrong_tokens(record: Record, draft: CausalLM, num_valid: int) -> Iterator[tuple[int, ...]]:
    """Beginnings of an answer that end with a token of the draft which the target did not draw."""
    ids = drawable_ids(draft.head_ids, num_valid)
    law = Sampling(record.params, record.choice, record.prompt_length, GeneratedCounts(), record.output_ids[:-1])
    drafted = sample(output_logits(record, session_forward(draft), draft.context), [law], ids)
    misses = [at for at, token in enumerate(drafted) if token != record.output_ids[at]]
    for at in misses[:: max(1, len(misses) // WRONG)][:WRONG]:
        yield (*record.output_ids[:at], drafted[at])


def audited(model: CausalLM, tokenizer: Tokenizer, questions: Sequence[Question]) -> list[AnswerVerdict]:
    verdicts = dict(audits.audit(model, tokenizer, questions, SESSIONS))
    return [verdicts[index] for index in range(len(questions))]


def gaps(name: str, temperature: float, verdicts: Sequence[AnswerVerdict]) -> Gaps:
    found = [difference.gap for verdict in verdicts for difference in verdict.differences]
    return Gaps(
        name,
        temperature,
        sum(len(verdict.tokens) for verdict in verdicts),
        sorted(gap for gap in found if gap is not None),
    )


def measure(target: str, draft: str, count: int, temperatures: Sequence[float], max_tokens: int) -> list[Gaps]:
    console = Console(stderr=True)
    tokenizer, path = load_tokenizer(locate(target)), locate(target)

    def loaded(decoder: str, dtype: torch.dtype) -> CausalLM:
        return load_model(path, dtype=dtype, num_pages=PAGES, decoder=decoder)

    asked = requests(tokenizer, count, temperatures, max_tokens)
    own = loaded(*COMPILED)
    with step(console, "Answering", "Answered"):
        by_index = dict(answer(own, tokenizer, asked, SESSIONS))
    records = [by_index[index] for index in range(len(asked))]
    audits.NEAR_TIE = float("inf")  # every difference is measured, and gone on behind
    results = []
    with step(console, "Auditing", "Audited"):
        whole = [Question(request, RecordedIds(one.output_ids)) for request, one in zip(asked, records, strict=True)]
        for name, decoder in OTHERS.items():
            verdicts = audited(loaded(*decoder), tokenizer, whole)
            results += [gaps(name, each, _of(each, asked, verdicts)) for each in temperatures]
        drafts = load_draft_model(None, locate(draft), dtype=torch.bfloat16, exact=False, target=path)
        for each in temperatures:
            questions = [
                Question(request, RecordedIds(beginning, cut=True))
                for request, record in zip(asked, records, strict=True)
                if request.params.temperature == each
                for beginning in wrong_tokens(record, drafts, tokenizer.num_valid)
            ]
            results.append(gaps("wrong tokens of the draft", each, audited(own, tokenizer, questions)))
    return results


def _of(
    temperature: float, asked: Sequence[GenerationRequest], verdicts: Sequence[AnswerVerdict]
) -> list[AnswerVerdict]:
    pairs = zip(asked, verdicts, strict=True)
    return [verdict for request, verdict in pairs if request.params.temperature == temperature]


def page(found: Sequence[Gaps]) -> str:
    """Markdown."""
    lines = header(["answers", "temperature", "tokens", "differ", "median gap", "widest", f"over {NEAR_TIE:g}"])
    for one in found:
        middle = one.gaps[len(one.gaps) // 2] if one.gaps else 0.0
        widest = max(one.gaps, default=0.0)
        cells = (f"{one.tokens:,}", len(one.gaps), f"{middle:.3f}", f"{widest:.3f}", f"{one.over:.0%}")
        lines.append(f"| {one.name} | {one.temperature:g} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.near_ties", description=about)
    parser.add_argument("--target", default="smollm2:target")
    parser.add_argument("--draft", default="smollm2:draft")
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/near_ties"))
    chosen = parser.parse_args(argv)
    found = measure(chosen.target, chosen.draft, chosen.prompts, chosen.temperatures, chosen.max_tokens)
    text = f"{page(found)}\n\nGaps in logits. Answered by compiled kernels on weights in bfloat16. {machine.line()}\n"
    save(chosen, "near_ties", text, {"gaps": [one._asdict() for one in found]})


if __name__ == "__main__":
    main()
