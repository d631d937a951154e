"""Why a fine-tuned model predicts what it predicts for one example: attention and attributions of its outputs.

L layers, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.examples import Example
from regard.interpret.attention.rollout import rollout
from regard.interpret.attribution.attributions import Attribution, gradient_times_input, integrated_gradients
from regard.interpret.attribution.probe import task_probe
from regard.tasks.fine_tuned_model import FineTunedModel
from regard.tasks.task import Prediction

MAX_OUTPUTS = 4  # outputs of one example that are explained


@dataclass(frozen=True)
class Evidence:
    """The evidence for one output: `about` names it, `token` is the position it is read from.

    `attention` (L, T) is the attention of that position in each layer, averaged over the heads; `rollout` (T,) is the
    attention rollout through all layers. `integrated` and `gradient` are attributions of the output's logit.
    """

    about: str
    token: int
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    attention: tuple[tuple[float, ...], ...]
    rollout: tuple[float, ...]
    integrated: Attribution
    gradient: Attribution


def gather_evidence(fine_tuned: FineTunedModel, example: Example, prediction: Prediction) -> list[Evidence]:
    """Evidence for the first outputs of a prediction: its labels, its entities, the ends of its answer.

    InputError if the model or the example cannot be explained: an image, an LSTM, a text that is split or truncated.
    """
    task = fine_tuned.task
    probe = task_probe(fine_tuned, *task.texts(example))
    inputs = task.preprocess([example], fine_tuned.input_builder)[0]
    tokens = tuple(map(probe.token_text, probe.ids.tolist()))
    explained = task.explained_outputs(example, prediction, inputs, tokens)[:MAX_OUTPUTS]
    if not explained:
        return []
    maps = probe.attention()
    rolled_out = rollout(maps)[-1]
    evidence = []
    for about, target, output in explained:
        position = probe.position_of(target, output)
        evidence.append(
            Evidence(
                about=about,
                token=position,
                tokens=tokens,
                special=probe.special,
                attention=tuple(tuple(layer) for layer in maps[:, :, position].mean(1).tolist()),
                rollout=tuple(rolled_out[position].tolist()),
                integrated=integrated_gradients(probe, target=target, output=output),
                gradient=gradient_times_input(probe, target=target, output=output),
            )
        )
    return evidence
