# shellcheck shell=bash
# Last part of a node's boot script. It runs at every boot, joins the cluster once, and waits as
# long as it takes for a join token: the control plane may come up after the nodes.

# Prints taints "key=value:Effect,key:Effect" as a YAML list. Values are strings, "1" and "true" too.
taint_list() { # TAINTS
  local taint taints=() items=()
  IFS=, read -ra taints <<<"$1"
  for taint in "${taints[@]}"; do
    local key_value="${taint%:*}" value=''
    [[ $key_value != *=* ]] || value="${key_value#*=}"
    items+=("{key: \"${key_value%%=*}\", value: \"$value\", effect: \"${taint##*:}\"}")
  done
  local IFS=,
  printf '[%s]' "${items[*]}"
}

# Every label that the kubelet registers with: the program's, and those that only the VM knows.
node_labels() {
  local labels zone group
  labels=$(setting attributes.tpu-node-labels)
  zone=$(setting zone)
  zone="${zone##*/}"
  group=$(setting attributes.created-by)
  printf '%s,cloud.google.com/gke-nodepool=%s' "$labels" "${group##*/}"
  printf ',topology.kubernetes.io/region=%s,topology.kubernetes.io/zone=%s' "${zone%-*}" "$zone"
}

join_configuration() {
  cat <<YAML
apiVersion: $KUBEADM_CONFIG_VERSION
kind: JoinConfiguration
$(discovery)
nodeRegistration:
  name: "$NODE_NAME"
  criSocket: $CRI_SOCKET
  taints: $(taint_list "$NODE_TAINTS")
  kubeletExtraArgs:
  - {name: cloud-provider, value: external}
  - {name: node-labels, value: "$NODE_LABELS"}
patches:
  directory: $KUBEADM_PATCHES
YAML
}

try_join() {
  read_join_secret "$JOIN_SECRET" || return 1
  [[ -z ${JOIN[apiName]:-} ]] || point_api_name "${JOIN[apiName]}" "${JOIN[apiServer]%:*}"
  join_configuration | kubeadm_join
}

main() {
  read_instance
  if has_joined; then
    guard_metadata_server
    return
  fi
  NODE_NAME=$(setting name)
  NODE_LABELS=$(node_labels)
  NODE_TAINTS=$(setting attributes.tpu-node-taints '')
  JOIN_SECRET=$(setting attributes.tpu-join-secret)
  prepare_host
  local limit
  limit=$(setting attributes.tpu-join-seconds 86400)
  retry "$limit" try_join || die "no join within $limit seconds; the lines above say why"
  record_join
  log "joined as $NODE_NAME"
}

main
