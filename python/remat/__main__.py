"""``python -m remat audit``, ``doctor``, ``estimate``, ``export`` and ``plot``."""

from __future__ import annotations

import argparse
import sys

from remat import BudgetError, Error, __version__
from remat.audit import command as audit
from remat.device_estimate import DEFAULT_CONTEXT


def whole_number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m remat", description=__doc__)
    parser.add_argument("--version", action="version", version=f"remat {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    audit.add_options(commands, whole_number)
    commands.add_parser("doctor", help="what is installed, and whether remat works here (exit code 1 if not)")
    estimate = commands.add_parser(
        "estimate",
        help="the memory that training a model would take",
        description="What a training step would take, from the model's configuration alone: no weights, no data, no "
        "memory. Needs transformers.",
    )
    estimate.add_argument("model", help="a directory with config.json, or a name such as gpt2 or bert")
    estimate.add_argument("--batch", type=whole_number, default=8, help="samples (default: %(default)s)")
    estimate.add_argument("--seq", type=whole_number, default=128, help="tokens in each (default: %(default)s)")
    estimate.add_argument("--task", help="causal-lm, masked-lm, ...; default: the configuration's own")
    estimate.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    estimate.add_argument(
        "--optimizer",
        choices=("adamw", "adam", "sgd", "sgd-momentum", "adafactor", "none"),
        default="adamw",
        help="whose state counts (default: %(default)s)",
    )
    estimate.add_argument(
        "--device-memory",
        metavar="BYTES",
        help="of a GPU, as 24GiB: what a training loop would allocate and reserve there, and which budget fits "
        "(docs/fit.md; no GPU is needed, and none has confirmed it)",
    )
    estimate.add_argument(
        "--device-context",
        metavar="BYTES",
        default=DEFAULT_CONTEXT,
        help="of that memory, what CUDA's context, cuBLAS and cuDNN take; 0: nothing (default: %(default)s, an "
        "assumption)",
    )
    estimate.add_argument(
        "--allocator-settings",
        metavar="SETTINGS",
        help="of PyTorch's allocator there, as max_split_size_mb:128 (default: PYTORCH_ALLOC_CONF's)",
    )
    estimate.add_argument("--json", action="store_true", help="write JSON")
    from remat.export import command as export  # its options; what exports is imported when it does

    export.add_options(commands)
    plot = commands.add_parser(
        "plot",
        help="pictures of a sweep or a curve",
        description="Draws what `remat sweep --out` or `remat plan --curve FILE.json` wrote. Needs matplotlib.",
    )
    plot.add_argument("file", help="sweep.json, or the .json of a curve")
    plot.add_argument("--out", required=True, metavar="PICTURE", help="write it here: .png, .svg or .pdf")
    return parser


def _estimate(options: argparse.Namespace) -> None:
    import torch

    try:
        from remat.integrations import configs
        import transformers  # noqa: F401
    except ImportError as error:
        raise Error(
            f"[estimate] transformers cannot be imported ({error}); install it: pip install transformers"
        ) from None
    from remat.estimate import estimate

    config = configs.find_config(options.model)
    task = options.task or configs.find_task(config)
    configs.check_task(config, task)
    make_model, loss_of = configs.training(config, task, options.batch, options.seq, getattr(torch, options.dtype))
    try:
        result = estimate(
            make_model,
            loss_of,
            options.optimizer,
            device_memory=options.device_memory,
            device_context=options.device_context,
            allocator_settings=options.allocator_settings,
        )
    except Error:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise Error(
            f"[estimate] {type(config).__name__}'s {task} model cannot be run without contents "
            f"({type(error).__name__}: {reason}); measure a real step instead: remat.Session().step()"
        ) from error
    if options.json:
        print(result.to_json())
    else:
        size = f"{options.batch}" if task == "image-classification" else f"{options.batch} x {options.seq}"
        print(f"{type(config).__name__}, {task}, batch {size}, {options.dtype}, {options.optimizer}\n")
        print(result, end="")


def main(arguments: list[str] | None = None) -> int:
    arguments, of_script = audit.split(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(arguments)
    try:
        if options.command == "audit":
            return audit.run(options, of_script)
        if options.command == "doctor":
            from remat import doctor

            return 0 if doctor.examine(sys.stdout) else 1
        if options.command == "plot":
            from remat import plot

            plot.save(options.file, options.out)
        elif options.command == "export":
            from remat.export import command as export

            export.run(options)
        else:
            _estimate(options)
    except Error as error:
        print(f"remat: {error}", file=sys.stderr)
        return 3 if isinstance(error, BudgetError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
