"""A Grid that calls ClientApps in this process, and lets tests lose, delay and damage what passes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity


class Wires:
    """Stands for SuperLink and SuperNodes.

    Args:
        apps: from a site's name to its ClientApp.
        configs: node configuration by site.
        tamper: called with a site's name and its reply; returns what arrives: a list of messages.
        named: whether nodes are registered under the sites' names.
    """

    def __init__(
        self,
        apps: dict[str, Any],
        configs: dict[str, dict[str, Any]],
        tamper: Callable[[str, Any], list[Any]] = lambda site, reply: [reply],
        named: bool = True,
    ) -> None:
        self.apps, self.configs, self.tamper, self.named = apps, configs, tamper, named
        self.numbers = dict(enumerate(apps, 100))
        # Flower's processes know what they work for; messages cannot be made without.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.offline: set[str] = set()
        self.ids = itertools.count()
        self.inbox: dict[str, list[Any]] = {}
        self.sent: list[tuple[str, Any]] = []

    def get_nodes(self) -> list[Any]:
        return [
            SimpleNamespace(node_id=number, name=name if self.named else "", last_activated_at="once")
            for number, name in self.numbers.items()
            if name not in self.offline
        ]

    def push_messages(self, messages: list[Message]) -> list[str]:
        pushed = []
        for message in messages:
            site, identity = self.numbers[message.metadata.dst_node_id], f"message {next(self.ids)}"
            message.metadata.__dict__["_message_id"] = identity
            self.sent.append((site, message))
            context = Context(1, message.metadata.dst_node_id, self.configs[site], RecordDict(), {})
            try:
                reply = self.apps[site](message, context)
            except Exception as error:
                reply = Message(Error(code=1, reason=repr(error)), reply_to=message)
            self.inbox[identity] = self.tamper(site, reply)
            pushed.append(identity)
        return pushed

    def pull_messages(self, identities: list[str]) -> list[Any]:
        return [reply for identity in identities for reply in self.inbox.pop(identity, [])]
