"""The recipe of a translator: from sentence pairs to a model that is selected by BLEU.

work/subwords   the tokenizers, which are trained first
config.json model.safetensors tokenizer.json translate.json report.json   the translator, when it is finished
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.checkpoints.files import checksums, verify
from regard.data.batch import collate
from regard.data.readers import ExampleSet
from regard.data.translation_pairs import TranslationPair, pairs_digest
from regard.errors import InputError
from regard.events import Note
from regard.files.checksums import CHECKSUMS
from regard.files.disk import replace_folder
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.subwords import SIDES, Subwords, train_subwords
from regard.inference.translation.translator import (
    TranslationModel,
    Translator,
    bleu,
    default_alignment_heads,
    save_translator,
)
from regard.models.family import build, translation_families
from regard.nn.masks import Padded
from regard.render.result import Table
from regard.text.language import LanguageProfile
from regard.text.tokenizer import TOKENIZER_FILES
from regard.training.distributed.world import World
from regard.training.events import Events, Finished, curve_lines
from regard.training.recipe import Evaluation, Recipe, Share, StepBatch, TrainingOutcome, TrainingRun, epochs_from
from regard.training.recipes.translation.config import (
    DEFAULT_VOCAB_SIZE,
    TranslationConfig,
    TranslationTrainingSection,
    TranslatorSection,
)
from regard.training.run import Session, run, started
from regard.training.run_folder import REPORT, RunReport
from regard.wording import count_of, duration

SUBWORDS, TEST = "subwords", "test.tsv"
COVERAGE = 0.999  # of the training sources are at most as long as what is translated at once
MIN_COVERED = 32  # tokens, even if all sources are shorter
MAIN_SCORE = "bleu"


class TranslationReport(RunReport):
    """The result of a run. `signature` describes how BLEU is computed; `test` are the scores of held-out pairs."""

    task: Literal["translate"] = "translate"
    model: str
    parameters: int
    device: str
    data: dict[str, dict[str, Any]]
    settings: dict[str, dict[str, Any]]
    signature: dict[str, str]
    outcome: TrainingOutcome
    test: dict[str, Any] = Field(default_factory=dict)

    def to_text(self) -> str:
        outcome, test = self.outcome, self.test
        epochs, cost = outcome.epochs, f"{outcome.steps:,} steps in {duration(outcome.seconds)}"
        what = f"epoch {epochs[0]}" if len(epochs) == 1 else f"the average of epochs {epochs[0]} to {epochs[-1]}"
        lines = [
            f"{self.output}: {what}, {self.parameters:,} parameters, {cost}",
            f"dev BLEU             {outcome.scores['bleu']:6.2f}  {self.signature['bleu']}",
            f"dev BLEU, lower case {outcome.scores['bleu_lowercase']:6.2f}  {self.signature['bleu_lowercase']}",
        ]
        if test:
            lines.append(f"{'test BLEU':<21}{test['bleu']:6.2f}  {count_of(test['pairs'], 'pair')} set aside")
            lines.append(f"{'test BLEU, lower case':<21}{test['bleu_lowercase']:6.2f}  beam {test['beam']}")
        lines += curve_lines(outcome.losses, outcome.history, MAIN_SCORE)
        return "\n".join(lines)

    def to_table(self) -> Table:
        names = list(self.outcome.scores)
        rows = [[epoch, *(scores[name] for name in names)] for epoch, scores in enumerate(self.outcome.history, 1)]
        return ["epoch", *names], rows


@dataclass(frozen=True)
class EncodedPair:
    """Token ids of a pair; each side ends with its end token."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Tokens of the longer side."""
        return max(len(self.source), len(self.target))


@dataclass(frozen=True, eq=False)
class TranslationBatch:
    """Sources (B, S) with their layout, and targets (B, T), padded on the right."""

    source: Tensor
    layout: Padded
    target: Tensor

    def to(self, device: torch.device) -> TranslationBatch:
        keep = self.layout.mask
        layout = Padded(None if keep is None else keep.to(device))
        return TranslationBatch(self.source.to(device), layout, self.target.to(device))

    def twice(self) -> TranslationBatch:
        """All rows, followed by a copy of them."""
        keep = self.layout.mask
        layout = Padded(None if keep is None else keep.repeat(2, 1))
        return TranslationBatch(self.source.repeat(2, 1), layout, self.target.repeat(2, 1))


