"""Ten common mistakes with a model or its data, each looked for by a check that says what it measured."""

from regard.training.doctor.examine import ExaminedModel, examine, examine_data, load_examined_model
from regard.training.doctor.findings import CHECKS, DoctorFinding, problems, worst_first

__all__ = [
    "CHECKS",
    "DoctorFinding",
    "ExaminedModel",
    "examine",
    "examine_data",
    "load_examined_model",
    "problems",
    "worst_first",
]
