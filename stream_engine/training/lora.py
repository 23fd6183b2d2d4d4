"""Trains a LoRA adapter that makes a general model answer the generic class from its header, on simulated series.

The recipe: rank 16 on all linear layers, loss on the answer token only, and several answers a series, because
entries at its boundaries share one rendering (the tree of a step, in training too). First only at the window that
opens a region, whose first close is the reference: there the trend is in the last number, which is found soon.
Then at every fill, where it is in the difference of two.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import AutoModelForCausalLM

from stream_engine.model.backbones.loader import quiet_libraries
from stream_engine.model.hub.files import PROFILES, ModelFiles
from stream_engine.model.hub.weights import weights_sha256
from stream_engine.model.profile import PROFILE_FILE, QUESTIONS_FILE, TOKENIZER_FILE, Profile
from stream_engine.model.render.text_builder import TextBuilder
from stream_engine.training.loop import Progress, rate
from stream_engine.training.lora_row import LoraBatch, make_batch

ADAPTER_WEIGHTS = "adapter_model.safetensors"
CHECKPOINT_FILE = "checkpoint.pt"
CARD_FILE = "MODEL_CARD.md"
TREND = PROFILES / "trend.json"
EVALUATED_AT_ONCE = 24
_HELD_OUT_STREAM = 1_000_003


@dataclass(frozen=True, slots=True)
class LoraTrainConfig:
    """Everything that decides the adapter, and where it goes.

    `batch` counts series a step, each asked at `boundaries` fills, twice at each; in the `opening` share of the
    steps only at the first. Sums are torch's, on all its threads: their number changes the last digits.
    """

    base: ModelFiles
    out: Path
    steps: int = 900
    batch: int = 8
    boundaries: int = 2
    opening: float = 0.15
    rank: int = 16
    peak_rate: float = 6e-4
    warmup: int = 20
    final_share: float = 0.05
    seed: int = 7
    report_every: int = 5
    evaluate_every: int = 100
    evaluate_series: int = 96
    checkpoint_every: int = 20


def train_lora(
    config: LoraTrainConfig, progress: Callable[[Progress], None], stop_after: int | None = None
) -> Path:
    """Train, or go on from the folder's checkpoint, and write the adapter's folder; returns it.

    A step draws its series from (seed, step) alone, so that a resumed run sees what an uninterrupted one would
    have seen. Raises ValueError where the base model cannot be asked for the class.
    """
    config.out.mkdir(parents=True, exist_ok=True)
    builder = lora_builder(config.base)
    profile = builder.profile
    network = new_adapter(config)
    parameters = [value for value in network.parameters() if value.requires_grad]
    # Products are of bfloat16; what is learned adds up in float32.
    exact = [value.detach().float() for value in parameters]
    optimizer = torch.optim.AdamW(exact, lr=config.peak_rate, betas=(0.9, 0.99), weight_decay=0.0)
    start = _restore(config, exact, optimizer)
    _copy(exact, parameters)
    held_out = [
        make_batch(builder, _rng(config, _HELD_OUT_STREAM, first), EVALUATED_AT_ONCE, profile.region_bars, 2)
        for first in range(0, config.evaluate_series, EVALUATED_AT_ONCE)
    ]
    end = config.steps if stop_after is None else min(stop_after, config.steps)
    began, losses, shares = time.monotonic(), list[float](), dict[str, float]()
    for step in range(start, end):
        for group in optimizer.param_groups:
            group["lr"] = rate(config, step)
        bars = profile.window_bars if step < config.opening * config.steps else profile.region_bars
        batch = make_batch(builder, _rng(config, step), config.batch, bars, config.boundaries)
        loss = functional.cross_entropy(answer_logits(network, batch), torch.from_numpy(batch.answer))
        for value, gradient in zip(exact, torch.autograd.grad(loss, parameters), strict=True):
            value.grad = gradient.float()
        torch.nn.utils.clip_grad_norm_(exact, 1.0)
        optimizer.step()
        _copy(exact, parameters)
        losses.append(loss.item())
        done = step + 1
        if done % config.checkpoint_every == 0 or done == end:
            _checkpoint(config, done, exact, optimizer)
        evaluate = done % config.evaluate_every == 0 or done == end
        if done % config.report_every == 0 or evaluate:
            right = evaluate_batches(network, held_out, builder) if evaluate else {}
            shares = right or shares
            progress(
                Progress(
                    step=done,
                    steps=config.steps,
                    loss=sum(losses) / len(losses),
                    seconds=time.monotonic() - began,
                    right=right,
                )
            )
            losses.clear()
    save_adapter(config, network, builder.profile)
    (config.out / CARD_FILE).write_text(card(config, end, shares), encoding="utf-8")
    return config.out


def card(config: LoraTrainConfig, steps: int, shares: dict[str, float]) -> str:
    """What the adapter is, how it was made, and what it reached: Markdown."""
    weights = weights_sha256(config.base.directory)
    reached = "\n".join(f"- {name}: {share:.3f}" for name, share in shares.items())
    return f"""# LoRA adapter for {config.base.name}

