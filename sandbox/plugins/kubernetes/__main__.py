"""The stand-in `kubernetes` provider plugin: `python -m sandbox.plugins.kubernetes`, started by the engine."""

from sandbox.plugins.stubs import without_sdk

without_sdk()

from sandbox.plugins.kubernetes.provider import KubernetesProvider  # noqa: E402  (needs the stubs)
from sandbox.plugins.provider import serve  # noqa: E402

serve(KubernetesProvider())
