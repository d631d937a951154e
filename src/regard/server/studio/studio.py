"""The state of one studio: its models, its workspace, the training job and the images sent by the page."""

from __future__ import annotations

from dataclasses import dataclass, field

from regard.server.models.images import UploadedImages
from regard.server.models.registry import ModelRegistry
from regard.server.studio.training import TrainingJobs
from regard.server.studio.workspace import Workspace


@dataclass
class Studio:
    """What the requests of one studio share."""

    models: ModelRegistry
    workspace: Workspace = field(default_factory=Workspace)
    training_jobs: TrainingJobs = field(default_factory=TrainingJobs)
    images: UploadedImages = field(default_factory=lambda: UploadedImages({}))
