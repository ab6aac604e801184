"""Who is connected, and one exchange of messages with those who matter; sites are known by name, nodes come and go."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedual.engine.message import Refused
from fedual.flower.records import from_records, to_records

__all__ = ["Answer", "Link"]

_log = logging.getLogger("fedual")


@dataclass(frozen=True)
class Answer:
    """What a site replied: kind, JSON and arrays; or why it failed."""

    kind: str
    facts: str
    arrays: Mapping[str, Any]


@dataclass
class Link:
    """Messages to sites over Flower's Grid.

    Attributes:
        grid: Flower's.
        poll: seconds between looks for replies.
        resend: seconds after which an unanswered message is sent again; sites answer it once only.
        attempts: how often a site may fail at one message.
        nodes: where each connected site is.
    """

    grid: Grid
    poll: float = 0.2
    resend: float = 120.0
    attempts: int = 3
    nodes: dict[str, int] = field(default_factory=dict)
    _seen: dict[int, tuple[str, str]] = field(default_factory=dict)

    def exchange(
        self,
        messages: Mapping[str, RecordDict],
        timeout: float,
        accept: Callable[[str, Answer], Any],
        what: str,
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Send every site its message and wait for the replies.

        A message is sent again when its node was restarted, replaced, failed, or stayed silent for long.

        Args:
            messages: by site; sites that are not connected get theirs when they come.
            timeout: seconds to wait at most.
            accept: from a site's name and answer to what is returned for it; raises `Refused` to drop it.
            what: for the log: what is waited for.

        Returns:
            What was accepted, by site; and for the others why there is nothing, by site.
        """
        accepted: dict[str, Any] = {}
        failed: dict[str, str] = {}
        sent: dict[str, _Sent] = {}
        end, told, poll = time.monotonic() + timeout, 0.0, 0.05
        while True:
            waiting = [name for name in messages if name not in accepted and name not in failed]
            if not waiting:
                break
            now = time.monotonic()
            if now > end:
                failed |= {name: self._why(name, timeout) for name in waiting}
                break
            if now - told > 30:
                told = now
                _log.info("%s: waiting for %s", what, ", ".join(waiting))
            self._look(waiting)
            for name in waiting:
                node = self.nodes.get(name)
                if node is None:
                    continue
                old = sent.get(name)
                life = self._seen[node][1]
                if old is None or old.failed or (old.node, old.life) != (node, life) or now - old.time > self.resend:
                    sent[name] = self._send(messages[name], node, life, 0 if old is None else old.tries, old)
            for name, answer in self._pull(sent):
                if name not in waiting or name in accepted:
                    continue
                if answer.kind == "failed":
                    sent[name].failed, sent[name].tries = True, sent[name].tries + 1
                    _log.warning("%s: site %r failed: %s", what, name, answer.facts)
                    if sent[name].tries >= self.attempts:
                        failed[name] = answer.facts
                elif answer.kind == "refused":
                    failed[name] = json.loads(answer.facts).get("text", "")
                    _log.warning("%s: site %r refused: %s", what, name, failed[name])
                else:
                    try:
                        accepted[name] = accept(name, answer)
                    except Refused as refusal:
                        _log.warning("%s: dropped: %s", what, refusal)
                        if refusal.kind != "old":
                            failed[name] = str(refusal)
            time.sleep(poll)
            poll = min(self.poll, 1.5 * poll)
        return accepted, failed

    def _why(self, name: str, timeout: float) -> str:
        state = "is not connected" if name not in self.nodes else "did not answer"
        return f"site {name!r} {state} within {timeout:.0f} s"

    def _send(self, records: RecordDict, node: int, life: str, tries: int, old: _Sent | None) -> _Sent:
        kind = "train" if records["facts"]["kind"] == "order" else "query"  # type: ignore[index]
        message = Message(records, node, kind)
        identity = next(iter(self.grid.push_messages([message])), None)
        earlier = [] if old is None else old.ids
        ids = earlier if identity is None else [*earlier, identity]
        return _Sent(node, life, time.monotonic(), ids, tries, identity is None)

    def _pull(self, sent: Mapping[str, _Sent]) -> list[tuple[str, Answer]]:
        owner = {identity: name for name, entry in sent.items() for identity in entry.ids}
        if not owner:
            return []
        found = []
        for reply in self.grid.pull_messages(list(owner)):
            identity = reply.metadata.reply_to_message_id
            name = owner.get(identity)
            if name is None:
                continue
            sent[name].ids = [known for known in sent[name].ids if known != identity]
            found.append((name, _answer(reply)))
        return found

    def _look(self, waiting: list[str]) -> None:
        """Find out which nodes are there, and greet those that are new: they say which site they are."""
        present = {node.node_id: node for node in self.grid.get_nodes()}
        for name, node in list(self.nodes.items()):
            if node not in present:
                del self.nodes[name]
                _log.info("site %r is no longer connected", name)
        strangers = []
        for identity, node in present.items():
            life = node.last_activated_at
            if identity in self._seen:
                name = self._seen[identity][0]
                self._seen[identity] = (name, life)
                if name:
                    self.nodes.setdefault(name, identity)
            elif node.name:
                self._know(identity, node.name, life)  # registered with its key under this name
            else:
                strangers.append((identity, life))
        if strangers and any(name not in self.nodes for name in waiting):
            self._ask(strangers)

    def _ask(self, strangers: list[tuple[int, str]]) -> None:
        """Ask nodes without a registered name who they are."""
        sent = {str(i): self._send(to_records("name", "{}", {}), i, life, 0, None) for i, life in strangers}
        end = time.monotonic() + 60
        while sent and time.monotonic() < end:
            for key, answer in self._pull(sent):
                identity = int(key)
                if answer.kind == "name":
                    self._know(identity, json.loads(answer.facts)["site"], sent[key].life)
                else:
                    self._know(identity, "", sent[key].life)
                    _log.warning("node %d does not say which site it is: %s", identity, answer.facts)
                del sent[key]
            time.sleep(self.poll)

    def _know(self, identity: int, name: str, life: str) -> None:
        self._seen[identity] = (name, life)
        if name:
            if self.nodes.get(name, identity) != identity:
                _log.warning("site %r is connected twice; the newer node is used", name)
            self.nodes[name] = identity
            _log.info("site %r is connected", name)


@dataclass
class _Sent:
    """A message on its way: to which node in which of its lives, and under which ids."""

    node: int
    life: str
    time: float
    ids: list[str]
    tries: int
    failed: bool


def _answer(reply: Message) -> Answer:
    if reply.has_error():
        return Answer("failed", str(reply.error.reason), {})
    try:
        return Answer(*from_records(reply.content))
    except Refused as refusal:
        return Answer("failed", str(refusal), {})
