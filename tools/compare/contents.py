"""What is copied: files with random contents; and whether copies are the same."""

import ctypes
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from programs import Failed

# Files in each directory of a tree.
_FILES_PER_DIRECTORY = 1000
# Read and written at once.
_PART_BYTES = 1 << 20


def write_random(path: Path, size: int, seed: int) -> None:
    """A file without holes, whose contents depend on the seed alone."""
    source = random.Random(seed)
    with path.open("xb") as file:
        for start in range(0, size, _PART_BYTES):
            file.write(source.randbytes(min(_PART_BYTES, size - start)))


@dataclass(frozen=True)
class Source:
    """A file or a tree that is copied."""

    name: str
    path: Path
    files: int
    size: int

    @classmethod
    def file(cls, path: Path, size: int) -> "Source":
        """Makes a file."""
        write_random(path, size, 1)
        return cls("one file", path, 1, size)

    @classmethod
    def tree(cls, name: str, path: Path, files: int, each: int) -> "Source":
        """Makes a tree of files of this length."""
        for number in range(files):
            directory = path / str(number // _FILES_PER_DIRECTORY)
            if number % _FILES_PER_DIRECTORY == 0:
                directory.mkdir(parents=True)
            write_random(directory / str(number), each, number)
        return cls(name, path, files, files * each)

    def forget(self) -> None:
        """Asks the system to forget the contents, so that they are read from disk. They have to be on disk."""
        for path in _files(self.path):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def copy_in(self, directory: Path) -> Path:
        """Where the copy in this directory is."""
        return directory / self.path.name

    def check_count(self, directory: Path) -> None:
        """Fails if the copy in this directory has not as many files, or not as many bytes."""
        copy = self.copy_in(directory)
        sizes = [path.stat().st_size for path in _files(copy)]
        if (len(sizes), sum(sizes)) != (self.files, self.size):
            raise Failed(f"{copy} has {len(sizes)} files and {sum(sizes)} bytes of {self.name}: not {self.files} and {self.size}")

    def check_contents(self, directory: Path) -> None:
        """Fails if a file is missing in the copy in this directory, or has other contents."""
        for path in _files(self.path):
            copy = self.copy_in(directory) / path.relative_to(self.path) if self.path.is_dir() else self.copy_in(directory)
            if not _are_same(path, copy):
                raise Failed(f"{copy} has other contents than {path}")


def _files(path: Path) -> Iterator[Path]:
    """Those below a path, or the one that it is; none if there is nothing."""
    if path.is_file():
        yield path
    for parent, _, names in os.walk(path):
        yield from (Path(parent, name) for name in names)


def _are_same(path: Path, copy: Path) -> bool:
    if not copy.is_file():
        return False
    with path.open("rb") as left, copy.open("rb") as right:
        while part := left.read(_PART_BYTES):
            if part != right.read(len(part)):
                return False
        return not right.read(1)


def write_to_disk(directory: Path) -> None:
    """The file system in which this is (syncfs)."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs", str(directory))
    finally:
        os.close(descriptor)


def need_room(directory: Path, size: int) -> None:
    """Fails if there is no room for this many bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    if free < size:
        raise Failed(f"{directory} has room for {free >> 20} MiB, and this needs {size >> 20}: choose another --directory, fewer hosts or fewer bytes")
