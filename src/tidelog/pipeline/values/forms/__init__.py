"""The loops over strings that stand for something else: dates, timestamps, decimals, binary (`kernel.py`)."""
