"""Real hosts: Nodes behind which a kubelet and a containerd run containers, each in namespaces of its own."""
