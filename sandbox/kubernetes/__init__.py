"""The sandbox's Kubernetes side: real control planes behind emulated GKE clusters and control-plane machines.

Real: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, the JobSet, LeaderWorkerSet and Kueue controllers,
helm and their charts; how a machine joins (discovery, bootstrap token, signed certificate, NodeRestriction). Simulated:
kubelets (kwok), node pools turned into Nodes, GKE's autoscaler, the DRA driver's node plugin, the device plugin and the
cloud-controller-manager of self-managed clusters.

For whoever hosts clusters (the Google Cloud emulator):

- `backend.KubernetesBackend(run_dir)`: implements `sandbox.google.backend.ClusterBackend`; `.resize_pool` is to be set
  to the emulator's way of resizing a pool, `.node_pools` to that of making and deleting them, `.cloud` to where
  programs in clusters find Google; `.admin_token`, `.cluster(ref)`, `.close()`.
- `gke.GkeCluster`: one cluster without an emulator; `.start()`, `.stop()`, `.set_pools(pools)`, `.plane`.
- `kubeadm.KubeadmCluster`: one self-managed cluster; what runs in machines (`sandbox.guests`) starts it, publishes its
  secrets, and makes machines its Nodes by `joining.join`. `contexts.Contexts`: the kubeconfig with all that run.

For whoever works on a cluster (the kubernetes provider plugin, tools, tests), from any process with a kubeconfig:

- `api.ApiClient(host, token, ca)`: `apply` (server-side, strict, dry run), `create`, `get`, `list_all`, `patch`,
  `delete`, `request`; `api.ApiError` with the server's status, reason and message, `api.UnknownKindError` for a kind
  whose CRD is missing; `api.condition`, `api.is_true`.
- `releases.Helm(kubeconfig, registry)`: `install`, `upgrade`, `uninstall`, `get`, `render` of a `releases.ReleaseSpec`;
  they return a `releases.Release` with the real provider's `status` and `resource_names`, and raise
  `releases.ReleaseError`, or `releases.ReleaseFailedError` when the release exists but did not become ready.
  Controllers run where the cluster is hosted, so these calls may come from a short-lived process.
- `registry.ChartRegistry(authority)`: serves the charts under their real addresses; `.url`, `.variables(trust_file)`
  for a helm client, `.stop()`.

Programs that must be there: the rows of `sandbox.toolchain.kubernetes_binaries`; they are built on first use.
"""
