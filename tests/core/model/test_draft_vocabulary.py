"""Draft vocabularies: their file, what is refused of it, and drafts whose head was cut to them."""

# mypy: disable-error-code="attr-defined"
# What a decoder keeps for itself is looked at.

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from ctypes import c_int64
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import PeftModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from core.errors import ConfigError
from core.model.base import Rows, drawable_ids
from core.model.causal_lm import CausalLM, load_model
from core.model.config import ModelConfig
from core.model.draft_tokens import StopRule
from core.model.draft_vocabulary import FILE, DraftVocabulary, most_frequent
from core.model.loader import Weights
from core.model.tensor_views import TensorDecoder
from core.model.tensors import Tensors
from tests.core.model.random_models import fresh, random_tokens, save_model
from tests.core.model.test_adapter import TOKENS, save_adapter

SIZE = 300  # ids of the models
IDS = [3, 4, 9, 77, *range(100, 171), 298, 299]
DECODERS = pytest.mark.parametrize("decoder", ["compiled", "torch"])
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*tie.*"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
]


def vocabulary(ids: Iterable[int] = IDS) -> DraftVocabulary:
    return DraftVocabulary.from_ids(ids, SIZE)


# ---- the file


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 400).flatmap(lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1), min_size=1)))
)
def test_what_is_saved_is_loaded(drawn: tuple[int, set[int]]) -> None:
    size, ids = drawn
    saved = DraftVocabulary.from_ids(ids, size)
    with TemporaryDirectory() as directory:
        saved.save(Path(directory))
        tensors = load_file(Path(directory, FILE))
        loaded = DraftVocabulary.load(Path(directory))
    assert [column + offset for column, offset in enumerate(tensors["d2t"].tolist())] == sorted(ids)
    assert [token for token, listed in enumerate(tensors["t2d"].tolist()) if listed] == sorted(ids)
    assert (tensors["d2t"].dtype, tensors["t2d"].dtype, len(tensors["t2d"])) == (torch.int64, torch.bool, size)
    assert (loaded.ids.tolist(), loaded.target_size, loaded.sha256) == (sorted(ids), size, saved.sha256)


def test_equal_vocabularies_are_equal_files(tmp_path: Path) -> None:
    for name, ids in (("one", IDS), ("other", reversed(IDS))):
        (tmp_path / name).mkdir()
        vocabulary(ids).save(tmp_path / name)
    assert (tmp_path / "one" / FILE).read_bytes() == (tmp_path / "other" / FILE).read_bytes()


def damaged(directory: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of the file in `directory`, and keep its hash."""
    with safe_open(directory / FILE, framework="pt") as opened:
        metadata = opened.metadata()
    tensors = {name: tensor.clone() for name, tensor in load_file(directory / FILE).items()}
    change(tensors)
    save_file(tensors, directory / FILE, metadata)


def shift(tensors: dict[str, torch.Tensor]) -> None:
    """A map that is sound but another's: every id is one less."""
    tensors["d2t"] -= 1
    tensors["t2d"] = tensors["t2d"].roll(-1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (shift, "SHA-256"),
        (lambda tensors: tensors["t2d"].logical_not_(), "t2d and d2t"),
        (lambda tensors: tensors["t2d"].index_fill_(0, torch.tensor([5]), 1), "t2d and d2t"),
        (lambda tensors: tensors["d2t"].__setitem__(-1, SIZE), "between 0 and 299"),
        (lambda tensors: tensors["d2t"].__setitem__(0, -1), "between 0 and 299"),
        (lambda tensors: tensors["d2t"].__setitem__(1, 1 << 62), "ascend"),
        (lambda tensors: tensors["d2t"].__setitem__(1, 2), "ascend"),
        (lambda tensors: tensors.update(d2t=torch.empty(0, dtype=torch.int64)), "no ids"),
        (lambda tensors: tensors.update(d2t=tensors["d2t"].int()), "int64"),
        (lambda tensors: tensors.update(t2d=tensors["t2d"].byte()), "bool"),
        (lambda tensors: tensors.update(d2t=tensors["d2t"][None].clone()), "int64"),
        (lambda tensors: tensors.pop("t2d"), "t2d"),
    ],
)
def test_a_wrong_map_is_refused(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], named: str
) -> None:
    vocabulary().save(tmp_path)
    damaged(tmp_path, change)
    with pytest.raises(ConfigError, match=f"{FILE}.*{named}"):
        DraftVocabulary.find(tmp_path)


