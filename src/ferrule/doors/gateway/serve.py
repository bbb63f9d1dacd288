"""Run a gateway: from the settings to a socket that answers, and back."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from ferrule.containers import ContainerError, HostLimits, LocalHost
from ferrule.containers.documents import BestPlace
from ferrule.containers.host import settings_on
from ferrule.containers.images import Images
from ferrule.containers.images.store import Image
from ferrule.containers.local import IMAGES
from ferrule.documents.extraction import Extractor, Place
from ferrule.doors.gateway.app import gateway
from ferrule.doors.gateway.protocol import BoundedProtocol
from ferrule.doors.gateway.services import Running, Services, Vectors
from ferrule.doors.gateway.socket import Sockets
from ferrule.hosted.approvals import LIFE_S, Approvals
from ferrule.hosted.code_interpreter import CodeInterpreter
from ferrule.hosted.containers import ClientContainers
from ferrule.hosted.file_search import FileSearch
from ferrule.hosted.image_generation import ImageGeneration
from ferrule.hosted.ingestion import Ingestion
from ferrule.hosted.mcp.remote import Remotes
from ferrule.hosted.mcp.tool import HostedMcp
from ferrule.hosted.network import Network
from ferrule.hosted.shell import HostedShell
from ferrule.hosted.tool import HostedTool
from ferrule.hosted.vector_stores import ClientStores, Indexes, WatchedEmbedder, index_folder
from ferrule.hosted.web_search import WebSearch
from ferrule.image_generation.opening import open_maker
from ferrule.mcp.search_tool import search_tools_of
from ferrule.model.profiles import load_profiles, profile_files
from ferrule.protocol.errors import UsageError
from ferrule.protocol.image_settings import ImageGenerationSettings
from ferrule.protocol.settings import GatewayContainers, GatewaySettings, Settings
from ferrule.protocol.web_settings import WebSearchSettings
from ferrule.responses import attachments
from ferrule.responses.engine import ResponseEngine
from ferrule.responses.upstream import open_upstream
from ferrule.retrieval.connection import IndexFault
from ferrule.retrieval.embedders import open_embedder
from ferrule.retrieval.vectors import VectorMemory
from ferrule.sandbox.alone import confined_to_a_folder
from ferrule.serving import Bind, Callers, listen, quiet_server
from ferrule.store import Store, StoreError
from ferrule.web.download import Downloads
from ferrule.web.opening import open_browser

log = logging.getLogger("ferrule.gateway")

GRACE_S = 3
"""Seconds in which open requests may end after a signal. Their responses have ended already, so only what a slow client
has not taken is lost."""

IDLE_S = 75
"""Seconds that an unused connection stays open: longer than clients keep one, or a request might meet its end."""

PING_S = 20.0
"""Seconds between two pings of a WebSocket, and the time for an answer: proxies end what is silent for longer."""

TIDY_S = 3600.0
"""Seconds between two looks for what has expired."""

DOWNLOAD_S = 60.0
"""Seconds for a file that a request names by its address."""

EXPIRY_S = 1.0
"""Seconds between two looks for files that have expired: the shortest life that a client can give one."""

DAY_S = 86_400

NO_KEYS = (
    "{bind} can be reached from other machines, so clients need keys: make one with `ferrule serve keys add NAME`, or "
    "listen at 127.0.0.1"
)


async def serve(settings: Settings, bind: Bind, state: Path, ready: Callable[[str], None], stop: asyncio.Event) -> None:
    """Serve until `stop` is set; what is kept is kept in `state`. `ready` is told the base URL as soon as requests are
    answered. Raises `UsageError` and `StoreError`."""
    async with AsyncExitStack() as owned:
        upstream = open_upstream(
            settings.provider, load_profiles(profile_files(settings.home)), default_model=settings.model.model
        )
        owned.push_async_callback(upstream.model.aclose)
        listening, at = listen(bind)
        owned.callback(listening.close)
        store = await owned.enter_async_context(await Store.open(state))
        if not at.is_loopback and not await store.has_keys():
            raise UsageError(NO_KEYS.format(bind=at))
        network = Network.of(settings.gateway.network)
        image = _image(settings.gateway.containers, Path(settings.home), owned)
        host = _host(settings.gateway.containers, image, owned)
        containers = _containers(host, image, settings.gateway.containers, store, network, owned)
        parsing = BestPlace(None if host is None else host.create, Path(settings.home))
        owned.push_async_callback(parsing.aclose)
        servers = HostedMcp(Remotes(network.guard(), ca_file=network.ca_file), Approvals(store))
        owned.push_async_callback(servers.aclose)
        searching = _web_search(settings, network, parsing, owned)
        vectors = _vectors(settings, state, store, parsing, network, owned)
        finding = FileSearch(vectors.stores)
        drawing = _image_generation(settings, network, store, owned)
        hosted = (*_hosted(containers, settings.gateway.containers), searching, finding, servers, drawing)
        downloads = Downloads(network.guard(), most=attachments.MAX_BYTES, seconds=DOWNLOAD_S, ca_file=network.ca_file)
        owned.push_async_callback(downloads.aclose)
        engine = ResponseEngine(upstream, store, hosted=hosted, downloads=downloads)
        await engine.recover()
        await vectors.ingestion.start()
        owned.push_async_callback(engine.close)
        running = Running(engine, settings.gateway.max_concurrent)
        services = Services(engine, store, settings.gateway, running, vectors, containers)
        for tidying in (_tidy(store, settings.gateway, containers), _expire(store, vectors.stores)):
            owned.callback(asyncio.create_task(tidying).cancel)
        callers = Callers.of(bind, at, allowed=settings.gateway.allowed_hosts)
        sockets = Sockets(services)
        app = gateway(services, sockets, callers, needs_key=not at.is_loopback)
        server = _server(app, settings.gateway)
        await server.startup([listening])
        serving = asyncio.create_task(server.main_loop())
        ready(f"http://{at}/v1")
        await stop.wait()
        server.should_exit = True
        await serving
        await engine.close()
        await sockets.close()
        await server.shutdown([listening])


def _image(settings: GatewayContainers, home: Path, owned: AsyncExitStack) -> Image | None:
    """Return the image of the clients' containers, and hold it. Raises `UnknownImage` if there is none of the name."""
    if settings.image is None:
        return None
    images = Images(home / IMAGES)
    owned.callback(os.close, images.hold(settings.image))
    return images.get(settings.image)


