"""Stands for the node plugin of GKE's Cloud Storage FUSE driver on one host, over the kubelet's own CSI interface.

Real: the registration with the kubelet, NodeGetInfo, NodePublishVolume and NodeUnpublishVolume with what the kubelet
sends, the driver's checks and texts (`sandbox.kubernetes.fuse`), and that objects are read and written with the
identity of the pod's ServiceAccount.

Different: there is no FUSE. A volume is a folder with copies of the bucket's objects, bound into the pod, and both are
made equal every SYNC_SECONDS and once more when the pod has ended. So an object appears a moment after its file has
been written instead of when it is closed, a large bucket costs time and disk, and where the bucket refuses a write the
file stays, with a line in the host's log, where gcsfuse gives the program an error. Every prefix of a name is a folder,
as with `implicit-dirs`. Of the mount options `only-dir`, `uid`, `gid`, `file-mode` and `dir-mode` count; caches are
none. The sidecar only sleeps: this program runs beside the host, where the driver's runs on it.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import httpx

from sandbox.hosts.messages import CSI, MESSAGES, REGISTRATION, Message, Refusal, service
from sandbox.hosts.plugin_server import serve
from sandbox.kubernetes.fuse import DRIVER, FuseDriver, MountError, Storage, Volume

SYNC_SECONDS = 0.5
SETTLED_SECONDS = 0.3  # a file that has just been written may not be complete
VERSION = "v1.21.9"
_POD = "csi.storage.k8s.io/pod."  # before keys of the volume's context
_CSI, _REGISTRATION = MESSAGES[CSI], MESSAGES[REGISTRATION]
_LOG = logging.getLogger(__name__)


class Mirror:
    """A folder and the objects of a bucket below a prefix, made equal step by step; read-only, it changes no bucket."""

    def __init__(self, folder: Path, volume: Volume, storage: Storage) -> None:
        self._folder, self._volume, self._storage = folder, volume, storage
        self._known: dict[str, tuple[str, int]] = {}  # name -> generation, and time of the file in nanoseconds
        self._refused: dict[str, int] = {}
        self._ended = False
        self._lock = threading.Lock()

    def end(self) -> None:
        """No step follows."""
        with self._lock:
            self._ended = True

    def step(self, last: bool = False) -> None:
        """`last`: files count however new they are. Raises httpx.HTTPError, OSError."""
        with self._lock:
            if self._ended:
                return  # the folder may be gone already, which does not mean that its objects are to be deleted
            remote = self._storage.list(self._volume.bucket, self._volume.only_dir)
            local = self._files()
            if not self._volume.read_only:
                self._push(local, remote, time.time_ns() - (0 if last else int(SETTLED_SECONDS * 1e9)))
            self._pull(remote)

    def _files(self) -> dict[str, int]:
        """Name of the object -> time of the file."""
        found = {}
        for path in self._folder.rglob("*"):
            if path.is_file():
                name = self._volume.only_dir + path.relative_to(self._folder).as_posix()
                found[name] = path.stat().st_mtime_ns
        return found

    def _push(self, local: dict[str, int], remote: dict[str, str], before: int) -> None:
        for name in self._known.keys() - local.keys():
            if name in remote:
                self._storage.delete(self._volume.bucket, name)
                del remote[name]
            del self._known[name]
        for name, changed in local.items():
            same = name in self._known and self._known[name][1] == changed
            if same or changed > before or self._refused.get(name) == changed:
                continue
            try:
                generation = self._storage.write(self._volume.bucket, name, self._path(name).read_bytes())
            except httpx.HTTPStatusError as error:
                if _passes(error):
                    raise
                self._refused[name] = changed
                _LOG.warning("gs://%s/%s is not written: %s", self._volume.bucket, name, error.response.text)
                continue
            remote[name] = generation
            self._known[name] = (generation, changed)

    def _pull(self, remote: dict[str, str]) -> None:
        for name, generation in remote.items():
            known = self._known.get(name)
            path = self._path(name)
            if (known and known[0] == generation) or (known is None and path.exists() and not self._volume.read_only):
                continue
            if name.endswith("/"):
                self._make_folder(path)
                continue
            self._make_folder(path.parent)
            path.write_bytes(self._storage.read(self._volume.bucket, name))
            self._own(path, "file-mode", 0o644)
            self._known[name] = (generation, path.stat().st_mtime_ns)
        for name in self._known.keys() - remote.keys():
            self._path(name).unlink(missing_ok=True)
            del self._known[name]

    def _path(self, name: str) -> Path:
        path = self._folder / name.removeprefix(self._volume.only_dir)
        if ".." in path.parts:
            raise OSError(f"{name!r} is no name of a file")
        return path

    def _make_folder(self, path: Path) -> None:
        for each in (*reversed(path.parents), path):
            if each.is_relative_to(self._folder) and not each.exists():
                each.mkdir()
                self._own(each, "dir-mode", 0o755)

    def _own(self, path: Path, mode: str, default: int) -> None:
        given = self._volume.option(mode)
        path.chmod(int(given, 8) if given else default)
        os.chown(path, *(int(self._volume.option(each) or 0) for each in ("uid", "gid")))

    def prepare(self) -> None:
        """The folder as a pod finds it at first."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._own(self._folder, "dir-mode", 0o755)
        self.step()


