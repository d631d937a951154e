"""The endpoints that `regard serve` and the studio share: the protocols of existing clients, and metrics."""

from __future__ import annotations

from starlette.routing import Route

from regard.server.http.endpoint import Gate
from regard.server.http.metrics import ServerMetrics
from regard.server.models.served_models import ModelDirectory
from regard.server.protocols.openai import OpenAIRoutes
from regard.server.protocols.tei import TeiRoutes


def api_routes(models: ModelDirectory, gate: Gate, metrics: ServerMetrics) -> list[Route]:
    return [
        *TeiRoutes(models, gate).routes(),
        *OpenAIRoutes(models, gate).routes(),
        Route("/metrics", metrics.respond),
    ]
