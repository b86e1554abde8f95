"""Run as `python -m sandbox.plugins.gcp`: the executable `pulumi-resource-gcp` of the sandbox."""

from sandbox.plugins.stubs import without_sdk

without_sdk()

from sandbox.plugins.gcp.plugin import GcpProvider  # noqa: E402
from sandbox.plugins.provider import serve  # noqa: E402

if __name__ == "__main__":
    serve(GcpProvider())
