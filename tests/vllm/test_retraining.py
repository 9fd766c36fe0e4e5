"""A retraining collects its answers from a target in vLLM, and what drafts are to imitate."""

from __future__ import annotations

from pathlib import Path

import torch

from core.distill.answering import answer
from core.distill.dataset import distil
from core.family import DRAFT_DIR, TARGET_DIR
from core.generation import GenerationRequest
from core.sampling.params import SamplingParams
from train_jobs.config import RetrainConfig
from train_jobs.drafts.loading import load_target
from train_jobs.work.models import target_tokenizer


def test_answers_are_what_the_collected_logits_say(tmp_path: Path) -> None:
    config = RetrainConfig.model_validate(
        {
            "target": {"model": str(TARGET_DIR), "decoder": "vllm", "vllm": {"enforce_eager": True}},
            "draft": str(DRAFT_DIR),
            "work": tmp_path / "work",
            "bundles": tmp_path / "bundles",
            "collect": {"files": [tmp_path / "prompts.jsonl"]},
        }
    )
    target, tokenizer = load_target(config, 4), target_tokenizer(config)
    prompts = [tuple(tokenizer.encode_text(f"What is {number} + 25?")) for number in range(6)]
    params = SamplingParams(seed=0, max_tokens=24, temperature=0)
    asked = [GenerationRequest(tokens=prompt, prompt_length=len(prompt), params=params) for prompt in prompts]
    records = [record for _, record in sorted(answer(target, tokenizer, asked, 4))]
    imitated = distil(target, records, top=4, context=config.target.context)
    answered = torch.tensor([token for record in records for token in record.output_ids])
    best = (imitated.logprobs == imitated.logprobs[:, :1]) & (imitated.ids == answered[:, None])
    assert best.any(1).all()  # logits are in bfloat16, so two may be the highest
    assert target.num_used_pages == 0
