"""sentence-transformers behind starlette and uvicorn: what `regard serve` is compared with.

    python -m benchmarks.serve_peer FOLDER PORT [--batched]

POST /embed takes {"inputs": text} and answers [[...]], as Regard's server does. Without `--batched` every request is
encoded on its own in one worker thread, which has all cores. With it the thread encodes together whatever is waiting:
the smallest server with dynamic batching.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MAX_BATCH = 32


def create_app(folder: str, *, batched: bool) -> Any:
    from sentence_transformers import SentenceTransformer
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    model = SentenceTransformer(folder, device="cpu")
    worker = ThreadPoolExecutor(1)
    waiting: list[tuple[str, asyncio.Future[Any]]] = []
    running = False

    def encode(texts: list[str]) -> Any:
        return model.encode(texts, batch_size=MAX_BATCH, show_progress_bar=False)

    async def encode_waiting() -> None:
        nonlocal running
        running = True
        while waiting:
            batch = waiting[:MAX_BATCH]
            del waiting[:MAX_BATCH]
            vectors = await asyncio.get_running_loop().run_in_executor(worker, encode, [text for text, _ in batch])
            for (_, future), vector in zip(batch, vectors, strict=True):
                future.set_result(vector)
        running = False

    async def embed(request: Request) -> Response:
        text = json.loads(await request.body())["inputs"]
        loop = asyncio.get_running_loop()
        if batched:
            future = loop.create_future()
            waiting.append((text, future))
            if not running:
                tasks.add(task := asyncio.create_task(encode_waiting()))
                task.add_done_callback(tasks.discard)
            vector = await future
        else:
            vector = (await loop.run_in_executor(worker, encode, [text]))[0]
        return Response(json.dumps([vector.tolist()]), media_type="application/json")

    async def health(request: Request) -> Response:
        return Response()

    tasks: set[asyncio.Task[None]] = set()
    return Starlette(routes=[Route("/embed", embed, methods=["POST"]), Route("/health", health)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("port", type=int)
    parser.add_argument("--batched", action="store_true")
    options = parser.parse_args()
    import uvicorn

    app = create_app(options.folder, batched=options.batched)
    uvicorn.run(app, port=options.port, loop="asyncio", http="h11", log_level="critical", access_log=False)


if __name__ == "__main__":
    main()
