"""A translation run from sentence pairs to a translator folder: subwords, training, averaging; resumable at any point.

regard.json            the manifest: which files of the folder belong to the run
config.toml run.json   the settings, and the data of the run
events.jsonl           the events, one line each
work/                  the tokenizers, checkpoints, and the weights of the best epoch and of the last ones
config.json model.safetensors tokenizer.json translate.json report.json   the translator, when it is finished
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from regard.checkpoints.files import checksums, verify
from regard.data.readers import ExampleSet
from regard.data.translation_pairs import TranslationPair, pairs_digest
from regard.device import choose_device
from regard.errors import InputError
from regard.events import Note
from regard.files.checksums import CHECKSUMS
from regard.files.disk import replace_folder
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.subwords import SIDES, Subwords, train_subwords
from regard.inference.translation.translator import Translator, bleu, default_alignment_heads, save_translator
from regard.text.language import LanguageProfile
from regard.text.tokenizer import TOKENIZER_FILES
from regard.training.events import Events, Finished, TrainingStarted
from regard.training.run_folder import REPORT, RunFolder, log_events
from regard.training.tensorboard import TensorBoardLog
from regard.training.translation.config import DEFAULT_VOCAB_SIZE, TranslationConfig
from regard.training.translation.trainer import (
    EncodedPair,
    TranslationOutcome,
    TranslationReport,
    TranslationTrainer,
    new_model,
    weight_files,
)
from regard.training.world import refuse_several_processes
from regard.wording import count_of

WORK, SUBWORDS, TEST = "work", "subwords", "test.tsv"
COVERAGE = 0.999  # of the training sources are at most as long as what is translated at once
MIN_COVERED = 32  # tokens, even if all sources are shorter


def train_translator(
    train: ExampleSet[TranslationPair],
    dev: ExampleSet[TranslationPair],
    *,
    test: ExampleSet[TranslationPair] | None = None,
    output: str | os.PathLike[str],
    config: TranslationConfig | None = None,
    resume: bool = False,
    tensorboard: str | os.PathLike[str] | None = None,
    device: torch.device | str = "auto",
) -> Events[TranslationReport]:
    """Train a translator on the pairs of `train`, select by BLEU on `dev`, and write it to `output`.

    `test` is translated once at the end and saved beside the model as test.tsv. `tensorboard` is a folder.
    """
    refuse_several_processes("regard train translate")
    board = TensorBoardLog.open(tensorboard)
    output, config = Path(output), config or TranslationConfig.read()
    device = choose_device(device) if isinstance(device, str) else device
    data = {"train": train, "dev": dev, **({"test": test} if test else {})}
    for name, read in data.items():
        yield Note(message=f"{name}: {count_of(len(read.examples), 'pair')} of {read.path} ({read.description})")
        for reason, count in read.dropped.items():
            yield Note(message=f"{name}: {count:,} left out: {reason}")
    run = {"task": "translate", "data": {name: pairs_digest(read.examples) for name, read in data.items()}}
    prepared, work = _prepared_files(), _work_files(config)
    folder = RunFolder(output, config, run, work=WORK, work_files=work, prepared_files=prepared, kind="translation run")
    if resume and (done := folder.finished()):
        return TranslationReport(output=os.fspath(output), **done)
    folder.open(resume=resume)

    def train_and_save() -> Events[TranslationReport]:
        translator, outcome = yield from _train(data, config, output / WORK, device=device)
        signed = bleu(["a"], ["a"])
        report = TranslationReport(
            output=os.fspath(output),
            model=config.model.family,
            parameters=sum(parameter.numel() for parameter in translator.model.parameters()),
            device=device.type,
            data={
                name: {"path": read.path, "pairs": len(read.examples), "how": read.description}
                for name, read in data.items()
            },
            settings=config.model_dump(),
            signature={"bleu": signed.signature, "bleu_lowercase": signed.signature_lowercase},
            outcome=outcome,
            test=_test_scores(translator, test.examples) if test else {},
        )
        files = {REPORT: report.file()}
        if test:
            files[TEST] = "".join(f"{' '.join(a.split())}\t{' '.join(b.split())}\n" for a, b in test.examples).encode()
        save_translator(translator, output, files=files)
        yield Finished(scores=outcome.scores)
        return report

    with folder.running():
        return (yield from log_events(train_and_save(), output, tensorboard=board))


def _prepared_files() -> list[str]:
    """The manifest's entries for the tokenizers in the work folder."""
    sides = [SUBWORDS, *(f"{SUBWORDS}/{side}" for side in SIDES)]
    files = [f"{side}/{name}" for side in sides for name in TOKENIZER_FILES]
    return [f"{SUBWORDS}/", *files, f"{SUBWORDS}/{CHECKSUMS}"]  # all by name, since the list of them may be damaged


def _work_files(config: TranslationConfig) -> list[str]:
    """The manifest's entries for the checkpoints in the work folder."""
    return ["checkpoints/step-*/", *weight_files(recent=config.training.average_epochs)]


def _train(
    data: Mapping[str, ExampleSet[TranslationPair]],
    config: TranslationConfig,
    work: Path,
    *,
    device: torch.device,
) -> Events[tuple[Translator, TranslationOutcome]]:
    subwords = yield from _subwords(data["train"].examples, config, work / SUBWORDS)
    pairs = yield from _encode(data["train"].examples, subwords, max_length=config.training.max_length)
    model = new_model(config.model, subwords, seed=config.run.seed)
    language = LanguageProfile.fit(*zip(*data["train"].examples, strict=True))
    lengths = sorted(len(pair.source) for pair in pairs)
    covered = max(MIN_COVERED, lengths[int(COVERAGE * (len(lengths) - 1))])
    translator = Translator(model, subwords, default_alignment_heads(model), language, covered)
    sources, references = zip(*data["dev"].examples, strict=True)
    beam = Beam(num_beams=config.training.num_beams) if config.training.num_beams > 1 else None

    def evaluate() -> Generator[int, None, dict[str, float]]:
        translations = yield from translator.translate_steps(sources, beam=beam)
        return bleu([one[0].text for one in translations], references).scores

    trainer = TranslationTrainer(
        model,
        pairs,
        config,
        padding=subwords.padding,
        device=device,
        folder=work,
        evaluate=evaluate,
        num_dev=len(sources),
    )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    yield TrainingStarted(steps=trainer.steps, examples=len(pairs), parameters=parameters)
    outcome = yield from trainer.run_interruptible()
    model.eval()
    return translator, outcome


def _test_scores(translator: Translator, pairs: list[TranslationPair]) -> dict[str, Any]:
    beam = Beam()
    translations = translator.translate([pair.source for pair in pairs], beam=beam)
    scores = bleu([one[0].text for one in translations], [pair.target for pair in pairs])
    return {"pairs": len(pairs), "beam": beam.num_beams, **asdict(scores)}


def _subwords(pairs: list[TranslationPair], config: TranslationConfig, folder: Path) -> Events[Subwords]:
    """The subwords of a resumed run, or new ones."""
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
    return Subwords.open(folder)


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
