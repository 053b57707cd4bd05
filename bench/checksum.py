"""A checksum of tensors that any device computes, in whatever order it adds: numbers modulo 2**64."""

import torch

CHUNK = 1 << 20
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Checksum:
    """Holds the memory that it takes, 16 MiB, so that sums between two steps allocate nothing worth speaking of."""

    def __init__(self, device):
        generator = torch.Generator().manual_seed(0)
        weights = torch.randint(-(1 << 62), 1 << 62, (CHUNK,), generator=generator)
        self.weights = weights.mul_(2).add_(1).to(device)  # odd: no element's bits are lost
        self.room = torch.empty_like(self.weights)
        self.total = torch.zeros((), dtype=torch.int64, device=device)

    @torch.no_grad()
    def __call__(self, tensors):
        """Of the bits of all elements and their places."""
        self.total.zero_()
        for tensor in tensors:
            if tensor is None:
                continue
            bits = tensor.detach().contiguous().view(INTEGERS[tensor.element_size()]).flatten()
            for chunk in bits.split(CHUNK):
                room = self.room[: len(chunk)].copy_(chunk).add_(1).mul_(self.weights[: len(chunk)])
                self.total.mul_(6364136223846793005).add_(room.sum())
        return f"{self.total.item() & (2**64 - 1):016x}"
