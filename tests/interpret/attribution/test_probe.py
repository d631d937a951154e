"""Probes: their outputs equal those of fill, generation and predict, and invalid input is rejected."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import regard
from regard.data.examples import QuestionExample, TaggedExample, TextExample
from regard.data.readers import split_words
from regard.errors import InputError
from regard.inference.load_model import load_model
from regard.inference.masked_lm import fill_blanks
from regard.interpret.attribution.probe import Probe, pretrained_probe, probe_model, task_probe
from regard.models import Bert, BertConfig, Gpt, GptConfig, Vit, VitConfig
from regard.tasks.encoder_with_head import EncoderWithHead
from regard.tasks.fine_tuned_model import FineTunedModel, predict, save_fine_tuned
from regard.tasks.multiple_choice import MultipleChoice
from regard.tasks.question_answering import QuestionAnswering
from regard.tasks.regression import Regression
from regard.tasks.text_classification import PairClassification, TextClassification
from regard.tasks.token_classification import TokenClassification
from regard.text import Tokenizer
from tests.inference.folders import byte_level, randomized, tiny_gpt

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bert_tokens(tiny_bert_folder: Path) -> Tokenizer:
    return Tokenizer.open(tiny_bert_folder)


@pytest.fixture(scope="module")
def gpt_tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_level(tmp_path_factory.mktemp("gpt") / "v", specials=["<|endoftext|>"], kind="gpt2")


def new_model(task: object, tokenizer: Tokenizer, *, causal: bool = False, length: int = 48) -> FineTunedModel:
    sizes = {
        "vocab_size": tokenizer.size,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 48,
    }
    encoder = Gpt(GptConfig(**sizes, bos_token_id=0, eos_token_id=0)) if causal else Bert(BertConfig(**sizes))
    model = EncoderWithHead.from_encoder(encoder, task)  # type: ignore[arg-type]
    return FineTunedModel(task, randomized(model).eval(), tokenizer, length)  # type: ignore[arg-type]


def probabilities(probe: Probe) -> torch.Tensor:
    with probe.evaluation_mode():
        return probe.probabilities(probe.logits())[0]


def test_masked_probabilities_equal_those_of_fill(tiny_bert_folder: Path) -> None:
    model, tokenizer = regard.load(tiny_bert_folder)
    probe = pretrained_probe(model, tokenizer, "the _ was [MASK]")
    filled = fill_blanks(model, tokenizer, "the _ was [MASK]", top=5)
    assert probe.targets == ("blank 1", "blank 2")
    assert probe.tokens == ("[CLS]", "the", "[MASK]", "was", "[MASK]", "[SEP]")
    assert probe.special == (True, False, False, False, False, True)
    for row, candidates in zip(probabilities(probe), filled.masks, strict=True):
        best = row.topk(5)
        assert [probe.outputs[i] for i in best.indices.tolist()] == [one.token for one in candidates]
        assert best.values.tolist() == pytest.approx([one.probability for one in candidates], rel=1e-5)


def test_a_gpt_predicts_the_next_token(tmp_path: Path) -> None:
    model, tokenizer = regard.load(tiny_gpt(tmp_path))
    probe = pretrained_probe(model, tokenizer, "the good")
    assert probe.targets == ("next token",)
    with torch.no_grad():
        logits, _ = model.start(probe.ids[None])
        assert torch.allclose(probe.logits()[0], logits, atol=1e-5)


def test_probabilities_equal_those_of_predict(bert_tokens: Tokenizer, gpt_tokens: Tokenizer) -> None:
    for causal, tokens in ((False, bert_tokens), (True, gpt_tokens)):
        for task in (TextClassification(["a", "b", "c"]), TextClassification(["a", "b"], multi_label=True)):
            fine_tuned = new_model(task, tokens, causal=causal)
            expected = predict(fine_tuned, [TextExample("the good film")], device=CPU)[0]["probabilities"]
            probe = task_probe(fine_tuned, "the good film")
            assert probe.problem_type == task.problem_type
            assert dict(zip(probe.outputs, probabilities(probe)[0].tolist(), strict=True)) == pytest.approx(
                expected, abs=1e-6
            )


def test_pairs_have_segments(bert_tokens: Tokenizer) -> None:
    fine_tuned = new_model(PairClassification(["a", "b"]), bert_tokens)
    expected = predict(fine_tuned, [TextExample("the good film", "a dull day")], device=CPU)[0]["probabilities"]
    found = probabilities(task_probe(fine_tuned, "the good film", "a dull day"))[0].tolist()
    assert found == pytest.approx(list(expected.values()), abs=1e-6)
    with pytest.raises(InputError, match="pair reads two texts"):
        task_probe(fine_tuned, "the good film")


def test_regression_tagging_and_question_answering(bert_tokens: Tokenizer) -> None:
    regress = new_model(Regression(0.0, 1.0), bert_tokens)
    value = predict(regress, [TextExample("the film")], device=CPU)[0]["value"]
    assert probabilities(task_probe(regress, "the film")).item() == pytest.approx(value, abs=1e-5)

    tag, text = new_model(TokenClassification(["O", "B-X", "I-X"]), bert_tokens), "the film, now"
    found = task_probe(tag, text)
    assert found.targets == ("the", "film", ",", "now")
    tags = predict(tag, [TaggedExample(text, tuple(split_words(text)))], device=CPU)[0]["tags"]
    assert [found.outputs[i] for i in probabilities(found).argmax(-1).tolist()] == tags

    answer = new_model(QuestionAnswering(), bert_tokens)
    probe = task_probe(answer, "what film", "the good film was long")
    assert probe.targets == ("start", "end")
    assert probabilities(probe).shape == (2, len(probe.ids))
    assert probabilities(probe).sum(-1).tolist() == pytest.approx([1.0, 1.0])
    best = predict(answer, [QuestionExample("", "what film", "the good film was long")], device=CPU)[0]["nbest"]
    spans = {(one["start"], one["end"]): one["probability"] for one in best}
    with probe.evaluation_mode():
        first, last = probe.logits()[0].double()
    # [CLS] what film [SEP] the good film was long [SEP]: the score of a span is the sum of its start and end scores.
    starts = {0: 4, 4: 5, 9: 6, 14: 7, 18: 8}
    ends = {3: 4, 8: 5, 13: 6, 17: 7, 22: 8}
    (a, p), (b, q) = list(spans.items())[:2]
    scores = [(first[starts[start]] + last[ends[end]]).item() for start, end in (a, b)]
    assert scores[0] - scores[1] == pytest.approx(math.log(p / q), abs=1e-4)


def test_subsets_are_shorter_texts(bert_tokens: Tokenizer) -> None:
    fine_tuned = new_model(TextClassification(["a", "b"]), bert_tokens)
    probe, shorter = task_probe(fine_tuned, "the good film"), task_probe(fine_tuned, "the film")
    keep = torch.tensor([[True, True, False, True, True], [True, True, True, True, False]])
    with probe.evaluation_mode():
        assert torch.allclose(probe.logits_of_subsets(keep)[0], shorter.logits()[0], atol=1e-5)


def test_fine_tuned_and_pretrained_folders(tmp_path: Path, bert_tokens: Tokenizer, tiny_bert_folder: Path) -> None:
    save_fine_tuned(new_model(TextClassification(["a", "b"]), bert_tokens), tmp_path / "task")
    assert probe_model(load_model(tmp_path / "task"), "the film").task == "classify"
    assert probe_model(load_model(tiny_bert_folder), "the _").task == "fill"


def test_invalid_input_is_rejected(tmp_path: Path, bert_tokens: Tokenizer, tiny_bert_folder: Path) -> None:
    with pytest.raises(InputError, match=r"answer, classify, pair, regress, tag; .*for choose"):
        task_probe(new_model(MultipleChoice(), bert_tokens), "the film")
    classify = new_model(TextClassification(["a", "b"]), bert_tokens, length=8)
    with pytest.raises(InputError, match="classify reads one text, and two were given"):
        task_probe(classify, "the", "film")
    with pytest.raises(InputError, match="the text is 2 tokens longer than the 8"):
        task_probe(classify, "the film was good and the day long")
    with pytest.raises(InputError, match="one row of the model, and this one takes 2; shorten it"):
        task_probe(
            new_model(TokenClassification(["O", "B-X"]), bert_tokens, length=8), "the film was good and the day long"
        )
    with pytest.raises(InputError, match="this one has no words"):
        task_probe(new_model(TokenClassification(["O", "B-X"]), bert_tokens), " ")
    model, tokenizer = regard.load(tiny_bert_folder)
    with pytest.raises(InputError, match="second text is for a fine-tuned model"):
        pretrained_probe(model, tokenizer, "the _", "film")
    with pytest.raises(InputError, match="has 203 tokens, and this model reads 128; shorten it by 75"):
        pretrained_probe(model, tokenizer, "the " * 200 + "_")
    gpt, tokens = regard.load(tiny_gpt(tmp_path))
    with pytest.raises(InputError, match="tokens, and this model reads 16; shorten it by"):
        pretrained_probe(gpt, tokens, "the film " * 20)
    picture = Vit(
        VitConfig(
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
            image_size=(4, 4),
            patch_size=(2, 2),
            num_channels=1,
            num_labels=2,
        )
    )
    with pytest.raises(InputError, match="expected a BERT or a GPT"):
        pretrained_probe(picture, None, "the film")
    with pytest.raises(InputError, match="unknown label 'aa'; did you mean 'a'"):
        task_probe(classify, "the film").output_index("aa")
    with pytest.raises(InputError, match="is not a token of this vocabulary"):
        pretrained_probe(model, tokenizer, "the _").output_index("filmm")
