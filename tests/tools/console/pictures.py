"""Take the pictures of docs/console.md: `python -m tests.tools.console.pictures`. Needs chromium."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from barnabas import Broker
from barnabas.clients import Consumer, Producer
from barnabas.server.console_backend import ConsoleBackend
from barnabas.tools.console.cluster import ConnectionSettings
from barnabas.tools.console.server import ConsoleThread
from barnabas.tools.http_server import ListenAddress

DOCS = Path(__file__).parents[3] / "docs"
TOPICS = {"orders": 6, "payments": 3, "shipments": 3, "page-views": 6, "invoices": 1}
COMPACTED: dict[str, str | int | float] = {
    "cleanup.policy": "compact",
    "segment.bytes": 200_000,
    "min.cleanable.dirty.ratio": 0.9,
}
MEASURED_S = 45
"""Time for the plots of rates and lag."""
DEADLINE_MS = 60_000


class Traffic:
    """Producers and members of groups, with fixed random numbers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        groups = (
            ("billing", ["orders", "payments"]),
            ("dispatch", ["orders", "shipments"]),
            ("search", ["page-views"]),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._produce())
            for group, topics in groups:
                for number in range(2):
                    tasks.create_task(self._read(group, f"{group}-{number}", topics))

    async def _produce(self) -> None:
        chance, number = random.Random(7), 0
        async with Producer(self._broker.bootstrap) as producer:
            while not self._stop.is_set():
                for topic, share in (
                    ("orders", 40),
                    ("payments", 12),
                    ("shipments", 9),
                    ("page-views", 90),
                    ("invoices", 2),
                ):
                    for _ in range(chance.randrange(share // 2, share)):
                        number += 1
                        value = {
                            "id": number,
                            "customer": f"c-{chance.randrange(5000)}",
                            "total": round(chance.uniform(3, 400), 2),
                        }
                        await producer.send(topic, json.dumps(value).encode(), key=f"k-{number % 997}".encode())
                for _ in range(20):
                    await producer.send("customers", b"x" * 150, key=f"c-{chance.randrange(400)}".encode())
                await asyncio.sleep(0.1)

    async def _read(self, group: str, client_id: str, topics: list[str]) -> None:
        slow = group == "dispatch"
        async with Consumer(self._broker.bootstrap, group_id=group, client_id=client_id) as consumer:
            consumer.subscribe(topics)
            while not self._stop.is_set():
                await consumer.getmany(timeout_ms=200, max_records=40 if slow else 500)
                await asyncio.sleep(1 if slow else 0)


@contextmanager
def console(broker: Broker) -> Iterator[str]:
    loop = broker._loop
    assert loop is not None
    settings = ConnectionSettings(broker.bootstrap, {}, {}, {})
    thread = ConsoleThread(settings, ListenAddress("127.0.0.1", 0), ConsoleBackend(broker.server, loop))
    with ThreadPoolExecutor(1) as apart:  # the driver of the browser has a loop in this thread
        url = apart.submit(asyncio.run, thread.start()).result()
        try:
            yield url
        finally:
            apart.submit(asyncio.run, thread.stop()).result()


def go(page: Page, path: str) -> None:
    page.evaluate("path => { location.hash = path; }", path)
    expect(page.locator("main")).to_have_attribute("data-shows", path)


def take(url: str) -> None:
    path = shutil.which("chromium")
    assert path is not None, "chromium is not installed"
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])

        def page_of(width: int, height: int, scheme: str) -> Page:
            page = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,  # type: ignore[arg-type]
                is_mobile=width < 500,
            ).new_page()
            page.set_default_timeout(DEADLINE_MS)
            page.goto(url)
            return page

        light, dark, phone = page_of(1280, 860, "light"), page_of(1280, 620, "dark"), page_of(390, 844, "light")
        go(dark, "/groups/dispatch")
        time.sleep(MEASURED_S)
        light.screenshot(path=DOCS / "console-overview.png")
        dark.screenshot(path=DOCS / "console-group-dark.png")
        go(phone, "/topics/orders")
        expect(phone.locator("tbody tr td:nth-child(5)").first).to_be_visible()
        phone.screenshot(path=DOCS / "console-phone.png")
        light.set_viewport_size({"width": 1280, "height": 480})
        go(light, "/topics/customers/disk")
        light.get_by_role("button", name="Compact now").click()
        expect(light.locator("#toast")).to_contain_text("given back")
        expect(light.locator(".strip i.clean").first).to_be_visible()
        expect(light.locator("#toast div")).to_have_count(0)
        expect(light.locator(".strip i.dirty").first).to_be_visible()
        light.screenshot(path=DOCS / "console-disk.png")
        browser.close()


def main() -> None:
    with Broker(TOPICS, config={"metrics.listeners": "127.0.0.1:0"}) as broker:
        broker.create_topic("customers", 1, COMPACTED)
        traffic = Traffic(broker)
        try:
            with console(broker) as url:
                take(url)
        finally:
            traffic.stop()


if __name__ == "__main__":
    main()
