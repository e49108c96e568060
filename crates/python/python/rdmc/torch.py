"""torch: broadcasts of state dicts, and the torch.distributed backend ``rdmc``, which importing this module registers.

``import rdmc.torch; torch.distributed.init_process_group("rdmc")`` is for tensors on the CPU: broadcast, all_reduce, reduce, all_gather,
gather, scatter, reduce_scatter and barrier, and calls built on them. ``pg_options=rdmc.torch.Options(...)`` selects fabric and protection.

Needs torch, which this package does not install.
"""

from __future__ import annotations

import importlib

from rdmc._state_dict import broadcast_state_dict as broadcast_state_dict

if importlib.import_module("torch.distributed").is_available():
    from rdmc._torch_backend import Options as Options
    from rdmc._torch_backend import register

    register()
