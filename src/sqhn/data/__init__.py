"""Data that comes with the package's extras: nothing is downloaded."""

from sqhn.data.builtin import digits, photos, random_crops

__all__ = ["digits", "photos", "random_crops"]
