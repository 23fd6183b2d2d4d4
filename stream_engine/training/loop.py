"""The training loop: seeded, resumable, on a CPU; writes a model folder."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import LlamaForCausalLM

from stream_engine.data.simulate import simulate
from stream_engine.data.wordings import corpus
from stream_engine.model.profile import EMBEDDED, PROFILE_FILE, QUESTIONS_FILE, TOKENIZER_FILE, Profile
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.model.render.tokenizer import CHAT_TEMPLATE, END, PAD, load_tokenizer, train_tokenizer
from stream_engine.training.network import architecture, new_network
from stream_engine.training.objective import BarHeads, TrainingBatch, forward, loss, make_batch

CHECKPOINT_FILE = "checkpoint.pt"
WEIGHTS_FILE = "model.safetensors"
TIED = "lm_head.weight"  # the same tensor as the embeddings: stored once
_HELD_OUT_STREAM = 1_000_003


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Everything that decides the weights, and where they go.

    `profile_dir` holds profile.json and questions.txt (and, to keep token ids, tokenizer.json); `batch` counts
    series of `region_bars` bars a step; `query_shares` says how often a question of each class is asked.
    A batch is split over `shards` threads of one core each, which meet once a step: on a busy machine that is
    far quicker than threads that meet at every operation. `amp` computes products in bf16.
    """

    out: Path
    profile_dir: Path = EMBEDDED
    steps: int = 5200
    batch: int = 32
    boundaries: int = 6
    peak_rate: float = 1.8e-3
    warmup: int = 200
    final_share: float = 0.03
    weight_decay: float = 0.01
    width: int = 192
    layers: int = 5
    feed_forward: int = 512
    query_shares: tuple[float, ...] = (0.2, 0.15, 0.15, 0.17, 0.15, 0.18)
    seed: int = 7
    shards: int = 2
    amp: bool = True
    report_every: int = 20
    evaluate_every: int = 500
    evaluate_series: int = 256
    checkpoint_every: int = 100


@dataclass(frozen=True, slots=True)
class Progress:
    """One report: step done of steps, mean loss since the last report, share right on simulated series held out.

    `right` maps an entry kind (`generic`, then the class names) to its share; empty between evaluations.
    """

    step: int
    steps: int
    loss: float
    seconds: float
    right: dict[str, float]


def train(config: TrainConfig, progress: Callable[[Progress], None], stop_after: int | None = None) -> Path:
    """Train, or go on from the folder's checkpoint, and write the model folder; returns it.

    Shard k of step i draws its data from (seed, i, k) alone and gradients are summed in the shards' order, so
    that a resumed run gives the weights of an uninterrupted one.
    `stop_after` ends early at that step with a checkpoint (the rate schedule still spans `steps`).
    """
    torch.set_num_threads(1)
    config.out.mkdir(parents=True, exist_ok=True)
    builder = prepare(config)
    network = new_network(
        builder, architecture(builder, config.width, config.layers, config.feed_forward), config.seed
    )
    names = tuple(answer_class.name for answer_class in builder.profile.classes)
    words = max(len(answer_class.words) for answer_class in builder.profile.classes)
    heads = BarHeads(config.width, len(names), words)
    optimizer = torch.optim.AdamW(_groups(config, network, heads), lr=config.peak_rate, betas=(0.9, 0.98))
    parameters = [*network.parameters(), *heads.parameters()]
    start = _restore(config, network, heads, optimizer)
    held_out = _batch(config, builder, (_HELD_OUT_STREAM,), config.evaluate_series)
    kinds = ("generic", *names)
    began, losses = time.monotonic(), list[float]()
    end = config.steps if stop_after is None else min(stop_after, config.steps)

    def gradients(stream: tuple[int, int]) -> tuple[float, tuple[torch.Tensor, ...]]:
        batch = _batch(config, builder, stream, config.batch // config.shards)
        logits, hidden = forward(network, batch, torch.bfloat16 if config.amp else torch.float32)
        value = loss(logits, heads(hidden), batch)
        return value.item(), torch.autograd.grad(value, parameters)

    pool = ThreadPoolExecutor(config.shards, initializer=torch.set_num_threads, initargs=(1,))
    for step in range(start, end):
        for group in optimizer.param_groups:
            group["lr"] = rate(config, step)
        parts = list(pool.map(gradients, [(step, shard) for shard in range(config.shards)]))
        for at, parameter in enumerate(parameters):
            parameter.grad = torch.stack([part[1][at] for part in parts]).mean(dim=0)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(sum(part[0] for part in parts) / config.shards)
        done = step + 1
        evaluate = done % config.evaluate_every == 0 or done == end
        if done % config.report_every == 0 or evaluate:
            right = evaluate_batch(network, held_out, kinds) if evaluate else {}
            mean = sum(losses) / len(losses)
            progress(
                Progress(step=done, steps=config.steps, loss=mean, seconds=time.monotonic() - began, right=right)
            )
            losses.clear()
        if done % config.checkpoint_every == 0 or done == end:
            _save_checkpoint(config, done, network, heads, optimizer)
    pool.shutdown()
    save(builder, network, config.profile_dir, config.out)
    return config.out


class RateSchedule(Protocol):
    """What decides the learning rate of a run."""

    @property
    def steps(self) -> int: ...
    @property
    def warmup(self) -> int: ...
    @property
    def peak_rate(self) -> float: ...
    @property
    def final_share(self) -> float: ...


def rate(config: RateSchedule, step: int) -> float:
    """Learning rate: linear warm-up, then a cosine down to `final_share` of the peak."""
    if step < config.warmup:
        return config.peak_rate * (step + 1) / config.warmup
    share = (step - config.warmup) / max(1, config.steps - config.warmup)
    floor = config.final_share
    return config.peak_rate * (floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * share)))


