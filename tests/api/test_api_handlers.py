"""Handlers are found by name when their first request comes: what a type checker cannot see of that is checked here."""

from __future__ import annotations

from importlib import import_module

import pytest

from tidelog.api.routes import ROUTES
from tidelog.wire.apis import APIS

ACLS = {29, 30, 31}  # refused alike, whatever they ask


@pytest.mark.parametrize("key", sorted(ROUTES.keys() - ACLS))
def test_a_handler_takes_the_request_and_gives_the_response_of_its_api(key: int) -> None:
    hints = import_module(f"tidelog.api.{ROUTES[key].module}").handle.__annotations__
    name = APIS[key].name
    assert hints["body"] == f"messages.{name}Request"
    assert hints["return"] in ("None", f"messages.{name}Response", f"messages.{name}Response | None")
