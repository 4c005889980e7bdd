"""Data sets: some are built into the package's extras, the usual ones come from files or downloads."""

from sqhn.data.builtin import digits, photos, random_crops
from sqhn.data.dataset import NAMES, Dataset, MissingDataError, load
from sqhn.data.formats import DataFileError, Split

__all__ = ["NAMES", "DataFileError", "Dataset", "MissingDataError", "Split", "digits", "load", "photos", "random_crops"]
