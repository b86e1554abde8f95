"""Every guard rail, by subject. Importing the modules declares their rules."""

from policies.registry import RESOURCE, STACK, ResourceCheck, Rule, StackCheck
from policies.rules import cluster as _cluster  # noqa: F401
from policies.rules import control_plane as _control_plane  # noqa: F401
from policies.rules import firewalls as _firewalls  # noqa: F401
from policies.rules import grants as _grants  # noqa: F401
from policies.rules import kubernetes as _kubernetes  # noqa: F401
from policies.rules import limits as _limits  # noqa: F401
from policies.rules import machines as _machines  # noqa: F401
from policies.rules import maintenance as _maintenance  # noqa: F401
from policies.rules import networks as _networks  # noqa: F401
from policies.rules import nodes as _nodes  # noqa: F401
from policies.rules import pools as _pools  # noqa: F401
from policies.rules import queues as _queues  # noqa: F401
from policies.rules import rbac as _rbac  # noqa: F401
from policies.rules import secrets as _secrets  # noqa: F401
from policies.rules import slices as _slices  # noqa: F401
from policies.rules import workloads as _workloads  # noqa: F401

RESOURCE_RULES: tuple[Rule[ResourceCheck], ...] = tuple(RESOURCE.rules)
STACK_RULES: tuple[Rule[StackCheck], ...] = tuple(STACK.rules)
