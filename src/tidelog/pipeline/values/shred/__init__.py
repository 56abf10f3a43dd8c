"""The loop over JSON values (`kernel.py`), with its types (`kernel.pxd`)."""
