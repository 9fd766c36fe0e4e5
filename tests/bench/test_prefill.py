"""The bench of long prompts: what is asked, in which order, and what its arithmetic takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console

from core.family import TARGET_DIR
from core.model.config import ModelConfig
from core.text.prompts import Message, Prompt
from core.text.tokenizer import load_tokenizer
from serve_app.terminal.progress import step
from tests.bench.engines import Answered
from tests.bench.prefill import WARM, long_questions, measure, page, peak_flops, plot, prompt_flops
from tests.bench.real_model_page import DRAFT, PLAIN, Question, Reply
from tests.bench.real_model_rivals import GENERATE
from tests.bench.real_model_run import Contender

TEXTS = ("Add seven and five, then double the result.", "Name three metals.", "Say why rivers run to the sea.")


def short() -> list[Question]:
    prompts = [Prompt(messages=(Message(role="user", content=text),)) for text in TEXTS]
    return [Question(number, prompt, (1,), "words") for number, prompt in enumerate(prompts)]


def test_long_prompts_are_of_one_length_and_begin_otherwise() -> None:
    tokenizer = load_tokenizer(TARGET_DIR)
    found = long_questions(short(), tokenizer, 90)
    assert all(85 <= len(question.tokens) <= 95 for question in found)
    for question, text in zip(found, TEXTS, strict=True):
        [said] = question.prompt.chat_fields["messages"]
        assert said["content"].startswith(text)
        assert tuple(tokenizer.encode_chat([said])) == question.tokens


def test_nobody_is_asked_what_anybody_was_asked_before(tmp_path: Path) -> None:
    asked: dict[str, list[int]] = {}

    def contender(name: str, seconds: float) -> Contender:
        def answer(question: Question, _: float) -> Reply:
            asked.setdefault(name, []).append(question.number)
            return Reply(Answered((1,), 2 * seconds, seconds, 0, 0, 0), Counter(), Counter())

        return answer

    contenders = {name: contender(name, at) for name, at in ((PLAIN, 0.1), (DRAFT, 0.2), (GENERATE, 0.3))}
    questions = [Question(number, Prompt(prompt="?"), (1, 2), "words") for number in range(3 * (WARM + 4))]
    with step(Console(quiet=True), "") as shown:
        durations, lengths = measure(contenders, questions, 4, shown)
    numbers = [number for of in asked.values() for number in of]
    assert sorted(numbers) == list(range(len(questions)))
    assert len(lengths) == 3 * 4
    text = page(durations, 0.05)
    assert f"| {PLAIN} | 100 (100 to 100) | 3.00 (3.00 to 3.00) | 2.0 |" in text
    assert "| the floor | 50 | | 1.0 |" in text
    plot(durations, tmp_path / "prefill.png")
    assert (tmp_path / "prefill.png").read_bytes().startswith(b"\x89PNG")


def test_the_floor_is_that_of_the_layers_the_attention_and_one_row_of_the_head() -> None:
    config = ModelConfig.load(TARGET_DIR)
    one, two = (prompt_flops(config, tokens) for tokens in (1, 2))
    width = config.num_layers * config.num_heads * config.head_dim
    assert one == 2 * config.num_layers * config.layer_weights + 4 * width + 2 * config.hidden_size * config.vocab_size
    assert two - one == 2 * config.num_layers * config.layer_weights + 8 * width
    assert peak_flops(1, 64) > 1e6
