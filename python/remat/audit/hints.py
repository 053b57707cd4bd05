"""What to do about a difference, where what is known of it tells the cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.audit.records import BEFORE_CALL

if TYPE_CHECKING:
    from remat.audit.result import Row

_RANDOM = ("dropout", "bernoulli", "rand", "normal_", "uniform_", "exponential_", "multinomial")


def hint(row: Row) -> str:
    first, operator = row.first, row.operator or {}
    assert first is not None
    name, phase = operator.get("operator", ""), operator.get("phase", "")
    if first.name.endswith(BEFORE_CALL):
        return (
            "the way itself draws random numbers, or what it imports when it is called: import at the top of its file, and put "
            "`with torch.random.fork_rng():` around what it does"
        )
    if first.kind == "mode":
        return "modules are in another mode: train() and eval() are the script's to call"
    if first.kind == "option":
        return "an optimizer has other settings: leave them to the script"
    if first.kind == "gradient" and first.other == "absent":
        return "it is not trained: the model that is called must have this parameter, with requires_grad"
    if first.plain is not None and first.other is not None and first.kind != "loss" and first.plain.split()[0] != first.other.split()[0]:
        return "it has another type or shape: look for casts that the way makes"
    if phase == "recomputed" and any(word in name for word in _RANDOM):
        return "recompute draws other random numbers: keep the generators' states (preserve_rng_state=True)"
    if first.kind == "buffer":
        return "recompute writes to buffers a second time: keep such modules (BatchNorm) out of it, or their buffers as they were"
    if phase == "recomputed" and name == "aten::_to_copy":
        return "recompute casts what forward did not: enter the same autocast there"
    if phase == "recomputed":
        return "recompute sees other inputs than forward did: look for writes in place to them, and for settings that changed"
    if first.kind == "loss" and name:
        return "forward itself computes something else"
    if first.kind in ("loss", "gradient") and name:
        return "backward computes something else: look at custom functions and at how losses are scaled"
    if row.way.partition(":")[0] == "compile":
        return (
            "fused kernels round otherwise, and draw other random numbers in dropout unless torch._inductor.config.fallback_random "
            "is set: set it in the script, and judge the distance"
        )
    return "look at what the way does to this value"
