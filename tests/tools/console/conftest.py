"""A broker of each module's own, and the console's application around it, asked without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial

import httpx
import pytest

from barnabas import Broker
from barnabas.tools.console.app import console_app
from barnabas.tools.console.cluster import ConnectionSettings, WatchedCluster
from barnabas.tools.console.guard import TOKEN_HEADER, PageGuard

TOKEN = "the-page's"
BASE = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
async def cluster(broker: Broker) -> AsyncIterator[WatchedCluster]:
    cluster = WatchedCluster(ConnectionSettings(broker.bootstrap, {}, {}, {}))
    await cluster.start()
    yield cluster
    await cluster.close()


@pytest.fixture
async def page(cluster: WatchedCluster) -> AsyncIterator[httpx.AsyncClient]:
    """What a page of the console can ask."""
    async with page_of(cluster) as client:
        yield client


def page_of(cluster: WatchedCluster) -> httpx.AsyncClient:
    """A page around a cluster, its token with every request."""
    app = console_app(cluster, partial(PageGuard, token=TOKEN), TOKEN)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=BASE, headers={TOKEN_HEADER: TOKEN})
