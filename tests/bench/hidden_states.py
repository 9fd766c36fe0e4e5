"""Whether a draft gains by the target's hidden states: two of one start, one with them and one without.

    python -m tests.bench.hidden_states --answers DIR

Both arms begin as the shipped draft and learn from the same answers in the same order. One of them adds to the
embedding of each token what a linear layer, which begins as zero, makes of three layers of the target at the position
before: a service has no later ones when it asks a draft. Two replays of held-out answers bound what it would gain.

    first        the states are used for the first token of each proposal, where a service has them; the tokens behind
                 it are guessed by the arm without
    everywhere   true states at every position, which no service has: the most that they may bring

The answers are those of a collect stage. One process on one thread; half an hour.
"""

# mypy: disable-error-code="attr-defined"
# The arms are learners with another input, so what a learner keeps for itself is used.

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from core.confidence_intervals import compare, over_prompts
from core.distill.alignment import _optimizers, rate
from core.distill.dataset import DistillationBatches, DistillationSet
from core.distill.learner import DraftLearner
from core.distill.losses import LOSSES
from core.model.base import drawable_ids
from core.model.config import ModelConfig
from core.model.tensor_views import as_tensor
from core.model_names import locate
from core.replay.replay import NUM_SPECULATIVE_TOKENS, AcceptanceCounts, Terms, hits_among, replay
from core.text.vocabulary import same_id_map
from core.traces.store import Trace, traces_of
from tests.bench import machine
from tests.bench.output import header, save

LAYERS = (3, 15, 27)  # of 30; early, middle, late
ALONE, FIRST, EVERYWHERE = "without", "first", "everywhere"
TEMPERATURES = (0.0, 0.7, 1.0)


class Target:
    """The target in transformers, for its hidden states."""

    def __init__(self, directory: Path) -> None:
        from transformers import AutoModelForCausalLM

        self._model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval()
        self.size = len(LAYERS) * int(self._model.config.hidden_size)

    @torch.inference_mode()
    def before(self, tokens: Sequence[int]) -> torch.Tensor:
        """bfloat16 [tokens, size]: the normed states of the position before each token, zero for the first."""
        found = self._model.model(torch.tensor([list(tokens)]), output_hidden_states=True).hidden_states
        states = torch.cat([nn.functional.rms_norm(found[layer][0], found[layer].shape[-1:]) for layer in LAYERS], -1)
        return torch.cat([torch.zeros_like(states[:1]), states[:-1]])


