"""The optimizers whose state ``remat.estimate`` knows, by the names that it has for them."""

import torch

NAMED_OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.1),
    "sgd-momentum": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
    "adafactor": torch.optim.Adafactor,
}
