"""The ragged tree forward against a plain `transformers` forward of the same token sequence."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from stream_engine.model.backbones.backbone import Backbone
from stream_engine.model.backbones.families import FAMILIES, UnsupportedModelError
from stream_engine.model.forward.step import Branch, Segment

VOCAB = 97
WINDOW = 7
SLAB = 160
NOISE = 1e-4

# What a family needs on top of the common tiny shape; windows are shorter than the sequences that tests build.
SPECIFIC: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": WINDOW},
    "qwen2": {
        "use_sliding_window": True,
        "sliding_window": WINDOW,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    },
    "qwen3": {"head_dim": 16},
    "gemma2": {
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 20.0,
    },
    "gemma3_text": {
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
    "granite": {"attention_multiplier": 0.3, "logits_scaling": 2.0, "residual_multiplier": 0.5},
    "olmo2": {},
    "phi3": {"sliding_window": WINDOW, "pad_token_id": 0},
    "smollm3": {"no_rope_layers": [1, 0, 1], "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


def tiny(family: str, **changes: Any) -> Any:
    """A random model of a family: 3 layers, 4 query heads on 2 key heads."""
    shape: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        # Wide, so that attention is sharp: with the usual 0.02 all is nearly flat and nothing could fail.
        "initializer_range": 0.25,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = CONFIG_MAPPING[family](**{**shape, **SPECIFIC.get(family, {}), **changes})
    torch.manual_seed(11)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


class Pair:
    """A backbone and a plain copy of the same weights with the library's own attention."""

    def __init__(self, family: str, cells: int = 4 * SLAB, **changes: Any) -> None:
        self.plain = tiny(family, **changes)
        self.backbone = Backbone(copy.deepcopy(self.plain), cells)

    def reference(self, tokens: Sequence[int], position: int = 0) -> torch.Tensor:
        """Plain forward: logits [V] after the last of `tokens`."""
        ids = torch.tensor([list(tokens)])
        positions = torch.arange(position, position + len(tokens))[None]
        with torch.inference_mode():
            logits: torch.Tensor = self.plain(input_ids=ids, position_ids=positions, use_cache=False).logits
        return logits[0, -1]

    def assert_exact(self, row: torch.Tensor, tokens: Sequence[int], position: int = 0) -> None:
        expected = self.reference(tokens, position)
        assert int(row.argmax()) == int(expected.argmax())
        assert float((row - expected).abs().max()) < NOISE


@pytest.fixture(scope="module")
def pairs() -> Callable[[str], Pair]:
    made: dict[str, Pair] = {}

    def get(family: str) -> Pair:
        if family not in made:
            made[family] = Pair(family)
        return made[family]

    return get


def ids(count: int, seed: int) -> tuple[int, ...]:
    return tuple(random.Random(seed).choices(range(3, VOCAB), k=count))


def test_every_supported_family_is_covered() -> None:
    assert set(SPECIFIC) == FAMILIES


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_append_then_branches(pairs: Callable[[str], Pair], family: str) -> None:
    pair = pairs(family)
    first, second, header, question = ids(21, 1), ids(3, 2), ids(4, 3), ids(9, 4)
    out = pair.backbone.forward([Segment(base=0, length=0, append=first, append_logits=True)])
    pair.assert_exact(out.rows[0], first)
    step = Segment(
        base=0,
        length=21,
        append=second,
        append_logits=True,
        branches=(Branch(tokens=header, cell=40), Branch(tokens=question, cell=24)),
    )
    out = pair.backbone.forward([step])
    (rows,) = out.segments
    assert rows.append is not None
    pair.assert_exact(out.rows[rows.append], first + second)
    pair.assert_exact(out.rows[rows.branches[0]], first + second + header)
    pair.assert_exact(out.rows[rows.branches[1]], first + second + question)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3_text"])
