"""What the layers of all families have in common: the unit of everything that treats a model layer by layer.

Gradient checkpointing, FSDP, compilation by layers, copies for inference and measurements ask `layers_of(model)`, never
for a class of layers; so a new kind of layer needs nothing but this base.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from regard.nn.masks import Layout


class Layer(nn.Module):
    """A layer of vectors of some `width`.

    A call depends on its inputs and weights alone and changes no other tensor, so that it may be repeated.
    """

    width: int  # of the vectors that it reads
    is_convertible: ClassVar[bool] = True  # whether copies for inference convert its linear layers to bf16 and int8

    @property
    def shape(self) -> str:
        """The sizes on which its speed depends."""
        return f"width {self.width}"

    def apply_alone(self, x: Tensor, layout: Layout) -> Tensor:
        """Apply the layer outside its model to vectors (N, width), or (B, T, width), as a measurement does."""
        result: Tensor = self(x, layout)
        return result


def layers_of(module: nn.Module) -> list[Layer]:
    """Return all layers inside a module, each once, in the order of its modules."""
    return [layer for layer in module.modules() if isinstance(layer, Layer)]
