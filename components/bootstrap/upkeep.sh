# shellcheck shell=bash
# Fifth part of the control plane's boot script: what is done regularly besides publishing.

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
