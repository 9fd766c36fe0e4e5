"""Whether a device computes what the CPU does: random models of several shapes, walked on both, by their logits.

    python -m tests.bench.parity --device cuda

A walk feeds several sessions in passes of mixed lengths, with rollbacks, over page edges. The device's logits are
compared with those of torch's decoder in float32 on the CPU. Its own bits are compared among themselves: a session fed
whole and in pieces, and tokens that are drawn in a loop and one at a time. It fails where they differ.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from core.model.base import Rows
from core.model.causal_lm import CausalLM, load_model
from core.model.draft_tokens import StopRule, draft_tokens
from core.model.invariance import Found, differing
from tests.bench.output import header, save
from tests.core.model.random_models import random_tokens, save_model
from tests.core.model.test_row_invariance import GEOMETRIES

SHAPES = GEOMETRIES | {
    "heads of 128": {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 128},
    "many large heads to one of keys": {"num_attention_heads": 32, "num_key_value_heads": 1, "head_dim": 256},
}
PAGES, STEPS, DRAWS, LENGTH = 64, 80, 40, 4
_APART = 1e-3  # of logits in float32, more than sums in another order may make


class Compared(NamedTuple):
    """One model in one dtype: `apart` is the largest difference of a logit, `spread` the standard deviation of all.

    `bits` counts the positions whose bits hang on the pass, `drawn` the draws that loops and single passes make alike.
    """

    geometry: str
    dtype: str
    apart: float
    spread: float
    bits: Found
    drawn: int


def measure(device: str) -> list[Compared]:
    return [
        _compared(name, directory, dtype, device)
        for name, directory in _models()
        for dtype in (torch.float32, torch.bfloat16)
    ]


def check(found: Sequence[Compared]) -> None:
    """Raises SystemExit where the device's bits are not its own, or its logits not those of the CPU."""
    wrong = [
        f"{one.geometry}, {one.dtype}"
        for one in found
        if one.bits.differing or one.drawn < DRAWS or one.apart > (_APART if one.dtype == "float32" else one.spread / 2)
    ]
    if wrong:
        raise SystemExit(f"otherwise than on the CPU, or than itself: {'; '.join(wrong)}")


def table(found: Sequence[Compared]) -> str:
    """Markdown."""
    lines = header(["model", "dtype", "logits apart", "their spread", "positions of other bits", "draws alike"])
    for one in found:
        bits = f"{one.bits.differing} of {one.bits.positions}"
        cells = [one.geometry, one.dtype, f"{one.apart:.1g}", f"{one.spread:.2f}", bits, f"{one.drawn} of {DRAWS}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def as_json(found: Sequence[Compared]) -> list[dict[str, object]]:
    return [one._asdict() | {"bits": one.bits._asdict()} for one in found]


def _models() -> Iterator[tuple[str, Path]]:
    with TemporaryDirectory() as there:
        for name, changes in SHAPES.items():
            directory = Path(there) / name.replace(" ", "-")
            save_model(directory, **{"max_position_embeddings": 2048, **changes})
            yield name, directory


def _compared(name: str, directory: Path, dtype: torch.dtype, device: str) -> Compared:
    def load(dtype: torch.dtype, device: str) -> CausalLM:
        return load_model(directory, dtype=dtype, num_pages=PAGES, device=device, decoder="torch")

    model, reference = load(dtype, device), load(torch.float32, "cpu")
    bits = differing(model)
    logits = [(given.cpu(), expected) for given, expected in zip(_walk(model), _walk(reference), strict=True)]
    apart = max(float((given - expected).abs().max()) for given, expected in logits)
    spread = float(torch.cat([expected.flatten() for _, expected in logits]).std())
    return Compared(name, str(dtype).removeprefix("torch."), apart, spread, bits, _drawn_alike(model))


def _walk(model: CausalLM) -> Iterator[torch.Tensor]:
    """The logits of every pass; three sessions, which begin with a prompt."""
    dice = random.Random(7)
    for session in range(3):
        model.open(session)
        length = 1030 if session == 2 else 40 * session + 30  # one needs a longer page table
        model.forward([Rows(session, random_tokens(length, model.vocab_size, session), 0)])
    for step in range(STEPS):
        batch = []
        for session in dice.sample(range(3), dice.choice([1, 1, 2, 3])):
            cached = model.num_cached(session)
            if cached % 1000 > 150 or dice.random() < 0.2:  # a proposal was rejected
                model.rollback(session, dice.randrange(cached - cached % 1000 // 2, cached + 1))
            count = dice.choice([1, 5, 5, 20])
            batch.append(Rows(session, random_tokens(count, model.vocab_size, step), dice.randint(1, count)))
        yield model.forward(batch)
    for session in range(3):
        model.close(session)


def _drawn_alike(model: CausalLM) -> int:
    """Of as many draws, those that give the tokens of single passes over the same sessions."""
    dice, alike = random.Random(8), 0
    for number in range(DRAWS):
        sessions = range(dice.choice([1, 1, 2, 3]))
        prompts = [random_tokens(dice.randrange(50, 70), model.vocab_size, 9 * number + one) for one in sessions]
        noise = torch.randn(LENGTH, len(sessions), model.vocab_size, generator=torch.Generator().manual_seed(number))
        noise = noise.to(model.device)
        for session, prompt in enumerate(prompts):
            model.open(session)
            model.forward([Rows(session, prompt[:-2], 0)])
        batch = [Rows(session, prompt[-2:], 1) for session, prompt in enumerate(prompts)]
        lines = model.draw(batch, LENGTH, model.vocab_size, noise, StopRule.never(len(batch)))
        single = list[list[int]]()
        for step in range(LENGTH):
            for session, prompt in enumerate(prompts):
                model.rollback(session, len(prompt) - 2 if step == 0 else len(prompt) + step - 1)
            fed = batch if step == 0 else [Rows(one, [token], 1) for one, token in enumerate(single[-1])]
            single.append([guess.token for guess in draft_tokens(model.forward(fed) + noise[step])])
        for session in sessions:
            model.close(session)
        alike += [[guess.token for guess in line] for line in lines] == [
            list(line) for line in zip(*single, strict=True)
        ]
    return alike


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.parity", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/gpu"))
    chosen = parser.parse_args(argv)
    found = measure(chosen.device)
    save(chosen, "parity", f"{table(found)}\n", {"models": as_json(found)})
    check(found)


if __name__ == "__main__":
    main()
