"""One file per chapter; each exports `CHAPTER` (see `regard.lessons.course.chapter`)."""
