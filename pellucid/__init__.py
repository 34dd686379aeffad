"""Pellucid: a lazy tensor library and kernel compiler; every step can be seen and checked."""

__version__ = "0.1.0"
