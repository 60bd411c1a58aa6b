"""A stand-in for the Hugging Face Hub: what the real client needs to push and pull a model, kept in memory.

Small files travel in the commit itself, in base64; those named *.safetensors by the LFS protocol: a batch request, an
upload by hash, and on the way back a redirect to another host, where the client must not show its token.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from server import LocalHandler, LocalServer

LICENSES = ("mit", "apache-2.0", "cc-by-4.0", "other")


@dataclass
class Repo:
    """A model repository.

    commits: its history, commit -> path -> content
    """

    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.commit({".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"})

    @property
    def files(self) -> dict[str, bytes]:
        """Those of the newest commit."""
        return next(reversed(self.commits.values()), {})

    def commit(self, changes: dict[str, bytes]) -> str:
        files = self.files | changes
        text = repr((len(self.commits), sorted(files.items()))).encode()
        oid = hashlib.sha1(text).hexdigest()
        self.commits[oid] = files
        return oid

    def at(self, revision: str) -> str | None:
        """The commit of a branch or of a hash."""
        return next(reversed(self.commits)) if revision == "main" else revision if revision in self.commits else None


class HubServer(LocalServer):
    """The Hub.

    tokens: token -> (user, whether it may write)
    down: hang up instead of answering requests whose path contains this text, if not None
    cut: downloads of large files that break off after half of their bytes
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.tokens = {"hf_me": ("me", True), "hf_reader": ("me", False), "hf_other": ("other", True)}
        self.clear()

    def clear(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.large: dict[str, bytes] = {}
        """sha256 -> content."""
        self.down: str | None = None
        self.cut = 0
        self.asked: list[str] = []
        """METHOD /path of every request."""


class Refused(Exception):
    """An answer that is not 200: its status, what it says, and the Hub's name for it."""

    def __init__(self, status: int, message: str, code: str | None = None, **more: Any):
        self.status, self.body = status, {"error": message, **more}
        self.headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})


