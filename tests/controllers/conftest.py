"""A fresh cluster for every test of this folder."""

from collections.abc import AsyncIterator

import pytest

from tests.controllers.world import World, new_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as made:
        yield made
