"""Everything a GPU is asked about, in one call; where there is none, the same at tiny geometry.

    python -m tests.bench.gpu --device cuda --target 13b --out tests/bench/results/gpu
    python -m tests.bench.gpu --device cpu --target tiny --turns 1 --prompts 1 --max-tokens 8

Needs torch, transformers and peft beside what core needs, no Ray. Prints, and writes as JSON and Markdown: as `parity`
whether the device computes what the CPU does (`tests.bench.parity`); as `passes` the target's pass by its sessions and
tokens beside transformers' and beside weight bytes / measured bandwidth, and a token of a draft at LLaMA-68M's
geometry, but for its vocabulary, by itself and in a loop; as `numerics` what exact passes cost beside fast ones, and
whether their bits are what they promise; as `decoding` one stream end to end with the shipped drafts, plain,
speculative and transformers' two ways, tokens compared; as `vllm` the same passes in vLLM, if it is installed. The
target is the shipped one expanded to LLaMA-2-13B's geometry: the cost is real, the answers are those of 5 million
parameters. 13b takes 26 GB of disk and about 60 GB of GPU memory. An H200 took 4 minutes before parity and the longer
warm-up were parts of it. Where exact numerics do not hold, or tokens differ, it says so and fails when all is written.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.progress import Progress

from core.model.base import Rows
from core.model.causal_lm import load_model
from core.model.draft_tokens import StopRule
from core.model.invariance import differing
from core.target import TargetModel, load_target
from core.verify.engine import VerifyConfig
from tests.bench import decode, machine, numerics, parity, step
from tests.bench.engines import Engines, processes
from tests.bench.expanded import GEOMETRIES, draft_68m, target
from tests.bench.hugging_face import with_family_drafts
from tests.bench.items import GENERAL, MIXED, Item, draft_directories, first_held_out
from tests.bench.machine import now
from tests.bench.output import save
from tests.bench.paired import Durations

TOKENS = (1, 2, 4, 5, 8, 16)
SHAPES = [step.Shape(sessions, tokens) for sessions in (1, 8) for tokens in TOKENS]
WARM_UP = 4  # turns: what is met again is recorded


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--target", choices=GEOMETRIES, default="13b")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=6, help="tasks take turns")
    parser.add_argument("--warm", type=int, default=12, help="prompts that every draft has answered before, tasks too")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--length", type=int, default=6, help="most tokens proposed for a pass")
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"))
    parser.add_argument("--out", type=Path, default=Path("tests/bench/results/gpu"))
    chosen = parser.parse_args(argv)
    directory = target(chosen.target, chosen.cache)
    name = torch.cuda.get_device_name(chosen.device) if chosen.device.startswith("cuda") else chosen.device
    on = f"{chosen.target} target in bf16 on {name}, {machine.line()}\n"
    compared = parity.measure(chosen.device)
    save(chosen, "parity", f"{parity.table(compared)}\n", {"models": parity.as_json(compared)}, device_name=name)
    passes = step.measure(directory, chosen.turns, SHAPES, chosen.device)
    draft = step.measure(draft_68m(chosen.cache), chosen.turns, (step.Shape(1, 1),), chosen.device, exact=False)
    loop = _looped(draft_68m(chosen.cache), chosen.turns, chosen.length, chosen.device)
    median, low, high = (1e3 * seconds for seconds in loop)
    looped = f"In a loop of {chosen.length}: {median:.3f} ms a token (quartiles {low:.3f} to {high:.3f})."
    text = f"Target's pass\n\n{step.table(passes)}\n\nDraft's token\n\n{step.table(draft)}\n\n{looped}\n\n{on}"
    found = {"target": step.as_json(passes), "draft": step.as_json(draft), "draft_in_a_loop": loop}
    save(chosen, "passes", text, found, device_name=name)
    _free()
    both = numerics.measure(directory, chosen.turns, WARM_UP, TOKENS, chosen.device)
    save(chosen, "numerics", f"{numerics.table(both)}\n\n{on}", numerics.as_json(both), device_name=name)
    _free()
    places = _decoded(directory, chosen)
    text, found = f"{decode.table(places)}\n\n{on}", {"places": decode.as_json(places)}
    save(chosen, "decoding", text, found, device_name=name)
    _free()
    text, found = _in_vllm(directory, chosen.device, chosen.turns)  # last, as vLLM replaces operations of torch
    save(chosen, "vllm", f"{text}\n\n{on}", found, device_name=name)
    decode.check(places)
    parity.check(compared)
    if both.differing[numerics.EXACT].differing:
        raise SystemExit(f"exact numerics do not hold on {name}: {both.differing[numerics.EXACT]}")


def _free() -> None:
    """Of the device's memory what models no longer hold, for other processes, too."""
    gc.collect()
    torch.cuda.empty_cache()


