"""Several processes that train one model: who they are, how they meet, and what each of them keeps."""
