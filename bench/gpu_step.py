#!/usr/bin/env python3
"""Makes steps of one model in one variant on a CUDA device: bench/gpu_step.py MODEL[:BATCH] VARIANT [--within BUDGET] [--smoke]

Answers each line of standard input with a step and a line of JSON: seconds, bytes, checksums of what it left, and what remat
reports. Weights, data and seed are the same in each process and step. See peer_step.py, which does so on the CPU.
"""

import argparse
import gc
import json
import os
import sys
import time
import warnings

import torch

if "REMAT_SIMULATED_CUDA" in os.environ:
    import simulated_cuda

    simulated_cuda.load()

import gpu_models
import peer_step
import peer_variants
from checksum import Checksum

DEVICE = torch.device("cuda", 0)


def measure(step):
    """Runs `step()`: its seconds until the device has computed, what the allocator gave and took from the device at most,
    and what it returns."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    baseline, faults = torch.cuda.memory_allocated(), peer_step.page_faults()
    wall, cpu = time.perf_counter(), time.process_time()
    result = step()
    torch.cuda.synchronize()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "wall": wall,
        "cpu": cpu,
        "page_faults": peer_step.page_faults() - faults,
        "activation_peak_bytes": torch.cuda.max_memory_allocated() - baseline,
        "allocated_peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
    }, result


class Program:
    def __init__(self, name, variant, within, small):
        self.checksum = Checksum(DEVICE)
        self.model = gpu_models.make(name, DEVICE, small)
        self.buffers = [buffer.clone() for buffer in self.model.buffers()]
        self.parameters = list(self.model.parameters())
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        gc.collect()
        torch.cuda.empty_cache()  # what making it took
        self.steps = peer_variants.Steps(self.model, variant, within, DEVICE)

    def step(self):
        with torch.no_grad():
            for buffer, first in zip(self.model.buffers(), self.buffers):
                buffer.copy_(first)
            self.model.zero_grad(set_to_none=False)
        gc.collect()
        torch.manual_seed(7)

        def train():
            with self.steps.around():
                loss = self.model.loss()
                loss.backward()
            return loss.detach()

        result, loss = measure(train)
        result |= {
            "gradients": self.checksum([loss, *(parameter.grad for parameter in self.parameters)]),
            "buffers": self.checksum(self.model.buffers()),
        }
        if self.steps.session is not None:
            result["report"] = peer_step.report_of(self.steps.session)
        return result


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("variant")
    parser.add_argument("--within", help="remat's: bytes, or a share such as 60%%")
    parser.add_argument("--smoke", action="store_true")
    return parser.parse_args()


def main():
    warnings.filterwarnings("ignore", message=r"\[session\] remat has kept budgets")  # these are the steps to compare with
    args = arguments()
    program = None
    for _ in sys.stdin:
        try:
            program = program or Program(args.model, args.variant, args.within, args.smoke)
            result = program.step()
        except Exception as error:  # remat.BudgetError, or what a peer cannot do
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
