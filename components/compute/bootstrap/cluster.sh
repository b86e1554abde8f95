# shellcheck shell=bash
# Third part of the control plane's boot script: the configuration of the cluster, and how kubeadm makes it, brings it
# back, or adds a replica to it.

readonly API_PORT=6443
readonly COMMAND=/usr/local/sbin/tpu-control-plane
readonly DEVICE=/dev/disk/by-id/google-data
readonly DATA=/var/lib/tpu-platform
# Says that the data disk holds a member of the cluster: from then on nothing may clear it.
readonly MEMBER=$DATA/member
readonly ENDPOINT=$DATA/endpoint.json
readonly PKI=/etc/kubernetes/pki
readonly API_SERVER=/etc/kubernetes/api-server
readonly ACCOUNT=tpu-platform-deployer
# The timer runs four times in this time, so that the newest token always has an hour left.
readonly TOKEN_HOURS=2
export KUBECONFIG=/etc/kubernetes/admin.conf
# Services have no home directory: what kubectl learns of the API server it would write to the working directory, "/".
export KUBECACHEDIR=$SCRATCH

# --- Configuration of the API server

write_api_server_files() {
  install --directory --mode 0700 "$API_SERVER"
  cat >"$API_SERVER/audit-policy.yaml" <<'YAML'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
YAML
  # Without credentials: what probes and load balancers ask, and what kubeadm reads of a cluster before it joins.
  cat >"$API_SERVER/authentication.yaml" <<'YAML'
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions:
  - path: /healthz
  - path: /livez
  - path: /readyz
  - path: /api/v1/namespaces/kube-public/configmaps/cluster-info
YAML
  [[ -e $API_SERVER/encryption.yaml ]] || write_encryption "$(head --bytes 32 /dev/urandom | base64 --wrap=0)"
}

# The key never leaves the data disk, except to further replicas, which must have the same.
write_encryption() { # KEY
  install --mode 0600 /dev/stdin "$API_SERVER/encryption.yaml" <<YAML
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
      - name: first
        secret: $1
  - identity: {}
YAML
}

encryption_key() {
  sed --quiet 's/^ *secret: //p' "$API_SERVER/encryption.yaml"
}

node_registration() {
  cat <<YAML
nodeRegistration:
  name: "$NODE_NAME"
  criSocket: $CRI_SOCKET
  kubeletExtraArgs:
  - {name: cloud-provider, value: external}
patches:
  directory: $KUBEADM_PATCHES
YAML
}

init_configuration() { # [CERTIFICATE_KEY]
  local certificate_key="${1:+certificateKey: \"$1\"}"
  cat <<YAML
apiVersion: $KUBEADM_CONFIG_VERSION
kind: InitConfiguration
bootstrapTokens:
- {ttl: 15m0s}
$certificate_key
localAPIEndpoint: {advertiseAddress: "$NODE_ADDRESS", bindPort: $API_PORT}
$(node_registration)
---
apiVersion: $KUBEADM_CONFIG_VERSION
kind: ClusterConfiguration
clusterName: "$CLUSTER"
kubernetesVersion: "v$VERSION"
controlPlaneEndpoint: "$API_NAME:$API_PORT"
networking:
  podSubnet: "$PODS_CIDR"
  serviceSubnet: "$SERVICES_CIDR"
apiServer:
  certSANs: ["$API_ADDRESS", "$API_NAME"${PUBLIC_ADDRESS:+, "$PUBLIC_ADDRESS"}]
  extraArgs:
  - {name: audit-log-maxage, value: "30"}
  - {name: audit-log-maxbackup, value: "10"}
  - {name: audit-log-maxsize, value: "100"}
  - {name: audit-log-path, value: /var/log/kubernetes/audit/audit.log}
  - {name: audit-policy-file, value: $API_SERVER/audit-policy.yaml}
  - {name: authentication-config, value: $API_SERVER/authentication.yaml}
  - {name: encryption-provider-config, value: $API_SERVER/encryption.yaml}
  - {name: profiling, value: "false"}
  extraVolumes:
  - {name: settings, hostPath: $API_SERVER, mountPath: $API_SERVER, readOnly: true, pathType: Directory}
  - {name: audit, hostPath: /var/log/kubernetes/audit, mountPath: /var/log/kubernetes/audit, pathType: DirectoryOrCreate}
controllerManager:
  extraArgs:
  - {name: allocate-node-cidrs, value: "false"} # the VPC gives every VM its pod range
  - {name: cloud-provider, value: external}
  - {name: profiling, value: "false"}
scheduler:
  extraArgs:
  - {name: profiling, value: "false"}
YAML
}

