"""Shapes of language models by name, for models of random weights. Imports no torch: `--help` lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Quantization = Literal["nf4", "none"]

WIDTH = 2
"""Bytes of a bfloat16: KV, embeddings, norms and the output layer; with "none" all weights."""

NF4_BLOCK = 64
"""Weights that share a scale in bitsandbytes' NF4; with double quantization the scale takes one byte, and 256
scales share one of four bytes."""
NF4_BYTES = 0.5 + 1 / NF4_BLOCK + 4 / (256 * NF4_BLOCK)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a Llama: widths in elements, `positions` and `vocab` in tokens."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    positions: int = 8192
    rope_theta: float = 500_000.0

    @property
    def linear_weights(self) -> int:
        """Weights of the linear layers inside the blocks: those that NF4 packs."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def other_weights(self) -> int:
        """Weights that stay in bfloat16: embedding, output layer, norms."""
        return 2 * self.vocab * self.hidden + (2 * self.layers + 1) * self.hidden

    def weight_bytes(self, quantization: Quantization) -> int:
        """Bytes of all weights with their scales."""
        each = NF4_BYTES if quantization == "nf4" else WIDTH
        return round(self.linear_weights * each) + self.other_weights * WIDTH

    @property
    def largest_layer_bytes(self) -> int:
        """Bytes of the largest linear layer in bfloat16: what is there for a moment while it is quantized, and
        again where bitsandbytes unpacks it for a wide step."""
        return WIDTH * self.hidden * max(self.intermediate, self.heads * self.head_dim)

    @property
    def cell_bytes(self) -> int:
        """Bytes of one token's keys and values over all layers."""
        return 2 * WIDTH * self.layers * self.kv_heads * self.head_dim


SHAPES: dict[str, ModelShape] = {
    "llama-70b": ModelShape(8192, 28672, 80, 64, 8, 128, 128256),
    "llama-8b": ModelShape(4096, 14336, 32, 32, 8, 128, 128256),
    "tiny": ModelShape(64, 128, 2, 4, 2, 16, 512),
}
"""Llama 3's 70B and 8B, and one that a CPU runs at once."""
