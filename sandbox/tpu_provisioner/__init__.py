"""Stand-in for TPU Provisioner, the controller that makes GKE node pools for JobSets and removes them afterwards.

It stands for the controller's dynamic pools at ai-on-gke/tpu-provisioner, commit 6789e2a (28 October 2025): which pods
start a creation, the node pool that is asked for (`sandbox/tests/data/provisioner_requests.json` has what the real one
asks for), the calls of the container API, and its habits, the unfortunate ones included:

- An operation that is DONE counts as a success, also one that ended in an error: nothing is retried.
- Any error but 404 of the call that looks for a pool ends the process.
- Pools are deleted on events of their nodes only, and an error of a deletion is dropped.
- A pool of the wanted name and hash is taken as it is, whoever made it and whatever its state.

It is a process of its own that needs nothing of the sandbox: its settings are environment variables and flags, it talks
to the API server with the credentials of a kubeconfig, and to https://container.googleapis.com with a token of the
metadata server.

It differs from the real one in this:

- The last line of the log of a process that ended says why; the real one prints the stack of a nil dereference.
- No leader election, no metrics; repeated events are written anew instead of being counted.
- Only `PROVIDER=gke`. What later versions have (static pools, slices, back-off settings, webhooks) is not there.
"""