Answers one class of question, the trend, from the assistant header.
Made for the weights of hash {weights}.

Rank {config.rank} on all linear layers, bfloat16. Trained for
{steps} steps of {config.batch} simulated series, each asked by the header and by a question at up to
{config.boundaries} fills of its region; the loss is on the answer token only.
No recorded data. Peak rate {config.peak_rate:g}, seed {config.seed}.

Generic header on {config.evaluate_series} simulated series held out:

{reached}

For recorded windows: `stream-engine probe-model {config.base.name} --adapter FOLDER --recorded`.
"""


def lora_builder(base: ModelFiles) -> TextBuilder:
    """The rendering that the adapter is trained for, with the base model's tokenizer."""
    return TextBuilder.load(Profile.read(TREND, base.directory / TOKENIZER_FILE, base.name), base.directory)


def new_adapter(config: LoraTrainConfig) -> Any:
    """The base model, frozen, with a fresh adapter, all in bfloat16."""
    torch.manual_seed(config.seed)
    rank = config.rank
    with quiet_libraries():
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear", task_type="CAUSAL_LM")
        base = AutoModelForCausalLM.from_pretrained(
            str(config.base.directory), dtype=torch.bfloat16, attn_implementation="eager", local_files_only=True
        )
        return get_peft_model(base, lora, autocast_adapter_dtype=False)


def answer_logits(network: Any, batch: LoraBatch) -> torch.Tensor:
    """Logits at the ends of a batch's entries, float32 [A, vocabulary]."""
    bias = torch.zeros(batch.sees.shape, dtype=network.dtype)
    bias.masked_fill_(~torch.from_numpy(batch.sees), torch.finfo(network.dtype).min)
    ends, where = np.unique(batch.answer_at, return_inverse=True)
    output = network(
        input_ids=torch.from_numpy(batch.tokens),
        attention_mask=bias[:, None],
        position_ids=torch.from_numpy(batch.positions),
        use_cache=False,
        logits_to_keep=torch.from_numpy(ends),
    )
    logits: torch.Tensor = output.logits[torch.from_numpy(batch.row), torch.from_numpy(where)]
    return logits.float()


def evaluate_batches(network: Any, batches: Sequence[LoraBatch], builder: TextBuilder) -> dict[str, float]:
    """Generic header on simulated series held out: share right, share past the profile's tau, right of those."""
    answers = torch.tensor(sorted(builder.answers))
    tau = builder.profile.tau[builder.profile.generic_class.name]

    def judge(batch: LoraBatch) -> torch.Tensor:
        generic = torch.from_numpy(batch.generic)
        with torch.inference_mode():
            top = answer_logits(network, batch)[generic].topk(2, dim=-1)
        first, gap = top.indices[:, 0], top.values[:, 0] - top.values[:, 1]
        return torch.stack(
            [first == torch.from_numpy(batch.answer)[generic], (gap > tau) & torch.isin(first, answers)]
        )

    right, fires = torch.cat([judge(batch) for batch in batches], dim=1)
    fired = max(1, int(fires.sum()))
    return {
        "right": float(right.float().mean()),
        "past tau": float(fires.float().mean()),
        "right past tau": float((right & fires).sum()) / fired,
    }


def save_adapter(config: LoraTrainConfig, network: Any, profile: Profile) -> None:
    """Write the adapter, its configuration, and the profile and wordings that it was trained for."""
    from peft import get_peft_model_state_dict

    state = {name: value.contiguous() for name, value in get_peft_model_state_dict(network).items()}
    save_file(state, config.out / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    lora = network.peft_config["default"]
    lora.base_model_name_or_path = config.base.name
    lora.inference_mode = True
    lora.save_pretrained(str(config.out))
    raw = json.loads(TREND.read_text(encoding="utf-8"))
    del raw["questions"]
    raw["name"] = f"{config.base.name}-trend"
    (config.out / PROFILE_FILE).write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    lines = ["# Wordings the adapter was trained on and that are routed to their class: one a line."]
    for name, listed in profile.questions.items():
        lines += ["", f"[{name}]", *listed]
    (config.out / QUESTIONS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _rng(config: LoraTrainConfig, *stream: int) -> np.random.Generator:
    return np.random.default_rng([config.seed, *stream])


def _copy(exact: list[torch.Tensor], parameters: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for source, target in zip(exact, parameters, strict=True):
            target.copy_(source)


def _checkpoint(
    config: LoraTrainConfig, step: int, exact: list[torch.Tensor], optimizer: torch.optim.Optimizer
) -> None:
    new = config.out / f"{CHECKPOINT_FILE}.new"
    torch.save({"step": step, "adapter": exact, "optimizer": optimizer.state_dict()}, new)
    new.replace(config.out / CHECKPOINT_FILE)


def _restore(config: LoraTrainConfig, exact: list[torch.Tensor], optimizer: torch.optim.Optimizer) -> int:
    path = config.out / CHECKPOINT_FILE
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    _copy(state["adapter"], exact)
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
