"""raw and text values, keys, metadata, and the parting of records into rows and dead letters."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from values_records import Decode, offsets, records

from tidelog.pipeline.values import DEAD_LETTERS, DecodeStopped, decoder_for


def test_raw_gives_the_eight_columns_without_a_copy():
    batch = records([b"a", None, b"\xff"])
    decoder = pickle.loads(pickle.dumps(decoder_for(Decode("raw"))))
    decoded = decoder.decode(batch)
    assert decoded.rows.schema == decoder.schema == batch.schema
    assert decoded.rows.column("value").buffers()[2].address == batch.column("value").buffers()[2].address
    assert decoded.dead.num_rows == 0


def test_text_that_is_not_utf8_is_a_dead_letter_and_shifts_no_row():
    decoder = pickle.loads(pickle.dumps(decoder_for(Decode("text"))))
    rows, dead, _ = decoder.decode(records(["größe".encode(), b"\xff", None, b"", b"ok\xc3", b"last"]))
    assert rows.schema == decoder.schema
    assert rows.column("text").to_pylist() == ["größe", None, "", "last"]
    assert offsets(rows) == [100, 102, 103, 105]
    assert dead.schema == DEAD_LETTERS
    assert offsets(dead) == [101, 104]
    assert dead.to_pylist()[0] | {"timestamp": None} == {
        "topic": "orders",
        "partition": 3,
        "offset": 101,
        "timestamp": None,
        "key": b"1",
        "value": b"\xff",
        "reason": "the value is not UTF-8",
    }


def test_metadata_columns_are_renamed_added_and_left_out():
    decoder = decoder_for(Decode("text", metadata=(("offset", "at"), ("headers", "h"), ("value", "bytes"))))
    rows = decoder.decode(records([b"x"])).rows
    assert rows.schema.names == ["text", "at", "h", "bytes"] and "headers" in decoder.columns
    assert decoder_for(Decode("text", metadata=())).schema.names == ["text"]


def test_metadata_must_not_hide_a_field():
    with pytest.raises(ValueError, match="'TEXT' of the schema"):
        decoder_for(Decode("text", metadata=(("key", "TEXT"),)))
    with pytest.raises(ValueError, match="no Kafka column"):
        decoder_for(Decode("text", metadata=(("offest", "o"),)))


def test_a_text_key_is_checked_like_a_text_value():
    decoder = decoder_for(Decode("text", key_format="text"))
    rows, dead, _ = decoder.decode(records([b"a", b"\xff", b"c"], keys=[b"k", b"\xfe", b"\xfd"]))
    assert rows.schema.field("_key").type == pa.string() and rows.column("_key").to_pylist() == ["k"]
    assert dead.column("reason").to_pylist() == ["the value is not UTF-8", "the key is not UTF-8"]
    assert dead.column("key").to_pylist() == [b"\xfe", b"\xfd"]


def test_stop_names_the_first_bad_record_and_survives_pickling():
    decoder = decoder_for(Decode("text", on_error="stop"))
    with pytest.raises(DecodeStopped, match="orders-3 offset 101: the value is not UTF-8") as caught:
        decoder.decode(records([b"a", b"\xff", b"\xfe"]))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