def test_chunking_does_not_matter(pairs: Callable[[str], Pair], family: str) -> None:
    pair = pairs(family)
    tokens = ids(40, 5)
    for cuts in ([40], [1] * 40, [1, 13, 2, 24], [39, 1]):
        done = 0
        for size in cuts:
            chunk = tokens[done : done + size]
            out = pair.backbone.forward([Segment(base=SLAB, length=done, append=chunk, append_logits=True)])
            done += size
            pair.assert_exact(out.rows[0], tokens[:done])


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_a_branch_resumes_from_scratch_cells(pairs: Callable[[str], Pair], family: str) -> None:
    """Fall-through (Eq. 5), longer than the window: reused cells lie apart from the newly written ones."""
    pair = pairs(family)
    data, entry, tail = ids(18, 6), ids(11, 7), ids(2, 8)
    pair.backbone.forward([Segment(base=0, length=0, append=data, branches=(Branch(tokens=entry, cell=50),))])
    for reused in (1, 6, 11):
        resumed = Branch(tokens=tail, cell=30, reused=reused, reused_cell=50)
        out = pair.backbone.forward([Segment(base=0, length=18, branches=(resumed,))])
        pair.assert_exact(out.rows[0], data + entry[:reused] + tail)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_branch_on_an_earlier_boundary_equals_the_forward_of_that_time(
    pairs: Callable[[str], Pair], family: str
) -> None:
    """The session has moved on since; boundaries on both sides of the window, beside branches on the live end."""
    pair = pairs(family)
    data, more, entry, header = ids(33, 18), ids(3, 19), ids(5, 20), ids(2, 21)
    pair.backbone.forward([Segment(base=0, length=0, append=data)])
    for sees in (2, 17, 32, 33):
        old, live = Branch(entry, cell=50, sees=sees), Branch(header, cell=40)
        out = pair.backbone.forward([Segment(base=0, length=33, append=more, branches=(live, old))])
        pair.assert_exact(out.rows[0], data + more + header)
        pair.assert_exact(out.rows[1], data[:sees] + entry)
        alone = pair.backbone.forward([Segment(base=0, length=36, branches=(old,))])
        pair.assert_exact(alone.rows[0], data[:sees] + entry)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3_text"])
def test_truncate_then_another_append(pairs: Callable[[str], Pair], family: str) -> None:
    pair = pairs(family)
    kept, dropped, other = ids(15, 9), ids(12, 10), ids(4, 11)
    pair.backbone.forward([Segment(base=0, length=0, append=kept + dropped)])
    out = pair.backbone.forward([Segment(base=0, length=15, append=other, append_logits=True)])
    pair.assert_exact(out.rows[0], kept + other)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3_text"])
def test_a_copied_slab_goes_on_by_itself(pairs: Callable[[str], Pair], family: str) -> None:
    pair = pairs(family)
    prefix, left, right = ids(23, 12), ids(5, 13), ids(7, 14)
    pair.backbone.forward([Segment(base=0, length=0, append=prefix)])
    pair.backbone.store.copy(0, 2 * SLAB, len(prefix))
    out = pair.backbone.forward(
        [
            Segment(base=0, length=23, append=left, append_logits=True),
            Segment(base=2 * SLAB, length=23, append=right, append_logits=True),
        ]
    )
    pair.assert_exact(out.rows[0], prefix + left)
    pair.assert_exact(out.rows[1], prefix + right)


def test_positions_may_start_later(pairs: Callable[[str], Pair]) -> None:
    pair = pairs("gemma3_text")
    tokens, entry = ids(20, 15), ids(3, 16)
    step = Segment(base=0, length=0, append=tokens, branches=(Branch(tokens=entry, cell=20),), position=90)
    out = pair.backbone.forward([step])
    pair.assert_exact(out.rows[0], tokens + entry, position=90)


def test_a_sliding_window_hides_something_here(pairs: Callable[[str], Pair]) -> None:
    """Guards the tests above: with a window as long as the sequence they could not fail."""
    tokens = ids(24, 17)
    narrow = pairs("mistral").reference(tokens)
    wide = Pair("mistral", sliding_window=200).reference(tokens)
    assert float((narrow - wide).abs().max()) > 100 * NOISE


@dataclass(slots=True)
class Resident:
    """A session as the tests keep it: a token log and one resident branch."""

    base: int
    tokens: list[int] = field(default_factory=list)
    branch: tuple[int, ...] = ()
    branch_cell: int = 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3_text", "gemma2"])