def collate_pairs(pairs: Sequence[EncodedPair], *, padding: int) -> TranslationBatch:
    """One batch of pairs; targets are padded with `padding`, the padding of sources is masked by their layout."""
    source = collate([pair.source for pair in pairs], packed=False)
    target = collate([pair.target for pair in pairs], packed=False, padding=padding)
    assert isinstance(source.layout, Padded)
    return TranslationBatch(source.ids, source.layout, target.ids)


def group_by_length(pairs: Sequence[EncodedPair], *, tokens_per_batch: int, seed: int, epoch: int) -> list[list[int]]:
    """The indices of the pairs of each batch of an epoch.

    The tokens of a batch, with padding, are at most `tokens_per_batch`, unless it is a single pair.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(pairs)).tolist()
    # Pairs of equal length are shuffled; the sorted lengths, and so the batch boundaries, are the same in every epoch.
    order.sort(key=lambda index: (pairs[index].length, len(pairs[index].target), len(pairs[index].source)))
    batches: list[list[int]] = []
    for index in order:
        # In ascending order, the current pair is the longest.
        if not batches or (len(batches[-1]) + 1) * pairs[index].length > tokens_per_batch:
            batches.append([])
        batches[-1].append(index)
    return [batches[number] for number in generator.permutation(len(batches))]


class TranslationObjective(nn.Module):
    """Cross-entropy of the target tokens with label smoothing.

    With `rdrop_weight` each pair is read twice with different dropout, and the symmetric KL divergence between the two
    predictions is added with that weight (R-Drop, Liang et al. 2021; their alpha is twice the weight).
    """

    def __init__(
        self, model: TranslationModel, *, label_smoothing: float, padding: int, rdrop_weight: float = 0.0
    ) -> None:
        super().__init__()
        self.model, self.padding = model, padding
        self.label_smoothing, self.rdrop_weight = label_smoothing, rdrop_weight

    def forward(self, batch: TranslationBatch, weight: float = 1.0) -> dict[str, Tensor]:
        """The loss, times the `weight` of a part of a batch."""
        if self.rdrop_weight:
            batch = batch.twice()
        logits = self.model.teacher_forced_logits(batch.source, batch.layout, batch.target).float()
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            batch.target.flatten(),
            ignore_index=self.padding,
            label_smoothing=self.label_smoothing,
        )
        if self.rdrop_weight:
            present = batch.target[: len(batch.target) // 2] != self.padding
            first, second = (half.log_softmax(-1) for half in logits.chunk(2))
            # The mean of the KL divergences in both directions.
            divergence = ((first.exp() - second.exp()) * (first - second)).sum(-1) / 2
            loss = loss + self.rdrop_weight * (divergence * present).sum() / present.sum()
        return {"loss": loss * weight}


class TranslatorRecipe(Recipe, TrainingRun):
    """Trains a translator on `train`, selects by BLEU on `dev`, and translates `test` once at the end."""

    kind = "translation"
    report_class = TranslationReport
    main_score = MAIN_SCORE
    config: TranslationConfig
    training: TranslationTrainingSection

    def __init__(
        self,
        train: ExampleSet[TranslationPair],
        dev: ExampleSet[TranslationPair],
        config: TranslationConfig,
        *,
        test: ExampleSet[TranslationPair] | None = None,
    ) -> None:
        self.data = {"train": train, "dev": dev, **({"test": test} if test else {})}
        self.config, self.training, self.run = config, config.training, config.run
        self.subwords: Subwords
        self.pairs: list[EncodedPair] = []

    def open(self, world: World) -> Events[None]:
        for name, read in self.data.items():
            yield Note(message=f"{name}: {count_of(len(read.examples), 'pair')} of {read.path} ({read.description})")
            for reason, count in read.dropped.items():
                yield Note(message=f"{name}: {count:,} left out: {reason}")

    def identity(self) -> dict[str, Any]:
        return {"task": "translate", "data": {name: pairs_digest(read.examples) for name, read in self.data.items()}}

    def prepared_files(self) -> list[str]:
        sides = [SUBWORDS, *(f"{SUBWORDS}/{side}" for side in SIDES)]
        files = [f"{side}/{name}" for side in sides for name in TOKENIZER_FILES]
        return [f"{SUBWORDS}/", *files, f"{SUBWORDS}/{CHECKSUMS}"]  # all by name, since the list may be damaged

    def train(self, session: Session) -> Events[TranslationReport | None]:
        train = self.data["train"].examples
        folder = session.work / SUBWORDS
        with session.world.main_only() as is_main:
            if is_main:
                yield from _train_subwords(train, self.config, folder)
        self.subwords = Subwords.open(folder)
        self.pairs = yield from _encode(train, self.subwords, max_length=self.training.max_length)
        self.steps_per_epoch = len(self._epoch(0))
        self.language = LanguageProfile.fit(*zip(*train, strict=True))
        trainer = session.trainer(self)
        yield started(trainer, examples=len(self.pairs))
        outcome = yield from trainer.train()
        model, report = trainer.whole_model().eval(), None
        with session.world.main_only() as is_main:
            if is_main:
                report = self._save(self._translator(model), outcome, session)
                yield Finished(scores=outcome.scores)
        return report

    def build_model(self, seed: int) -> nn.Module:
        model: nn.Module = new_model(self.config.model, self.subwords, seed=seed)
        return model

    def objective(self, model: nn.Module, device: torch.device) -> nn.Module:
        return TranslationObjective(
            model,
            label_smoothing=self.training.label_smoothing,
            padding=self.subwords.padding,
            rdrop_weight=self.training.rdrop_weight,
        )

    def batches(self, step: int, position: Any, share: Share) -> Iterator[StepBatch]:
        assert self.steps_per_epoch is not None
        for epoch, first in epochs_from(step, self.steps_per_epoch):
            for indices in self._epoch(epoch)[first:]:
                parts = []
                for rows, weight in share.parts(indices, self._targets):
                    batch = collate_pairs([self.pairs[index] for index in rows], padding=self.subwords.padding)
                    parts.append({"batch": batch, "weight": weight})
                yield StepBatch(parts, tokens=self._targets(indices))

    def evaluate(self, model: nn.Module, *, final: bool) -> Evaluation:
        sources, references = zip(*self.data["dev"].examples, strict=True)
        beam = Beam(num_beams=self.training.num_beams) if self.training.num_beams > 1 else None
        done, steps = 0, self._translator(model).translate_steps(sources, beam=beam)
        while True:
            try:
                done += next(steps)
            except StopIteration as end:
                return bleu([found[0].text for found in end.value], references).scores
            yield done, len(sources)

    def _epoch(self, epoch: int) -> list[list[int]]:
        """The indices of the pairs of each batch."""
        return group_by_length(
            self.pairs, tokens_per_batch=self.config.training.tokens_per_batch, seed=self.run.seed, epoch=epoch
        )

    def _targets(self, indices: Sequence[int]) -> int:
        return sum(len(self.pairs[index].target) for index in indices)

    def _translator(self, model: Any) -> Translator:
        lengths = sorted(len(pair.source) for pair in self.pairs)
        covered = max(MIN_COVERED, lengths[int(COVERAGE * (len(lengths) - 1))])
        return Translator(model, self.subwords, default_alignment_heads(model), self.language, covered)

    def _save(self, translator: Translator, outcome: TrainingOutcome, session: Session) -> TranslationReport:
        signed, test = bleu(["a"], ["a"]), self.data.get("test")
        report = TranslationReport(
            output=os.fspath(session.output),
            model=self.config.model.family,
            parameters=sum(parameter.numel() for parameter in translator.model.parameters()),
            device=session.device.type,
            data={
                name: {"path": read.path, "pairs": len(read.examples), "how": read.description}
                for name, read in self.data.items()
            },
            settings=self.config.model_dump(mode="json"),
            signature={"bleu": signed.signature, "bleu_lowercase": signed.signature_lowercase},
            outcome=outcome,
            test=_test_scores(translator, test.examples) if test else {},
        )
        files = {REPORT: report.file()}
        if test:
            files[TEST] = "".join(f"{' '.join(a.split())}\t{' '.join(b.split())}\n" for a, b in test.examples).encode()
        save_translator(translator, session.output, files=files)
        return report


def train_translator(
    train: ExampleSet[TranslationPair],
    dev: ExampleSet[TranslationPair],
    *,
    test: ExampleSet[TranslationPair] | None = None,
    output: str | os.PathLike[str],
    config: TranslationConfig | None = None,
    **options: Any,
) -> Events[TranslationReport]:
    """Train a translator on the pairs of `train`, select by BLEU on `dev`, and write it to `output`.

    `test` is translated once at the end and saved beside the model as test.tsv. `options` are those of `run`.
    """
    recipe = TranslatorRecipe(train, dev, config or TranslationConfig.read(), test=test)
    return run(recipe, output, **options)


def new_model(settings: TranslatorSection, subwords: Subwords, *, seed: int) -> TranslationModel:
    """A model with new weights that follow from the seed."""
    family = translation_families()[settings.family]
    assert family.translation is not None
    torch.manual_seed(seed)
    model: TranslationModel = build(family.config_class(**family.translation.config_fields(dict(settings), subwords)))
    return model


def _test_scores(translator: Translator, pairs: list[TranslationPair]) -> dict[str, Any]:
    beam = Beam()
    translations = translator.translate([pair.source for pair in pairs], beam=beam)
    scores = bleu([one[0].text for one in translations], [pair.target for pair in pairs])
    return {"pairs": len(pairs), "beam": beam.num_beams, **asdict(scores)}


def _train_subwords(pairs: list[TranslationPair], config: TranslationConfig, folder: Path) -> Events[None]:
    """Train the subwords unless a resumed run has them."""
    if not folder.is_dir():
        settings = config.vocabulary
        size = settings.vocab_size or DEFAULT_VOCAB_SIZE
        new = train_subwords(pairs, size=size, joint=settings.joint, exact=settings.exact)
        with replace_folder(folder) as staging:
            files = new.files()
            for name, content in {**files, **checksums(files)}.items():
                (staging / name).parent.mkdir(exist_ok=True)
                (staging / name).write_bytes(content)
        kind = "shared by both languages" if new.joint else "per language"
        fewer = min(new.source.size, new.target.size) < size
        sizes = f"{new.target.size:,}" if new.joint else f"{new.source.size:,} and {new.target.size:,}"
        why = f"; the text supports no more, so there are fewer than {size:,}" if fewer else ""
        yield Note(message=f"subwords: {sizes}, {kind}{why}")
    try:
        verify(folder)
    except InputError as error:
        raise InputError(
            f"{error}. Or delete the folder {folder} and continue with --resume: the subwords are trained again"
        ) from None


def _encode(pairs: list[TranslationPair], subwords: Subwords, *, max_length: int) -> Events[list[EncodedPair]]:
    sources = subwords.encode_sources([pair.source for pair in pairs])
    targets = subwords.encode_targets([pair.target for pair in pairs])
    encoded = [EncodedPair(*sides) for sides in zip(sources, targets, strict=True)]
    short = [pair for pair in encoded if pair.length <= max_length]
    if len(short) < len(encoded):
        left_out = f"{len(encoded) - len(short):,} of {len(encoded):,} pairs"
        yield Note(message=f"{left_out} are longer than {max_length} tokens: left out")
    if not short:
        raise InputError(
            f"none of the {len(encoded):,} pairs has at most {max_length} tokens a side; set a larger "
            "training.max_length"
        )
    return short
