"""A sender of half messages beside SQLite that dies where it is told: `python half_sender.py BOOTSTRAP DB ID STEP`."""

from __future__ import annotations

import os
import sqlite3
import sys

from tidelog.client import Client
from tidelog.client.half_sender import HalfSender
from tidelog.client.producer import Message

SOURCE, TARGET, QUESTIONS = "halves", "orders", "questions"
#: where the sender dies; at "never" it does not
STEPS = ("prepared", "in the transaction", "committed", "ended", "never")


def open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE IF NOT EXISTS paid (id TEXT PRIMARY KEY)")
    return database


def is_paid(database: sqlite3.Connection, half_id: str) -> bool:
    return database.execute("SELECT 1 FROM paid WHERE id = ?", (half_id,)).fetchone() is not None


def main() -> None:
    bootstrap, path, half_id, step = sys.argv[1:]
    database = open_database(path)

    def die(here: str) -> None:
        if step == here:
            os._exit(9)

    def pay(half_id: str) -> bool:
        die("prepared")
        database.execute("INSERT INTO paid VALUES (?)", (half_id,))
        die("in the transaction")
        database.commit()
        die("committed")
        return True

    with Client(bootstrap) as client:
        sender = HalfSender(client, SOURCE, lambda asked: is_paid(database, asked))
        sender.send_half(Message(half_id.encode()), pay, half_id)
        die("ended")


if __name__ == "__main__":
    main()
