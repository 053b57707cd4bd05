"""A referee for options that save memory: ``python -m remat audit train.py``, ``remat.audit()`` (docs/audit.md).

What runs beside the audited script (child, observer, calls, records, values, meter, trace, ways) imports nothing of remat's
unless a way asks for it: the plain run that all are compared with is PyTorch alone.
"""
