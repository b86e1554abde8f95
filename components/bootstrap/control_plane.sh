# shellcheck shell=bash
# Boot script of a control-plane VM; common.sh stands in front of it. It installs itself as a command, brings the cluster
# up (or back, where the data disk holds one already), and has timers publish credentials and snapshots:
#
#   tpu-control-plane [publish | snapshot]

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

# --- The data disk: etcd and /etc/kubernetes, which outlive the VM

mount_once() { # DIRECTORY OPTIONS_OF_FSTAB...
  install --directory "$1"
  add_line /etc/fstab "${*:2}"
  mountpoint --quiet "$1" || mount "$1"
}

mount_data_disk() {
  local status=0
  retry 300 test -e "$DEVICE" || die "no disk $DEVICE: attach the data disk under the device name \"data\""
  blkid --probe "$DEVICE" >/dev/null || status=$?
  case $status in
  0) ;;
  2) mkfs.ext4 -q -m 0 "$DEVICE" ;; # nothing at all is on it
  *) die "cannot tell what is on $DEVICE (blkid: $status)" ;;
  esac
  mount_once "$DATA" "$DEVICE $DATA ext4 defaults,nofail,x-systemd.growfs 0 2"
  install --directory --mode 0700 "$DATA/etcd"
  install --directory "$DATA/kubernetes"
  local bind="none bind,nofail,x-systemd.requires-mounts-for=$DATA 0 0"
  mount_once /var/lib/etcd "$DATA/etcd /var/lib/etcd $bind"
  mount_once /etc/kubernetes "$DATA/kubernetes /etc/kubernetes $bind"
  install --directory /etc/systemd/system/kubelet.service.d
  printf '[Unit]\nRequiresMountsFor=/var/lib/etcd /etc/kubernetes\n' \
    >/etc/systemd/system/kubelet.service.d/20-data-disk.conf
  systemctl daemon-reload
}

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
  fi
  touch "$MEMBER"
}

# --- Publishing credentials

post_json() { # URL CURL_ARGUMENT...; the body comes on stdin
  google_api --header 'Content-Type: application/json' --data-binary @- "$@"
}

enabled_versions() { # projects/P/secrets/S
  google_api --get --data-urlencode filter=state:ENABLED --data-urlencode pageSize=1000 \
    "$SECRET_MANAGER/$1/versions" | json 'versions\.[0-9]*\.name'
}

destroy_versions() { # projects/P/secrets/S [EXCEPT]
  local version versions
  versions=$(enabled_versions "$1")
  for version in $versions; do
    [[ $version == "${2:-}" ]] && continue
    printf '{}' | post_json "$SECRET_MANAGER/$version:destroy" --output /dev/null ||
      log "cannot destroy $version; trying again next time"
  done
}

# Adds the payload on stdin as the newest version, and destroys the older ones.
publish_version() { # projects/P/secrets/S
  local payload newest
  payload=$(base64 --wrap=0)
  newest=$(printf '{"payload": {"data": "%s"}}' "$payload" |
    post_json "$SECRET_MANAGER/$1:addVersion" | json name)
  destroy_versions "$1" "$newest"
  log "published $newest"
}

# Tokens that expired are deleted by the cluster itself (kube-controller-manager's token cleaner).
mint_join_token() {
  local command
  EXPIRES=$(date --utc --date "+$TOKEN_HOURS hours" +%FT%TZ)
  command=$(kubeadm token create --ttl "${TOKEN_HOURS}h" --print-join-command)
  [[ $command =~ --token\ ([a-z0-9.]+)\ --discovery-token-ca-cert-hash\ (sha256:[0-9a-f]{64}) ]] ||
    die 'kubeadm token create printed no join command'
  TOKEN=${BASH_REMATCH[1]}
  CA_HASH=${BASH_REMATCH[2]}
}

publish_join() {
  local secret
  secret=$(setting attributes.tpu-join-secret)
  printf '{"apiServer": "%s:%s", "apiName": "%s", "caCertHash": "%s", "token": "%s", "expires": "%s"}' \
    "$API_ADDRESS" "$API_PORT" "$API_NAME" "$CA_HASH" "$TOKEN" "$EXPIRES" |
    publish_version "$secret"
}

publish_access() {
  local secret token expires
  secret=$(setting attributes.tpu-access-secret)
  kubectl apply --filename - >/dev/null <<YAML
apiVersion: v1
kind: ServiceAccount
metadata: {name: $ACCOUNT, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $ACCOUNT}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {kind: ServiceAccount, name: $ACCOUNT, namespace: kube-system}
YAML
  read -r token expires < <(kubectl create token "$ACCOUNT" --namespace kube-system --duration "${TOKEN_HOURS}h" \
    --output jsonpath='{.status.token} {.status.expirationTimestamp}{"\n"}')
  printf '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", %s}' \
    "\"status\": {\"token\": \"$token\", \"expirationTimestamp\": \"$expires\"}" |
    publish_version "$secret"
}

# Once per certificate authority: a new version would have every client of the platform look again.
publish_endpoint() {
  local secret payload
  secret=$(setting attributes.tpu-endpoint-secret)
  payload=$(printf '{"server": "https://%s:%s", "ca": "%s"}' \
    "${PUBLIC_ADDRESS:-$API_ADDRESS}" "$API_PORT" "$(base64 --wrap=0 "$PKI/ca.crt")")
  if [[ -e $ENDPOINT && $(<"$ENDPOINT") == "$payload" && -n $(enabled_versions "$secret") ]]; then
    return
  fi
  printf '%s' "$payload" | publish_version "$secret"
  printf '%s' "$payload" >"$ENDPOINT"
}