def prepare(config: TrainConfig) -> TokenBuilder:
    """The token builder; trains the tokenizer where neither the output nor the profile's folder has one."""
    profile = Profile.load(config.profile_dir)
    for directory in (config.out, config.profile_dir):
        if (directory / TOKENIZER_FILE).exists():
            return TokenBuilder(profile, load_tokenizer(directory))
    tokenizer = train_tokenizer(profile, corpus(profile, np.random.default_rng(config.seed)))
    tokenizer.save(str(config.out / TOKENIZER_FILE))
    return TokenBuilder(profile, tokenizer)


def evaluate_batch(network: LlamaForCausalLM, batch: TrainingBatch, kinds: tuple[str, ...]) -> dict[str, float]:
    """Share of right top-1 answers of each entry kind, in fp32."""
    network.eval()
    right: dict[str, list[torch.Tensor]] = {kind: [] for kind in kinds}
    with torch.inference_mode():
        for part in range(0, len(batch.tokens), 32):
            rows = TrainingBatch(
                *(getattr(batch, name)[part : part + 32] for name in TrainingBatch.__dataclass_fields__)
            )
            logits, _ = forward(network, rows, torch.float32)
            hit = logits.argmax(-1) == rows.answer
            for at, kind in enumerate(kinds):
                right[kind].append(hit[(rows.entry_kind == at) & (rows.answer >= 0)])
    network.train()
    return {kind: float(torch.cat(hits).float().mean()) for kind, hits in right.items()}


def save(builder: TokenBuilder, network: LlamaForCausalLM, profile_dir: Path, out: Path) -> None:
    """Write weights, configuration, tokenizer settings, profile and questions: a folder transformers can open."""
    tensors = {name: value.contiguous() for name, value in network.state_dict().items() if name != TIED}
    save_file(tensors, out / WEIGHTS_FILE, metadata={"format": "pt"})
    network.config.architectures = [type(network).__name__]
    network.config.save_pretrained(out)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": CHAT_TEMPLATE,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": network.config.max_position_embeddings,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    for name in (PROFILE_FILE, QUESTIONS_FILE, TOKENIZER_FILE):
        if (profile_dir / name).exists() and not (name == TOKENIZER_FILE and (out / name).exists()):
            _copy(profile_dir / name, out / name)


def _copy(source: Path, target: Path) -> None:
    if source.resolve() != target.resolve():
        shutil.copyfile(source, target)


def _batch(config: TrainConfig, builder: TokenBuilder, stream: tuple[int, ...], series: int) -> TrainingBatch:
    rng = np.random.default_rng([config.seed, *stream])
    bars = simulate(rng, series, builder.profile.region_bars)
    return make_batch(
        builder, bars, rng, config.boundaries, config.query_shares, plain=stream == (_HELD_OUT_STREAM,)
    )


def _groups(config: TrainConfig, network: LlamaForCausalLM, heads: BarHeads) -> list[dict[str, Any]]:
    """Decay matrices of the layers only: not embeddings, norms or the training-only heads."""
    layers = [parameter for parameter in network.model.layers.parameters() if parameter.dim() > 1]
    decayed = {id(parameter) for parameter in layers}
    rest = [
        parameter for parameter in (*network.parameters(), *heads.parameters()) if id(parameter) not in decayed
    ]
    return [
        {"params": layers, "weight_decay": config.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]


def _save_checkpoint(
    config: TrainConfig, step: int, network: LlamaForCausalLM, heads: BarHeads, optimizer: torch.optim.Optimizer
) -> None:
    state = {
        "step": step,
        "network": network.state_dict(),
        "heads": heads.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    new = config.out / f"{CHECKPOINT_FILE}.new"
    torch.save(state, new)
    new.replace(config.out / CHECKPOINT_FILE)


def _restore(
    config: TrainConfig, network: LlamaForCausalLM, heads: BarHeads, optimizer: torch.optim.Optimizer
) -> int:
    path = config.out / CHECKPOINT_FILE
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    network.load_state_dict(state["network"])
    heads.load_state_dict(state["heads"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def main(arguments: list[str] | None = None) -> None:
    """Train from the command line, one report a line."""
    parser = argparse.ArgumentParser(description="Train the embedded model on simulated series.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model and its checkpoint")
    parser.add_argument("--profile", type=Path, default=EMBEDDED, help="folder of profile.json and questions.txt")
    defaults = TrainConfig(out=Path())
    meanings = {"steps": "optimiser steps", "batch": "series a step", "seed": "of everything", "shards": "threads"}
    for name, meaning in meanings.items():
        parser.add_argument(f"--{name}", type=int, default=getattr(defaults, name), help=meaning)
    options = parser.parse_args(arguments)
    config = TrainConfig(
        out=options.out, profile_dir=options.profile, steps=options.steps, batch=options.batch,
        seed=options.seed, shards=options.shards,
    )  # fmt: skip
    train(config, lambda report: print(_line(report), flush=True))


def _line(report: Progress) -> str:
    right = "  ".join(f"{kind} {share:.4f}" for kind, share in report.right.items())
    return f"step {report.step}/{report.steps}  {report.seconds:.0f} s  loss {report.loss:.4f}  {right}".rstrip()


if __name__ == "__main__":
    main(sys.argv[1:])
