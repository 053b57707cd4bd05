#!/usr/bin/env python3
"""Makes steps of one model in one variant: bench/peer_step.py MODEL[:BATCH] VARIANT [BYTES]

Answers each line of standard input with a step and a line of JSON: seconds, exact bytes, fingerprints of what it left, and
what remat reports. Weights, data and seed are the same in each process and step, and so is the allocator. A line "step N"
makes the step on the model's batch N, where it has several.
"""

import gc
import hashlib
import json
import resource
import sys
import time

import peer_models
import peer_variants
import torch

import remat


def fingerprint(tensors):
    digest = hashlib.blake2b()
    for tensor in tensors:
        if tensor is not None:
            digest.update(tensor.detach().numpy())
    return digest.hexdigest()


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def measure(step):
    """Runs `step()`: its seconds and exact bytes, and what it returns."""
    remat.memory.reset_peak("cpu")
    baseline, faults = remat.memory.current("cpu"), page_faults()
    wall, cpu = time.perf_counter(), time.process_time()
    result = step()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "wall": wall,
        "cpu": cpu,
        "page_faults": page_faults() - faults,
        "activation_peak_bytes": remat.memory.peak("cpu") - baseline,
    }, result


def report_of(session):
    """What remat says of the last step."""
    report = session.report()
    return {
        key: getattr(report, key)
        for key in (
            "budget_bytes",
            "peak_bytes",
            "planned_peak_bytes",
            "recompute_seconds",
            "planning_seconds",
            "ops_replayed",
            "decided_by",
            "decision_reason",
        )
    }


class Program:
    def __init__(self, name, variant, activation_peak_bytes=None):
        remat.memory.start_accounting()
        name, _, batch = name.partition(":")
        self.model = peer_models.make(name, int(batch) if batch else None)
        self.buffers = [buffer.clone() for buffer in self.model.buffers()]
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if not self.model.frees_gradients:
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
        self.steps = peer_variants.Steps(self.model, variant, activation_peak_bytes)

    def step(self, batch=None):
        if batch is not None:
            self.model.choose(batch)
        with torch.no_grad():
            for buffer, first in zip(self.model.buffers(), self.buffers):
                buffer.copy_(first)
            self.model.zero_grad(set_to_none=self.model.frees_gradients)
        gc.collect()
        torch.manual_seed(7)

        def train():
            with self.steps.around():
                self.model.loss().backward()

        result = measure(train)[0] | {
            "gradients": fingerprint(p.grad for p in self.parameters),
            "buffers": fingerprint(self.model.buffers()),
        }
        if self.steps.session is not None:
            result["report"] = report_of(self.steps.session)
        return result


def main():
    name, variant, *peak = sys.argv[1:]
    program = Program(name, variant, *map(int, peak))
    for line in sys.stdin:
        try:
            result = program.step(*map(int, line.split()[1:]))
        except RuntimeError as error:  # remat.BudgetError: no plan for so little
            result = {"error": str(error)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
