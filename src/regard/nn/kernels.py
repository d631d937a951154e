"""The fast kernels that layers try first; each returns None if it does not apply, and all do without `nn/fast`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from regard.nn.fast.fused_kernels import fused_add_norm as fused_add_norm
    from regard.nn.fast.fused_kernels import fused_linear_gelu as fused_linear_gelu
    from regard.nn.fast.fused_kernels import fused_mean_pool as fused_mean_pool
    from regard.nn.fast.fused_kernels import fused_packed_attention as fused_packed_attention
    from regard.nn.fast.short_attention import short_attention as short_attention
else:
    try:
        from regard.nn.fast.fused_kernels import (
            fused_add_norm,
            fused_linear_gelu,
            fused_mean_pool,
            fused_packed_attention,
        )
        from regard.nn.fast.short_attention import short_attention
    except ImportError:

        def _does_not_apply(*arguments: object, **options: object) -> Tensor | None:
            return None

        fused_add_norm = fused_linear_gelu = fused_mean_pool = _does_not_apply
        fused_packed_attention = short_attention = _does_not_apply
