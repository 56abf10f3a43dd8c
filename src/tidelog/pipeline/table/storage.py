"""Where the files of a table are: a local directory, or object storage and HDFS (`s3://…`, `hdfs://…`).

What is remote is reached through the store that Delta's log is written with: one set of addresses and credentials, so
that whoever can read the log can write the files, and the other way round.

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

import errno
import hashlib
import os
import re
from functools import lru_cache
from typing import Any, BinaryIO, Final, NamedTuple, cast

from tidelog.pipeline.errors import NotReady, PipelineError

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


# --- what is remote -----------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _remote(root: str) -> Any:
    """The file system below the root. It is kept, because making one may mean to ask for credentials."""
    from deltalake.fs import DeltaStorageHandler  # late: importing a pipeline's spec must not need Arrow
    from pyarrow import fs

    return fs.PyFileSystem(DeltaStorageHandler(root))


class Upload:
    """A new object, there as a whole when it is closed.

    The stream of the store takes nothing but bytes. A flush would end a part of the upload, and S3 refuses small ones.
    """

    def __init__(self, root: str, path: str) -> None:
        self._stream = _remote(root).handler._handler.open_output_stream(path)
        self.closed = False
        self._size = 0

    def write(self, data: Any) -> int:
        size = len(data)
        if not self.closed:
            self._stream.write(bytes(data))
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()

    def abandon(self) -> None:
        """No object comes of it, whatever is written from now on; the parts are left to S3's own rules."""
        self.closed = True


#: what storage says -> (what that means, what to do)
_SAID: Final = (
    (
        r"/latest/(api/token|meta-data)|computeMetadata|metadata/identity|credential",
        "there are no credentials for it",
        "set them in the environment, for S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; see docs/pipelines.md",
    ),
    (
        r"NoSuchBucket|ContainerNotFound|bucket does not exist",
        "there is no such bucket",
        "make the bucket, or correct the path; AWS_ENDPOINT_URL says which S3 is asked",
    ),
    (
        r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|40[13] (Forbidden|Unauthorized)|permission denied",
        "access is denied",
        "see whether the credentials in the environment are right, and may read, list, write and delete there",
    ),
    (
        r"lookup address|[Nn]ame or service|dns error",
        "there is no such host",
        "correct the path, or AWS_ENDPOINT_URL for an S3 of your own",
    ),
    (
        r"[Cc]onnection refused|timed out|[Cc]onnect error|unreachable",
        "nobody answers there",
        "see whether it runs and the address is right; AWS_ENDPOINT_URL says which S3 is asked",
    ),
    (r"No NameNode hosts", "no name node is known for it", "write hdfs://host:port/…, or set HADOOP_CONF_DIR"),
    (r"BadScheme|URL scheme is not allowed", "it is asked over http, which is not allowed", "set AWS_ALLOW_HTTP=true"),
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def explained(root: str, error: OSError, kind: type[PipelineError] = NotReady) -> PipelineError:
    """What storage said, in words; the library tells it as a chain of causes, the last of which says most."""
    if error.strerror:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        hint = "make room there" if full else "see whether the path is right, and who may write there"
        return kind(f"{error.filename or root} cannot be used: {error.strerror.lower()}", hint)
    lines = [line.strip().removeprefix("↳").strip() for line in _COLOUR.sub("", str(error)).splitlines()]
    lines = [line for line in lines if line] or [type(error).__name__]
    for pattern, means, hint in _SAID:
        found = next((line for line in reversed(lines) if re.search(pattern, line)), None)
        if found is not None:
            return kind(f"{root} cannot be used: {means} ({found[:200]})", hint)
    return kind(f"{root} cannot be used: {': '.join(lines)[:400]}")


# --- files --------------------------------------------------------------------------------------------


def create(root: str, path: str) -> BinaryIO:
    """A new file to write to; its directories are made."""
    if is_local(root):
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        return open(full, "xb")
    return cast(BinaryIO, Upload(root, path))


def open_to_read(root: str, path: str) -> Any:
    """What Parquet's reader takes."""
    return os.path.join(root, path) if is_local(root) else _remote(root).open_input_file(path)


def read(root: str, path: str) -> bytes | None:
    """The whole of a small file; None where there is none."""
    try:
        if is_local(root):
            with open(os.path.join(root, path), "rb") as file:
                return file.read()
        with _remote(root).open_input_stream(path) as stream:
            return cast(bytes, stream.read())
    except FileNotFoundError:
        return None


def write(root: str, path: str, data: bytes) -> None:
    """A small file, whole or not at all."""
    if not is_local(root):
        upload = Upload(root, path)
        upload.write(data)
        upload.close()
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

    filesystem, inner = (fs.LocalFileSystem(), root) if is_local(root) else (_remote(root), "")
    selector = fs.FileSelector("/".join(filter(None, (inner, path))), recursive=True, allow_not_found=True)
    return [
        Found(os.path.relpath(info.path, inner or None), info.size or 0, int((info.mtime_ns or 0) // 1_000_000))
        for info in filesystem.get_file_info(selector)
        if info.type == fs.FileType.File
    ]


def remove(root: str, path: str) -> None:
    """Removes a file; that it is gone already is fine."""
    try:
        if is_local(root):
            os.remove(os.path.join(root, path))
        else:
            _remote(root).delete_file(path)
    except FileNotFoundError:
        pass


def remove_directory(root: str, path: str) -> None:
    import shutil

    if is_local(root):
        shutil.rmtree(os.path.join(root, path), ignore_errors=True)
        return
    try:
        _remote(root).delete_dir(path)
    except FileNotFoundError:
        pass