def _looped(directory: Path, turns: int, steps: int, device: str) -> tuple[float, float, float]:
    """Seconds of a token where so many are drawn at a time: median and quartiles."""
    model = load_model(directory, dtype=torch.bfloat16, num_pages=step.PAGES, device=device, exact=False)
    model.open(0)
    model.forward([Rows(0, range(5, 5 + step.CACHED), 0)])
    durations = Durations()
    for turn in range(WARM_UP + turns):
        began = now(device)
        model.draw([Rows(0, [9], 1)], steps, model.vocab_size, None, StopRule.never(1))
        seconds = now(device) - began
        model.rollback(0, step.CACHED)
        if turn >= WARM_UP:
            durations.add("loop", turn, seconds, steps)
    return durations.quartiles("loop")


def _in_vllm(directory: Path, device: str, turns: int) -> tuple[str, dict[str, object]]:
    """Milliseconds of a pass of one session by its tokens, where vLLM is installed; as text and as JSON."""
    if find_spec("vllm") is None:
        return "vLLM is not installed here: nothing to compare.", {}
    engine = {"max_model_len": 1024, "gpu_memory_utilization": 0.6}
    target = TargetModel(model=str(directory), device=device, decoder="vllm", vllm=engine)
    model = load_target(target, 8, cache_tokens=8 * 1024)
    found = differing(model)
    model.open(0)
    model.forward([Rows(0, range(5, 5 + step.CACHED), 0)])
    durations = Durations()
    for turn in range(WARM_UP + turns):
        for tokens in TOKENS:
            began = now(device)
            model.forward([Rows(0, [9] * tokens, tokens)])
            seconds = now(device) - began
            model.rollback(0, step.CACHED)
            if turn >= WARM_UP:
                durations.add(str(tokens), turn, seconds)
    passes = {tokens: durations.quartiles(str(tokens)) for tokens in TOKENS}
    told = ", ".join(f"{tokens}: {1e3 * median:.2f}" for tokens, (median, _, _) in passes.items())
    text = (
        f"In vLLM, ms of a pass by its tokens: {told}. Bits differ at {found.differing} of {found.positions} positions."
    )
    return text, {"passes": passes, "differing": found._asdict()}


def _decoded(directory: Path, chosen: argparse.Namespace) -> list[decode.Place]:
    """One stream, every contender in turn; transformers and our engines hold a target each."""
    asked, drafts = first_held_out(chosen.warm + chosen.prompts), draft_directories()
    warm, items = asked[: chosen.warm], asked[chosen.warm :]
    used = {label: drafts[label] for label in {GENERAL, MIXED, *(item.slot for item in asked)}}
    config = VerifyConfig(max_sessions=4, num_speculative_tokens=chosen.length)
    started = processes(used, chosen.device)  # before the targets, which take longer
    with (
        with_family_drafts(directory, used, chosen.length, torch.get_num_threads(), chosen.device) as theirs,
        Engines(directory, started, config, chosen.device) as engines,
        Progress() as progress,
    ):
        contenders = decode.in_process(engines, theirs, chosen.max_tokens)
        return [_warmed(chosen.device, contenders, items, t, progress, warm) for t in (0.0, 1.0)]


def _warmed(
    name: str,
    contenders: Mapping[str, decode.Contender],
    items: Sequence[Item],
    temperature: float,
    progress: Progress,
    warm: Sequence[Item],
) -> decode.Place:
    """As `decode.measure`, after every draft's process has answered, and what it costs is known."""
    for item in warm:
        for contender in (GENERAL, MIXED, decode.TASK):
            contenders[contender](item, temperature)
    return decode.measure(name, contenders, items, temperature, progress)


if __name__ == "__main__":
    main()
