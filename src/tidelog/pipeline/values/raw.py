"""Records as they are: the eight Kafka columns, nothing copied, nothing refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog.pipeline.values.decoded import KAFKA_TYPES, Decoded, letters


class RawDecoder:
    __slots__ = ()

    columns = tuple(KAFKA_TYPES)
    schema = pa.schema(list(KAFKA_TYPES.items()))
    fields = schema

    def decode(self, records: Any) -> Decoded:
        return Decoded(records.select(self.columns), letters(records, ()))
