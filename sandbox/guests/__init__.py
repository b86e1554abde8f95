"""What runs in the emulated machines: control planes of self-managed clusters, and the nodes that join them.

Stands for a program's startup scripts, and for the machines that run them. A machine here knows what a real one
could: its metadata, the rights of its service account, its disks, and what the network lets through. So a mistake in a
stack's metadata, IAM bindings, secrets or firewalls has the same effect as on Google Cloud, and the reason stands in
the machine's serial port (`gcloud compute instances get-serial-port-output`; here `getSerialPortOutput` of the
emulated API).

Different from real machines: no script runs, and nothing is installed. A machine that has a `startup-script` and a role
among its attributes (`attributes.py`; `sandbox.adapter.MachineNames` has the names) does what a script of that role is
expected to do: make a cluster with kubeadm and publish how to join it and how to reach it as versions of secrets, or
join. Any other machine does nothing. Images with a bootstrap of their own are not simulated. What the clusters are made
of is in `sandbox.kubernetes.kubeadm`.

For whoever hosts an emulated cloud: `machines.VirtualMachines`, an implementation of `sandbox.google.guests.Guests`.
"""
