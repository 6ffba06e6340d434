"""A number of seconds, as a command's option."""

import argparse
import math


def seconds(text: str) -> float:
    """argparse shows the text of its own error only."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e10:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 on")
    return value
