"""Ten checks for common mistakes with a model or its data; each reports its measurements."""

from regard.training.doctor.examine import ExaminedModel, examine, examine_data, examined_model
from regard.training.doctor.findings import CHECKS, DoctorFinding, DoctorResult, problems, worst_first

__all__ = [
    "CHECKS",
    "DoctorFinding",
    "DoctorResult",
    "ExaminedModel",
    "examine",
    "examine_data",
    "examined_model",
    "problems",
    "worst_first",
]