def test_random_operations_stay_exact(pairs: Callable[[str], Pair], family: str, seed: int) -> None:
    """Appends, branches, fall-through, truncation and slab copies of several sessions in random order."""
    pair, rng = pairs(family), random.Random(seed)
    sessions = [Resident(base=index * SLAB) for index in range(3)]

    def some(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.choices(range(3, VOCAB), k=rng.randint(low, high)))

    for _ in range(14):
        segments: list[Segment] = []
        expected: list[list[int]] = []
        for session in rng.sample(sessions, rng.randint(1, 3)):
            if session.tokens and rng.random() < 0.3:
                del session.tokens[rng.randint(0, len(session.tokens)) :]
                session.branch = ()
            if len(session.tokens) > 70:
                session.tokens.clear()
                session.branch = ()
            resume = bool(session.branch) and rng.random() < 0.6
            append = () if resume else some(0 if session.tokens else 1, 9)
            length = len(session.tokens)
            session.tokens.extend(append)
            if append:
                session.branch = ()
            logits = bool(append) and rng.random() < 0.5
            if logits:
                expected.append(list(session.tokens))
            branches: list[Branch] = []
            cell = len(session.tokens) + rng.randint(0, 3)
            if resume:
                reused = rng.randint(1, len(session.branch))
                cell = max(cell, session.branch_cell + len(session.branch))
                tail = some(1, 3)
                branches.append(Branch(tokens=tail, cell=cell, reused=reused, reused_cell=session.branch_cell))
                expected.append(session.tokens + list(session.branch[:reused]) + list(tail))
                cell += len(tail)
            for _ in range(rng.randint(0 if append or resume else 1, 2)):
                cell += rng.randint(0, 2)
                tokens = some(1, 12)
                if not session.branch:
                    session.branch, session.branch_cell = tokens, cell
                branches.append(Branch(tokens=tokens, cell=cell))
                expected.append(session.tokens + list(tokens))
                cell += len(tokens)
            if not session.branch:
                session.branch_cell = 0
            segments.append(
                Segment(session.base, length, append, tuple(branches), append_logits=logits),
            )
        out = pair.backbone.forward(segments)
        assert out.rows.shape == (len(expected), VOCAB)
        for row, tokens in zip(out.rows, expected, strict=True):
            pair.assert_exact(row, tokens)
        if rng.random() < 0.3:
            source, target = rng.sample(sessions, 2)
            pair.backbone.store.copy(source.base, target.base, len(source.tokens))
            target.tokens, target.branch = list(source.tokens), ()


def test_a_refused_step_writes_nothing() -> None:
    pair = Pair("llama", cells=64)
    before = pair.backbone.store.extent(0, 64).clone()
    for segment in (
        Segment(base=60, length=0, append=ids(5, 1)),
        Segment(base=0, length=0, append=(VOCAB,)),
        Segment(base=0, length=0, append=(-1,)),
        Segment(base=0, length=0, append=(3,), position=256),
        Segment(base=0, length=3, branches=(Branch(tokens=(3, 4), cell=4),), position=252),
    ):
        with pytest.raises(ValueError, match=r"leave the store|vocabulary|positions"):
            pair.backbone.forward([segment])
    assert torch.equal(pair.backbone.store.extent(0, 64), before)


def test_logits_only_where_asked(pairs: Callable[[str], Pair]) -> None:
    out = pairs("llama").backbone.forward([Segment(base=0, length=0, append=(5, 6, 7))])
    assert out.rows.shape == (0, VOCAB)
    assert out.segments[0].append is None


@pytest.mark.parametrize("rope", ["dynamic", "longrope"])
def test_batch_dependent_rope_is_refused(rope: str) -> None:
    parameters: dict[str, Any] = {"rope_type": rope, "rope_theta": 10000.0, "factor": 2.0}
    if rope == "longrope":
        factors = [1.0] * 6
        parameters |= {"short_factor": factors, "long_factor": factors, "original_max_position_embeddings": 64}
    with pytest.raises(UnsupportedModelError, match=rope):
        Backbone(tiny("llama", rope_parameters=parameters), 16)


def test_unknown_family_and_bidirectional_attention_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="gpt2"):
        Backbone(AutoModelForCausalLM.from_config(CONFIG_MAPPING["gpt2"](n_layer=1, n_embd=8, n_head=1)), 16)
    with pytest.raises(UnsupportedModelError, match="bidirectional"):
        Backbone(tiny("gemma3_text", use_bidirectional_attention=True), 16)


def test_sizes_are_the_models(pairs: Callable[[str], Pair]) -> None:
    backbone = pairs("qwen3").backbone
    assert backbone.num_cells == 4 * SLAB
    assert backbone.vocab_size == VOCAB
    assert backbone.max_positions == 256
    assert backbone.store.bytes_per_cell == 3 * 2 * 2 * 16 * 4
