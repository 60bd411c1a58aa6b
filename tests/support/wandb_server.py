"""A stand-in for the W&B server: what the real client needs to start, resume and stream runs, kept in memory.

The client says what it wants in GraphQL (`/graphql`) and streams rows to `/files/ENTITY/PROJECT/RUN/file_stream`, as
lines of `wandb-history.jsonl` from an offset on.
"""

from __future__ import annotations

import gzip
import json
import threading
from dataclasses import dataclass, field
from typing import Any

from server import LocalHandler, LocalServer

ENTITY = "a-team"


@dataclass
class StoredRun:
    """A run as the server has it."""

    settings: dict[str, Any]
    """Variables of the newest UpsertBucket: groupName, tags, displayName, config, ..."""
    history: list[dict[str, Any]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    """`_step` of every row that came, in order of arrival."""
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The history without what W&B adds."""
        return [{name: value for name, value in row.items() if not name.startswith("_")} for row in self.history]


class WandbServer(LocalServer):
    """The server of W&B.

    refuse: HTTP status with which uploads of rows are answered, if not None;  hang: never answer again
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.runs: dict[tuple[str, str], StoredRun] = {}
        """(project, id) -> run."""
        self.refuse: int | None = None
        self.hang = False
        self.closed = threading.Event()

    def __exit__(self, *exception: object) -> None:
        self.closed.set()
        super().__exit__(*exception)

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """The data that answer a GraphQL operation; an unknown one has none."""
        if operation == "RunResumeStatus":
            return {"model": {"id": "m", "name": given["project"], "bucket": self._resume(given)}}
        if operation == "UpsertBucket":
            key = given["project"], given["name"]
            known = key in self.runs
            run = self.runs.setdefault(key, StoredRun({}))
            run.settings |= {key: value for key, value in given.items() if value is not None}
            project = {"id": "p", "name": key[0], "entity": {"id": "e", "name": given["entity"] or ENTITY}}
            bucket = {"id": "b", "name": given["name"], "displayName": given["displayName"], "project": project}
            return {"upsertBucket": {"bucket": bucket, "inserted": not known}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/upload/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        return {}

    def _resume(self, given: dict[str, Any]) -> dict[str, Any] | None:
        run = self.runs.get((given["project"], given["name"]))
        if run is None:
            return None
        return {
            "id": "b",
            "name": given["name"],
            "summaryMetrics": json.dumps(run.summary),
            "historyLineCount": len(run.history),
            "historyTail": json.dumps([json.dumps(row) for row in run.history[-1:]]),
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": 0,
            "config": run.settings["config"],
            "tags": run.settings.get("tags", []),
            "wandbConfig": json.dumps({"t": 1}),
        }

    def stream(self, project: str, name: str, body: dict[str, Any]) -> None:
        run = self.runs[project, name]
        files = body.get("files", {})
        if "wandb-history.jsonl" in files:
            lines = files["wandb-history.jsonl"]
            rows = [json.loads(line) for line in lines["content"]]
            assert lines["offset"] <= len(run.history), "rows are missing in between"
            run.history[lines["offset"] : lines["offset"] + len(rows)] = rows
            run.sent += [row["_step"] for row in rows]
        if "wandb-summary.json" in files:
            run.summary = json.loads(files["wandb-summary.json"]["content"][-1])
        if body.get("complete"):
            run.exit_code = body["exitcode"]


class _Handler(LocalHandler):
    server: WandbServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.server.hang:
            self.server.closed.wait()
            return
        *_, project, name, last = f"//{self.path}".split("/")
        with self.server.lock:
            if last == "graphql":
                asked = json.loads(body)
                self.reply({"data": self.server.answer(asked["operationName"], asked["variables"])})
            elif last == "file_stream" and self.server.refuse is not None:
                self.reply({"error": "refused"}, self.server.refuse)
            elif last == "file_stream":
                self.server.stream(project, name, json.loads(body))
                self.reply({})
            else:
                self.reply({})

    do_PUT = do_GET = do_POST