ready_replicas() {
  kubectl get nodes --selector node-role.kubernetes.io/control-plane --output \
    jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' | grep --count True || true
}

# What lets a VM become a control plane exists only while a replica is missing.
publish_peers() {
  local secret ready key
  secret=$(setting attributes.tpu-peer-secret)
  ready=$(ready_replicas)
  if ((ready >= REPLICAS)); then
    destroy_versions "$secret"
    return
  fi
  key=$(head --bytes 32 /dev/urandom | od --address-radix=n --format=x1 | tr --delete ' \n')
  init_configuration "$key" >"$SCRATCH/init.yaml"
  kubeadm init phase upload-certs --upload-certs --skip-certificate-key-print --config "$SCRATCH/init.yaml"
  printf '{"apiServer": "%s:%s", "caCertHash": "%s", "token": "%s", "expires": "%s", %s}' \
    "$NODE_ADDRESS" "$API_PORT" "$CA_HASH" "$TOKEN" "$EXPIRES" \
    "\"certificateKey\": \"$key\", \"encryptionKey\": \"$(encryption_key)\"" |
    publish_version "$secret"
}

publish() {
  mint_join_token
  publish_join
  publish_access
  publish_endpoint
  if ((REPLICAS > 1)); then
    publish_peers
  fi
}

# --- Snapshots of etcd

snapshot() {
  local container bucket object certificates=$PKI/etcd file=/var/lib/etcd/snapshot.db
  bucket=$(setting attributes.tpu-backup-bucket)
  object="etcd/$CLUSTER/$(date --utc +%FT%TZ).db"
  container=$(crictl --runtime-endpoint "$CRI_SOCKET" ps --quiet --name '^etcd$' --state running)
  rm --force "$file"
  crictl --runtime-endpoint "$CRI_SOCKET" exec "$container" etcdctl --endpoints https://127.0.0.1:2379 \
    --cacert "$certificates/ca.crt" --cert "$certificates/healthcheck-client.crt" \
    --key "$certificates/healthcheck-client.key" snapshot save "$file"
  google_api --request POST --max-time 1800 --header 'Content-Type: application/octet-stream' --upload-file "$file" \
    --output /dev/null \
    "https://storage.googleapis.com/upload/storage/v1/b/$bucket/o?uploadType=media&name=${object//\//%2F}"
  rm --force "$file"
  log "saved $object to $bucket"
}

# --- The command and its timers

install_timer() { # NAME TIMER_LINE...
  cat >"/etc/systemd/system/tpu-$1.service" <<UNIT
[Unit]
Description=TPU platform control plane: $1
ConditionPathExists=$MEMBER

[Service]
Type=oneshot
ExecStart=$COMMAND $1
TimeoutStartSec=45min
Restart=on-failure
RestartSec=60
UNIT
  {
    printf '[Unit]\nDescription=TPU platform control plane: %s, regularly\n\n[Timer]\n' "$1"
    printf '%s\n' "${@:2}"
    printf '\n[Install]\nWantedBy=timers.target\n'
  } >"/etc/systemd/system/tpu-$1.timer"
}

start_timers() {
  local bucket timers=(tpu-publish.timer)
  bucket=$(setting attributes.tpu-backup-bucket '')
  install_timer publish OnActiveSec=1s OnCalendar=*:0/30
  if [[ -n $bucket ]]; then
    install_timer snapshot OnCalendar=hourly RandomizedDelaySec=10min
    timers+=(tpu-snapshot.timer)
  fi
  systemctl daemon-reload
  systemctl enable --now "${timers[@]}"
}

boot() {
  [[ ${BASH_SOURCE[0]} -ef $COMMAND ]] || install --mode 0700 "${BASH_SOURCE[0]}" "$COMMAND"
  if ! has_joined; then
    mount_data_disk
    prepare_host
    bring_up
    record_join
  else
    guard_metadata_server
  fi
  # One publisher: two would destroy each other's versions.
  if ((REPLICA == 0)); then
    start_timers
  fi
}

main() { # [publish | snapshot]
  read_instance
  NODE_NAME=$(setting name)
  NODE_ADDRESS=$(setting networkInterfaces.0.ip)
  CLUSTER=$(setting attributes.tpu-cluster-name)
  API_NAME="api.$CLUSTER.internal"
  API_ADDRESS=$(setting attributes.tpu-api-address)
  PUBLIC_ADDRESS=$(setting attributes.tpu-public-address '') # where people come from outside; nodes never do
  VERSION=$(setting attributes.tpu-kubernetes-version)
  PODS_CIDR=$(setting attributes.tpu-pods-cidr)
  SERVICES_CIDR=$(setting attributes.tpu-services-cidr)
  REPLICAS=$(setting attributes.tpu-replicas)
  REPLICA=$(setting attributes.tpu-replica)
  case ${1:-} in
  '') boot ;;
  publish | snapshot) "$1" ;;
  *) die "unknown command $1; write publish or snapshot, or nothing to boot" ;;
  esac
}

main "$@"
