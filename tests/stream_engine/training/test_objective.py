"""The training batch is what the service would serve: same tokens, same visibility, same answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stream_engine.data.simulate import simulate
from stream_engine.data.statistics import labels
from stream_engine.model.frame import RegionFrame
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.training.network import architecture, new_network, waves
from stream_engine.training.objective import BarHeads, TrainingBatch, forward, loss, make_batch, tree_mask

BUILDER = TokenBuilder.load(EMBEDDED)
SHARES = tuple(1.0 / len(BUILDER.profile.classes) for _ in BUILDER.profile.classes)
SERIES = simulate(np.random.default_rng(5), 3, 64)


@pytest.fixture(scope="module")
def batch() -> TrainingBatch:
    return make_batch(BUILDER, SERIES, np.random.default_rng(6), 4, SHARES)


@pytest.fixture(scope="module")
def network():  # type: ignore[no-untyped-def]
    torch.set_num_threads(1)
    return new_network(BUILDER, architecture(BUILDER, width=64, layers=2, feed_forward=96), seed=1)


def paths(batch: TrainingBatch, row: int) -> list[list[int]]:
    """Each supervised answer's own token sequence, read back along its branch."""
    found = []
    for at in batch.answer_at[row].tolist():
        branch, cut = int(batch.branch[row, at]), int(batch.cut[row, at])
        own = (batch.branch[row] == branch).nonzero().flatten().tolist()
        found.append([*batch.tokens[row, : cut + 1].tolist(), *batch.tokens[row, own].tolist()])
    return found


def test_every_answer_ends_a_sequence_that_a_plain_forward_agrees_on(batch: TrainingBatch, network) -> None:  # type: ignore[no-untyped-def]
    logits, hidden = forward(network, batch, torch.float32)
    assert hidden.shape == (3, 33, 64)
    for row in range(3):
        for at, path in enumerate(paths(batch, row)):
            plain = network(input_ids=torch.tensor([path]), use_cache=False).logits[0, -1]
            assert torch.allclose(plain, logits[row, at], atol=1e-4)


def test_generic_answers_are_the_trend_of_the_last_window(batch: TrainingBatch) -> None:
    frame_tokens = [
        BUILDER.bars(RegionFrame.fit("any", SERIES.series(row)), SERIES.series(row)).ravel().tolist()
        for row in range(3)
    ]
    for row in range(3):
        for at, path in enumerate(paths(batch, row)):
            if batch.entry_kind[row, at] != 0:
                continue
            body = path[: -len(BUILDER.generic_entry)]
            bars = [token for token in body if token in set(frame_tokens[row])]
            fill = len(bars) // BUILDER.tokens_per_bar
            assert bars == frame_tokens[row][: BUILDER.tokens_per_bar * fill]
            assert 32 <= fill <= 64
            window = slice(fill - 32, fill)
            found = labels(SERIES.close[row, window], SERIES.volume[row, window], ["trend"])
            word = ("up", "down", "flat")[int(found["trend"].index)]
            assert BUILDER.answers[int(batch.answer[row, at])] == ("trend", word)


def test_a_branch_sees_no_other_branch_and_no_later_bar(batch: TrainingBatch) -> None:
    mask = tree_mask(batch)[:, 0]
    for row in range(3):
        for at in batch.answer_at[row].tolist():
            seen = mask[row, at].nonzero().flatten()
            branches = set(batch.branch[row, seen].tolist())
            assert branches == {0, int(batch.branch[row, at])}
            assert int(batch.positions[row, seen].max()) == int(batch.positions[row, at])
            assert len(set(batch.positions[row, seen].tolist())) == len(seen)


def test_boundaries_behind_a_bar_out_of_range_are_not_supervised() -> None:
    wild = simulate(np.random.default_rng(5), 1, 64)
    wild.close[0, 40:] += 1e6 * np.abs(wild.close[0]).max()
    batch = make_batch(BUILDER, wild, np.random.default_rng(0), 33, SHARES)
    supervised = (batch.answer[0] != -100).tolist()
    assert supervised == [fill <= 40 for fill in range(32, 65) for _ in range(2)]
    assert (batch.bar_labels[0, :, 0] != -100).tolist() == [fill <= 40 for fill in range(32, 65)]


def test_bars_learn_nothing_about_volume_where_there_is_none() -> None:
    names = [answer_class.name for answer_class in BUILDER.profile.classes]
    bars = simulate(np.random.default_rng(5), 2, 64)
    bars.volume[0], bars.volume[1] = np.nan, 5.0
    batch = make_batch(BUILDER, bars, np.random.default_rng(0), 4, SHARES)
    supervised = (batch.bar_labels != -100).numpy()
    assert not supervised[0, :, names.index("volume")].any()
    assert supervised[0, :, names.index("trend")].any()
    assert supervised[1, :, names.index("volume")].any()


def test_loss_ignores_what_is_not_supervised(batch: TrainingBatch, network) -> None:  # type: ignore[no-untyped-def]
    heads = BarHeads(64, len(SHARES), 3)
    logits, hidden = forward(network, batch, torch.float32)
    value = loss(logits, heads(hidden), batch)
    assert torch.isfinite(value)
    assert value > 2.0
    perfect = torch.full_like(logits, -50.0).scatter(-1, batch.answer[..., None], 50.0)
    sure = torch.full((*batch.bar_labels.shape, 3), -50.0).scatter(-1, batch.bar_labels[..., None], 50.0)
    assert loss(perfect, sure, batch) == pytest.approx(0.0, abs=1e-5)


def test_neighbouring_levels_start_as_neighbours() -> None:
    table = waves(np.arange(-240, 241), 192, shortest=4.0, longest=960.0)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    near = (table[1:] * table[:-1]).sum(axis=1)
    far = (table[100:] * table[:-100]).sum(axis=1)
    assert near.min() > far.max()
