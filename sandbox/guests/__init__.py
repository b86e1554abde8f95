"""What runs in the emulated machines: control planes of self-managed clusters, and the nodes that join them.

Stands for the platform's startup scripts, and for the machines that run them. A machine here knows what a real one
could: its metadata, the rights of its service account, its disks, and what the network lets through. So a mistake in a
stack's metadata, IAM bindings, secrets or firewalls has the same effect as on Google Cloud, and the reason stands in
the machine's serial port (`gcloud compute instances get-serial-port-output`; here `getSerialPortOutput` of the
emulated API).

Different from real machines: no script runs, and nothing is installed. A machine that has a `startup-script` and a
`tpu-role` among its attributes does what the platform's script of that role does; any other does nothing. Images with
a bootstrap of their own are not simulated. What the clusters are made of is in `sandbox.kubernetes.kubeadm`.

For whoever hosts an emulated cloud: `machines.VirtualMachines`, an implementation of `sandbox.google.guests.Guests`.
"""
