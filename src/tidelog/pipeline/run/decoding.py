"""Which schema a pipeline decodes with, and how that is kept: the pin.

    declared    the file has schema or schema_file: that is what counts
    inferred    the file says infer = true: the first records are looked at once, and what was found is pinned
    widened     values had fields beside the schema, and evolve = true: the wider schema is pinned

The pin is a property of the table, so that it is written under the runner's epoch like everything else. It remembers
which declaration it grew from: when the schema in the file is edited, the edited one counts again, followed by those
columns of the pin that it does not name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.errors import NotReady, PipelineError
from tidelog.pipeline.values import (
    MAX_FIELDS,
    SchemaError,
    ValueDecoder,
    decoder_for,
    infer_schema,
    is_reserved_name,
    join_schemas,
    schema_from_json,
    schema_to_json,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.pipeline.spec import Decode

#: records that are looked at to infer a schema
SAMPLE: Final = 10_000
#: of their values
SAMPLE_BYTES: Final = 16 << 20
_INFERRED: Final = "inferred"


@dataclass(frozen=True, slots=True)
class Decoding:
    decoder: ValueDecoder
    #: what the table should have as its pin; None where the declaration says all
    pin: str | None
    #: whether values asked for more fields than there was room for
    is_full: bool = False

    @classmethod
    def of(cls, decode: Decode, pin: str | None, sample: Callable[[], list[bytes]]) -> Decoding | None:
        """None where a schema is to be inferred and there is no record yet to infer it from."""
        declared = _fingerprint(decode)
        kept = json.loads(pin) if pin is not None else None
        try:
            if kept is not None and kept["declared"] == declared:
                return cls(decoder_for(decode, schema_from_json(kept["schema"])), pin)
            if decode.infer:
                if kept is not None:
                    return _pinned(decode, schema_from_json(kept["schema"]))
                values = sample()
                return _pinned(decode, _inferred(decode, values)) if values else None
            decoder = decoder_for(decode, None)
            _check_names(decoder.schema.names)
            if kept is None or not decode.evolve:
                return cls(decoder, None)
            return _pinned(decode, _followed_by(decoder.fields, schema_from_json(kept["schema"])))
        except SchemaError as error:
            raise PipelineError(f"[decode]: {error}", "mend the schema in the pipeline file") from error
        except OSError as error:
            raise NotReady(f"[decode]: {error}", "paths are relative to the pipeline file") from error
        except ValueError as error:
            raise PipelineError(f"[decode]: {error}", "change [decode] or [table] metadata in the file") from error

    def widened(self, decode: Decode, wider: Sequence[pa.Schema]) -> Decoding:
        fields = join_schemas([self.decoder.fields, *wider], MAX_FIELDS)
        return replace(_pinned(decode, fields), is_full=fields != join_schemas([self.decoder.fields, *wider]))

    def closed(self, decode: Decode) -> ValueDecoder:
        """The decoder for a batch whose tasks have together asked for too much: no field is added any more."""
        return decoder_for(decode, self.decoder.fields, most_fields=0)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if is_reserved_name(name):
            raise SchemaError(f"{name!r} is a name that no column can have: Delta has other uses for it")


def _inferred(decode: Decode, values: list[bytes]) -> Any:
    return infer_schema(values, evolve=decode.evolve, framed=decode.framing == "confluent")


def _pinned(decode: Decode, fields: Any) -> Decoding:
    pin = json.dumps({"declared": _fingerprint(decode), "schema": schema_to_json(fields)})
    return Decoding(decoder_for(decode, fields), pin)


def _fingerprint(decode: Decode) -> str:
    """What the file says of the schema, so that an edit of it is noticed."""
    if decode.infer:
        return _INFERRED
    said = hashlib.sha256((decode.schema or "").encode())
    if decode.schema_file is not None:
        with open(decode.schema_file, "rb") as file:
            said.update(file.read())
    return f"{decode.format}:{decode.message or ''}:{said.hexdigest()[:16]}"


def _followed_by(fields: Any, pinned: Any) -> Any:
    import pyarrow as pa

    names = {field.name.lower() for field in fields}
    return pa.schema([*fields, *(field for field in pinned if field.name.lower() not in names)])