class Arm:
    """A draft that learns, with hidden states if it has a `fused` layer for them."""

    def __init__(self, draft: Path, target: Path, size: int | None) -> None:
        self.learner = DraftLearner(draft, None, 0, target=target, products=torch.bfloat16)
        self._network = self.learner._network
        self.fused: nn.Linear | None = None
        if size is not None:
            self.fused = nn.Linear(size, int(self._network.config.hidden_size), bias=False)
            nn.init.zeros_(self.fused.weight)

    def logits(self, tokens: torch.Tensor, states: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """float32 logits of the `wanted` positions, bool [rows, length], of `tokens` of that shape."""
        with torch.autocast("cpu", torch.bfloat16):
            embedded = self._network.get_input_embeddings()(tokens)
            if self.fused is not None:
                embedded = embedded + self.fused(states)
            hidden = self._network.model(inputs_embeds=embedded, use_cache=False).last_hidden_state
            logits: torch.Tensor = self._network.lm_head(hidden[wanted])
        return logits.float()


class Replayed(NamedTuple):
    """The counts of every judging answer."""

    alone: list[AcceptanceCounts]
    first: list[AcceptanceCounts]
    everywhere: list[AcceptanceCounts]


def train(arm: Arm, data: DistillationSet, states: Sequence[torch.Tensor], chosen: argparse.Namespace) -> None:
    """Minimise `lk` as `core.distill.alignment` does."""
    columns, trained_by = as_tensor(arm.learner._vocabulary.columns), _optimizers(arm.learner)
    if arm.fused is not None:
        trained_by.append((torch.optim.Muon([arm.fused.weight], weight_decay=0.0), chosen.fused_rate))
    for step, batch_of in enumerate(islice(_batches(data, chosen.seed), chosen.steps)):
        batch, records = batch_of
        width = batch.tokens.shape[1]
        padded = torch.stack(
            [
                nn.functional.pad(one[:width], (0, 0, 0, width - len(one[:width])))
                for one in (states[record] for record in records)
            ]
        )
        logprobs = arm.logits(batch.tokens, padded, batch.predicts_output).log_softmax(-1)
        at = columns[batch.ids]
        target = batch.logprobs.masked_fill(at < 0, -torch.inf)
        loss = LOSSES["lk"](target, logprobs.gather(-1, at.clamp(min=0)))
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(arm.learner.trained.values(), 1.0)
        for optimizer, scale in trained_by:
            for group in optimizer.param_groups:
                group["lr"] = chosen.learning_rate * scale * rate(step, chosen.steps)
            optimizer.step()
            optimizer.zero_grad()
        if (step + 1) % 25 == 0:
            print(f"  {step + 1} of {chosen.steps} steps, loss {float(loss):.3f}", flush=True)


def _batches(data: DistillationSet, seed: int) -> Iterator[tuple[Any, list[int]]]:
    batches = DistillationBatches(data, 2048, seed)
    return ((batches[records], records) for records in batches._order())


@torch.inference_mode()
def judge(alone: Arm, fused: Arm, target: Target, judging: Sequence[Trace], terms: Terms) -> Replayed:
    ids = drawable_ids(alone.learner.head_ids, terms.num_valid)
    counts = Replayed([], [], [])
    for trace in judging:
        tokens = torch.tensor([trace.tokens[:-1]])
        states = target.before(trace.tokens[:-1])[None]
        wanted = torch.zeros_like(tokens, dtype=torch.bool)
        wanted[:, trace.prompt_length - 1 :] = True
        without, with_them = (hits_among(ids, trace, arm.logits(tokens, states, wanted)) for arm in (alone, fused))
        counts.alone.append(replay(without, trace, terms))
        counts.everywhere.append(replay(with_them, trace, terms))
        counts.first.append(_first(with_them, without, trace, terms))
    return counts


def _first(first: Sequence[bool], later: Sequence[bool], trace: Trace, terms: Terms) -> AcceptanceCounts:
    """The counts of a draft whose first token of a proposal hits by `first`, those behind it by `later`."""
    whole = min(trace.params.max_tokens, terms.context - trace.prompt_length)
    committed, passes, proposed, accepted = 1, 0, 0, 0
    while committed < len(first):
        proposals = max(0, min(terms.num_speculative_tokens, whole - committed - 1))
        hits = [first[committed], *later[committed + 1 : committed + proposals]][:proposals]
        run = hits.index(False) if False in hits else len(hits)
        passes, proposed, accepted = passes + 1, proposed + proposals, accepted + run
        committed += run + 1
    return AcceptanceCounts(max(0, len(first) - 1), passes, proposed, accepted)


def table(judging: Sequence[Trace], counts: Replayed) -> tuple[str, list[dict[str, object]]]:
    """Markdown, and the figures."""
    lines = header(["temperature", "answers", "states", "tokens per pass (95 %)", "more than without (95 %)"])
    figures: list[dict[str, object]] = []
    for temperature in TEMPERATURES:
        places = [place for place, trace in enumerate(judging) if trace.params.temperature == temperature]
        prompts = [judging[place].prompt_ids for place in places]
        without = [counts.alone[place] for place in places]
        for name, of_all in zip((ALONE, FIRST, EVERYWHERE), counts, strict=True):
            ours = [of_all[place] for place in places]
            found, more = (
                over_prompts(ours, prompts, "tokens_per_pass"),
                compare(ours, without, prompts, "tokens_per_pass"),
            )
            share = [
                f"{100 * value / over_prompts(without, prompts, 'tokens_per_pass').value:+.1f} %" for value in more
            ]
            gain = "" if name == ALONE else f"{share[0]} ({share[1]} to {share[2]})"
            cells = [
                f"{temperature:g}",
                str(len(places)),
                name,
                f"{found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})",
                gain,
            ]
            lines.append(f"| {' | '.join(cells)} |")
            figures.append({"temperature": temperature, "states": name, "tokens_per_pass": found, "more": more})
    return "\n".join(lines), figures


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.hidden_states",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--answers", type=Path, required=True, help="the collect directory of a retraining")
    parser.add_argument("--most", type=int, default=1500, help="answers that are learned from")
    parser.add_argument("--judging", type=int, default=300, help="most held-out answers that judge")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--learning-rate", type=float, default=0.005, help="at its peak")
    parser.add_argument("--fused-rate", type=float, default=0.1, help="of the new layer, in learning rates")
    parser.add_argument("--seed", type=int, default=0, help="of the order of answers")
    parser.add_argument("--target", default="smollm2:target")
    parser.add_argument("--draft", default="smollm2:draft")
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/hidden_states"))
    chosen = parser.parse_args(argv)
    torch.set_num_threads(1)
    directory, draft = Path(locate(chosen.target)), Path(locate(chosen.draft))
    target = Target(directory)
    data = _learned(chosen)
    judging = [trace for split in ("promotion", "test") for trace in _traces(chosen.answers, split)][: chosen.judging]
    terms = Terms(NUM_SPECULATIVE_TOKENS, same_id_map(directory, directory), ModelConfig.load(directory).context)
    states = [target.before(tokens.tolist()) for tokens in data.tokens.split(data.lengths.tolist())]
    print(f"{len(states)} answers with their states", flush=True)
    arms = [Arm(draft, directory, size) for size in (None, target.size)]
    for arm in arms:
        train(arm, data, states, chosen)
    text, figures = table(judging, judge(arms[0], arms[1], target, judging, terms))
    save(chosen, "hidden_states", f"{text}\n\n{machine.line()}\n", {"replays": figures})


def _learned(chosen: argparse.Namespace) -> DistillationSet:
    files = sorted(chosen.answers.glob("train-*.safetensors"))
    data = DistillationSet.join([DistillationSet.load(file) for file in files])
    return data.take(range(min(chosen.most, len(data.lengths))))


def _traces(answers: Path, split: str) -> list[Trace]:
    return [trace for file in sorted(answers.glob(f"{split}-*.parquet")) for trace in traces_of(file.read_bytes())]


if __name__ == "__main__":
    main()
