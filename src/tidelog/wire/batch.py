"""Record batches, format v2: the unit that producers send, the log stores and consumers receive.

    offset  field                     type    in the CRC
    0       base offset               int64   no: assigned by the broker
    8       batch length              int32   no: bytes after this field
    12      partition leader epoch    int32   no: assigned by the broker
    16      magic (2)                 int8    no
    17      CRC-32C of byte 21 on     uint32
    21      attributes                int16   yes
    23      last offset delta         int32   yes
    27      base timestamp            int64   yes
    35      max timestamp             int64   yes
    43      producer id               int64   yes
    51      producer epoch            int16   yes
    53      base sequence             int32   yes
    57      record count              int32   yes
    61      records, compressed as one block where attributes say so

Attributes: bits 0-2 codec, 3 timestamp type (1 = log append time), 4 transactional, 5 control,
6 delete horizon set (base timestamp then holds the horizon).
"""

from __future__ import annotations

import struct
from typing import Final

HEADER_SIZE: Final = 61
#: base offset + batch length: what must be read to know where a batch ends
LOG_OVERHEAD: Final = 12
HEADER: Final = struct.Struct(">qiibIhiqqqhii")

LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
