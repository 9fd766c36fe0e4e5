"""A distillation set has the target's log-probabilities at every output token; its batches have every record once."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from core.distill.dataset import DistillationBatch, DistillationBatches, DistillationSet, distil
from core.replay.replay import session_forward
from core.traces.record import Record
from tests.core.toy import VOCAB_SIZE, ToyModel, plain_tokens, request

TOP = 5
RECORDS = [
    Record(prompt_ids=asked.tokens, output_ids=plain_tokens(asked), params=asked.params)
    for asked in (request(2 + 5 * number % 23, tokens=range(1 + number % 6, 9), seed=number) for number in range(30))
]
DATA = distil(ToyModel(), RECORDS, TOP, context=1024)


def same(data: DistillationSet, other: DistillationSet) -> bool:
    return all(torch.equal(getattr(data, name), getattr(other, name)) for name in DistillationSet.__slots__)


def rows(batch: DistillationBatch) -> list[tuple[int, ...]]:
    """The tokens of each row up to the last that predicts an output token."""
    ends = [int(row.nonzero().max()) + 1 for row in batch.predicts_output]
    return [tuple(row[:end].tolist()) for row, end in zip(batch.tokens, ends, strict=True)]


def test_it_holds_the_targets_best_of_every_output_token() -> None:
    first = 0
    for record in RECORDS:
        logprobs = session_forward(ToyModel())(record.tokens[:-1], len(record.output_ids)).log_softmax(-1)
        end = first + len(record.output_ids)
        assert torch.equal(DATA.ids[first:end].long(), logprobs.topk(TOP).indices)
        torch.testing.assert_close(DATA.logprobs[first:end].float(), logprobs.topk(TOP).values, atol=4e-3, rtol=0)
        first = end
    assert len(DATA.ids) == first


def test_no_more_than_the_vocabulary_is_kept() -> None:
    assert distil(ToyModel(), RECORDS[:1], 1000, context=1024).ids.shape[1] == VOCAB_SIZE


def test_records_are_cut_at_the_drafts_context() -> None:
    long, over = RECORDS[3], request(tokens=range(12))
    records = [long, Record(prompt_ids=over.tokens, output_ids=(1,), params=over.params)]
    data = distil(ToyModel(), records, TOP, context=10)
    assert data.lengths.tolist() == [11]
    assert data.tokens.tolist() == list(long.tokens[:11])
    assert len(data.ids) == 11 - long.prompt_length


def test_a_file_brings_everything_back(tmp_path: Path) -> None:
    DATA.save(tmp_path / "set")
    assert same(DistillationSet.load(tmp_path / "set"), DATA)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_parts_join_to_the_whole() -> None:
    parts = [distil(ToyModel(), part, TOP, context=1024) for part in (RECORDS[:11], RECORDS[11:])]
    assert same(DistillationSet.join(parts), DATA)
    assert same(DATA.take(range(11)), parts[0])


def test_taken_records_come_in_the_order_asked() -> None:
    taken = DistillationSet.join([DATA.take([7]), DATA.take([2])])
    assert same(DATA.take([7, 2]), taken)
    assert taken.tokens.tolist() == [*RECORDS[7].tokens, *RECORDS[2].tokens]


def test_batches_hold_every_record_once_an_epoch_within_the_budget() -> None:
    stream = DistillationBatches(DATA, budget=64, seed=1).stream(0)
    for _ in range(2):
        seen: list[tuple[int, ...]] = []
        while len(seen) < len(RECORDS):
            batch = next(stream)
            assert batch.tokens.numel() <= 64
            seen += rows(batch)
        assert sorted(seen) == sorted(record.tokens[:-1] for record in RECORDS)


def test_a_batch_says_of_each_wanted_position_what_the_target_said_there() -> None:
    batch = DistillationBatches(DATA, budget=10_000, seed=1)[[4, 2, 9]]
    expected = torch.cat([distil(ToyModel(), [RECORDS[index]], TOP, 1024).ids for index in (4, 2, 9)])
    assert torch.equal(batch.ids, expected.long())
    assert batch.predicts_output.sum(-1).tolist() == [len(RECORDS[index].output_ids) for index in (4, 2, 9)]
    assert batch.predicts_output[0].nonzero()[0] == RECORDS[4].prompt_length - 1


def test_a_record_longer_than_the_budget_is_a_batch_of_its_own() -> None:
    found = [rows(batch) for batch in islice(DistillationBatches(DATA, budget=1, seed=1).stream(0), len(RECORDS))]
    assert all(len(batch) == 1 for batch in found)


@pytest.mark.parametrize("done", [1, 7, 40])
def test_a_stream_goes_on_where_it_stopped(done: int) -> None:
    whole = list(islice(DistillationBatches(DATA, budget=64, seed=1).stream(0), 50))
    rest = list(islice(DistillationBatches(DATA, budget=64, seed=1).stream(done), 50 - done))
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(whole[done:], rest, strict=True))


def test_the_seed_decides_the_order() -> None:
    first, other = (next(DistillationBatches(DATA, budget=64, seed=seed).stream(0)) for seed in (1, 2))
    assert rows(first) != rows(other)
