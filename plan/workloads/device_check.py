"""What a job runs that says nothing else: JAX counts its devices, and the job fails if one is missing."""

from plan.slices import SlicePlan


def device_check(plan: SlicePlan, slices: int) -> tuple[str, ...]:
    """The command. Its exit code is 1 in every process that does not see all devices of all `slices`."""
    wanted = slices * plan.chips * plan.generation.tensor_cores_as_devices
    several = slices > 1 or plan.multi_host
    lines = (
        "import jax",
        *(["jax.distributed.initialize()"] if several else []),
        "found = jax.device_count()",
        f"print(found, 'of {wanted} devices', flush=True)",
        f"raise SystemExit(0 if found == {wanted} else 1)",
    )
    return ("python", "-c", "\n".join(lines))
