"""The cost of embedding many texts: GPU hours, money, files and requests, from measured rates and by arithmetic.

Rates are those of BERT-base in bf16 on one H200, from texts in memory to vectors in memory, as measured by
`python -m benchmarks.embed_gpu` (benchmarks/results/embed_gpu.json). Between the two measured lengths the time per text
is a line; another model takes as much longer as it needs more FLOPs, but no text can be embedded faster than it is
tokenized. Reading, writing and waiting are not in a rate.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from regard.errors import InputError
from regard.inference.embedding.sentence_transformers import SentenceSettings
from regard.models.family import get_family
from regard.render.result import Result

GPU = "h200"
Rates = tuple[tuple[float, float], tuple[float, float]]  # mean tokens per text, and texts per second, of two lengths
SHORT, LONG = 172_977 / 8192, 1_285_909 / 8192
EMBEDDING: Rates = ((SHORT, 88_152), (LONG, 16_258))
TOKENIZING: Rates = ((SHORT, 164_916), (LONG, 22_273))  # beside the GPU, which a small model waits for
SOURCE = "benchmarks/results/embed_gpu.json, 2026-11-17: BERT-base, bf16, one H200"
UPLOAD_BYTES = 10 << 20  # per request of an upload by pyarrow, which also begins and ends every upload with one
LIST_KEYS = 1000  # names that an object store lists per request


class EmbedCost(Result):
    """The result of `regard cost embed`. `gpu_hours` are those of all GPUs together, `hours` those on the clock.

    `gigabytes` are those of float32 vectors. `put_requests` and `get_requests` are those of an object store that holds
    input and output: the input is read twice, and a part is sent in requests of 10 MiB, between two others.
    """

    model: str
    texts: int
    length: float
    width: int
    texts_per_second: float
    source: str
    gpu: str
    gpus: int
    gpu_hours: float
    hours: float
    price: float | None
    money: float | None
    shard_size: int
    shards: int
    seconds_per_shard: float
    gigabytes: float
    megabytes_per_part: float
    put_requests: int
    get_requests: int

    def to_text(self) -> str:
        rows = [
            ("model", f"{self.model}, {self.width:,} wide"),
            ("texts", f"{self.texts:,} of {self.length:g} tokens"),
            ("rate", f"{self.texts_per_second:,.0f} texts/s on one {self.gpu.upper()} ({self.source})"),
            ("GPU hours", f"{self.gpu_hours:,.4g}"),
            ("hours", f"{self.hours:,.4g} on {self.gpus:,} GPU{'s' if self.gpus > 1 else ''}"),
            ("shards", f"{self.shards:,} of {self.shard_size:,} texts, {self.seconds_per_shard:.3g} s each"),
            ("vectors", f"{self.gigabytes:,.4g} GB in parts of {self.megabytes_per_part:.3g} MB"),
            ("object store", f"{self.put_requests:,} PUT and {self.get_requests:,} GET and LIST requests"),
        ]
        if self.money is None or self.price is None:
            rows.append(("money", "give the price of an hour of a GPU with --price"))
        else:
            rows.append(("money", f"{self.money:,.0f} (at {self.price:g} an hour; without storage and network)"))
        return "\n".join(f"{name:<14} {value}" for name, value in rows)


def estimate_embedding(
    config: Any,
    *,
    name: str,
    texts: int,
    length: float,
    rate: float | None = None,
    gpu: str = GPU,
    gpus: int = 1,
    price: float | None = None,
    shard_size: int = 65_536,
    settings: SentenceSettings | None = None,
) -> EmbedCost:
    """The cost of `texts` texts of `length` tokens with the model of a config.

    `rate`: texts per second on one GPU, if it was measured; without it the rate is that of BERT-base on an H200, scaled
    by FLOPs. `settings` are those of the model's folder, which decide the width of the vectors.
    """
    if length < 1:
        raise InputError(f"length is {length:g}; expected the mean number of tokens per text, at least 1")
    source = "given"
    if rate is None:
        if gpu != GPU:
            raise InputError(
                f"the rate was measured on an {GPU.upper()} only; give that of the {gpu.upper()} with --rate"
            )
        reference = get_family("bert").config_class(family="bert")
        ratio = text_flops(config, length) / text_flops(reference, length)
        rate, source = rate_at(length, EMBEDDING) / ratio, SOURCE
        if abs(ratio - 1) > 1e-9:
            source += f", scaled by FLOPs ({ratio:.3g} times)"
        if rate > (limit := rate_at(length, TOKENIZING)):
            rate, source = limit, f"{source}, limited by tokenizing"
        if not round(SHORT) <= round(length) <= round(LONG):
            source += f", extrapolated from {SHORT:.0f} and {LONG:.0f} tokens"
    if not 0 < rate < float("inf"):
        raise InputError(f"rate is {rate:g}; expected texts per second on one GPU, above 0")
    width = int(_field(config, "hidden_size"))
    if settings is not None:
        width = settings.width(width * len((settings.pooling or "mean").split("+")))
    shards = -(-texts // shard_size)
    part = min(texts, shard_size) * width * 4
    gpu_hours = texts / rate / 3600
    return EmbedCost(
        model=name,
        texts=texts,
        length=length,
        width=width,
        texts_per_second=rate,
        source=source,
        gpu=gpu,
        gpus=gpus,
        gpu_hours=gpu_hours,
        hours=gpu_hours / gpus,
        price=price,
        money=None if price is None else gpu_hours * price,
        shard_size=shard_size,
        shards=shards,
        seconds_per_shard=shard_size / rate,
        gigabytes=texts * width * 4 / 1e9,
        megabytes_per_part=part / 1e6,
        put_requests=shards * (-(-part // UPLOAD_BYTES) + 2) + 6,  # and the record, twice
        # The input in requests of 4 MiB, twice (a token is about 5 bytes); the size of every part, twice; lists.
        get_requests=2 * -(-int(texts * length * 5) // (4 << 20)) + 2 * shards + 2 * -(-shards // LIST_KEYS),
    )


def rate_at(length: float, measured: Rates) -> float:
    """Texts of a length per second: the time per text is a line through two measured lengths, or proportional."""
    (short, fast), (long, slow) = measured
    per_token = (1 / slow - 1 / fast) / (long - short)
    return 1 / max(1 / fast + per_token * (length - short), per_token * length)


def text_flops(config: Any, length: float) -> float:
    """FLOPs of a forward pass over one text: products with weights, and attention."""
    if get_family(config.family).can("recurrent"):
        raise InputError(f"{config.family} is recurrent: its rate does not follow from that of BERT; give --rate")
    width, layers = float(_field(config, "hidden_size")), float(_field(config, "num_hidden_layers"))
    inner = float(_field(config, "intermediate_size", 4 * width))
    return layers * (2 * length * (4 * width * width + 2 * width * inner) + 4 * length * length * width)


def _field(config: Any, name: str, default: Any = None) -> Any:
    """A field of a configuration, if its family has it."""
    found = getattr(config, name, None) if name in {field.name for field in fields(config)} else None
    if found is None and default is None:
        raise InputError(f"{config.family} has no {name}; its rate cannot be estimated: give --rate")
    return default if found is None else found
