"""Without `regard.nn.fast` everything imports and generates the same tokens."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
if sys.argv[1] == "hidden":
    class Hide:
        def find_spec(self, name, path=None, target=None):
            if name.startswith("regard.nn.fast"):
                raise ImportError(name)
    sys.meta_path.insert(0, Hide())
import torch
from regard.inference.generation.beam_search import greedy_search
from regard.models import Gpt, GptConfig
torch.manual_seed(0)
shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
model = Gpt(GptConfig(vocab_size=50, max_position_embeddings=64, **shape)).eval()
with torch.inference_mode():
    found = greedy_search(model, torch.tensor([[1, 2, 3], [4, 5, 6]]), end=None, max_new_tokens=20)
assert any(name.startswith("regard.nn.fast.") for name in sys.modules) == (sys.argv[1] == "present")
print([one.ids for one in found])
"""


def test_the_folder_is_optional() -> None:
    results = [
        subprocess.run([sys.executable, "-c", CODE, way], check=True, capture_output=True, text=True).stdout
        for way in ("present", "hidden")
    ]
    assert results[0] == results[1] and "[" in results[0]
