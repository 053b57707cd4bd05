"""``python -m remat doctor``."""

from __future__ import annotations

import argparse
import sys

from remat import __version__


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m remat", description=__doc__)
    parser.add_argument("--version", action="version", version=f"remat {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what is installed, and whether remat works here (exit code 1 if not)")
    parser.parse_args(arguments)

    from remat import doctor

    return 0 if doctor.examine(sys.stdout) else 1


if __name__ == "__main__":
    sys.exit(main())