# --- Bringing the cluster up

kubeadm_init() { # ARGUMENT...
  init_configuration >"$SCRATCH/init.yaml"
  # kubeadm ends with the commands that join further nodes; their token has no place in a serial console.
  kubeadm init --config "$SCRATCH/init.yaml" --skip-token-print --skip-certificate-key-print "$@"
}

try_create() {
  kubeadm_init && return
  kubeadm_reset
  return 1
}

# A new VM on an old disk: certificate authorities, etcd's data and the encryption key are the cluster. Everything else
# below /etc/kubernetes follows from them, names the old VM, and is made anew.
try_restore() {
  systemctl stop kubelet
  crictl --runtime-endpoint "$CRI_SOCKET" rmp --all --force # what an earlier try left running
  find /etc/kubernetes/ -maxdepth 1 -name '*.conf' -delete
  find /etc/kubernetes/manifests -name '*.yaml' -delete
  find "$PKI" -type f ! -name ca.crt ! -name ca.key ! -name 'front-proxy-ca.*' ! -name 'sa.*' -delete
  kubeadm_init --ignore-preflight-errors=DirAvailable--var-lib-etcd
}

join_configuration() {
  cat <<YAML
apiVersion: $KUBEADM_CONFIG_VERSION
kind: JoinConfiguration
$(discovery)
controlPlane:
  certificateKey: "${JOIN[certificateKey]}"
  localAPIEndpoint: {advertiseAddress: "$NODE_ADDRESS", bindPort: $API_PORT}
$(node_registration)
YAML
}

try_join() {
  read_join_secret "$PEER_SECRET" || return 1
  # The first replica replaces this secret as long as a replica is missing.
  [[ ${JOIN[certificateKey]:-} =~ ^[0-9a-f]{64}$ && ${JOIN[encryptionKey]:-} =~ ^[A-Za-z0-9+/]{43}=$ ]] || return 1
  write_encryption "${JOIN[encryptionKey]}"
  join_configuration | kubeadm_join
}

# kube-proxy has the host's network, and with it a copy of /etc/hosts from when it started: in that one the name of the API
# server may still lead to the first replica, and would when that one is gone. The kubelet starts it anew.
forget_first_replica() {
  local pods
  pods=$(crictl --runtime-endpoint "$CRI_SOCKET" pods --quiet --namespace kube-system --name '^kube-proxy-')
  # shellcheck disable=SC2086 # one word a pod
  [[ -z $pods ]] || crictl --runtime-endpoint "$CRI_SOCKET" rmp --force $pods
}

bring_up() {
  # A packet to the load balancer's address never leaves a VM behind it. So the name of the API server leads to this VM,
  # or, until it serves, to the first replica.
  point_api_name "$API_NAME" "$NODE_ADDRESS"
  if [[ -e $MEMBER ]]; then
    log 'the data disk holds a cluster: bringing it back'
    write_api_server_files
    retry 3600 try_restore || die 'the cluster on the data disk did not come back'
  elif ((REPLICA == 0)); then
    write_api_server_files
    retry 3600 try_create || die 'kubeadm init did not succeed within an hour'
  else
    local first
    first=$(setting attributes.tpu-first-address)
    PEER_SECRET=$(setting attributes.tpu-peer-secret)
    point_api_name "$API_NAME" "$first"
    write_api_server_files
    retry 86400 try_join || die 'this replica did not join within a day'
    point_api_name "$API_NAME" "$NODE_ADDRESS"
    forget_first_replica
  fi
  touch "$MEMBER"
}
