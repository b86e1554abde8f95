"""VMs without GKE that run the boot scripts for real: systemd, apt, kubeadm, containerd and a kubelet in namespaces.

The scripts run as Google's agent runs them, with one change to their text: the fingerprints of the two keys that sign
packages, because nobody here has the other halves. What is real:

- systemd as process 1 of each VM: units, restarts after failures, timers, drop-ins, and the cgroups of pods.
- apt and dpkg with signed repositories, and a data disk with a file system of its own, on a loop device.
- kubeadm with its preflight checks, etcd and the control plane as static pods, a kubelet, kube-proxy, crictl, iptables.
- the network between VMs, the alias ranges of pods, and the load balancer's address, as routes.

What is not, and where it differs:

- The VM's file system is this machine's, with what the scripts write on top of it, instead of Ubuntu's. The kernel is
  this machine's too, so `modprobe` and `swapoff` only look (`image.py`); there is no udev and no serial console.
- Packages have the names and units of the real ones, and the toolchain's programs (`packages.py`). containerd is of
  the toolchain's version. conntrack, ethtool and socat are empty: nothing here calls them.
- Images lie in each VM's containerd under the names that kubeadm asks for; nothing is pulled (`containers.py`).
- Where this machine has cgroups of version 1, kubeadm is told to accept them, and so is the kubelet.
- Google is the sandbox's Secret Manager, and a metadata server that knows just what is asked (`outside.py`).

What does not run: CoreDNS (no plugin for it is built, and no node is initialised by a cloud controller), replicas of
a control plane besides the first, snapshots (etcdctl is a Go module of its own), the guest agent's routes, shutdown
before a spot VM ends (it needs logind), and the second rule that guards the metadata server, where the kernel does not
know its match.
"""