class _Handler(LocalHandler):
    server: HubServer

    def handle_request(self) -> None:
        body, hub = self._body(), self.server
        with hub.lock:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            if hub.down is not None and hub.down in path:
                self.close_connection = True
                return
            try:
                self._answer(path, body)
            except Refused as refused:
                self.reply(refused.body, refused.status, refused.headers)

    do_GET = do_POST = do_PUT = do_HEAD = handle_request

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    @property
    def user(self) -> tuple[str | None, bool]:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.server.tokens:
            raise Refused(401, "Invalid credentials in Authorization header")
        return self.server.tokens.get(token, (None, False))

    def _answer(self, path: str, body: bytes) -> None:
        match path.strip("/").split("/"):
            case ["api", "whoami-v2"]:
                if self.user[0] is None:
                    raise Refused(401, "Invalid username or password.")
                self.reply({"type": "user", "name": self.user[0], "orgs": []})
            case ["api", "validate-yaml"]:
                self.reply(self._checked(json.loads(body)["content"]))
            case ["api", "repos", "create"]:
                self.reply(self._create(json.loads(body)))
            case ["api", "models", owner, name]:
                self.reply(self._info(f"{owner}/{name}", "main"))
            case ["api", "models", owner, name, "revision", revision]:
                self.reply(self._info(f"{owner}/{name}", revision))
            case ["api", "models", owner, name, "preupload", "main"]:
                self._writable(f"{owner}/{name}")
                files = [
                    {"path": file["path"], "shouldIgnore": False, "oid": None} for file in json.loads(body)["files"]
                ]
                mode = lambda path: "lfs" if path.endswith(".safetensors") else "regular"  # noqa: E731
                self.reply({"files": [file | {"uploadMode": mode(file["path"])} for file in files]})
            case [owner, name, "info", "lfs", "objects", "batch"]:
                self._writable(f"{owner}/{name.removesuffix('.git')}")
                objects = json.loads(body)["objects"]
                upload = lambda oid: {"upload": {"href": f"{self.server.url}/large/{oid}"}}  # noqa: E731
                self.reply(
                    {"transfer": "basic", "objects": [file | {"actions": upload(file["oid"])} for file in objects]}
                )
            case ["large", oid] if self.command == "PUT":
                assert hashlib.sha256(body).hexdigest() == oid
                self.server.large[oid] = body
                self.reply({})
            case ["large", oid]:
                assert "Authorization" not in self.headers, "the token was shown to another host"
                self._send_large(self.server.large[oid])
            case ["api", "models", owner, name, "commit", "main"]:
                self.reply(self._commit(f"{owner}/{name}", body))
            case [owner, name, "resolve", revision, *parts]:
                self._resolve(f"{owner}/{name}", revision, "/".join(parts))
            case _:
                raise Refused(404, f"no such page: {path}")

    def _repo(self, name: str) -> Repo:
        """A repository that this user may see."""
        repo, (user, _) = self.server.repos.get(name), self.user
        if repo is None or (repo.private and user != name.partition("/")[0]):
            raise Refused(401 if user is None else 404, "Repository not found", "RepoNotFound")
        return repo

    def _writable(self, name: str) -> Repo:
        repo, (user, may_write) = self._repo(name), self.user
        if user != name.partition("/")[0] or not may_write:
            raise Refused(403, f"You don't have the rights to write to {name}")
        return repo

    def _create(self, given: dict[str, Any]) -> dict[str, Any]:
        user, may_write = self.user
        owner = given.get("organization") or user
        if user is None:
            raise Refused(401, "Invalid username or password.")
        if owner != user or not may_write:
            raise Refused(403, f"You don't have the rights to create a model under the namespace {owner!r}")
        name = f"{owner}/{given['name']}"
        if name in self.server.repos:
            raise Refused(409, "You already created this model repo", url=f"{self.server.url}/{name}")
        private = given.get("visibility") == "private" or given.get("private") is True  # as newer and older clients say
        self.server.repos[name] = Repo(private)
        return {"url": f"{self.server.url}/{name}", "name": name}

    def _info(self, name: str, revision: str) -> dict[str, Any]:
        repo = self._repo(name)
        commit = repo.at(revision)
        if commit is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        siblings = [{"rfilename": path} for path in repo.commits[commit]]
        return {"id": name, "modelId": name, "sha": commit, "private": repo.private, "siblings": siblings, "tags": []}

    def _checked(self, readme: str) -> dict[str, Any]:
        header = yaml.safe_load(readme.split("---\n")[1])
        if header.get("license", "mit") not in LICENSES:
            message = f'"license" must be one of [{", ".join(LICENSES)}]'
            raise Refused(400, "Invalid metadata", errors=[{"message": message}], warnings=[])
        return {"errors": [], "warnings": []}

    def _commit(self, name: str, body: bytes) -> dict[str, Any]:
        repo, changes = self._writable(name), {}
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                changes[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                changes[value["path"]] = self.server.large[value["oid"]]
        oid = repo.commit(changes)
        return {"success": True, "commitOid": oid, "commitUrl": f"{self.server.url}/{name}/commit/{oid}"}

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repo = self._repo(name)
        commit = repo.at(revision)
        if commit is None or path not in repo.commits[commit]:
            raise Refused(404, "Entry not found", "EntryNotFound")
        content, headers = repo.commits[commit][path], {"X-Repo-Commit": commit}
        if not path.endswith(".safetensors"):
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            self.send(content, headers={**headers, "ETag": f'"{blob}"'})
            return
        oid = hashlib.sha256(content).hexdigest()
        self.server.large[oid] = content
        headers |= {"X-Linked-Etag": f'"{oid}"', "X-Linked-Size": str(len(content))}
        self.send(b"", 302, {**headers, "Location": f"http://localhost:{self.server.server_address[1]}/large/{oid}"})

    def _send_large(self, content: bytes) -> None:
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        left, headers = content[begin:], {}
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        if self.server.cut:
            self.server.cut -= 1
            self.send(left[: len(left) // 2], 206 if begin else 200, headers, size=len(left))
            self.close_connection = True
        else:
            self.send(left, 206 if begin else 200, headers)