def test_a_file_without_its_hash_or_cut_short_is_refused(tmp_path: Path) -> None:
    vocabulary().save(tmp_path)
    save_file(load_file(tmp_path / FILE), tmp_path / FILE)
    with pytest.raises(ConfigError, match="its metadata say None"):
        DraftVocabulary.find(tmp_path)
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:100])
    with pytest.raises(ConfigError, match="not a readable safetensors file"):
        DraftVocabulary.find(tmp_path)


@pytest.mark.parametrize(("ids", "named"), [([], "no ids"), ([3, 300], "between 0 and 299"), ([-1], "from -1 to -1")])
def test_ids_that_cannot_be_are_refused(ids: list[int], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        vocabulary(ids)


def test_a_directory_without_one_has_a_whole_head(tmp_path: Path) -> None:
    assert DraftVocabulary.find(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": SIZE, "draft_vocab_size": SIZE}))
    assert DraftVocabulary.find(tmp_path) is None


def test_the_models_config_has_its_size_and_is_held_to_it(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"vocab_size": SIZE}))
    vocabulary().save(tmp_path)
    assert json.loads(config.read_text()) == {"vocab_size": SIZE, "draft_vocab_size": len(IDS)}
    found = DraftVocabulary.find(tmp_path)
    assert found is not None
    assert found.ids.tolist() == IDS
    config.write_text(json.dumps({"vocab_size": SIZE, "draft_vocab_size": 12}))
    with pytest.raises(ConfigError, match=f"draft_vocab_size.* is 12, but {FILE} has {len(IDS)} ids"):
        DraftVocabulary.find(tmp_path)
    (tmp_path / FILE).unlink()
    with pytest.raises(ConfigError, match=f"draft_vocab_size.* is 12, but there is no {FILE}"):
        DraftVocabulary.find(tmp_path)


# ---- its choice


def test_the_most_frequent_ids_and_those_that_may_not_be_missing() -> None:
    counts = {7: 5, 3: 9, 8: 5, 1: 1, 4: 0}
    assert most_frequent(counts, 3) == [3, 7, 8]
    assert most_frequent(counts, 2) == [3, 7]
    assert most_frequent(counts, 3, always=(2, 3)) == [2, 3, 7]
    assert most_frequent(counts, 99) == [1, 3, 7, 8]
    with pytest.raises(ConfigError, match=r"of 1 ids has no room for the 2"):
        most_frequent(counts, 1, always=(0, 2))


# ---- the cut head


def load(
    directory: Path,
    cut: DraftVocabulary | None = None,
    adapter: Path | None = None,
    *,
    decoder: str = "compiled",
    dtype: torch.dtype = torch.float32,
) -> CausalLM:
    return load_model(directory, dtype=dtype, num_pages=32, adapter=adapter, vocabulary=cut, decoder=decoder)


@DECODERS
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("ids", [IDS, range(64, 192), [5]], ids=["some", "whole panels", "one"])
def test_its_logits_are_those_of_the_whole_head(tmp_path: Path, ids: Iterable[int], tied: bool, decoder: str) -> None:
    save_adapter(tmp_path / "model", tmp_path / "adapter", tied=tied)
    for adapter in (None, tmp_path / "adapter"):
        whole = load(tmp_path / "model", adapter=adapter, decoder=decoder)
        cut = load(tmp_path / "model", vocabulary(ids), adapter, decoder=decoder)
        expected, found = fresh(whole, 0, TOKENS)[:, list(ids)], fresh(cut, 0, TOKENS)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
        assert decoder == "torch" or torch.equal(found, expected)  # a kernel sums every output by itself


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_in_kernels_whole_panels_have_the_bits_of_the_whole_head(tmp_path: Path, dtype: torch.dtype) -> None:
    save_model(tmp_path)
    ids = range(0, 256, 2)
    cut, whole = load(tmp_path, vocabulary(ids), dtype=dtype), load(tmp_path, dtype=dtype)
    for rows in (1, 7, 40):
        expected = fresh(whole, rows, TOKENS, rows)[:, list(ids)]
        assert torch.equal(fresh(cut, rows, TOKENS, rows), expected)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@DECODERS
def test_a_chain_is_that_of_the_whole_head_as_long_as_its_tokens_are_listed(
    tmp_path: Path, temperature: float, decoder: str
) -> None:
    save_model(tmp_path)
    whole, dice = load(tmp_path, decoder=decoder), random.Random(2)
    complete, listed = 0, 0
    for turn in range(30):
        noise = temperature * torch.randn(6, 2, SIZE, generator=torch.Generator().manual_seed(turn))
        batch = [Rows(session, random_tokens(9, SIZE, 2 * turn + session), 1) for session in range(2)]
        expected = drawn(whole, batch, noise)
        said = {token for line in expected for token in line}
        ids = sorted({*dice.sample(range(SIZE), 100), *(said if turn % 2 else ())})
        lines = drawn(load(tmp_path, vocabulary(ids), decoder=decoder), batch, noise[..., ids])
        for line, wanted in zip(lines, expected, strict=True):
            same = next((at for at, token in enumerate(wanted) if token not in ids), len(wanted))
            assert line[:same] == wanted[:same]
            assert set(line) <= set(ids)
            complete += same == len(wanted)
            listed += 0 < same < len(wanted)
    assert complete >= 30
    assert listed >= 3


