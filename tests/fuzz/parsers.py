"""Fuzzes every parser of untrusted input in a process with limited memory and time.

    python -m tests.fuzz.parsers NAME [--examples 2000] [--seed N | --seed random]

Without --seed the cases are always the same; the NAME `all` runs every parser in turn. A parser may return, or raise a
RegardError: any other exception, a case of more than 20 seconds or more memory than the limit is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from regard.errors import RegardError
from tests.fuzz.cases import documents, texts
from tests.server.local import local_registry

MEMORY = 1 << 30  # bytes beyond what is in use after the imports
SECONDS = 20  # for one case
TOTAL = 600  # of processor time

Case = Any
Parser = tuple[st.SearchStrategy[Case], Callable[[Case], object]]


def case_writer(folder: Path, *names: str) -> Callable[[tuple[str, bytes]], Path]:
    """Return a function that writes a case to the file of its name and removes the other files."""

    def write(case: tuple[str, bytes]) -> Path:
        for name in names:
            (folder / name).unlink(missing_ok=True)
        (folder / case[0]).write_bytes(case[1])
        return folder / case[0]

    return write


def config(folder: Path) -> Parser:
    from regard.checkpoints.configs import parse_config, write_config
    from regard.files.json_files import read_json
    from regard.models.family import families

    valid = [write_config(family.config_class(), output_heads=(), dtype="float32") for family in families().values()]

    def parse(case: bytes) -> object:
        path = folder / "config.json"
        path.write_bytes(case)
        return parse_config(read_json(path), path)

    return documents(*valid), parse


def tokenizer(folder: Path) -> Parser:
    """Processes are forked rather than started, which saves a minute; they run the same program."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    from regard.text import Tokenizer, guard, guard_process

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef", *(f"##{letter}" for letter in "abcdef")]
    vocabulary = {word: number for number, word in enumerate(words)}
    bert = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    bert.normalizer = normalizers.Sequence([normalizers.BertNormalizer(), normalizers.Replace("``", '"')])
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    bert.decoder = decoders.WordPiece()
    bert.enable_padding(length=128)
    bert.enable_truncation(128)
    letters = {letter: number for number, letter in enumerate(["<|endoftext|>", *"abcdef", "Ġ", "ab", "cd"])}
    gpt = tokenizers.Tokenizer(models.BPE(letters, [("a", "b"), ("c", "d")]))
    regex = tokenizers.Regex(r"'s| ?\p{L}+| ?\p{N}{1,3}|\s+(?!\S)|\s+")
    gpt.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(regex, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    gpt.decoder = decoders.ByteLevel()
    t5 = tokenizers.Tokenizer(models.Unigram([("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -1.0)], 2, False))
    t5.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    t5.pre_tokenizer = pre_tokenizers.Metaspace()
    t5.decoder = decoders.Metaspace()
    settings_of = {"model_max_length": 512, "cls_token": "[CLS]", "added_tokens_decoder": {"0": {"content": "[PAD]"}}}
    names = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt", "added_tokens.json")
    whole = documents(*(json.loads(one.to_str()) for one in (bert, gpt, t5)))
    cases = st.one_of(
        *[st.tuples(st.just("tokenizer.json"), whole)] * 6,
        st.tuples(st.just("tokenizer_config.json"), documents(settings_of)),
        st.tuples(st.just("added_tokens.json"), documents({"<new>": 17})),
        st.tuples(st.just("vocab.txt"), texts("\n".join(words).encode())),
        st.tuples(st.just("vocab.json"), documents(letters)),
        st.tuples(st.just("merges.txt"), texts(b"#version: 0.2\na b\nc d\n")),
    )
    beside = {
        "tokenizer_config.json": ("vocab.txt", "\n".join(words)),
        "added_tokens.json": ("vocab.txt", "\n".join(words)),
        "vocab.json": ("merges.txt", "a b\nc d\n"),
        "merges.txt": ("vocab.json", json.dumps(letters)),
    }

    def run_in_fork(data: bytes) -> str | None:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                memory = MEMORY + _address_space()
                limits = {"memory": memory, "seconds": 10, "path": []}
                os.dup2(os.open(_file(folder / "sent", data), os.O_RDONLY), 0)
                sys.stdin = open(0, closefd=False)  # noqa: SIM115
                os.write(writer, guard_process._main(limits).encode("utf-8", "replace")[:60_000] or b"-")
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as answer:
            found = answer.read().decode()
        os.waitpid(child, 0)
        return None if found == "-" else found or "parsing and first use ended a process"

    guard._test_in_process = run_in_fork  # type: ignore[assignment]
    write = case_writer(folder, *names)

    def parse(case: tuple[str, bytes]) -> object:
        path = write(case)
        if path.name in beside:
            name, content = beside[path.name]
            (folder / name).write_text(content, encoding="utf-8")
        found = Tokenizer.open(folder)
        return found.decode(found.encode("abc def, 12 aaaa").ids)

    return cases, parse


def index(folder: Path) -> Parser:
    from regard.checkpoints.files import read_index

    valid = {"metadata": {"total_size": 8}, "weight_map": {"a.weight": "model-00001-of-00002.safetensors", "b": "x"}}
    best = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}

    def parse(case: bytes) -> object:
        path = folder / "model.safetensors.index.json"
        path.write_bytes(case)
        return read_index(path)

    return documents(valid, best), parse


def safetensors(folder: Path) -> Parser:
    from regard.checkpoints.files import read_tensors

    header = {
        "__metadata__": {"format": "pt"},
        "a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b.bias": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    }
    data = bytes(range(32))
    valid = json.dumps(header).encode()

    def wrap_header(changed: bytes, extra: int) -> bytes:
        length = len(changed) if extra % 4 else extra * 7919 % 2**40
        return struct.pack("<Q", length) + changed + data[: 32 - extra % 3]

    cases = st.one_of(
        st.builds(wrap_header, documents(header), st.integers(0, 10**6)),
        texts(struct.pack("<Q", len(valid)) + valid + data),
    )

    def parse(case: bytes) -> object:
        (folder / "model.safetensors").write_bytes(case)
        return [tensor.sum() for tensor in read_tensors(folder).values() if tensor.is_floating_point()]

    return cases, parse


def gguf(folder: Path) -> Parser:
    """A tiny model in a GGUF file, with changed bytes."""
    import torch

    import regard
    from regard.checkpoints.formats.gpt2 import GGUF_NAMES
    from regard.checkpoints.loading import entries
    from regard.models.gpt2 import Gpt, GptConfig
    from tests.checkpoints.gguf_files import byte_level_metadata, write_gguf

    tokens = ["<|endoftext|>", *"abcdef", "Ġ", "ab", "cd"]
    model = Gpt(
        GptConfig(
            vocab_size=len(tokens),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=8,
        )
    )
    sizes = {".context_length": 8, ".embedding_length": 32, ".block_count": 1, ".feed_forward_length": 32}
    metadata = {
        **sizes,
        ".attention.head_count": 2,
        ".attention.layer_norm_epsilon": 1e-5,
        **byte_level_metadata(tokens, ["a b", "c d"], pre="gpt-2", control=1),
    }
    state = model.state_dict()
    tensors = {name: state[ours].numpy() for ours, (name,) in entries(GGUF_NAMES, model.config, ()).items()}
    valid = [
        write_gguf(folder / f"{kind}.gguf", "gpt2", metadata, tensors, quantization=kind).read_bytes()
        for kind in ("F32", "Q8_0", "Q4_1")
    ]
    path = folder / "case.gguf"

    def parse(case: bytes) -> object:
        path.write_bytes(case)
        loaded, tokenizer = regard.load(path)
        return loaded(torch.tensor([tokenizer.encode("abc").ids or [0]]))  # type: ignore[union-attr]

    # Most of a file are weights, in which a change is no error: damage the beginning.
    starts = [(data[:2000], data[2000:]) for data in valid]
    damaged = [texts(start).map(lambda changed, rest=rest: changed + rest) for start, rest in starts]
    return st.one_of(*damaged, texts(*valid)), parse


def manifest(folder: Path) -> Parser:
    from regard.data.corpus import Corpus, build_corpus, train_tokenizer

    source = folder / "text.txt"
    source.write_text("\n\n".join(f"The river {n} follows the city.\nIt is {n}." for n in range(30)), encoding="utf-8")
    trained = train_tokenizer(source.read_text(encoding="utf-8").splitlines(), size=80)
    build_corpus(source, folder / "corpus", tokenizer=trained)
    path = folder / "corpus" / "regard.json"
    valid = json.loads(path.read_bytes())

    def parse(case: bytes) -> object:
        path.write_bytes(case)
        corpus = Corpus.open(folder / "corpus")
        return [corpus.document(number) for number in range(min(2, len(corpus)))]

    return documents(valid), parse


def csv(folder: Path) -> Parser:
    from regard.data.readers import read_choice_examples
    from regard.data.readers import read_text_examples as read_examples
    from regard.data.rows import open_rows

    valid = [
        b'text,label\n"a, ""quoted"" text\nover lines",pos\nplain,neg\n',
        b"sentence1\tsentence2\tscore\none\ttwo\t3.5\nthree\tfour\t0\n",
        b'{"text": "one", "label": ["a", "b"]}\n{"text": "two", "label": "c"}\n',
        b'[{"text": "one", "label": 1}, {"text": "two", "label": 0}]',
        b"sent1,sent2,ending0,ending1,label\na,b,c,d,1\ne,f,g,h,0\n",
    ]
    names = ("a.csv", "a.tsv", "a.jsonl", "a.json", "a.txt")
    write = case_writer(folder, *names)
    cases = st.tuples(
        st.sampled_from(names), texts(*valid), st.sampled_from(["classify", "pair", "regress", "column", "choose"])
    )

    def parse(case: tuple[str, bytes, Any]) -> object:
        path = write(case[:2])
        if case[2] == "column":
            return list(open_rows(path))
        return read_choice_examples(path) if case[2] == "choose" else read_examples(path, task=case[2])

    return cases, parse


def squad(folder: Path) -> Parser:
    from regard.data.readers import read_question_examples

    answers = [{"text": "blue", "answer_start": 11}]
    question = {"id": "1", "question": "What color?", "answers": answers, "is_impossible": False}
    valid = {
        "version": "v2.0",
        "data": [{"title": "t", "paragraphs": [{"context": "The sky is blue.", "qas": [question]}]}],
    }
    row = {"question": "What?", "context": "The sky is blue.", "answers": {"text": ["blue"], "answer_start": [11]}}
    table = b"question\tcontext\tid\nWhat?\tThe sky is blue.\t7\n"
    cases = st.one_of(
        st.tuples(st.just("a.json"), documents(valid)),
        st.tuples(st.just("a.json"), documents(valid)),
        st.tuples(st.just("a.jsonl"), documents(row)),
        st.tuples(st.just("a.tsv"), texts(table)),
    )
    write = case_writer(folder, "a.json", "a.jsonl", "a.tsv")
    return cases, lambda case: read_question_examples(write(case))


def conll(folder: Path) -> Parser:
    from regard.data.readers import read_tagged_examples

    valid = b"-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\nGerman JJ B-MISC\n\nPeter NNP B-PER\n"
    row = {"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]}
    cases = st.one_of(
        st.tuples(st.just("a.conll"), texts(valid, b"EU\tB-ORG\nrejects\tO\n", b"U-ORG\nL-PER\n")),
        st.tuples(st.just("a.conll"), texts(valid)),
        st.tuples(st.just("a.jsonl"), documents(row, {"text": "a text"})),
    )
    write = case_writer(folder, "a.conll", "a.jsonl")
    wanted = st.sampled_from([None, True, False])
    return st.tuples(cases, wanted), lambda case: read_tagged_examples(write(case[0]), labeled=case[1])


def requests(folder: Path) -> Parser:
    """Requests to the studio: any body to any address is answered without an internal error."""
    import asyncio

    from regard.server.app import create_app
    from regard.server.models.client_verbs import http_verbs
    from regard.server.studio.routes import Studio

    studio = Studio(local_registry([]))
    app = create_app(studio.models, studio=studio, token="token")
    valid = {"text": "the film", "text_b": "b", "model": "regard-bert", "top": "5", "layer": "-1", "texts": "a\nb"}
    names = [*sorted(http_verbs()), "none", "%00", "a" * 300]
    headers = [b"application/json", b"application/json; charset=utf-8", b"text/plain", b"", b"\xff"]
    cases = st.tuples(
        st.sampled_from(names), documents(valid), st.sampled_from([headers[0]] * 8 + headers), st.integers(0, 3)
    )

    async def answer(case: tuple[str, bytes, bytes, int]) -> int:
        name, body, kind, cut = case
        parts = [body[:cut], body[cut:]]
        status: list[int] = []

        async def receive() -> dict[str, object]:
            if parts:
                return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
            await asyncio.sleep(3600)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": f"/v1/{name}/view",
            "raw_path": b"",
            "query_string": b"",
            "headers": [
                (b"host", b"127.0.0.1:8000"),
                (b"authorization", b"Bearer token"),
                (b"content-type", kind),
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        await app(scope, receive, send)
        return status[0]

    loop = asyncio.new_event_loop()

    def parse(case: tuple[str, bytes, bytes, int]) -> object:
        status = loop.run_until_complete(answer(case))
        assert status < 500 and status != 401, f"the studio answered with {status}"
        return status

    return cases, parse


PARSERS: dict[str, Callable[[Path], Parser]] = {
    "config": config,
    "tokenizer": tokenizer,
    "index": index,
    "safetensors": safetensors,
    "gguf": gguf,
    "manifest": manifest,
    "csv": csv,
    "squad": squad,
    "conll": conll,
    "requests": requests,
}


def _file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _too_slow(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"a case took more than {SECONDS} seconds")


def fuzz(name: str, examples: int, chosen: int | None) -> None:
    """Run one parser's cases in this process, which is limited from then on in memory and time."""
    counts = {"accepted": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as temporary:
        cases, parse = PARSERS[name](Path(temporary))
        signal.signal(signal.SIGALRM, _too_slow)
        if Path("/proc/self/statm").exists():
            limit = MEMORY + _address_space()
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (TOTAL, TOTAL))

        @settings(
            max_examples=examples,
            derandomize=chosen is None,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def check(case: Case) -> None:
            signal.alarm(SECONDS)
            try:
                parse(case)
                counts["accepted"] += 1
            except RegardError:
                counts["refused"] += 1
            finally:
                signal.alarm(0)

        (check if chosen is None else seed(chosen)(check))()
    print(f"{name}: {counts['accepted']:,} accepted, {counts['refused']:,} refused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*PARSERS, "all"])
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--seed", default=None, help="a number, or random")
    options = parser.parse_args()
    if options.name == "all":
        for name in PARSERS:
            subprocess.run([sys.executable, "-m", "tests.fuzz.parsers", name, *sys.argv[2:]], check=True)
        return
    chosen = random.SystemRandom().randrange(2**32) if options.seed == "random" else options.seed
    if chosen is not None:
        print(f"seed {chosen}", flush=True)
    fuzz(options.name, options.examples, None if chosen is None else int(chosen))


if __name__ == "__main__":
    main()
