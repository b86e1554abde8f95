# shellcheck shell=bash
# Fourth part of the control plane's boot script: what hosts, replicas and people need to come in, in Secret Manager.

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

# A VM that is remade under its name must not take over the labels and taints of the one before it: a node may delete
# itself. That it can delete no other one is up to NodeRestriction, which kubeadm switches on.
let_nodes_forget() {
  kubectl apply --filename - >/dev/null <<'YAML'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "tpu-platform:own-node"}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "tpu-platform:own-node"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "tpu-platform:own-node"}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}
YAML
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

# Once per certificate authority and signing key: a new version would have every client of the platform look again.
publish_endpoint() {
  local secret payload keys
  secret=$(setting attributes.tpu-endpoint-secret)
  # The public keys that verify tokens of service accounts: with them Google knows the cluster's pods.
  keys=$(kubectl get --raw /openid/v1/jwks | base64 --wrap=0)
  payload=$(printf '{"server": "https://%s:%s", "ca": "%s", "jwks": "%s"}' \
    "${PUBLIC_ADDRESS:-$API_ADDRESS}" "$API_PORT" "$(base64 --wrap=0 "$PKI/ca.crt")" "$keys")
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
  # After a boot the timer is there before the API server: a run that failed would be tried again after a minute only.
  retry 600 api_server_answers || die 'the API server is not ready: nothing is published'
  let_nodes_forget
  mint_join_token
  publish_join
  publish_access
  publish_endpoint
  if ((REPLICAS > 1)); then
    publish_peers
  fi
}
