"""The loops that turn the columns of an Arrow batch into records; `encode.py` beside this folder drives them."""
