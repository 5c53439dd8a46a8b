"""Build the GPU driver from the operator's settings: on real GPUs or a mock machine, with the host's resources."""

import drakit
from drakit import vfio
from drakit.vfio import kernel
from drakit_gpu import cdi, driver, driver_root, port, share_policy, vfio_form
from drakit_gpu.health import faults
from drakit_gpu.inventory import discovery
from drakit_gpu.mig import markers
from drakit_gpu.mock import mock_gpus
from drakit_gpu.options import GpuOptions
from drakit_gpu.sharing.mps import pod_daemons

_DAEMONS = "mps"
_MARKERS = "instances"


def assemble(options: GpuOptions, site: drakit.Site) -> driver.GpuDriver:
    """Return the driver; raises SettingsError for contradicting settings. Real GPUs are opened by the first call that needs them.

    A mock machine has a driver root of empty files, and no device nodes are created for it. Only a mock machine offers an Ampere GPU in MIG mode as
    a whole too: CUDA sees no whole GPU while the mode is on.
    """
    if options.mig_layouts and options.share_mig:
        raise drakit.SettingsError(
            "fixed partitions have no counters, which a shared form needs beside the exclusive one; remove gpu.share_mig or gpu.mig_layouts",
            key="gpu.mig_layouts",
        )
    terms = share_policy.SharePolicy(memory=options.share_memory, number=options.shares, partitions=options.share_mig)
    whole_beside = False
    if site.machine is None:
        root = driver_root.DriverRoot(path=options.driver_root, on_host=options.driver_root_on_host, folders=options.library_folders)
        hardware: port.GpuPort = _real_gpus(options, root)
        bus: vfio.Bus = kernel.KernelBus(options.kernel_root, dev_root=options.dev_root)
    else:
        mocked = mock_gpus.MockGpus(site.machine)
        hardware, root, bus = mocked, mocked.driver_root(), mocked.bus
        whole_beside = mocked.whole_beside_partitions
    return driver.GpuDriver(
        hardware,
        name=site.driver_name,
        intents=site.intents,
        options=discovery.DiscoveryOptions(whole_beside_partitions=whole_beside, terms=terms, layouts=options.mig_layouts),
        health=faults.HealthPolicy(ignored=frozenset(options.ignored_xids), evicts=options.evict) if options.health else None,
        resources=driver.HostResources(
            files=cdi.DriverFiles(root, use_toolkit=options.toolkit),
            dev_root=options.dev_root if site.machine is None else None,
            passing=vfio_form.VfioForm(hardware, bus, is_offered=options.vfio, iommufd=options.vfio_nodes == "iommufd"),
            made=markers.MarkerStore(folder=site.home / _MARKERS),
            daemons=pod_daemons.PodDaemons(
                pods=None if options.mps_template is None else site.pods(options.mps_template),
                home=site.home / _DAEMONS,
                root=root,
                # A mock machine's daemons serve no CUDA program, and need no privilege.
                own_shm=site.machine is None,
            ),
        ),
    )


def _real_gpus(options: GpuOptions, root: driver_root.DriverRoot) -> port.GpuPort:
    try:
        from drakit_gpu import nvml  # noqa: PLC0415 - the binding is needed on nodes with real GPUs only
    except ImportError as error:
        fix = "install it (pip install nvidia-ml-py), or name a mock machine"
        raise drakit.SettingsError(f"real GPUs need the package nvidia-ml-py: {fix}", key="mock.machine") from error
    return nvml.NvmlGpus.open(options.library, root=root, kernel_root=options.kernel_root)
