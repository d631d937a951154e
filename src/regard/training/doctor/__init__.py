"""Ten common mistakes with a model or its data, each looked for by a check that says what it measured."""

from regard.training.doctor.examine import Subject, examine, quick, subject_named
from regard.training.doctor.findings import CHECKS, Finding, problems, worst_first

__all__ = ["CHECKS", "Finding", "Subject", "examine", "problems", "quick", "subject_named", "worst_first"]
