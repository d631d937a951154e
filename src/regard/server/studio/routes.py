"""The page, and what it does beside the verbs: actions at /api/NAME, which are fast and wait for no model's queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from regard.errors import suggest
from regard.render.bundle import page
from regard.server.errors import RequestError
from regard.server.http.endpoint import AdmissionControl, Endpoint, RequestContext, json_response
from regard.server.models.images import UploadedImages
from regard.server.models.registry import ModelRegistry
from regard.server.protocols.verbs import Arguments
from regard.server.studio.training import TrainingJobs, cancel_training, start_training, training_options
from regard.server.studio.workspace import Workspace
from regard.verbs.base import validated

MAX_UPLOAD_BYTES = 12_000_000  # of an image; base64 makes four bytes of three
ACTIONS = ("image", "branch", "train", "training", "cancel-training")


class BranchRequest(BaseModel):
    """`ids` are the tokens after the prompt."""

    model: str
    prompt: str = Field("", max_length=20_000)
    ids: list[int] = Field(max_length=10_000)


class BranchPrompt(BaseModel):
    """The prompt that continues from a branch of a generated text."""

    prompt: str


@dataclass
class Studio:
    """What the requests of one studio share."""

    models: ModelRegistry
    workspace: Workspace = field(default_factory=Workspace)
    training_jobs: TrainingJobs = field(default_factory=TrainingJobs)
    images: UploadedImages = field(default_factory=lambda: UploadedImages({}))


class StudioRoutes:
    """The routes that only a studio has."""

    def __init__(self, studio: Studio, admission: AdmissionControl) -> None:
        self.studio, self.admission = studio, admission
        self.image_admission = admission.with_limits(replace(admission.limits, max_body_bytes=MAX_UPLOAD_BYTES))

    def routes(self) -> list[Route]:
        return [
            Route("/", self.home),
            Route("/api/models", self.models),
            Route("/api/image", Endpoint(self.image_admission, Arguments, self.act), methods=["POST"]),
            Route("/api/{name}", Endpoint(self.admission, Arguments, self.act), methods=["POST"]),
        ]

    async def home(self, request: Request) -> Response:
        models = [state.model_dump() for state in self.studio.models.states()]
        return HTMLResponse(page({"view": "studio", "models": models}, title="Regard studio", online=True))

    async def models(self, request: Request) -> Response:
        return json_response({"models": [state.model_dump() for state in self.studio.models.states()]})

    async def act(self, body: Arguments, context: RequestContext) -> Response:
        name, studio = context.request.url.path.removeprefix("/api/"), self.studio
        if name not in ACTIONS:
            raise RequestError(404, f"the studio has no action {name[:80]!r}; {suggest(name[:80], ACTIONS)}")
        if name == "branch":
            return json_response((await self.branch(body.root, context)).model_dump())
        loop = asyncio.get_running_loop()

        def add_model(folder: str) -> None:
            """Called by the thread of a training, at its end."""
            asyncio.run_coroutine_threadsafe(studio.models.add(folder), loop).result()

        actions: Mapping[str, Callable[[], BaseModel]] = {
            "image": lambda: studio.images.add(body.root),
            "train": lambda: start_training(studio, body.root, add_model),
            "training": lambda: training_options(studio),
            "cancel-training": lambda: cancel_training(studio),
        }
        # In a thread: the first one imports torch, which takes seconds.
        return json_response((await asyncio.to_thread(actions[name])).model_dump())

    async def branch(self, arguments: Mapping[str, Any], context: RequestContext) -> BranchPrompt:
        branch = validated(BranchRequest, arguments)
        models = self.studio.models
        process = await models.process(models.named(branch.model), "verbs")
        return BranchPrompt(prompt=await context.ask(process, "branch", branch.model_dump()))