class FusePlugin:
    """The driver on one host.

    `folder` is the host's own, where it is inside too, and its `kubelet` is /var/lib/kubelet there; `pid` gives the
    host's process 1, as the outside numbers it.
    """

    def __init__(self, driver: FuseDriver, node: str, folder: Path, pid: Callable[[], int]) -> None:
        self._driver, self._node, self._folder, self._pid = driver, node, folder, pid
        self._mirrors: dict[str, tuple[Mirror, Path]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._servers: list[grpc.Server] = []
        self._thread = threading.Thread(target=self._keep_equal, name=f"fuse-{node}", daemon=True)

    def start(self) -> None:
        """Listens where the kubelet looks for plugins."""
        inside = Path("/var/lib/kubelet/plugins") / DRIVER / "csi.sock"
        info = _REGISTRATION["PluginInfo"](
            type="CSIPlugin", name=DRIVER, endpoint=str(inside), supported_versions=["1.0.0"]
        )
        methods = {
            "GetInfo": ("InfoRequest", lambda _request: info),
            "NotifyRegistrationStatus": ("RegistrationStatus", self._registered),
        }
        registration = service(REGISTRATION, "Registration", methods)
        (self._folder / "kubelet").mkdir(exist_ok=True)
        # The path of a socket is short, and a host's folder may lie deep.
        with tempfile.TemporaryDirectory(prefix="fuse-", dir="/tmp") as scratch:
            kubelet = Path(scratch) / "k"
            kubelet.symlink_to(self._folder / "kubelet")
            plugin = kubelet / "plugins" / DRIVER / "csi.sock"
            self._servers.append(serve(plugin, [self._identity(), self._service()]))
            self._servers.append(serve(kubelet / "plugins_registry" / f"{DRIVER}-reg.sock", [registration]))
        self._thread.start()

    def stop(self) -> None:
        """Ends with its host: what has not been written to a bucket yet is lost, as when a host is switched off."""
        self._ended.set()
        for each in self._servers:
            each.stop(None)
        if self._thread.is_alive():
            self._thread.join()

    def _registered(self, status: Message) -> Message:
        _LOG.info("%s on %s: %s %s", DRIVER, self._node, status.plugin_registered, status.error)
        return _REGISTRATION["RegistrationStatusResponse"]()

    def _identity(self) -> grpc.GenericRpcHandler:
        info = _CSI["GetPluginInfoResponse"](name=DRIVER, vendor_version=VERSION)
        return service(CSI, "Identity", {"GetPluginInfo": ("GetPluginInfoRequest", lambda _request: info)})

    def _service(self) -> grpc.GenericRpcHandler:
        methods = {
            "NodeGetInfo": ("NodeGetInfoRequest", lambda _request: _CSI["NodeGetInfoResponse"](node_id=self._node)),
            "NodeGetCapabilities": (
                "NodeGetCapabilitiesRequest",
                lambda _request: _CSI["NodeGetCapabilitiesResponse"](),
            ),
            "NodePublishVolume": ("NodePublishVolumeRequest", self._publish),
            "NodeUnpublishVolume": ("NodeUnpublishVolumeRequest", self._unpublish),
        }
        return service(CSI, "Node", methods)

    def _publish(self, request: Message) -> Message:
        """Mounts once; the kubelet asks again and again (`requiresRepublish`)."""
        context, target = dict(request.volume_context), request.target_path
        with self._lock:
            if target not in self._mirrors:
                try:
                    self._mirrors[target] = self._mount(request, context, target)
                except MountError as error:
                    raise Refusal(error.code, str(error)) from error
                except (httpx.HTTPError, OSError, subprocess.CalledProcessError) as error:
                    text = f'failed to mount volume "{request.volume_id}" to target path "{target}": {error}'
                    raise Refusal("Internal", text) from error
        return _CSI["NodePublishVolumeResponse"]()

    def _mount(self, request: Message, context: dict[str, str], target: str) -> tuple[Mirror, Path]:
        namespace, name = context.get(f"{_POD}namespace", ""), context.get(f"{_POD}name", "")
        pod = self._driver.client.get("v1", "Pod", name, namespace)
        if pod is None:
            raise MountError("NotFound", f'failed to get pod: pod "{name}" not found')
        ephemeral = context.get("csi.storage.k8s.io/ephemeral") == "true"
        options = [*request.volume_capability.mount.mount_flags]
        options += [each for each in context.get("mountOptions", "").split(",") if each]
        bucket = context.get("bucketName", "") if ephemeral else request.volume_id.partition(":")[0]
        volume = Volume(request.volume_id, bucket, options, context, bool(request.readonly) or "ro" in options)
        storage = self._driver.check(pod, volume)
        folder = self._folder / "fuse" / pod["metadata"]["uid"] / Path(target).parent.name
        mirror = Mirror(folder, volume, storage)
        mirror.prepare()
        self._inside("mkdir", "-p", target)
        self._inside("mount", "--bind", str(folder), target)
        if volume.read_only:
            self._inside("mount", "-o", "remount,bind,ro", target)
        return mirror, folder

    def _unpublish(self, request: Message) -> Message:
        """Writes what is not written yet, and unmounts.

        A volume stays known until that has succeeded, because the kubelet asks again when it fails.
        """
        target = request.target_path
        with self._lock:
            mirror, folder = self._mirrors.get(target, (None, None))
            if mirror and folder:
                try:
                    mirror.step(last=True)
                except (httpx.HTTPError, OSError) as error:
                    if _passes(error):
                        raise Refusal("Internal", f"failed to write the last files of {target}: {error}") from error
                    _LOG.warning("the last files of %s are lost: %s", folder, error)
                mirror.end()
                self._unmount(target)
                del self._mirrors[target]
                shutil.rmtree(folder, ignore_errors=True)
        return _CSI["NodeUnpublishVolumeResponse"]()

    def _unmount(self, target: str) -> None:
        try:
            self._inside("umount", "-l", target)
        except (OSError, subprocess.SubprocessError) as error:
            raise Refusal("Internal", f'failed to unmount target path "{target}": {error}') from error

    def _inside(self, *command: str) -> None:
        """Runs a command where the host's mounts are.

        It is also among the host's processes: umount reads /proc/self, which the host's /proc has for these alone.
        """
        nsenter = ["nsenter", f"--target={self._pid()}", "--mount", "--pid", "--"]
        subprocess.run([*nsenter, *command], check=True, timeout=30)

    def _keep_equal(self) -> None:
        while not self._ended.wait(SYNC_SECONDS):
            with self._lock:
                mirrors = [mirror for mirror, _ in self._mirrors.values()]
            for mirror in mirrors:
                try:
                    mirror.step()
                except (httpx.HTTPError, OSError) as error:
                    _LOG.info("%s: %s", self._node, error)


def _passes(error: Exception) -> bool:
    """Whether an error may pass by itself: nobody answered, or the answer says so."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code == 429 or error.response.is_server_error
    return isinstance(error, httpx.TransportError)
