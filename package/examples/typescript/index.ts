// The arguments are the keys of docs/configuration.md.
import * as tpu from "@pulumi/tpu-platform";

const platform = new tpu.Platform("platform", {
    name: "tpu-ts",
    zone: "us-east5-b",
    protect: false,
    cluster: { kind: "gke", release_channel: "RAPID" },
    slices: {
        serve: { machine_type: "ct6e-standard-1t", topology: "1x1", capacity: "spot", devices: "dra" },
    },
    queues: { team: { namespaces: ["team"], slices: { serve: 1 } } },
});

export const { cluster, kubeconfig, slices, queues, totals, program } = platform;
