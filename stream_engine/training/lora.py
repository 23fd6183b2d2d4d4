"""Trains a LoRA adapter that makes a general model answer the generic class from its header, on simulated series.

The recipe: rank 16 on all linear layers, loss on the answer token only, and many answers a pass, because entries
at several boundaries share one rendering of the series (the tree of a step, in training too).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import AutoModelForCausalLM

from stream_engine.model.files import PROFILES, ModelFiles
from stream_engine.model.loader import quiet_libraries
from stream_engine.model.profile import PROFILE_FILE, QUESTIONS_FILE, TOKENIZER_FILE, Profile
from stream_engine.model.text_builder import TextBuilder
from stream_engine.model.weights import weights_sha256
from stream_engine.training.loop import Progress, rate
from stream_engine.training.lora_row import LoraRow, make_rows

ADAPTER_WEIGHTS = "adapter_model.safetensors"
CHECKPOINT_FILE = "checkpoint.pt"
CARD_FILE = "MODEL_CARD.md"
TREND = PROFILES / "trend.json"
_HELD_OUT_STREAM = 1_000_003


@dataclass(frozen=True, slots=True)
class LoraTrainConfig:
    """Everything that decides the adapter, and where it goes.

    `batch` counts series a step, each asked at `boundaries` fills, twice at each; `shards` are threads of one
    core, which meet once a step.
    """

    base: ModelFiles
    out: Path
    steps: int = 270
    batch: int = 8
    boundaries: int = 3
    rank: int = 16
    peak_rate: float = 6e-4
    warmup: int = 20
    final_share: float = 0.05
    seed: int = 7
    shards: int = 2
    report_every: int = 5
    evaluate_every: int = 60
    evaluate_series: int = 48
    checkpoint_every: int = 10


def train_lora(
    config: LoraTrainConfig, progress: Callable[[Progress], None], stop_after: int | None = None
) -> Path:
    """Train, or go on from the folder's checkpoint, and write the adapter's folder; returns it.

    Shard k of step i draws its series from (seed, i, k) alone, so that a resumed run sees what an uninterrupted
    one would have seen. Raises ValueError where the base model cannot be asked for the class.
    """
    torch.set_num_threads(1)
    config.out.mkdir(parents=True, exist_ok=True)
    builder = lora_builder(config.base)
    network = new_adapter(config)
    parameters = [value for value in network.parameters() if value.requires_grad]
    # Products are of bfloat16; what is learned adds up in float32.
    exact = [value.detach().float() for value in parameters]
    optimizer = torch.optim.AdamW(exact, lr=config.peak_rate, betas=(0.9, 0.99), weight_decay=0.0)
    start = _restore(config, exact, optimizer)
    _copy(exact, parameters)
    held_out = make_rows(builder, _rng(config, _HELD_OUT_STREAM), config.evaluate_series, 2)
    end = config.steps if stop_after is None else min(stop_after, config.steps)
    began, losses, shares = time.monotonic(), list[float](), dict[str, float]()

    def gradients(step: int, shard: int) -> tuple[float, list[torch.Tensor]]:
        rows = make_rows(builder, _rng(config, step, shard), config.batch // config.shards, config.boundaries)
        total = [torch.zeros_like(one) for one in exact]
        mean = 0.0
        for row in rows:
            logits = answer_logits(network, row)
            value = functional.cross_entropy(logits, torch.from_numpy(row.answer)) / len(rows)
            for into, one in zip(total, torch.autograd.grad(value, parameters), strict=True):
                into += one
            mean += value.item()
        return mean, total

    with ThreadPoolExecutor(config.shards, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for step in range(start, end):
            for group in optimizer.param_groups:
                group["lr"] = rate(config, step)
            shards = range(config.shards)
            parts = list(pool.map(gradients, [step] * config.shards, shards))
            for at, value in enumerate(exact):
                value.grad = torch.stack([part[1][at] for part in parts]).mean(dim=0)
            torch.nn.utils.clip_grad_norm_(exact, 1.0)
            optimizer.step()
            _copy(exact, parameters)
            losses.append(sum(part[0] for part in parts) / config.shards)
            done = step + 1
            if done % config.checkpoint_every == 0 or done == end:
                _checkpoint(config, done, exact, optimizer)
            evaluate = done % config.evaluate_every == 0 or done == end
            if done % config.report_every == 0 or evaluate:
                right = evaluate_rows(network, held_out, builder, pool) if evaluate else {}
                shares = right or shares
                progress(Progress(done, config.steps, sum(losses) / len(losses), time.monotonic() - began, right))
                losses.clear()
    save_adapter(config, network, builder.profile)
    (config.out / CARD_FILE).write_text(card(config, end, shares), encoding="utf-8")
    return config.out


def card(config: LoraTrainConfig, steps: int, shares: dict[str, float]) -> str:
    """What the adapter is, how it was made, and what it reached: Markdown."""
    asked = steps * config.batch * config.boundaries * 2
    weights = weights_sha256(config.base.directory)
    reached = "\n".join(f"- {name}: {share:.3f}" for name, share in shares.items())
    return f"""# LoRA adapter for {config.base.name}

Answers one class of question, the trend, from the assistant header.
Made for the weights of hash {weights}.

Rank {config.rank} on all linear layers, bfloat16. Trained for
{steps} steps of {config.batch} simulated series, {asked} answers; the loss is on the answer token only.
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


def answer_logits(network: Any, row: LoraRow) -> torch.Tensor:
    """Logits at the ends of a row's entries, float32 [A, vocabulary]."""
    bias = torch.zeros(row.sees.shape, dtype=network.dtype)
    bias.masked_fill_(~torch.from_numpy(row.sees), torch.finfo(network.dtype).min)
    output = network(
        input_ids=torch.from_numpy(row.tokens)[None],
        attention_mask=bias[None, None],
        position_ids=torch.from_numpy(row.positions)[None],
        use_cache=False,
        logits_to_keep=torch.from_numpy(row.answer_at),
    )
    logits: torch.Tensor = output.logits[0]
    return logits.float()


def evaluate_rows(
    network: Any, rows: list[LoraRow], builder: TextBuilder, pool: ThreadPoolExecutor
) -> dict[str, float]:
    """Generic header on simulated series held out: share right, share past the profile's tau, right of those."""
    answers = torch.tensor(sorted(builder.answers))
    tau = builder.profile.tau[builder.profile.generic_class.name]

    def judge(row: LoraRow) -> torch.Tensor:
        with torch.inference_mode():
            top = answer_logits(network, row)[torch.from_numpy(row.generic)].topk(2, dim=-1)
        first, gap = top.indices[:, 0], top.values[:, 0] - top.values[:, 1]
        right = first == torch.from_numpy(row.answer[row.generic])
        return torch.stack([right, (gap > tau) & torch.isin(first, answers)])

    right, fires = torch.cat(list(pool.map(judge, rows)), dim=1)
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
