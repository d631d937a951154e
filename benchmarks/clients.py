"""Regard's server with other programs' clients: scores of lm-evaluation-harness, and the speed of a chat.

    python -m benchmarks.clients [--model NAME ...] [--rounds 5] [--save]

Scores: the same examples by `regard benchmark` and by lm-evaluation-harness against `regard serve`, with its own tokens
and with texts. `python requirements/peers.py lm_eval` makes its environment; without it, there are no scores.

Speed: time to the first token, and tokens a second from there, of a greedy chat through the endpoint and in a loop of
this process, alternating; each the best of some rounds. A model without a chat template has no speed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.serve_process import ServerProcess, start_server
from benchmarks.timing import save_results
from regard.device import choose_device
from regard.generation_config import GenerationConfig
from regard.inference.causal_lm import opening_ids
from regard.inference.load_model import load_model
from regard.interpret.generation import Generation

BLANKS = Path(__file__).with_name("blanks.tsv")
TOKENS = 64  # of an answer
PROMPT = "Write a long story about a lighthouse, a storm and a ship."
PEER = Path(__file__).parent.parent / ".peers" / "lm_eval" / "bin" / "python"
TASK = """task: endings
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{opening}{{{{ctx}}}}"
doc_to_choice: endings
doc_to_target: label
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""


def examples() -> list[dict[str, Any]]:
    """Each sentence of blanks.tsv up to its blank, with the right word and three of other sentences."""
    lines = [line.split("\t") for line in BLANKS.read_text(encoding="utf-8").splitlines()]
    words = [answers.split(",")[0] for _, answers in lines]
    found = []
    for number, (sentence, _) in enumerate(lines):
        before, _, after = sentence.partition("_")
        endings = [words[(number + step) % len(words)] for step in (3, 7, 11)]
        label = number % 4
        endings.insert(label, words[number])
        found.append({"ctx": before.strip(), "endings": [word + after for word in endings], "label": label})
    return found


def scores(model: str, server: ServerProcess, python: Path) -> dict[str, Any]:
    """Accuracies in percent of `regard benchmark`, and of lm-evaluation-harness with tokens and with texts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "endings.jsonl"
        data.write_text("".join(json.dumps(example) + "\n" for example in examples()))
        ours = regard.benchmark("hellaswag", data=data, model=model).to_dict()
        loaded = load_model(model, device=choose_device("cpu"))
        loaded.tokenizer.save(folder / "tokenizer")
        opening = _opening(loaded)
        (folder / "task.yaml").write_text(TASK.format(data=data, opening=opening))
        found: dict[str, Any] = {
            "examples": ours["n"],
            "regard benchmark": [round(ours["accuracy"], 2), round(ours["accuracy_normalised"], 2)],
        }
        for kind, tokenized in (("tokens", True), ("texts", False)):
            options = {
                "model": model,
                "base_url": f"{server.address}/v1/completions",
                "tokenizer_backend": "huggingface",
                "tokenizer": folder / "tokenizer",
                "tokenized_requests": tokenized,
            }
            arguments = ",".join(f"{key}={value}" for key, value in options.items())
            command = [str(python), "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", arguments]
            command += ["--include_path", str(folder), "--tasks", "endings", "--output_path", str(folder / kind)]
            offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
            subprocess.run(command, check=True, cwd=folder, env=offline, stdout=subprocess.DEVNULL)
            (path,) = (folder / kind).rglob("results_*.json")
            theirs = json.loads(path.read_text())["results"]["endings"]
            values = [round(100 * theirs[f"{metric},none"], 2) for metric in ("acc", "acc_norm")]
            found[f"lm-evaluation-harness, {kind}"] = values
        return found


def _opening(loaded: Any) -> str:
    """What `regard benchmark` puts before a text, which lm-evaluation-harness leaves to the task."""
    return "".join(loaded.tokenizer.token(token) for token in opening_ids(loaded.model, loaded.tokenizer))


def chat_speed(model: str, server: ServerProcess, *, rounds: int) -> dict[str, Any]:
    """Seconds to the first token, and tokens a second after it, of either way; the lowest and highest of the rounds."""
    loaded = load_model(model, device=choose_device("cpu"))
    config = GenerationConfig(max_new_tokens=TOKENS, temperature=0)

    def library(prompt: str) -> Iterator[object]:
        return iter(Generation(loaded, prompt, config, candidates=False, chat=True).events())

    def endpoint(prompt: str) -> Iterator[object]:
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": TOKENS}
        data = json.dumps({**body, "temperature": 0, "stream": True}).encode()
        request = urllib.request.Request(
            f"{server.address}/v1/chat/completions", data=data, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            for line in answer:
                if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                    yield line

    ways: dict[str, Callable[[str], Iterator[object]]] = {"regard generate --chat": library, "endpoint": endpoint}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, answer in ways.items():
            begin, times = time.perf_counter(), []
            for _ in answer(f"{number} times: {PROMPT}"):  # another prompt each round, so that nothing is reused
                times.append(time.perf_counter())
            if number:  # the first round warms up
                found[name].append((times[0] - begin, (len(times) - 1) / (times[-1] - times[0])))
    return {
        name: {
            "first token s": round(min(first for first, _ in rows), 3),
            "tokens/s": round(max(speed for _, speed in rows), 1),
        }
        for name, rows in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="default: regard-gpt and SmolLM2-135M-Instruct")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the speed")
    parser.add_argument("--python", type=Path, help="of an environment with lm_eval, instead of .peers/lm_eval")
    parser.add_argument("--threads", type=int, default=1, help="of either way")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/clients.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    python: Path = options.python or PEER
    results: dict[str, Any] = {}
    for model in options.model or ["regard-gpt", "SmolLM2-135M-Instruct"]:
        limits = ["--accept-token-ids", "--request-timeout", "300", "--threads", str(options.threads)]
        with start_server([model], *limits) as server:
            results[model] = {}
            if not python.is_file():
                print("without lm_eval: python requirements/peers.py lm_eval", file=sys.stderr)
            else:
                results[model]["accuracy, normalised"] = scores(model, server, python)
            if load_model(model, device=choose_device("cpu")).tokenizer.chat_template is not None:
                results[model]["chat"] = chat_speed(model, server, rounds=options.rounds)
        print(json.dumps({model: results[model]}, indent=1))
    if options.save:
        print(save_results("clients", {"threads": options.threads, **results}))


if __name__ == "__main__":
    main()
