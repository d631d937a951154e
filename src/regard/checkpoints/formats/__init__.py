"""The formats of the files of model families, one module a family; `regard.checkpoints.file_format` reads them."""
