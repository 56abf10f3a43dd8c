"""What follows from a log's configuration and is needed at every append, worked out once for each configuration."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tidelog.wire.check import AppendRules
from tidelog.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD

if TYPE_CHECKING:
    from tidelog.log.config import LogConfig

#: `compression.type`; "producer" is not here: it names no codec
_CODECS: Final = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}


@lru_cache(maxsize=1024)
def rules_of(config: LogConfig) -> AppendRules:
    """Logs of the same configuration share them."""
    levels = {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    codec = _CODECS.get(config.compression_type)
    return AppendRules(
        max_message_bytes=config.max_message_bytes,
        compacted=config.compact,
        log_append_time=config.stamps_append_time,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        codec=codec,
        level=levels.get(codec) if codec is not None else None,
        max_unpacked_bytes=config.max_unpacked_bytes,
    )


def roll_jitter_ms(config: LogConfig, name: str, base_offset: int) -> int:
    """Up to `segment.jitter.ms`, different for each log and segment and the same in every run.

    It spreads the rolls of many logs; a source of chance would do the same, but not twice.
    """
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return zlib.crc32(f"{name}/{base_offset}".encode()) % bound if bound > 0 else 0