def _host(settings: GatewayContainers, image: Image | None, owned: AsyncExitStack) -> LocalHost | None:
    """Return the containers of this machine; None where there can be none. Nothing is started yet."""
    try:
        host = LocalHost.open(limits=HostLimits(spares=settings.spares, spare=settings_on(image)))
    except ContainerError as error:
        log.warning("%s; code_interpreter and hosted shells are not run", error)
        return None
    owned.push_async_callback(host.aclose)
    return host


def _containers(
    host: LocalHost | None,
    image: Image | None,
    settings: GatewayContainers,
    store: Store,
    network: Network,
    owned: AsyncExitStack,
) -> ClientContainers | None:
    """Return the containers of the clients."""
    if host is None:
        return None
    containers = ClientContainers(host, store, idle_seconds=settings.idle_timeout_sec, image=image, network=network)
    owned.push_async_callback(containers.aclose)
    return containers


def _hosted(containers: ClientContainers | None, settings: GatewayContainers) -> tuple[HostedTool, ...]:
    """Return the tools that run here."""
    if containers is None:
        return ()
    seconds = settings.cell_timeout_sec
    return CodeInterpreter(containers, cell_seconds=seconds), HostedShell(containers, command_seconds=seconds)


def _vectors(
    settings: Settings, state: Path, store: Store, parsing: Place, network: Network, owned: AsyncExitStack
) -> Vectors:
    """Return the clients' vector stores. Nothing is read yet. Raises `UsageError`."""
    embedder = WatchedEmbedder(open_embedder(settings.embeddings, os.environ, ca_file=network.ca_file))
    owned.push_async_callback(embedder.aclose)
    indexes = Indexes(index_folder(state), embedder, VectorMemory(settings.embeddings.memory_bytes))
    owned.push_async_callback(indexes.aclose)
    stores = ClientStores(store, indexes, embedder, lambda: int(time.time()))
    ingestion = Ingestion(stores, Extractor(parsing))
    owned.push_async_callback(ingestion.aclose)
    return Vectors(stores, ingestion)


def _web_search(settings: Settings, network: Network, parsing: Place, owned: AsyncExitStack) -> WebSearch:
    """Return the tool that searches the web; where a setting is missing, it says which."""
    table = settings.web_search or WebSearchSettings()
    missing = table.missing(os.environ, settings.mcp_servers)
    if missing is not None:
        if settings.web_search is not None:
            log.warning("web_search is not run: %s", missing)
        return WebSearch(None, missing=missing, bounds=network.bounds)
    connect = search_tools_of(settings.mcp_servers, cwd=settings.cwd, home=settings.home)
    browser = open_browser(table, network.guard(), connect, ca_file=network.ca_file, cwd=settings.cwd, parsing=parsing)
    owned.push_async_callback(browser.aclose)
    return WebSearch(browser, bounds=network.bounds)


def _image_generation(settings: Settings, network: Network, store: Store, owned: AsyncExitStack) -> ImageGeneration:
    """Return the tool that makes images; where a setting is missing, it says which."""
    table = settings.image_generation or ImageGenerationSettings()
    missing = table.missing(os.environ)
    if missing is not None:
        if settings.image_generation is not None:
            log.warning("image_generation is not run: %s", missing)
        return ImageGeneration(None, store, missing=missing)
    confine = confined_to_a_folder(settings.home, unconfined_accepted=settings.accept_no_sandbox)
    maker = open_maker(table, confine, ca_file=network.ca_file)
    owned.push_async_callback(maker.aclose)
    return ImageGeneration(maker, store)


def _server(app: ASGIApp, settings: GatewaySettings) -> uvicorn.Server:
    """Return the HTTP server, with the limits of this door."""
    return quiet_server(
        app,
        http=BoundedProtocol,
        ws="websockets-sansio",
        ws_max_size=settings.max_body_bytes,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )


async def _tidy(store: Store, settings: GatewaySettings, containers: ClientContainers | None) -> None:
    """Delete what has expired, from time to time."""
    while True:
        now = int(time.time())
        try:
            await store.expire(now - settings.keep_days * DAY_S)
            await store.expire_approvals(now - LIFE_S)
            if containers is not None:
                await containers.forget_old(now)
        except (StoreError, ContainerError) as error:
            log.warning("what has expired could not be deleted: %s", error)
        await asyncio.sleep(TIDY_S)


async def _expire(store: Store, stores: ClientStores) -> None:
    """Delete files and vector stores as soon as their time has come."""
    while True:
        now = int(time.time())
        try:
            if await store.has_expired(now):
                places = await store.expiring_store_files(now)
                await store.expire_files(now)
                await stores.forget(places)
                for store_id in await store.expire_vector_stores(now):
                    await stores.indexes.remove(store_id)
        except (StoreError, IndexFault) as error:
            log.warning("files that have expired could not be deleted: %s", error)
        await asyncio.sleep(EXPIRY_S)
