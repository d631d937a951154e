"""Reading and writing files safely: bounded reading, atomic writes, checksums, manifests of output folders."""
