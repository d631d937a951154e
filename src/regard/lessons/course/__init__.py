"""The lectures as a course of ten chapters (see `course` and `chapter`)."""