def drawn(model: CausalLM, batch: list[Rows], noise: torch.Tensor) -> list[list[int]]:
    for rows in batch:
        model.open(rows.session)
    lines = model.draw(batch, len(noise), noise.shape[-1], noise, StopRule.never(len(batch)))
    for rows in batch:
        model.close(rows.session)
    return [[guess.token for guess in line] for line in lines]


def test_kernels_draw_what_torch_draws_and_feed_it_to_the_next_pass(tmp_path: Path) -> None:
    save_model(tmp_path)
    models = [load(tmp_path, vocabulary()), load(tmp_path, vocabulary(), decoder="torch")]
    for num_ids in (len(IDS), 40, 2):
        noise = torch.randn(6, 1, num_ids, generator=torch.Generator().manual_seed(num_ids))
        lines = []
        for model in models:
            model.open(0)
            [line] = model.draw([Rows(0, TOKENS, 1)], 6, num_ids, noise, StopRule.never(1))
            lines.append(line)
            model.close(0)
        ours, torchs = lines
        assert [guess[::2] for guess in ours] == [guess[::2] for guess in torchs]
        for guess in ours:
            assert {guess.token, *guess.runners_up} <= set(IDS[:num_ids])
            assert len(guess.runners_up) == min(3, num_ids - 1)


def test_the_other_rows_of_the_head_are_not_kept(tmp_path: Path) -> None:
    """The embedding is, whose every row may be read, tied or not."""
    save_model(tmp_path)
    kept = []
    for cut in (None, vocabulary()):
        decoder = load(tmp_path, cut)._decoder
        assert isinstance(decoder, TensorDecoder)
        kept.append(sum(array.size for array in decoder.compiled._held))
    panel, hidden = c_int64.in_dll(decoder.compiled.kernels, "panel_width").value, 64
    rows = [-(-count // panel) * panel for count in (SIZE, len(IDS))]
    assert kept[0] - kept[1] == (rows[0] - rows[1]) * hidden - len(IDS)  # the ids themselves are kept
    weights = Weights(tmp_path, None, "float32")
    head = Tensors(ModelConfig.load(tmp_path), weights, vocabulary().ids).head.weight
    assert head.nbytes == 4 * len(IDS) * hidden
    assert head.base is None or head.base.nbytes == head.nbytes  # no view of the whole head, which it would keep


@DECODERS
def test_only_tokens_that_the_tokenizer_has_are_drawn(tmp_path: Path, decoder: str) -> None:
    save_model(tmp_path)
    cut = load(tmp_path, vocabulary(), decoder=decoder)
    ids = drawable_ids(cut.head_ids, 150)
    assert isinstance(ids, torch.Tensor)
    assert ids.tolist() == [token for token in IDS if token < 150]
    cut.open(0)
    [line] = cut.draw([Rows(0, TOKENS, 1)], 20, len(ids), None, StopRule.never(1))
    assert max(guess.token for guess in line) < 150
    assert drawable_ids(None, 150) == 150
    with pytest.raises(ConfigError, match="none of the 3 ids"):
        drawable_ids(cut.head_ids, 3)


def test_a_vocabulary_of_another_model_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path)
    with pytest.raises(ConfigError, match=r"of 299 ids .* vocab_size is 300"):
        load(tmp_path, DraftVocabulary.from_ids([1, 2], 299))


# ---- plain transformers and peft


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_plain_transformers_loads_the_model_and_plain_peft_the_adapter(tmp_path: Path, tied: bool) -> None:
    model, adapter = tmp_path / "model", tmp_path / "adapter"
    save_adapter(model, adapter, tied=tied)
    vocabulary().save(model)
    vocabulary().save(adapter)
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    assert (plain.config.vocab_size, plain.config.draft_vocab_size) == (SIZE, len(IDS))
    check_equal(plain, load(model, DraftVocabulary.find(model)))
    adapted = PeftModel.from_pretrained(plain, str(adapter)).eval()
    check_equal(adapted, load(model, DraftVocabulary.find(adapter), adapter))


def check_equal(oracle: torch.nn.Module, cut: CausalLM) -> None:
    with torch.inference_mode():
        expected = oracle(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(fresh(cut, 0, TOKENS), expected[:, IDS], atol=1e-4, rtol=0)
