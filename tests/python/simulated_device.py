"""The accelerator that tests/device simulates, for Python: load() makes it known to PyTorch as "simulated". Its
switches are operators, such as torch.ops.remat_simulated.set_draw_on_cpu (tests/device/python_module.cpp)."""

import os
import types

import torch

LIBRARY = os.environ.get("REMAT_SIMULATED_DEVICE")  # ctest says where it is
DEVICES = 2


def index_of(device):
    device = torch.device(device)
    return torch.accelerator.current_device_index() if device.index is None else device.index


def load():
    """The device "simulated:0". Again it does nothing; a process that has it can't be without it."""
    if not hasattr(torch, "simulated"):
        torch.ops.load_library(LIBRARY)
        switches = torch.ops.remat_simulated
        module = types.ModuleType("torch.simulated")  # PyTorch asks it for these by name
        module.is_available = module.is_initialized = lambda: True
        module._is_in_bad_fork = lambda: False
        module.device_count = lambda: DEVICES
        module.current_device = torch.accelerator.current_device_index
        module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
        module.manual_seed_all = lambda seed: [switches.manual_seed(index, seed) for index in range(DEVICES)]
        module.get_rng_state = lambda device="simulated": switches.rng_state(index_of(device))
        module.set_rng_state = lambda state, device="simulated": switches.set_rng_state(index_of(device), state)
        torch._register_device_module("simulated", module)
    return torch.device("simulated:0")
