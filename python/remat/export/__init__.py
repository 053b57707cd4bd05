"""Training steps as C for microcontrollers: ``python -m remat export`` (docs/export.md)."""
