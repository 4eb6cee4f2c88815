"""Rota: a distributed job scheduler."""

from rota.client import AsyncClient, Client, RequestRefused, ServerUnreachable, job_body
from rota.model.errors import Superseded
from rota.version import VERSION as __version__
from rota.worker.context import Context, context
from rota.worker.tasks import App, GiveUp, RetryLater

__all__ = [
    "App",
    "AsyncClient",
    "Client",
    "Context",
    "GiveUp",
    "RequestRefused",
    "RetryLater",
    "ServerUnreachable",
    "Superseded",
    "__version__",
    "context",
    "job_body",
]
