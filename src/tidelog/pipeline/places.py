"""Where the files of a table are: a local directory, or whatever Arrow has a file system for (`s3://…`, `gs://…`).

Names inside a table:

    part-9c1f03ab-e7-b42-t0-5f3a91c0d2e4-0.parquet      which pipeline (a hash of its name), runner epoch 7, batch 42,
                                            task 0, an id of its own, the task's first file
    day=2026-01-31/part-…                   a directory for people to look at; readers go by the log
    _delta_log/                             the table itself: which files belong to it
    _tidelog/                               what is beside the rows: staging, a pinned schema; Delta's readers skip it

A file that no log entry names does not exist for a reader. So a task that fails, runs twice or dies leaves nothing but
files for `vacuum`, which can tell from pipeline and epoch whether somebody may still be about to commit them.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, BinaryIO, Final, NamedTuple, cast

OWN: Final = "_tidelog"
STAGING: Final = f"{OWN}/staging"
_PART: Final = re.compile(r"part-([0-9a-f]{8})-e(\d+)-b(\d+)-t(\d+)-[0-9a-f]+-\d+\.parquet")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


class PartName(NamedTuple):
    epoch: int
    batch: int
    task: int
    #: from `writer_of`
    writer: str


def writer_of(pipeline: str) -> str:
    """A pipeline in the names of its files: several may write into one table."""
    return hashlib.sha256(pipeline.encode()).hexdigest()[:8]


def parse_part(path: str) -> PartName | None:
    """Who wrote a file; None for a file that no task of ours wrote."""
    match = _PART.fullmatch(os.path.basename(path))
    return PartName(int(match[2]), int(match[3]), int(match[4]), match[1]) if match else None


def directory_of(values: dict[str, str | None]) -> str:
    """The directory of rows with these partition values. Only a name: two values may share one."""
    parts = (f"{_UNSAFE.sub('_', name)}={_UNSAFE.sub('_', value or '') or 'null'}" for name, value in values.items())
    return "".join(f"{part}/" for part in parts)


def is_local(root: str) -> bool:
    return "://" not in root


def _remote(root: str) -> tuple[Any, str]:
    from pyarrow import fs  # late: importing a pipeline's spec must not need Arrow

    return cast(tuple[Any, str], fs.FileSystem.from_uri(root))


def create(root: str, path: str) -> BinaryIO:
    """A new file to write to; its directories are made."""
    if is_local(root):
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        return open(full, "xb")
    filesystem, inner = _remote(root)
    return cast(BinaryIO, filesystem.open_output_stream(f"{inner}/{path}"))


def read(root: str, path: str) -> bytes | None:
    """The whole of a small file; None where there is none."""
    try:
        if is_local(root):
            with open(os.path.join(root, path), "rb") as file:
                return file.read()
        filesystem, inner = _remote(root)
        with filesystem.open_input_stream(f"{inner}/{path}") as stream:
            return cast(bytes, stream.read())
    except FileNotFoundError:
        return None


def write(root: str, path: str, data: bytes) -> None:
    """A small file, whole or not at all."""
    if not is_local(root):
        filesystem, inner = _remote(root)
        with filesystem.open_output_stream(f"{inner}/{path}") as stream:
            stream.write(data)
        return
    full = os.path.join(root, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(f"{full}.new", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{full}.new", full)


class Found(NamedTuple):
    #: relative to the root that was asked
    path: str
    size_bytes: int
    modified_ms: int


def files_below(root: str, path: str) -> list[Found]:
    """Every file below a directory of the table; none where there is no such directory."""
    from pyarrow import fs

    filesystem, inner = (fs.LocalFileSystem(), root) if is_local(root) else _remote(root)
    selector = fs.FileSelector(f"{inner}/{path}" if path else inner, recursive=True, allow_not_found=True)
    return [
        Found(os.path.relpath(info.path, inner), info.size or 0, int((info.mtime_ns or 0) // 1_000_000))
        for info in filesystem.get_file_info(selector)
        if info.type == fs.FileType.File
    ]


def size_of(root: str, path: str) -> int:
    if is_local(root):
        return os.path.getsize(os.path.join(root, path))
    filesystem, inner = _remote(root)
    return int(filesystem.get_file_info(f"{inner}/{path}").size)


def remove(root: str, path: str) -> None:
    """Removes a file; that it is gone already is fine."""
    try:
        if is_local(root):
            os.remove(os.path.join(root, path))
        else:
            filesystem, inner = _remote(root)
            filesystem.delete_file(f"{inner}/{path}")
    except FileNotFoundError:
        pass


def remove_directory(root: str, path: str) -> None:
    import shutil

    if is_local(root):
        shutil.rmtree(os.path.join(root, path), ignore_errors=True)
        return
    filesystem, inner = _remote(root)
    try:
        filesystem.delete_dir(f"{inner}/{path}")
    except FileNotFoundError:
        pass
