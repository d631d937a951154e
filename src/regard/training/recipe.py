"""What differs between kinds of training: a recipe is an object that the one `Trainer` and the one `run` use.

A recipe knows its model, loss, batches and scores. It knows nothing of optimizers, schedules, processes, checkpoints,
stopping or events: these belong to the trainer, so that every recipe has them, or says in `refuses` why not. A
`TrainingRun` trains recipes in an output folder; most are a recipe themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from torch import nn

from regard.training.events import Events
from regard.training.layer_schedule import LayerSchedule
from regard.training.loop import AdversarialPerturbation
from regard.training.settings import RunSection, TrainingSection

if TYPE_CHECKING:
    from regard.settings import SettingsFile
    from regard.training.distributed.world import World
    from regard.training.run import Session
    from regard.training.run_folder import RunReport
    from regard.training.speed import Speed
    from regard.training.trainer import Trainer

T = TypeVar("T")
Scores = Mapping[str, Any]
Evaluation = Generator[tuple[int, int], None, Scores]  # yields how many of how many examples are done; 0 if unknown
Capability = Literal["processes", "gradient accumulation", "epochs"]
LOWER_RATE = "Lower training.learning_rate, or use a longer warmup, in another --output if this one has a checkpoint"


@dataclass(frozen=True)
class Share:
    """Every batch has `count` parts, of which this process trains on `first`, `first + processes` and so on."""

    first: int = 0
    processes: int = 1
    count: int = 1

    def parts(self, rows: Sequence[T], size: Callable[[Sequence[T]], float]) -> list[tuple[Sequence[T], float]]:
        """The rows of this process's parts, and the weights of their mean losses, which follow from the `size` of a
        part: the mean over all parts is then the mean loss of the batch.

        If there are fewer rows than parts, a row stands in, with weight 0.
        """
        if self.count == 1:
            return [(rows, 1.0)]
        parts = [rows[part :: self.count] for part in range(self.count)]
        sizes = [size(part) if part else 0.0 for part in parts]
        total = sum(sizes) or 1.0
        mine = range(self.first, self.count, self.processes)
        return [(parts[part] or rows[:1], self.count * sizes[part] / total) for part in mine]


def epochs_from(step: int, steps_per_epoch: int) -> Iterator[tuple[int, int]]:
    """The epochs from a step on, without end, and the index of their first batch, from which they are trained."""
    epoch, first = divmod(step, steps_per_epoch)
    while True:
        yield epoch, first
        epoch, first = epoch + 1, 0


@dataclass(frozen=True, eq=False)
class StepBatch:
    """What a process trains on in a step: parts whose gradients are added up.

    `tokens` are those of all processes; 0 if they are not counted. `position`, as JSON, is where the next step begins.
    """

    parts: Sequence[Any]
    tokens: int = 0
    position: Any = None


@dataclass(frozen=True)
class TrainingOutcome:
    """The scores of the weights that are kept, the epochs they come from, and the cost of the training.

    Without epochs, evaluations are counted. A number with a fraction is the end of an epoch that was cut short.
    """

    scores: dict[str, Any]
    epochs: list[float]
    seconds: float
    steps: int
    tokens: int
    history: list[dict[str, Any]] = field(default_factory=list)  # scores of each epoch
    average: dict[str, Any] = field(default_factory=dict)  # scores of the average of the last epochs
    losses: list[float] = field(default_factory=list)  # the mean training loss of each epoch


class Recipe(ABC):
    """One kind of training. The trainer calls `build_model` and `objective` once, and the rest as it goes on."""

    refuses: ClassVar[Mapping[Capability, str]] = {}  # what the recipe cannot do, and why
    remedy: ClassVar[str] = LOWER_RATE  # for a run that has diverged

    training: TrainingSection  # `build_model` may set it to what fits the model
    run: RunSection
    steps_per_epoch: int | None = None  # None: the batches have no end
    evaluates: bool = True  # whether there is data to evaluate on
    dev_examples: int | None = None  # how many, for words about scores on few of them
    main_score: str  # decides between epochs; see `quality`
    keeps_last_of_equal = False  # of epochs with the same score; else the first
    constant_shapes = False  # whether all batches have one shape, for which a program can be compiled
    flops_per_token: float | None = None  # for the plan of a run, whose speed is then measured first

    @abstractmethod
    def build_model(self, seed: int) -> nn.Module:
        """The model to train, on the CPU; new weights follow from the seed."""

    @abstractmethod
    def objective(self, model: nn.Module, device: torch.device) -> nn.Module:
        """A module that contains the model and returns losses by name; the one named "loss" is minimized."""

    @abstractmethod
    def batches(self, step: int, position: Any, share: Share) -> Iterator[StepBatch]:
        """The batches from a step on, prepared in another thread; `position` is that of the batch before."""

    def inputs(self, part: Any, device: torch.device) -> dict[str, Any]:
        """The objective's arguments for a part of a batch."""
        return {name: value.to(device) if hasattr(value, "to") else value for name, value in part.items()}

    @abstractmethod
    def evaluate(self, model: nn.Module, *, final: bool) -> Evaluation:
        """The scores of the model; `final`: after the last step. Empty if it is not evaluated."""

    def compiles(self, device: torch.device) -> bool:
        """Whether the objective is compiled."""
        mode = self.run.compile
        return mode == "on" or (mode == "auto" and self.constant_shapes and device.type == "cuda")

    def other_data(self, position: Any) -> str:
        """Why a position in a checkpoint is one in other data; empty if it is not."""
        return ""

    def plan(self, trainer: Trainer, speed: Speed | None) -> Events[None]:
        """Called before the first step of a run that is not resumed; may set `trainer.training_seconds`."""
        yield from ()

    def quality(self, scores: Scores) -> float:
        """What makes one epoch better than another: the main score."""
        return float(scores[self.main_score])

    def layer_schedule(self, model: nn.Module) -> LayerSchedule | None:
        """When each layer learns, and how fast, if not all are alike."""
        return None

    def perturbation(self, model: nn.Module) -> AdversarialPerturbation | None:
        """A weight that is perturbed for a second pass."""
        return None


class TrainingRun(ABC):
    """What `run` runs in an output folder: it prepares data, trains a recipe, once or more often, and saves a model."""

    kind: ClassVar[str]  # "translation": what it is called in messages and in the manifest
    work: ClassVar[str] = "work"  # the folder of what an unfinished run needs; empty: that of the run
    keeps_work: ClassVar[bool] = False  # whether what is in it stays, for a later run and to repair the result
    report_class: ClassVar[type[RunReport]]
    refuses: ClassVar[Mapping[Capability, str]] = {}
    config: SettingsFile

    def open(self, world: World) -> Events[None]:
        """Read the data and say what is trained on, in all processes, before anything is written."""
        yield from ()

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What must be the same when a run is resumed, beside the settings: data and models, as JSON."""

    def prepared_files(self) -> list[str]:
        """The manifest's entries for what is prepared in the work folder before the first step."""
        return []

    def work_files(self) -> list[str]:
        """The manifest's entries for what is in the work folder after the first step."""
        return ["checkpoints/step-*/"]

    def prepare(self, session: Session) -> Events[RunReport | None]:
        """Prepare what is kept; the report of a finished run, if the run keeps its work and nothing is missing."""
        yield from ()
        return None

    @abstractmethod
    def train(self, session: Session) -> Events[RunReport | None]:
        """Prepare, train with `session.trainer` and save; the report, in the main process."""
