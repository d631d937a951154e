"""A run from pairs to a folder that translates: read, subwords, trained, averaged, written, and resumed at will.

Knows the order of the work and what lies in the output folder. Prints nothing: the caller is told of events.

    regard.json            the manifest: which files of the folder are the run's own
    config.toml run.json   the settings, and what the run was made from
    events.jsonl           what happened, a line an event
    work/                  the tokenizers, checkpoints, and the weights of the best epoch and of the last ones
    config.json model.safetensors tokenizer.json translate.json report.json   the translator, once it is done
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.checkpoints.files import checksums, verify
from regard.data.readers import ExampleSet
from regard.data.translation_pairs import TranslationPair, pairs_digest
from regard.device import choose_device
from regard.errors import InputError
from regard.files.disk import replace_folder
from regard.files.json_files import json_bytes
from regard.inference.generation.beam_search import Beam
from regard.inference.translation.alignment import default_alignment_heads
from regard.inference.translation.bleu import bleu
from regard.inference.translation.folder import save_translator
from regard.inference.translation.subwords import SIDES, Subwords, train_subwords
from regard.inference.translation.translator import Translator
from regard.text.tokenizer import TOKENIZER_FILES
from regard.training.run_folder import CONFIG, REPORT, Note, RunFolder, Told, model_saved
from regard.training.stopping import stopping
from regard.training.translation.batches import EncodedPair
from regard.training.translation.build import new_model
from regard.training.translation.config import TranslationConfig
from regard.training.translation.epoch_weights import kept_files
from regard.training.translation.report import TranslationReport
from regard.training.translation.trainer import TranslationTrainer
from regard.wording import count_of

__all__ = ["CONFIG", "fit"]

WORK, SUBWORDS, TEST = "work", "subwords", "test.tsv"
Said = Callable[[str], None]


def fit(
    train: ExampleSet[TranslationPair],
    dev: ExampleSet[TranslationPair],
    *,
    test: ExampleSet[TranslationPair] | None = None,
    output: str | os.PathLike[str],
    config: TranslationConfig | None = None,
    resume: bool = False,
    device: torch.device | str = "auto",
    say: Said = lambda text: None,
    on_event: Told = lambda event: None,
) -> TranslationReport:
    """Learn to translate the pairs of `train`, judged by BLEU on `dev`, and write the translator into `output`.

    `test` is translated once, when all is chosen, and kept beside the model as test.tsv.
    """
    output, config = Path(output), config or TranslationConfig.read()
    place = choose_device(device) if isinstance(device, str) else device
    data = {"train": train, "dev": dev, **({"test": test} if test else {})}
    for name, read in data.items():
        say(f"{name}: {count_of(len(read.examples), 'pair')} of {read.path} ({read.description})")
        for reason, count in read.dropped.items():
            say(f"{name}: {count:,} left out: {reason}")
    run = {"task": "translate", "data": {name: pairs_digest(read.examples) for name, read in data.items()}}
    folder = RunFolder(output, config, run, work=WORK, work_files=_work_files(config), kind="translation run")
    if resume and (done := folder.finished()):
        return TranslationReport.restore(done)
    folder.open(resume=resume)
    with folder.running(on_event) as note:
        report, translator = _trained(data, config, output / WORK, device=place, note=note, say=say)
        files = {}
        if test is not None:
            report = replace(report, test=_tested(translator, test.examples))
            files[TEST] = "".join(f"{' '.join(a.split())}\t{' '.join(b.split())}\n" for a, b in test.examples).encode()
        save_translator(translator, output, files={**files, REPORT: json_bytes(report.document())})
        with model_saved(output):
            note("end", **report.outcome.scores)
    return report


def _work_files(config: TranslationConfig) -> list[str]:
    """What a run writes into its folder of work, as entries of a manifest."""
    sides = [SUBWORDS, *(f"{SUBWORDS}/{side}" for side in SIDES)]
    tokenizers = [f"{side}/{name}" for side in sides for name in TOKENIZER_FILES]
    return [f"{SUBWORDS}/", *tokenizers, "checkpoints/step-*/", *kept_files(recent=config.training.average_epochs)]


def _trained(
    data: Mapping[str, ExampleSet[TranslationPair]],
    config: TranslationConfig,
    work: Path,
    *,
    device: torch.device,
    note: Note,
    say: Said,
) -> tuple[TranslationReport, Translator]:
    subwords = _subwords(data["train"].examples, config, work / SUBWORDS, say)
    pairs = _encoded(data["train"].examples, subwords, length=config.training.max_length, note=note)
    model = new_model(config.model, subwords, seed=config.run.seed)
    translator = Translator(model, subwords, default_alignment_heads(model))
    dev = data["dev"].examples
    beam = Beam(num_beams=config.training.num_beams) if config.training.num_beams > 1 else None
    references = [pair.target for pair in dev]

    def judge(told: Callable[[int, int], None]) -> dict[str, float]:
        done = 0

        def on_done(count: int) -> None:
            nonlocal done
            done += count
            told(done, len(dev))

        found = translator.translate([pair.source for pair in dev], beam=beam, on_progress=on_done)
        return bleu([one[0].text for one in found], references).scores

    trainer = TranslationTrainer(
        model,
        pairs,
        config,
        padding=subwords.padding,
        device=device,
        folder=work,
        judge=judge,
        note=note,
    )
    count = sum(parameter.numel() for parameter in model.parameters())
    note("plan", steps=trainer.steps, pairs=len(pairs), parameters=count)
    with stopping() as stop:
        outcome = trainer.go(stop)
        if outcome is None:
            note("stopped")
            stop.now()
    assert outcome is not None
    about = {
        name: {"path": read.path, "pairs": len(read.examples), "how": read.description} for name, read in data.items()
    }
    settings = {name: dict(getattr(config, name)) for name in config.sections()}
    signed = bleu(references[:1], references[:1])
    report = TranslationReport(
        config.model.family,
        count,
        device.type,
        about,
        settings,
        {"bleu": signed.signature, "bleu_lowercase": signed.signature_lowercase},
        outcome,
    )
    model.eval()
    return report, translator


def _tested(translator: Translator, pairs: list[TranslationPair]) -> dict[str, Any]:
    beam = Beam()
    found = translator.translate([pair.source for pair in pairs], beam=beam)
    scores = bleu([one[0].text for one in found], [pair.target for pair in pairs])
    return {"pairs": len(pairs), "beam": beam.num_beams, **scores.document()}


def _subwords(pairs: list[TranslationPair], config: TranslationConfig, folder: Path, say: Said) -> Subwords:
    """Those that the run was begun with, or new ones."""
    if not folder.is_dir():
        settings = config.vocabulary
        new = train_subwords(pairs, size=settings.vocab_size, joint=settings.joint)
        with replace_folder(folder) as staging:
            files = new.files()
            for name, content in {**files, **checksums(files)}.items():
                (staging / name).parent.mkdir(exist_ok=True)
                (staging / name).write_bytes(content)
        say(f"subwords: {new.target.size:,}, {'of both languages' if new.joint else 'of each language'}")
    try:
        verify(folder)
    except InputError as error:
        raise InputError(
            f"{error}. Or delete the folder {folder} and go on with --resume: the subwords are trained again"
        ) from None
    return Subwords.open(folder)


def _encoded(pairs: list[TranslationPair], subwords: Subwords, *, length: int, note: Note) -> list[EncodedPair]:
    sources = subwords.encode_sources([pair.source for pair in pairs])
    targets = subwords.encode_targets([pair.target for pair in pairs])
    found = [EncodedPair(*sides) for sides in zip(sources, targets, strict=True)]
    kept = [one for one in found if one.length <= length]
    if len(kept) < len(found):
        note("left out", pairs=len(found) - len(kept), of=len(found), length=length)
    if not kept:
        raise InputError(
            f"none of the {len(found):,} pairs has at most {length} tokens a side; set a larger training.max_length"
        )
    return kept
