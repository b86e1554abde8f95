"""Secrets in plain text: in metadata, pods, chart values and kubeconfigs."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from plan.hosts import JOIN_TOKEN
from policies import tokens
from policies.pods import containers, pods
from policies.registry import RESOURCE, Resource, Settings
from policies.values import Finding, at, is_set, items, known, strings, text

SECRETS = {
    "a Kubernetes bootstrap token": JOIN_TOKEN,
    "a private key": re.compile(r"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----"),
    "a service account key": re.compile(r'"private_key_id"\s*:'),
    "a Google API key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    "a Google access token": re.compile(r"\bya29\.[0-9A-Za-z_-]{20,}"),
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{30,}\b"),
    "a GitHub token": re.compile(r"\b(gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,})\b"),
    "a JSON web token": re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
}

NAMED_SECRET = re.compile(
    r"(^|[_\-.])(token|passwd|password|passphrase|secret|credentials?|(api|access|private|secret|encryption)[_\-]?key)$",
    re.IGNORECASE,
)
"""Names of variables and options that hold a secret: HF_TOKEN, not TOKENIZER, TOKEN_FILE or SECRET_NAME."""
OPTION_OF_SECRET = re.compile(
    r"(^|[_\-.])(token|passwd|password|passphrase|client[_\-]secret|(api|access|private|secret|encryption)[_\-]?key)$",
    re.IGNORECASE,
)
"""Options of commands that hold a secret; plain --secret names a secret stored elsewhere."""
NO_SECRET = re.compile(r"(true|false|none|null|[0-9]{1,6}|<.*|\$.*|\{\{.*|[./~].*|projects/.*|[a-z0-9]+://.*)", re.I)
"""Values under such names that are no secrets: Booleans, numbers, tokenizer words, references, paths and addresses."""
MODEL_WORDS = re.compile(r"(^|[_\-])(bos|eos|pad|unk|mask|sep|cls|stop|special)[_\-]token$", re.IGNORECASE)
SECRETS_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
"""Form of the name of a Kubernetes Secret: PULL_SECRET: my-registry refers to one."""

READABLE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (*tokens.TEMPLATES, tokens.INSTANCE, *tokens.DERIVED_INSTANCES), ("metadata", "metadataStartupScript")
    ),
    tokens.TPU_VM: ("metadata",),
    **dict.fromkeys(tokens.MIGS, ("allInstancesConfig",)),
    tokens.NODE_POOL: ("nodeConfig.metadata", "nodeConfig.labels"),
    tokens.CLUSTER: ("nodeConfig.metadata", "nodeConfig.labels"),
    tokens.CONFIG_MAP: ("data",),
    tokens.RELEASE: ("values",),
    tokens.CHART: ("values",),
    tokens.KUBERNETES_PROVIDER: ("kubeconfig",),
}


def secrets_in(value: Any, root: str) -> Iterator[Finding]:
    """Texts below a value that look like a secret."""
    for path, written in strings(value, root):
        for what, pattern in SECRETS.items():
            if pattern.search(written):
                yield Finding(path, f"holds {what}")


@RESOURCE.rule(
    "secret-in-plain-text",
    *READABLE,
    reason="Instance metadata, ConfigMaps and chart values can be read by everybody who may look at the resource.",
    remedy="Keep it in Secret Manager or a Kubernetes Secret, and give its name instead",
    source="tpu-operator puts join tokens into metadata; Compute Engine documentation, instance metadata",
    cis=("4.4.2",),
)
def secret_in_plain_text(resource: Resource, settings: Settings) -> Iterator[Finding]:
    for root in READABLE[resource.type]:
        yield from secrets_in(at(resource.props, root), root)


@RESOURCE.rule(
    "secret-in-pod",
    *tokens.WORKLOADS,
    reason="Whoever may list pods reads their variables and arguments, and so does the stack's state.",
    remedy="Use valueFrom.secretKeyRef, or mount the secret as a file",
    source="CIS GKE Benchmark 4.4.1; Kubernetes documentation, good practices for Secrets",
    cis=("4.4.1",),
)
def secret_in_pod(workload: Resource, settings: Settings) -> Iterator[Finding]:
    for path, pod in pods(workload):
        for below, container in containers(path, pod):
            found = list(secrets_in(container, below))
            yield from found
            for index, variable in enumerate(items(container, "env")):
                where = f"{below}.env.{index}.value"
                if _is_secret(text(variable, "name"), text(variable, "value")) and where not in dict(found):
                    yield Finding(where, f"is the value of {text(variable, 'name')}")
            for key in ("command", "args"):
                for index, name in _secret_options(items(container, key)):
                    if f"{below}.{key}.{index}" not in dict(found):
                        yield Finding(f"{below}.{key}.{index}", f"is the value of {name}")


def _is_secret(name: str, value: str, names: re.Pattern[str] = NAMED_SECRET) -> bool:
    """Whether the name is that of a secret, and the value may be one."""
    value = value.strip()
    if MODEL_WORDS.search(name) or not names.search(name) or not value or NO_SECRET.fullmatch(value):
        return False
    refers = name.lower().endswith(("secret", "credential", "credentials"))
    return not (refers and SECRETS_NAME.fullmatch(value))


def _secret_options(arguments: list[Any]) -> Iterator[tuple[int, str]]:
    """Arguments that are the value of an option such as --api-key: behind = or as the next argument."""
    for index, argument in enumerate(arguments):
        if not isinstance(argument, str) or not argument.startswith("-"):
            continue
        name, joined, value = argument.partition("=")
        following = arguments[index + 1] if index + 1 < len(arguments) and not joined else value
        option = name.lstrip("-")
        written = isinstance(following, str) and not following.startswith("-")
        if written and _is_secret(option, following, OPTION_OF_SECRET):
            yield (index if joined else index + 1), option


@RESOURCE.rule(
    "secret-in-state",
    tokens.SECRET_VERSION,
    level="advisory",
    reason="A version made here puts its payload into the stack's state, encrypted or not.",
    remedy="Make only the Secret, and let its writer add versions; or use secretDataWo",
    source="provider: secret_data is kept in state, secret_data_wo is not read back",
)
def secret_in_state(version: Resource, settings: Settings) -> Iterator[Finding]:
    if known(at(version.props, "secretData")):
        yield Finding("secretData", "is set")


@RESOURCE.rule(
    "provider-credential",
    tokens.KUBERNETES_PROVIDER,
    reason="A token or key in a kubeconfig, in a plug-in's settings or in the variables of a command lies in the"
    " stack's state, and works for whoever reads it.",
    remedy="Let the kubeconfig run a command (exec) that asks for a short-lived credential",
    source="Kubernetes documentation, client-go credential plugins",
)
def provider_credential(provider: Resource, settings: Settings) -> Iterator[Finding]:
    for index, user in enumerate(items(_kubeconfig(provider), "users")):
        path = f"kubeconfig.users.{index}"
        for key in ("token", "client-key-data", "password"):
            if is_set(user, f"user.{key}"):
                yield Finding(f"{path}.{key}", "is set")
        # Kubernetes has dropped these plug-ins, which keep their tokens in the file.
        if is_set(user, "user.auth-provider"):
            yield Finding(f"{path}.auth-provider", "is set")
        for place, variable in enumerate(items(user, "user.exec.env")):
            name, value = text(variable, "name"), text(variable, "value")
            if _is_secret(name, value) or any(secrets_in(value, "")):
                yield Finding(f"{path}.exec.env.{place}", f"holds {name}")
        arguments = items(user, "user.exec.args")
        for place, name in _secret_options(arguments):
            yield Finding(f"{path}.exec.args.{place}", f"is the value of {name}")
        for place, argument in enumerate(arguments):
            if any(secrets_in(argument, "")):
                yield Finding(f"{path}.exec.args.{place}", "holds a secret")


def _kubeconfig(provider: Resource) -> Any:
    """The parsed kubeconfig; empty where it is not known, or only names a file."""
    try:
        return yaml.safe_load(text(provider.props, "kubeconfig"))
    except yaml.YAMLError:
        return {}
