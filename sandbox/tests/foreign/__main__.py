"""A program of somebody else: a cluster in a network of its own, and a namespace inside."""

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: shop
contexts: [{{name: shop, context: {{cluster: shop, user: google}}}}]
clusters: [{{name: shop, cluster: {{server: "https://{0}", certificate-authority-data: {1}}}}}]
users:
- name: google
  user: {{exec: {{apiVersion: client.authentication.k8s.io/v1beta1, command: gke-gcloud-auth-plugin}}}}
"""

network = gcp.compute.Network("shop", auto_create_subnetworks=False)
subnet = gcp.compute.Subnetwork("shop", network=network.id, region="us-central1", ip_cidr_range="10.0.0.0/20")
account = gcp.serviceaccount.Account("shop", account_id="shop-nodes")
cluster = gcp.container.Cluster(
    "shop",
    location="us-central1-a",
    network=network.id,
    subnetwork=subnet.id,
    initial_node_count=1,
    remove_default_node_pool=True,
    deletion_protection=False,
)
machine = gcp.container.NodePoolNodeConfigArgs(machine_type="e2-standard-4", service_account=account.email)
pool = gcp.container.NodePool("shop", cluster=cluster.id, node_count=2, node_config=machine)
kubeconfig = pulumi.Output.format(KUBECONFIG, cluster.endpoint, cluster.master_auth.cluster_ca_certificate)
inside = pulumi.ResourceOptions(provider=k8s.Provider("shop", kubeconfig=kubeconfig), depends_on=[pool])
k8s.core.v1.Namespace("checkout", metadata={"name": "checkout"}, opts=inside)
