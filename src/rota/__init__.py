"""Rota: a distributed job scheduler."""

from rota.client import AsyncClient, Client, RequestRefused, ServerUnreachable, job_body
from rota.version import VERSION as __version__
from rota.worker.tasks import App, GiveUp, RetryLater

__all__ = [
    "App",
    "AsyncClient",
    "Client",
    "GiveUp",
    "RequestRefused",
    "RetryLater",
    "ServerUnreachable",
    "__version__",
    "job_body",
]
